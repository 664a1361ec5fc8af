"""Bodies of lite topics (5.5): the request of 200071, the answers to 200074 to 200078.

Pure data, any thread. Times in ms of the wall clock, -1: unknown.

Tested by tests/remoting/test_lite_frames.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from remoting.body.json_bean import JsonBean
from remoting.body.stats import OffsetWrapper, TopicOffset
from remoting.command_custom_header import Int32, Int64


class LiteSubscriptionAction(StrEnum):
    """What becomes of a client's lite topics."""

    PARTIAL_ADD = "PARTIAL_ADD"
    PARTIAL_REMOVE = "PARTIAL_REMOVE"
    COMPLETE_ADD = "COMPLETE_ADD"
    """These and no others."""
    COMPLETE_REMOVE = "COMPLETE_REMOVE"


class OffsetOptionType(StrEnum):
    """What the value of an OffsetOption is."""

    POLICY = "POLICY"
    OFFSET = "OFFSET"
    TAIL_N = "TAIL_N"
    TIMESTAMP = "TIMESTAMP"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetOption(JsonBean):
    """Where a subscription begins. Of a POLICY 0 is LAST (where the group stands), 1 MIN, 2 MAX."""

    type: OffsetOptionType = OffsetOptionType.POLICY
    value: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteSubscriptionDTO(JsonBean):
    """A change of one client's subscriptions; topic: the parent."""

    action: LiteSubscriptionAction | None = None
    client_id: str | None = None
    group: str | None = None
    topic: str | None = None
    lite_topic_set: list[str] | None = None
    offset_option: OffsetOption | None = None
    version: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteSubscriptionCtlRequestBody(JsonBean):
    """Request of 200071."""

    subscription_set: list[LiteSubscriptionDTO] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerLiteInfoResponseBody(JsonBean):
    """Answer to 200074. topic_meta: minutes until a lite topic ends, by parent; group_meta: the
    groups of each parent."""

    store_type: str | None = None
    max_lmq_num: Int32 = 0
    current_lmq_num: Int32 = 0
    lite_subscription_count: Int32 = 0
    order_info_count: Int32 = 0
    cq_table_size: Int32 = 0
    offset_table_size: Int32 = 0
    event_map_size: Int32 = 0
    topic_meta: dict[str, Int32] = field(default_factory=dict)
    group_meta: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetParentTopicInfoResponseBody(JsonBean):
    """Answer to 200075. lmq_num: of the broker; lite_topic_count: of this parent."""

    topic: str | None = None
    ttl: Int32 = 0
    groups: list[str] = field(default_factory=list)
    lmq_num: Int32 = 0
    lite_topic_count: Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientGroup(JsonBean):
    """A subscriber; of a wildcard group the client is `*`."""

    client_id: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetLiteTopicInfoResponseBody(JsonBean):
    """Answer to 200076. sharding_to_broker: whether senders choose this broker for the name."""

    parent_topic: str | None = None
    lite_topic: str | None = None
    subscriber: list[ClientGroup] = field(default_factory=list)
    topic_offset: TopicOffset | None = None
    sharding_to_broker: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GetLiteClientInfoResponseBody(JsonBean):
    """Answer to 200077. lite_topic_set: full names of light queues. lite_topic_count -1: nobody
    knows the client."""

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    last_access_time: Int64 = -1
    last_consume_time: Int64 = 0
    lite_topic_count: Int32 = -1
    lite_topic_set: list[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteLagInfo(JsonBean):
    """What a group has not consumed of one lite topic."""

    lite_topic: str
    lag_count: Int64 = 0
    earliest_unconsumed_timestamp: Int64 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GetLiteGroupInfoResponseBody(JsonBean):
    """Answer to 200078: of one lite topic (with the wrapper), or of all (with the two lists)."""

    group: str | None = None
    parent_topic: str | None = None
    lite_topic: str | None = None
    earliest_unconsumed_timestamp: Int64 = -1
    total_lag_count: Int64 = 0
    lite_topic_offset_wrapper: OffsetWrapper | None = None
    lag_count_top_k: list[LiteLagInfo] | None = None
    lag_timestamp_top_k: list[LiteLagInfo] | None = None
