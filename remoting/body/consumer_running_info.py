"""A consumer's report about itself: bodies of 307 and 309. Pure data, any thread.

Created by clients; brokers relay the bytes, operators' tools read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from remoting.body.heartbeat import SubscriptionData
from remoting.body.json_bean import JsonBean
from remoting.body.message_queue import MessageQueue
from remoting.command_custom_header import Int32, Int64


class CMResult(StrEnum):
    """Result of the listener (Java: CMResult)."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessQueueInfo(JsonBean):
    """The consumer side of one queue; timestamps in milliseconds."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size_in_mi_b: Int32 = 0
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int32 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    droped: bool = False
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeStatus(JsonBean):
    """Rates of one topic; times in milliseconds."""

    WIRE_NAMES: ClassVar[Mapping[str, str]] = {
        "pull_rt": "pullRT",
        "pull_tps": "pullTPS",
        "consume_rt": "consumeRT",
        "consume_oktps": "consumeOKTPS",
        "consume_failed_tps": "consumeFailedTPS",
    }

    pull_rt: float = 0.0
    pull_tps: float = 0.0
    consume_rt: float = 0.0
    consume_oktps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRunningInfo(JsonBean):
    """Answer to GET_CONSUMER_RUNNING_INFO (307). user_consumer_info is 5.x only."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    jstack: str | None = None
    user_consumer_info: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeMessageDirectlyResult(JsonBean):
    """Answer to CONSUME_MESSAGE_DIRECTLY (309)."""

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: Int64 = 0
