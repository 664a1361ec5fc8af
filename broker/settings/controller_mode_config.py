"""ControllerModeConfig: the settings of a member of a group with a controller, as in RocketMQ 5.

Plain data with RocketMQ's names and defaults, read in process `remoting`; what does not fit
together is found before the broker starts (`problems_of`). In RocketMQ these keys are spread over
BrokerConfig and MessageStoreConfig. brokerHeartbeatInterval is in BrokerConfig, inSyncReplicas in
HaConfig.

Tested by tests/broker/test_broker_startup.py.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conf.config_fields import setting

_ADDRESS: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?):(?P<port>[0-9]{1,5})",
    re.ASCII,
)
_MAX_PORT: Final = 65_535
_EXPECTED: Final = "expected host:port of each controller, separated by ';'"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerModeConfig:
    """Keys of controller mode (docs/failover.md). Without enableControllerMode none has an
    effect."""

    enable_controller_mode: bool = setting(
        False,
        "be a member of a group whose master a controller elects (docs/failover.md); role and id "
        "are the controller's to give",
    )
    controller_addr: str = setting(
        "", "the controllers as host:port, separated by ';'; a name is looked up at each connect"
    )
    fetch_controller_addr_by_dns_lookup: bool = setting(
        False, "use every address that the DNS has for the names in controllerAddr"
    )
    all_ack_in_sync_state_set: bool = setting(
        False,
        "SEND_OK waits for all of the SyncStateSet, and consumers read only what all have; with "
        "minInSyncReplicas=2 the safe mode",
    )
    min_in_sync_replicas: int = setting(
        1, "members that the SyncStateSet needs for sends to be taken, its master included", ge=1
    )
    async_learner: bool = setting(
        False, "replicate without ever belonging to the SyncStateSet: no SEND_OK waits for it"
    )
    sync_from_last_file: bool = setting(
        False, "a slave with an empty log begins at its master's newest commit log file"
    )
    ha_max_time_slave_not_catchup: int = setting(
        15_000,
        "a slave that has not caught up for this long leaves the SyncStateSet",
        unit="ms",
        ge=100,
    )
    check_sync_state_set_period: int = setting(
        5_000, "pause between two checks of the SyncStateSet by the master", unit="ms", ge=100
    )
    sync_broker_metadata_period: int = setting(
        5_000, "pause between two questions for the group's master and set", unit="ms", ge=100
    )
    sync_controller_metadata_period: int = setting(
        10_000,
        "pause between two questions for the controllers' leader; at once when it refuses or is "
        "silent",
        unit="ms",
        ge=100,
    )
    controller_heart_beat_timeout_mills: int = setting(
        10_000,
        "silence after which the controller takes this broker for dead",
        unit="ms",
        ge=500,
    )
    broker_election_priority: int = setting(
        2_147_483_647,
        "of equally complete candidates the smallest is elected",
        ge=0,
        le=2_147_483_647,
    )
    self_fence_enable: bool = setting(
        False,
        "a master that no controller has confirmed for controllerHeartBeatTimeoutMills refuses "
        "sends until one has",
    )
    store_path_epoch_file: str | None = setting(
        None, "file of the log's epochs; unset: <storePathRootDir>/epochFileCheckpoint"
    )
    store_path_broker_identity: str | None = setting(
        None, "file of the id in the group; unset: <storePathRootDir>/brokerIdentity"
    )

    @property
    def controllers(self) -> tuple[str, ...]:
        """The addresses in controllerAddr, without blanks and doubles. Raises ValueError that
        names the one that is none."""
        parts = [part.strip() for part in self.controller_addr.split(";")]
        return tuple(dict.fromkeys(map(_address_of, filter(None, parts))))

    def epoch_file(self, store_root: Path) -> Path:
        """Where the log's epochs are. store_root: the store's."""
        return Path(self.store_path_epoch_file or store_root / "epochFileCheckpoint").expanduser()

    def identity_file(self, store_root: Path) -> Path:
        """Where the id in the group is."""
        return Path(self.store_path_broker_identity or store_root / "brokerIdentity").expanduser()

    def _same_file(self, store_root: Path) -> bool:
        """Whether one of the files would be written over by the other, or by what is written beside
        it."""
        identity = os.path.realpath(self.identity_file(store_root))
        epochs = os.path.realpath(self.epoch_file(store_root))
        identities = {f"{identity}{end}" for end in ("", "-temp", "-temp.tmp", ".tmp")}
        lists = {f"{epochs}{end}" for end in ("", ".bak", ".bak.tmp", ".tmp")}
        return not identities.isdisjoint(lists)

    def problems_of(
        self,
        *,
        cluster_name: str,
        broker_name: str,
        heartbeat_interval_ms: int,
        store_root: Path,
    ) -> list[tuple[str, str]]:
        """Key and reason of each setting with which the broker must not start.

        heartbeat_interval_ms: brokerHeartbeatInterval.
        """
        found = []
        try:
            if not self.controllers and self.enable_controller_mode:
                found.append(("controllerAddr", f"enableControllerMode needs it; {_EXPECTED}"))
        except ValueError as error:
            found.append(("controllerAddr", str(error)))
        if self.enable_controller_mode:
            found += self._contradictions(heartbeat_interval_ms, store_root)
            found += _unwritable(brokerClusterName=cluster_name, brokerName=broker_name)
        return found

    def _contradictions(
        self, heartbeat_interval_ms: int, store_root: Path
    ) -> list[tuple[str, str]]:
        found = []
        timeout_ms = self.controller_heart_beat_timeout_mills
        if timeout_ms < 2 * heartbeat_interval_ms:
            found.append(
                (
                    "controllerHeartBeatTimeoutMills",
                    f"{timeout_ms} is less than twice brokerHeartbeatInterval "
                    f"({heartbeat_interval_ms}): one lost heartbeat would be this broker's death",
                )
            )
        if self._same_file(store_root):
            found.append(("storePathEpochFile", "storePathBrokerIdentity names the same file"))
        return found


def _address_of(part: str) -> str:
    """host:port, the port without leading zeroes. Raises ValueError."""
    match = _ADDRESS.fullmatch(part)
    if match is None or not 0 < int(match["port"]) <= _MAX_PORT:
        raise ValueError(f"{part[:100]!a}: {_EXPECTED}")
    host = match["host"]
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host.strip("[]"))
        except ValueError:
            raise ValueError(f"{part[:100]!a}: no IPv6 address; {_EXPECTED}") from None
    return f"{host}:{int(match['port'])}"


def _unwritable(**names: str) -> list[tuple[str, str]]:
    """A name with the separator of brokerIdentity would be read back as another one."""
    return [
        (key, f"{name[:100]!a} holds '#', which brokerIdentity cannot hold")
        for key, name in names.items()
        if "#" in name
    ]
