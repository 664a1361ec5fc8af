"""Headers of PULL_MESSAGE (11) and its 5.x twin LITE_PULL_MESSAGE (361).

Pure data, any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from remoting.command_custom_header import CommandCustomHeader, Int32, Int64, RpcRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessageRequestHeader(RpcRequestHeader):
    """Times in milliseconds, `queue_offset` and `commit_offset` are entry numbers of the queue.
    lite_topic (5.5): of the topic; its light queue is read."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    lite_topic: str | None = None


class ForbiddenType(IntEnum):
    """Why a pull is answered NO_PERMISSION (5.x)."""

    BROKER_FORBIDDEN = 1
    GROUP_FORBIDDEN = 2
    TOPIC_FORBIDDEN = 3
    BROADCASTING_DISABLE_FORBIDDEN = 4
    SUBSCRIPTION_FORBIDDEN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PullMessageResponseHeader(CommandCustomHeader):
    """Offsets are entry numbers of the queue. The last four are 5.x only."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None
