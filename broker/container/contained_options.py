"""What a broker in a container is started with, and what two of them must not share.

Used by the container, at its start and for request 902; reads settings files, starts nothing. A
settings file is checked as bin/mqbroker checks it. As in RocketMQ the container's network settings
and name servers hold for all its brokers, whatever their files say; network settings that only a
broker's file has are in force here, since each broker has its own transport. metricsPort, if the
file has none, keeps its distance from listenPort, so that no two exporters meet:

    listenPort 10911 -> metricsPort 5557, 10921 -> 5567, 20911 -> 15557; 0 or below 6378 -> any
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.broker_startup import PROGRAM_DEFAULTS, check_settings
from broker.container.broker_identity import BrokerIdentity
from broker.container.container_startup import ContainerOptions
from broker.settings.startup_options import StartupOptions
from broker.supervisor.listening_sockets import VIP_DISTANCE
from conf.errors import ConfigError, StartupExitError
from conf.setting import Setting
from conf.settings_file import read_settings_file

METRICS_DISTANCE: Final = 10911 - 5557
_LEAST_METRICS_PORT: Final = 1024
_EVERYWHERE: Final = "0.0.0.0"
_REPLICA_KEYS: Final = ("totalReplicas", "inSyncReplicas", "minInSyncReplicas")


class BrokerSettingsError(Exception):
    """A broker cannot be started with its settings; the text, with RocketMQ's words where it has
    them, says what is wrong and where."""


class UnreadableSettingsError(BrokerSettingsError):
    """A broker's settings file cannot be read."""


@dataclass(frozen=True, slots=True)
class ContainedOptions:
    """The options of one broker in a container, and its identity there."""

    identity: BrokerIdentity
    options: StartupOptions


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that only one program of a host can have: `what` it is and whose."""

    owner: str
    key: str
    port: int = 0
    address: str = _EVERYWHERE
    directory: Path | None = None

    def conflicts_with(self, other: Claim) -> bool:
        """Whether both want the same port or the same directory."""
        if self.directory is not None:
            return self.directory == other.directory
        return (
            self.port == other.port != 0
            and other.directory is None
            and (self.address == other.address or _EVERYWHERE in (self.address, other.address))
        )

    def __str__(self) -> str:
        return f"{self.key} = {self.directory or self.port}"


def load_contained_options(
    path: Path, container: ContainerOptions, namesrv_addr: str, environment: Mapping[str, str]
) -> ContainedOptions:
    """The options of the broker whose settings file is at `path`.

    namesrv_addr: the name servers of the container's brokers, separated by ';'. Raises
    BrokerSettingsError.
    """
    try:
        file = read_settings_file(path)
    except ConfigError as error:
        raise UnreadableSettingsError(str(error)) from error
    try:
        _check_slave(file)
        _check_replicas(file)
        forced = [
            *container.transport,
            Setting("namesrvAddr", namesrv_addr, "broker container"),
            Setting("embeddedNamesrvEnable", "false", "broker container"),
        ]
        options = check_settings(
            environment,
            path,
            file,
            defaults={**PROGRAM_DEFAULTS, **container.fallbacks, **_metrics_port(file)},
            command_line=forced,
        )
    except ConfigError as error:
        raise BrokerSettingsError(str(error)) from error
    except StartupExitError as error:
        raise BrokerSettingsError(f"{path}: {error.text}") from error
    warnings = (*_overruled(file, forced), *options.warnings)
    broker = options.broker
    identity = BrokerIdentity(broker.broker_cluster_name, broker.broker_name, broker.broker_id)
    return ContainedOptions(identity, dataclasses.replace(options, warnings=warnings))


def _metrics_port(file: Sequence[Setting]) -> dict[str, str]:
    """The program default of metricsPort; a listenPort that is no number is refused elsewhere."""
    texts = {setting.key: setting.text for setting in file}
    text = texts.get("listenPort", PROGRAM_DEFAULTS["listenPort"])
    port = int(text) - METRICS_DISTANCE if text.isdecimal() else 0
    return {"metricsPort": str(port if port >= _LEAST_METRICS_PORT else 0)}


def _check_slave(file: Sequence[Setting]) -> None:
    """RocketMQ's words for a slave without an id of its own. Raises ConfigError."""
    given = {setting.key: setting for setting in file}
    role, broker_id = given.get("brokerRole"), given.get("brokerId")
    if role is not None and role.text == "SLAVE" and (broker_id is None or broker_id.text == "0"):
        place = role.source if broker_id is None else broker_id.source
        raise ConfigError([f"slave broker id must be > 0: {place}; set brokerId=1, 2, …"])


def _check_replicas(file: Sequence[Setting]) -> None:
    """RocketMQ's check of three numbers, of which this broker only uses inSyncReplicas: one that is
    given must not contradict the others. Raises ConfigError."""
    given = {setting.key: setting for setting in file if setting.key in _REPLICA_KEYS}
    numbers = [int(each.text) for each in given.values() if each.text.isdecimal()]
    if len(given) < 2 or len(numbers) < len(given):
        return
    in_order = [int(given[key].text) for key in _REPLICA_KEYS if key in given]
    if in_order != sorted(in_order, reverse=True):
        shown = ", ".join(f"{each.key} = {each.text}" for each in given.values())
        source = next(iter(given.values())).source
        raise ConfigError([f"invalid replicas number: {source}: {shown}"])


def _overruled(file: Sequence[Setting], forced: Sequence[Setting]) -> Iterable[str]:
    """A warning for each setting of the file that the container's takes the place of."""
    texts = {setting.key: setting.text for setting in forced}
    for setting in file:
        text = texts.get(setting.key, setting.text)
        if text != setting.text:
            yield (
                f"{setting.source}: {setting.key} = {setting.text} has no effect in a broker "
                f"container, whose own is {text or 'unset'}"
            )


def claims_of(contained: ContainedOptions) -> list[Claim]:
    """The ports and directories of a broker that no other broker may have."""
    options, owner = contained.options, contained.identity.canonical_name
    address = options.server.bind_address
    listen_port = options.server.listen_port
    exporter = options.supervisor.metrics_address or address
    return [
        Claim(owner, "listenPort", listen_port, address),
        Claim(owner, "listenPort - 2", max(listen_port - VIP_DISTANCE, 0), address),
        Claim(owner, "haListenPort", options.ha.ha_listen_port, address),
        Claim(owner, "metricsPort", options.supervisor.metrics_port, exporter),
        Claim(owner, "storePathRootDir", directory=options.store.root.resolve()),
        *(
            Claim(owner, "storePathCommitLog", directory=path.resolve())
            for path in options.store.log_directories
        ),
    ]


def container_claims(container: ContainerOptions) -> list[Claim]:
    """The ports of the container itself."""
    server = container.server
    address, owner = server.bind_address, "the broker container"
    namesrv_port = container.container.embedded_namesrv_port if container.embeds_namesrv else 0
    return [
        Claim(owner, "listenPort", server.listen_port, address),
        Claim(owner, "listenPort - 2", max(server.listen_port - VIP_DISTANCE, 0), address),
        Claim(owner, "embeddedNamesrvPort", namesrv_port, address),
    ]


def check_claims(contained: ContainedOptions, taken: Iterable[Claim]) -> None:
    """Raises BrokerSettingsError if the broker wants what another one has."""
    wanted = claims_of(contained)
    for other in taken:
        for claim in wanted:
            if claim.conflicts_with(other):
                raise BrokerSettingsError(
                    f"{claim.owner}: {claim} is already {other.key} of {other.owner}; each broker "
                    "of a container needs ports and directories of its own"
                )
