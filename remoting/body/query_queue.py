"""Inspecting queues: bodies of 303 and 321. Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.heartbeat import SubscriptionData
from remoting.body.json_bean import JsonBean
from remoting.body.message_queue import MessageQueue
from remoting.command_custom_header import Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTimeSpan(JsonBean):
    """Times of one queue in milliseconds; the texts are yyyy-MM-dd#HH:mm:ss:SSS, local zone."""

    message_queue: MessageQueue
    min_time_stamp: Int64 = 0
    max_time_stamp: Int64 = 0
    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeTimeSpanBody(JsonBean):
    """Answer to QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeQueueData(JsonBean):
    """One entry of a consume queue; physic_size in bytes."""

    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeQueueResponseBody(JsonBean):
    """Answer to QUERY_CONSUME_QUEUE (321)."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
