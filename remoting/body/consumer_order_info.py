"""File config/consumerOrderInfo.json: what ordered pops have handed out. Pure data, any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderInfo(JsonBean):
    """The last ordered pop of a queue by a group (Java: ConsumerOrderInfoManager.OrderInfo).

    Times in ms of the wall clock. offset_list: the first queue offset, then the distances of the
    others to it. commit_offset_bit: bit i is set when message i was acknowledged. The two maps have
    queue offsets as keys: when a message is visible again (if it is not popTime + invisibleTime),
    and how often it was handed out before (if ever).
    """

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "attempt_id": "a",
        "commit_offset_bit": "cm",
        "invisible_time": "i",
        "last_consume_timestamp": "l",
        "offset_list": "o",
        "offset_consumed_count": "oc",
        "offset_next_visible_time": "ot",
    }

    pop_time: Int64 = 0
    invisible_time: Int64 | None = None
    offset_list: list[Int64] = field(default_factory=list)
    offset_next_visible_time: dict[Int64, Int64] | None = None
    offset_consumed_count: dict[Int64, Int32] | None = None
    last_consume_timestamp: Int64 = 0
    commit_offset_bit: Int64 = 0
    attempt_id: str | None = None

    @property
    def queue_offsets(self) -> list[int]:
        """The queue offsets of the messages."""
        if not self.offset_list:
            return []
        first = self.offset_list[0]
        return [first, *(first + distance for distance in self.offset_list[1:])]

    @property
    def open_offsets(self) -> list[int]:
        """Those that were not acknowledged."""
        bits = self.commit_offset_bit
        return [offset for index, offset in enumerate(self.queue_offsets) if not bits >> index & 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOrderInfoWrapper(JsonBean):
    """The whole file: by "topic@group", then by queue id."""

    table: dict[str, dict[Int32, OrderInfo]] = field(default_factory=dict)
