"""BrokerContainerConfig: the container's own settings, with RocketMQ's names where it has them.

Read by the container's process; filled by `conf.config_loader` at its start, replaced whole when
request 25 changes a key. Kin: org.apache.rocketmq.container.BrokerContainerConfig.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from broker.container.auto_brokers import NAMES
from broker.settings.broker_config import local_address
from conf.config_fields import NOW, computed, setting


def default_auto_directory() -> str:
    """~/brokercontainer"""
    return str(Path.home() / "brokercontainer")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContainerConfig:
    """The keys of BrokerContainerConfig that this container honours, and its own."""

    # fmt: off
    rocketmq_home: str | None = setting(None, "install directory", env="ROCKETMQ_HOME")
    namesrv_addr: str | None = setting(None,
        "name servers of every broker, as ip:port, separated by ';'",
        env="NAMESRV_ADDR", important=True)
    broker_container_ip: str = setting(computed(local_address, "this host's address"),
        "address of the container that its boot line shows",
        key="brokerContainerIP", important=True)
    broker_config_paths: str | None = setting(None,
        "settings files of the brokers that are started, separated by ':'")
    config_black_list: str = setting("configBlackList;brokerConfigPaths",
        "keys that request 25 must not change, separated by ';'")
    # Not of RocketMQ.
    admin_allowed_addresses: str = setting("127.0.0.0/8,::1",
        "where brokers may be added and removed, and settings changed, from: addresses, networks, "
        "10.1.*.*, 10.1.2.3-50, separated by commas", important=True)
    register_allowed_addresses: str = setting("",
        "of the embedded name server: peers that may register brokers at addresses other than "
        "their own, in the same syntax; * for everybody")
    embedded_namesrv_enable: bool = setting(True, "start a name server if none is configured")
    embedded_namesrv_port: int = setting(9876,
        "port of the embedded name server; 0: any free port", ge=0, le=65535)
    support_acting_master: bool = setting(False,
        "of the embedded name server: show an acting slave as its group's id 0 in routes")
    notify_min_broker_id_changed: bool = setting(False,
        "of the embedded name server: tell brokers when their group's smallest id changes")
    compile_modules: bool = setting(True,
        "in a checkout with a C compiler: compile modules for the next start, beside the brokers")
    process_hang_timeout_millis: int = setting(30_000,
        "an embedded name server without a heartbeat for this long is restarted",
        unit="ms", ge=1000)
    broker_cpu_pinning_enable: bool = setting(False,
        "each broker's processes stay on its own pair of cores; a change applies to brokers added "
        "after it", changeable=NOW)
    auto_broker_count: int = setting(0,
        "how many brokers --auto makes; 0: one for every two cores", ge=0, le=len(NAMES))
    auto_broker_directory: str = setting(computed(default_auto_directory, "~/brokercontainer"),
        "where --auto keeps its brokers' settings files and stores")
    # fmt: on
