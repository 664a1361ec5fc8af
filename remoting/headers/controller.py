"""Headers of the requests to a controller of 5.x: 1002, 1005, 1011; of RocksDB: 354, 355.

Pure data, any thread. Of mqadmin, for Java's; this broker refuses those to a controller.
"""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMetaDataResponseHeader(CommandCustomHeader):
    """Answer to CONTROLLER_GET_METADATA_INFO (1005). peers: id:address, separated by ";"."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    peers: str | None = None


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
class CheckRocksdbCqWriteProgressRequestHeader(CommandCustomHeader):
    """CHECK_ROCKSDB_CQ_WRITE_PROGRESS (354). check_store_time: ms since 1970; topic: "" for all."""

    topic: str
    check_store_time: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRocksDBConfigToJsonRequestHeader(CommandCustomHeader):
    """EXPORT_ROCKSDB_CONFIG_TO_JSON (355). config_type: names, separated by ";"."""

    config_type: str
