"""Headers of modes of 5.x that may be off: RocksDB, controller. Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRocksDBConfigToJsonRequestHeader(CommandCustomHeader):
    """EXPORT_ROCKSDB_CONFIG_TO_JSON (355). Names of tables, separated by ';'."""

    config_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyBrokerRoleChangedRequestHeader(CommandCustomHeader):
    """NOTIFY_BROKER_ROLE_CHANGED (1008): the master that a controller has elected."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None
