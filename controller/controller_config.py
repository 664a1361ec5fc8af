"""ControllerConfig: the settings of a controller, with RocketMQ's names and defaults.

Read by the controller's process; replaced whole when request 1009 changes a key. RocketMQ's keys of
its raft groups (controllerDLeger…, jRaft…) name who the controllers are: of this one its address is
taken, of all what 1005 shows; several need a store that they share (controller/etcd_config.py).

Tested by tests/controller/test_controller_startup.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conf.config_fields import NOW, computed, setting

EMBEDDED: Final = "embedded"
ETCD: Final = "etcd"
STORES: Final = (EMBEDDED, ETCD)
_PEER: Final = re.compile(r"(?P<id>[^-\s;]+)-(?P<address>[^\s;]+:[0-9]{1,5})")
_ADDRESS: Final = re.compile(r"[^\s;]+:(?P<port>[0-9]{1,5})")
_SEVERAL: Final = (
    "they need a store that they share: set controllerStore=etcd and etcdEndpoints "
    "(docs/failover.md), or name one controller"
)
_GROUP: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


def _checked(key: str, address: str) -> str:
    """host:port that brokers can come to. Raises ValueError."""
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found["port"]) < 65_536:
        raise ValueError(f"{key} = {address!a:.100}: expected host:port, a port of 1 to 65535")
    return address


def default_store_path() -> str:
    """~/Controller"""
    return str(Path.home() / "Controller")


def default_config_store_path() -> str:
    """~/controller/controller.properties"""
    return str(Path.home() / "controller" / "controller.properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The keys of ControllerConfig that this controller honours, and its own."""

    # fmt: off
    rocketmq_home: str | None = setting(None, "install directory", env="ROCKETMQ_HOME")
    config_store_path: str = setting(
        computed(default_config_store_path, "~/controller/controller.properties"),
        "file to which request 1009 saves; the -c file if there is one",
    )
    controller_store: str = setting("embedded",
        "where the groups are kept; embedded: a file of this controller, the only one; etcd: an "
        "etcd that several controllers share")
    controller_store_path: str = setting(computed(default_store_path, "~/Controller"),
        "directory of the groups' file")
    controller_d_leger_group: str = setting("group1",
        "name of the controllers, shown by getControllerMetaData; in etcd part of their keys",
        key="controllerDLegerGroup")
    controller_d_leger_peers: str = setting("",
        "id-host:port of each controller, separated by ';'; several need controllerStore=etcd",
        key="controllerDLegerPeers")
    controller_d_leger_self_id: str = setting("n0", "id of this controller",
        key="controllerDLegerSelfId")
    j_raft_init_conf: str = setting("",
        "the controllers of RocketMQ's jRaft kind; several are named in controllerDLegerPeers here",
        key="jRaftInitConf")
    controller_self_address: str = setting("",
        "host:port that brokers are told to come to; unset: that of controllerDLegerPeers, or the "
        "one at which each of them asked")
    enable_elect_unclean_master: bool = setting(False,
        "as the last resort elect a broker that may lack messages", changeable=NOW)
    notify_broker_role_changed: bool = setting(True,
        "tell the brokers of a group (1008) when its master changes", changeable=NOW)
    elect_on_channel_closed: bool = setting(True,
        "take a closed connection of a master for its death at once, as RocketMQ does; false: only "
        "silence is", changeable=NOW)
    scan_inactive_master_interval: int = setting(5_000,
        "pause between scans for groups without a living master", unit="ms", ge=100,
        changeable=NOW)
    leader_warm_up_millis: int = setting(10_000,
        "so long after a start nobody is taken for dead whom this controller has not heard from; "
        "the brokers' controllerHeartBeatTimeoutMills", unit="ms", ge=500, changeable=NOW)
    max_broker_groups: int = setting(1_000,
        "most groups of brokers; an id for one more is refused", ge=1, changeable=NOW)
    admin_allowed_addresses: str = setting("127.0.0.0/8,::1",
        "from where masters may be designated, brokers cleaned away and settings changed: "
        "addresses, networks, 10.1.*.*, 10.1.2.3-50, separated by commas")
    register_allowed_addresses: str = setting("",
        "peers that may speak for brokers at addresses other than their own (NAT, containers, "
        "hosts with several addresses), in the same syntax; * for everybody, as in RocketMQ")
    metrics_port: int = setting(-1,
        "port of /metrics, /healthz and /readyz; 0: any free port, -1: none", ge=-1, le=65_535)
    metrics_address: str | None = setting(None,
        "address on which metricsPort listens; unset: bindAddress")
    config_black_list: str = setting("configBlackList;configStorePath;controllerStorePath",
        "keys that request 1009 must not change, separated by ';'")
    # fmt: on

    @property
    def self_id(self) -> str:
        """This controller's id."""
        return self.controller_d_leger_self_id

    @property
    def address(self) -> str | None:
        """host:port that brokers are told to come to; None: where they asked. Raises ValueError."""
        peer = self.peer_address
        if self.controller_self_address:
            return _checked("controllerSelfAddress", self.controller_self_address)
        return peer

    @property
    def peer_address(self) -> str | None:
        """host:port of this controller in controllerDLegerPeers. Raises ValueError."""
        peers = self.peers()
        if not peers:
            return None
        if len(peers) > 1 and self.controller_store == EMBEDDED:
            raise ValueError(f"controllerDLegerPeers names {len(peers)} controllers; {_SEVERAL}")
        if self.self_id not in peers:
            raise ValueError(
                f"controllerDLegerPeers = {self.controller_d_leger_peers:.100}: none of them is "
                f"controllerDLegerSelfId ({self.self_id:.50})"
            )
        return peers[self.self_id]

    def peers(self) -> dict[str, str]:
        """host:port of each controller in controllerDLegerPeers, by id. Raises ValueError."""
        peers: dict[str, str] = {}
        for part in self.controller_d_leger_peers.split(";"):
            text = part.strip()
            if not text:
                continue
            found = _PEER.fullmatch(text)
            if found is None:
                raise ValueError(
                    f"controllerDLegerPeers = {text:.100}: expected id-host:port, with "
                    f"controllerDLegerSelfId ({self.self_id:.50}) as this one's id"
                )
            address = _checked("controllerDLegerPeers", found["address"])
            if found["id"] in peers or address in peers.values():
                raise ValueError(
                    f"controllerDLegerPeers names {text:.100} twice, its id or address"
                )
            peers[found["id"]] = address
        return peers

    @property
    def peers_text(self) -> str:
        """controllerDLegerPeers as 1005 shows it. Raises ValueError."""
        return "".join(f"{name}:{address};" for name, address in self.peers().items())

    def problems(self) -> list[tuple[str, str]]:
        """Key and reason of each setting with which the controller must not start."""
        found = []
        if self.controller_store not in STORES:
            known = " or ".join(STORES)
            text = f"controllerStore = {self.controller_store!a:.60} is not known; {known}"
            found.append(("controllerStore", text))
        try:
            _ = self.address
        except ValueError as error:
            found.append((str(error).partition(" ")[0], str(error)))
        if len(re.split("[,;]", self.j_raft_init_conf.strip(",; "))) > 1:
            text = (
                "jRaftInitConf names several controllers: name them in controllerDLegerPeers, with "
                "controllerStore=etcd (docs/failover.md)"
            )
            found.append(("jRaftInitConf", text))
        if self.controller_store == ETCD and not found:
            found += self._etcd_problems()
        return found

    def _etcd_problems(self) -> list[tuple[str, str]]:
        found = []
        if self.address is None:
            text = (
                "controllerStore=etcd needs the address that brokers come to, as other controllers "
                "name it: set controllerDLegerPeers, or controllerSelfAddress"
            )
            found.append(("controllerStore", text))
        if not _GROUP.fullmatch(self.controller_d_leger_group):
            text = (
                f"controllerDLegerGroup = {self.controller_d_leger_group!a:.100}: in etcd it is "
                "part of keys: letters, digits, '.', '_' and '-', 100 at most"
            )
            found.append(("controllerDLegerGroup", text))
        return found
