"""What a member of a group is told by its settings. Immutable. Times in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

from broker.settings.broker_config import BrokerConfig
from broker.settings.controller_mode_config import ControllerModeConfig


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """RocketMQ's keys and defaults, but for `self_fence` and `request_timeout_ms`, which are ours.

    The safe mode is all_ack_in_sync_state_set with min_in_sync_replicas=2 (docs/failover.md).
    """

    cluster_name: str
    broker_name: str
    broker_address: str
    """host:port of the own service port."""
    all_ack_in_sync_state_set: bool = False
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    async_learner: bool = False
    self_fence: bool = False
    """A master that no controller has confirmed for one heartbeat timeout refuses puts."""
    controller_heartbeat_timeout_ms: int = 10_000
    sync_broker_metadata_period_ms: int = 5_000
    check_sync_state_set_period_ms: int = 5_000
    ha_max_time_slave_not_catchup_ms: int = 15_000
    election_priority: int = 2_147_483_647
    """Of equally complete candidates the smallest is elected."""
    request_timeout_ms: int = 3_000


def member_settings(
    config: ControllerModeConfig,
    broker: BrokerConfig,
    *,
    broker_address: str,
    in_sync_replicas: int,
    request_timeout_ms: int,
) -> MemberSettings:
    """What a settings file says to the member. in_sync_replicas: of HaConfig."""
    return MemberSettings(
        cluster_name=broker.broker_cluster_name,
        broker_name=broker.broker_name,
        broker_address=broker_address,
        all_ack_in_sync_state_set=config.all_ack_in_sync_state_set,
        in_sync_replicas=in_sync_replicas,
        min_in_sync_replicas=config.min_in_sync_replicas,
        async_learner=config.async_learner,
        self_fence=config.self_fence_enable,
        controller_heartbeat_timeout_ms=config.controller_heart_beat_timeout_mills,
        sync_broker_metadata_period_ms=config.sync_broker_metadata_period,
        check_sync_state_set_period_ms=config.check_sync_state_set_period,
        ha_max_time_slave_not_catchup_ms=config.ha_max_time_slave_not_catchup,
        election_priority=config.broker_election_priority,
        request_timeout_ms=request_timeout_ms,
    )
