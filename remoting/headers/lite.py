"""Headers of lite topics (5.5): 200070, 200073 to 200079; 200071 and 200074 have none.

Pure data, any thread. Times in milliseconds. The codes do not fit the ROCKETMQ header's int16, so
peers send these with JSON headers.

Tested by tests/remoting/test_lite_frames.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int32, Int64, RpcRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class PopLiteMessageRequestHeader(RpcRequestHeader):
    """Request of 200070; topic: the parent. born_time: absent or 0 means now."""

    client_id: str
    consumer_group: str
    topic: str
    max_msg_num: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64 = 0
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PopLiteMessageResponseHeader(CommandCustomHeader):
    """Answer to 200070. order_count_info: an item for each message, joined by ";": how often it was
    handed out before."""

    invisible_time: Int64
    order_count_info: str
    pop_time: Int64
    revive_qid: Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyUnsubscribeLiteRequestHeader(RpcRequestHeader):
    """Request of 200073, oneway, broker to client: another client took this lite topic over."""

    client_id: str
    lite_topic: str
    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetParentTopicInfoRequestHeader(RpcRequestHeader):
    """Request of 200075."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetLiteTopicInfoRequestHeader(RpcRequestHeader):
    """Request of 200076."""

    parent_topic: str | None = None
    lite_topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetLiteClientInfoRequestHeader(RpcRequestHeader):
    """Request of 200077. max_count: of lite topics in the answer."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    max_count: Int32 = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class GetLiteGroupInfoRequestHeader(RpcRequestHeader):
    """Request of 200078. top_k: rows of each list in the answer."""

    group: str
    lite_topic: str | None = None
    top_k: Int32 = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLiteDispatchRequestHeader(RpcRequestHeader):
    """Request of 200079. Without a client: all of the group's."""

    group: str
    client_id: str | None = None
