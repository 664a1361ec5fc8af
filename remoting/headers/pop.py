"""Headers of pop consumption: 200050 to 200055.

Pure data, any thread. Times in milliseconds. The codes do not fit the ROCKETMQ header's int16, so
peers send these with JSON headers.
"""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int32, Int64, RpcRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class PopMessageRequestHeader(RpcRequestHeader):
    """Request of 200050. queue_id -1: any queue; init_mode 0: a new group begins at the oldest
    message, 1: at the newest. born_time: absent or 0 means now."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64 = 0
    born_time: Int64 = 0
    init_mode: Int32 = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PopMessageResponseHeader(CommandCustomHeader):
    """Answer to 200050 and 200052; the lists are described in extra_info_util."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekMessageRequestHeader(RpcRequestHeader):
    """Request of 200052."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AckMessageRequestHeader(RpcRequestHeader):
    """Request of 200051; extra_info is the message's handle. lite_topic (5.5): the message is in
    this lite topic of the topic, and offset in its light queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    lite_topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeInvisibleTimeRequestHeader(RpcRequestHeader):
    """Request of 200053: the message shall be invisible for `invisible_time` from now on.
    lite_topic (5.5): as of an ack. suspend (5.5): it was not tried, and what comes again is no
    further attempt; of a lite topic all that was handed out with it."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    lite_topic: str | None = None
    suspend: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeInvisibleTimeResponseHeader(CommandCustomHeader):
    """Answer to 200053: parts of the message's new handle."""

    invisible_time: Int64
    pop_time: Int64
    revive_qid: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationRequestHeader(RpcRequestHeader):
    """Request of 200054: whether there is something to pop. exp_type, exp (5.5): what of it.
    is_lite_consumer, client_id (5.5.1): of a consumer of lite topics."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64 = 0
    born_time: Int64 = 0
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None
    is_lite_consumer: bool = False
    client_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationResponseHeader(CommandCustomHeader):
    """Answer to 200054."""

    has_msg: bool
    polling_full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingInfoRequestHeader(RpcRequestHeader):
    """Request of 200055."""

    consumer_group: str
    topic: str
    queue_id: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingInfoResponseHeader(CommandCustomHeader):
    """Answer to 200055: how many wait for the queue."""

    polling_num: Int32
