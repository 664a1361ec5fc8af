"""What a member of a group is told by its settings. Immutable. Times in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass


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
    request_timeout_ms: int = 3_000
