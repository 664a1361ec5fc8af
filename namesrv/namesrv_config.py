"""NamesrvConfig: the settings of the name server, with the original's names and defaults.

Read by the name server's process; filled by `conf.config_loader`, replaced whole when request 318
changes a key. Kin: org.apache.rocketmq.common.namesrv.NamesrvConfig.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


def default_kv_config_path() -> str:
    """~/namesrv/kvConfig.json"""
    return str(Path.home() / "namesrv" / "kvConfig.json")


def default_config_store_path() -> str:
    """~/namesrv/namesrv.properties"""
    return str(Path.home() / "namesrv" / "namesrv.properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """Keys of NamesrvConfig that this name server honours; times in ms."""

    rocketmq_home: str | None = field(
        default=None,
        metadata={"key": "rocketmqHome", "doc": "install directory", "env": "ROCKETMQ_HOME"},
    )
    kv_config_path: str = field(
        default_factory=default_kv_config_path,
        metadata={"key": "kvConfigPath", "doc": "file of the key-value table"},
    )
    config_store_path: str = field(
        default_factory=default_config_store_path,
        metadata={
            "key": "configStorePath",
            "doc": "file that request 318 saves to; the -c file when there is one",
        },
    )
    order_message_enable: bool = field(
        default=False,
        metadata={
            "key": "orderMessageEnable",
            "doc": "put the order configuration of a topic into its route",
        },
    )
    scan_not_active_broker_interval: int = field(
        default=10000,
        metadata={
            "key": "scanNotActiveBrokerInterval",
            "doc": "pause between two looks for silent brokers (key of 5.x)",
            "unit": "ms",
            "min": 1,
        },
    )
    admin_allowed_addresses: str = field(
        default="127.0.0.0/8,::1",
        metadata={
            "key": "adminAllowedAddresses",
            "doc": "where operators may change routes, KV table and settings from; addresses, "
            "networks, 10.1.*.*, 10.1.2.3-50, separated by commas (key of ours)",
        },
    )
    config_black_list: str = field(
        default="configBlackList;configStorePath;kvConfigPath",
        metadata={
            "key": "configBlackList",
            "doc": "keys that request 318 may not change, separated by ';'",
        },
    )
