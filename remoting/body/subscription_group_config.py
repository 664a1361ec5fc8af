"""Consumer group configuration: body of 200, 201, 225, file config/subscriptionGroup.json.

Pure data, any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from remoting.body.data_version import DataVersion
from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


class GroupRetryPolicyType(StrEnum):
    """Which of its policies a group follows; in Java's order."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialRetryPolicy(JsonBean):
    """Times in milliseconds: `initial`, multiplied each time, up to `max`."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomizedRetryPolicy(JsonBean):
    """next: milliseconds before each attempt, the last one for all further; by default those of the
    18 delay levels."""

    next: list[Int64] = field(
        default_factory=lambda: [
            *(1_000, 5_000, 10_000, 30_000),
            *(minutes * 60_000 for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRetryPolicy(JsonBean):
    """When a failed message comes again to gRPC clients (5.x). Followed by proxies; a broker keeps
    it."""

    type: GroupRetryPolicyType = GroupRetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleSubscriptionData(JsonBean):
    """A subscription that an operator gave a group (5.x)."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupConfig(JsonBean):
    """One consumer group; members behind which_broker_when_consume_slowly are 5.x only."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool | None = None
    consume_timeout_minute: Int32 | None = None
    group_retry_policy: GroupRetryPolicy | None = None
    group_sys_flag: Int32 | None = None
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupWrapper(JsonBean):
    """Body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201) and config/subscriptionGroup.json."""

    data_version: DataVersion = field(default_factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, Int32]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSubscriptionGroupListRequestBody(JsonBean):
    """Body of DELETE_SUBSCRIPTION_GROUP_LIST (5003, 5.5.1)."""

    group_name_list: list[str] = field(default_factory=list)
    clean_offset: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForbidden(JsonBean):
    """Body of the answer to UPDATE_AND_GET_GROUP_FORBIDDEN (353, 5.x)."""

    group: str
    topic: str
    readable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupList(JsonBean):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225, 5.x)."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)
