"""Resetting and inspecting offsets: bodies of 220-223, 308, and OFFSET_MOVED_EVENT.

Pure data, any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.json_bean import JsonBean
from remoting.body.message_queue import MessageQueue
from remoting.command_custom_header import Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetBody(JsonBean):
    """Body of RESET_CONSUMER_CLIENT_OFFSET (220), answer to 222."""

    offset_table: dict[MessageQueue, Int64] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueueForC(JsonBean):
    """A queue and its offset, in the form for clients written in C++."""

    topic: str
    broker_name: str
    queue_id: Int32
    offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetBodyForC(JsonBean):
    """Body of 220 for clients of language CPP."""

    offset_table: list[MessageQueueForC] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerStatusBody(JsonBean):
    """Answer to 221 (message_queue_table) and to 223 (consumer_table, by client id)."""

    message_queue_table: dict[MessageQueue, Int64] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, Int64]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCorrectionOffsetBody(JsonBean):
    """Answer to QUERY_CORRECTION_OFFSET (308): queue id to offset."""

    correction_offsets: dict[Int32, Int64] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetMovedEvent(JsonBean):
    """Body of a message in OFFSET_MOVED_EVENT."""

    consumer_group: str
    message_queue: MessageQueue
    offset_request: Int64 = 0
    offset_new: Int64 = 0
