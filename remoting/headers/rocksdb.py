"""Headers about what a Java broker keeps in RocksDB: 354, 355. Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRocksdbCqWriteProgressRequestHeader(CommandCustomHeader):
    """CHECK_ROCKSDB_CQ_WRITE_PROGRESS (354). check_store_time: ms since 1970; topic: "" for all."""

    topic: str
    check_store_time: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRocksDBConfigToJsonRequestHeader(CommandCustomHeader):
    """EXPORT_ROCKSDB_CONFIG_TO_JSON (355). config_type: names of tables, separated by ";"."""

    config_type: str
