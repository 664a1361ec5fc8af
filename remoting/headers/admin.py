"""Headers of operators' requests about groups, clients and statistics.

Pure data, any thread. Topic administration is in headers/topic.py.

Tested by tests/broker/admin/test_admin_reset_processor.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int32, Int64, RpcRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerConnectionListRequestHeader(CommandCustomHeader):
    """GET_CONSUMER_CONNECTION_LIST (203)."""

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetProducerConnectionListRequestHeader(CommandCustomHeader):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllSubscriptionGroupRequestHeader(CommandCustomHeader):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201): as that of 21 (headers/topic.py)."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAllSubscriptionGroupResponseHeader(CommandCustomHeader):
    """Answer to 201, to a peer that asked for a page: how many groups there are."""

    total_group_num: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSubscriptionGroupRequestHeader(CommandCustomHeader):
    """DELETE_SUBSCRIPTIONGROUP (207): remove_offset in 4.x, clean_offset in 5.x, same meaning."""

    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetSubscriptionGroupConfigRequestHeader(CommandCustomHeader):
    """GET_SUBSCRIPTIONGROUP_CONFIG (352, 5.x)."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateGroupForbiddenRequestHeader(RpcRequestHeader):
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353, 5.x); without `readable` nothing is changed."""

    group: str
    topic: str
    readable: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumeStatsRequestHeader(CommandCustomHeader):
    """GET_CONSUME_STATS (208); without topic all topics of the group. topic_list (5.x): names, each
    with a semicolon behind it, instead of a topic."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumeStatsInBrokerHeader(CommandCustomHeader):
    """GET_BROKER_CONSUME_STATS (317)."""

    is_order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOffsetRequestHeader(CommandCustomHeader):
    """INVOKE_BROKER_TO_RESET_OFFSET (222) and, to clients, RESET_CONSUMER_CLIENT_OFFSET (220).

    timestamp in milliseconds, -1 for the end; queue_id and offset are 5.x.
    """

    topic: str
    group: str
    timestamp: Int64
    is_force: bool
    queue_id: Int32 | None = None
    offset: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerStatusRequestHeader(CommandCustomHeader):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223) and, to clients, 221."""

    topic: str
    group: str
    client_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerRunningInfoRequestHeader(CommandCustomHeader):
    """GET_CONSUMER_RUNNING_INFO (307)."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeMessageDirectlyRequestHeader(CommandCustomHeader):
    """CONSUME_MESSAGE_DIRECTLY (309)."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryCorrectionOffsetHeader(CommandCustomHeader):
    """QUERY_CORRECTION_OFFSET (308); filter_groups is a comma list."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneGroupOffsetRequestHeader(CommandCustomHeader):
    """CLONE_GROUP_OFFSET (314)."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBrokerStatsDataRequestHeader(CommandCustomHeader):
    """VIEW_BROKER_STATS_DATA (315)."""

    stats_name: str
    stats_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeQueueRequestHeader(CommandCustomHeader):
    """QUERY_CONSUME_QUEUE (321)."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTopicsByConsumerRequestHeader(CommandCustomHeader):
    """QUERY_TOPICS_BY_CONSUMER (343, 5.x)."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySubscriptionByConsumerRequestHeader(CommandCustomHeader):
    """QUERY_SUBSCRIPTION_BY_CONSUMER (345, 5.x)."""

    group: str
    topic: str | None = None
