"""Offset tables: bodies of 43 and 45, files consumerOffset.json and delayOffset.json.

Pure data, any thread. Queue ids and delay levels are bare integer keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.data_version import DataVersion
from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOffsetSerializeWrapper(JsonBean):
    """ "topic@group" to queue id to consumed queue offset. data_version is 5.x only;
    lmq_offset_table, of brokers with light queues: "topic@group" to offset; pull_offset_table, of
    5.5.1: as offset_table, behind what was given to the group last."""

    offset_table: dict[str, dict[Int32, Int64]] = field(default_factory=dict)
    lmq_offset_table: dict[str, Int64] | None = None
    data_version: DataVersion | None = None
    pull_offset_table: dict[str, dict[Int32, Int64]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayOffsetSerializeWrapper(JsonBean):
    """Delay level to the queue offset of the next message to examine. data_version is 5.x only."""

    offset_table: dict[Int32, Int64] = field(default_factory=dict)
    data_version: DataVersion | None = None
