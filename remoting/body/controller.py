"""Bodies of the answers of a controller of 5.x, and of brokers that have one: 1002, 1006, 1007; of
354.

Pure data, any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.broker_member_group import BrokerMemberGroup
from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectMasterResponseBody(JsonBean):
    """Answer to CONTROLLER_ELECT_MASTER (1002). Without the group if the master stays (2011)."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[Int64] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaIdentity(JsonBean):
    """A broker of a group."""

    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    alive: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasInfo(JsonBean):
    """The brokers of a group, as their controller sees them."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReplicasInfo(JsonBean):
    """Answer to CONTROLLER_GET_SYNC_STATE_DATA (1006): by broker name."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEntry(JsonBean):
    """The part of a log that one master wrote; offsets in bytes of the commit log."""

    epoch: Int32 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEntryCache(JsonBean):
    """Answer to GET_BROKER_EPOCH_CACHE (1007). max_offset: the end of the last entry."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 = 0
    epoch_list: list[EpochEntry] = field(default_factory=list)
    max_offset: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRocksdbCqWriteResult(JsonBean):
    """Answer to CHECK_ROCKSDB_CQ_WRITE_PROGRESS (354). check_status 3: an error."""

    check_result: str | None = None
    check_status: Int32 = 0
