"""ControllerConfig: the settings of a controller, with RocketMQ's names and defaults.

Read by the controller's process; replaced whole when request 1009 changes a key. RocketMQ's keys of
its raft groups (controllerDLeger…, jRaft…) name who the controllers are: of a lone one its address
is taken, several need a store that they share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conf.config_fields import NOW, computed, setting

STORES: Final = ("embedded",)
_PEER: Final = re.compile(r"(?P<id>[^-\s;]+)-(?P<address>[^\s;]+:[0-9]{1,5})")
_ADDRESS: Final = re.compile(r"[^\s;]+:(?P<port>[0-9]{1,5})")
_SEVERAL: Final = (
    "they need a store that they share, and there is only the embedded one yet: name one "
    "controller, or run RocketMQ's"
)


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
        "where the groups are kept; embedded: a file of this controller, the only one")
    controller_store_path: str = setting(computed(default_store_path, "~/Controller"),
        "directory of the groups' file")
    controller_d_leger_group: str = setting("group1", "name shown by getControllerMetaData",
        key="controllerDLegerGroup")
    controller_d_leger_peers: str = setting("",
        "id-host:port of this controller; more than one need a shared store",
        key="controllerDLegerPeers")
    controller_d_leger_self_id: str = setting("n0", "id of this controller",
        key="controllerDLegerSelfId")
    j_raft_init_conf: str = setting("",
        "the controllers of RocketMQ's jRaft kind; more than one need a shared store",
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
        """host:port of the one controller in controllerDLegerPeers. Raises ValueError."""
        peers = [part.strip() for part in self.controller_d_leger_peers.split(";") if part.strip()]
        if not peers:
            return None
        if len(peers) > 1:
            raise ValueError(f"controllerDLegerPeers names {len(peers)} controllers; {_SEVERAL}")
        found = _PEER.fullmatch(peers[0])
        if found is None or found["id"] != self.self_id:
            raise ValueError(
                f"controllerDLegerPeers = {peers[0]:.100}: expected id-host:port, with "
                f"controllerDLegerSelfId ({self.self_id:.50}) as id"
            )
        return _checked("controllerDLegerPeers", found["address"])

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
            found.append(("jRaftInitConf", f"jRaftInitConf names several controllers; {_SEVERAL}"))
        return found
