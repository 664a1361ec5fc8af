"""Consumer group configuration: body of 200, 201, 225, file config/subscriptionGroup.json.

Pure data, any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.data_version import DataVersion
from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


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
    group_sys_flag: Int32 | None = None
    attributes: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupWrapper(JsonBean):
    """Body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201) and config/subscriptionGroup.json."""

    data_version: DataVersion = field(default_factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, Int32]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionGroupList(JsonBean):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225, 5.x)."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)
