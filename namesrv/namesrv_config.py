"""NamesrvConfig: the settings of the name server, with RocketMQ's names and defaults.

Read by the name server's process; filled by `conf.config_loader`, replaced whole when request 318
changes a key. Kin: org.apache.rocketmq.common.namesrv.NamesrvConfig.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conf.config_fields import NOW, computed, setting

MAX_TOPICS: Final = 500_000
"""Default of registerMaxTopics: about 200 MB."""


def default_kv_config_path() -> str:
    """~/namesrv/kvConfig.json"""
    return str(Path.home() / "namesrv" / "kvConfig.json")


def default_config_store_path() -> str:
    """~/namesrv/namesrv.properties"""
    return str(Path.home() / "namesrv" / "namesrv.properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """The keys of NamesrvConfig that this name server honours."""

    # fmt: off
    rocketmq_home: str | None = setting(None, "install directory", env="ROCKETMQ_HOME")
    kv_config_path: str = setting(computed(default_kv_config_path, "~/namesrv/kvConfig.json"),
        "file of the key-value table")
    config_store_path: str = setting(
        computed(default_config_store_path, "~/namesrv/namesrv.properties"),
        "file to which request 318 saves; the -c file if there is one",
    )
    order_message_enable: bool = setting(False,
        "add a topic's order configuration to its route", changeable=NOW)
    scan_not_active_broker_interval: int = setting(10000,
        "pause between scans for silent brokers", unit="ms", ge=1, changeable=NOW)
    support_acting_master: bool = setting(False,
        "show the smallest slave of a group without a master as its id 0 in routes, if its brokers "
        "have enableSlaveActingMaster", changeable=NOW)
    notify_min_broker_id_changed: bool = setting(False,
        "tell the brokers of a group (905) when their smallest id changes", changeable=NOW)
    enable_controller_in_namesrv: bool = setting(False,
        "run a controller in this process, at the port in controllerDLegerPeers, 9877 without; its "
        "settings are in the same file (docs/failover.md)")
    admin_allowed_addresses: str = setting("127.0.0.0/8,::1",
        "where routes, key-value table and settings may be changed from: addresses, networks, "
        "10.1.*.*, 10.1.2.3-50, separated by commas")
    register_allowed_addresses: str = setting("",
        "peers that may register brokers at addresses other than their own (NAT, containers, hosts "
        "with several addresses), in the same syntax; * for everybody, as in RocketMQ")
    register_max_topics: int = setting(MAX_TOPICS,
        "most topics that all brokers together register, each counted once for every broker name; "
        "a registration beyond it is refused", ge=1)
    config_black_list: str = setting("configBlackList;configStorePath;kvConfigPath",
        "keys that request 318 must not change, separated by ';'")
    # fmt: on
