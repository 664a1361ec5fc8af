"""Headers between brokers and a controller of 5.x: 904, 1001 to 1005, 1008, 1011 to 1013.

Pure data, any thread. Fields are in the order of the Java classes. 1006, 1009 and 1010 have none.

Tested by tests/remoting/test_controller_frames.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int32, Int64
from remoting.headers.broker import BrokerHeartbeatRequestHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerHeartbeatRequestHeader(BrokerHeartbeatRequestHeader):
    """BROKER_HEARTBEAT (904) to a controller; Java has one class for both. confirm_offset and
    max_offset: bytes of the commit log; election_priority: the smaller one is preferred."""

    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSyncStateSetRequestHeader(CommandCustomHeader):
    """CONTROLLER_ALTER_SYNC_STATE_SET (1001); the wanted SyncStateSet is the body."""

    broker_name: str
    master_broker_id: Int64
    master_epoch: Int32
    invoke_time: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSyncStateSetResponseHeader(CommandCustomHeader):
    """Answer to CONTROLLER_ALTER_SYNC_STATE_SET (1001): 0 if it is refused."""

    new_sync_state_set_epoch: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerToControllerRequestHeader(CommandCustomHeader):
    """CONTROLLER_REGISTER_BROKER (1003)."""

    cluster_name: str
    broker_name: str
    broker_id: Int64
    broker_address: str
    invoke_time: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerToControllerResponseHeader(CommandCustomHeader):
    """Answer to CONTROLLER_REGISTER_BROKER (1003); the names alone if no master is alive."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetReplicaInfoRequestHeader(CommandCustomHeader):
    """CONTROLLER_GET_REPLICA_INFO (1004)."""

    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetReplicaInfoResponseHeader(CommandCustomHeader):
    """Answer to CONTROLLER_GET_REPLICA_INFO (1004); the epoch of the set is in the body."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMetaDataResponseHeader(CommandCustomHeader):
    """Answer to CONTROLLER_GET_METADATA_INFO (1005). peers: id:address, separated by ";"."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool | None = None
    peers: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetNextBrokerIdRequestHeader(CommandCustomHeader):
    """CONTROLLER_GET_NEXT_BROKER_ID (1012)."""

    cluster_name: str
    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetNextBrokerIdResponseHeader(CommandCustomHeader):
    """Answer to CONTROLLER_GET_NEXT_BROKER_ID (1012)."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyBrokerIdRequestHeader(CommandCustomHeader):
    """CONTROLLER_APPLY_BROKER_ID (1013). register_check_code: address;ms since 1970."""

    cluster_name: str
    broker_name: str
    applied_broker_id: Int64
    register_check_code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyBrokerIdResponseHeader(CommandCustomHeader):
    """Answer to CONTROLLER_APPLY_BROKER_ID (1013)."""

    cluster_name: str | None = None
    broker_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectMasterRequestHeader(CommandCustomHeader):
    """CONTROLLER_ELECT_MASTER (1002). designate_elect: an operator names the master."""

    cluster_name: str
    broker_name: str
    broker_id: Int64
    designate_elect: bool
    invoke_time: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectMasterResponseHeader(CommandCustomHeader):
    """Answer to CONTROLLER_ELECT_MASTER (1002)."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanControllerBrokerDataRequestHeader(CommandCustomHeader):
    """CLEAN_BROKER_DATA (1011). broker_controller_ids_to_clean: separated by ";", all without."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyBrokerRoleChangedRequestHeader(CommandCustomHeader):
    """NOTIFY_BROKER_ROLE_CHANGED (1008): the master that a controller has elected."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None
