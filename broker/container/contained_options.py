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
from conf.logging_setup import log_directory
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

    @property
    def log_dir(self) -> Path:
        """The directory of its log files."""
        return log_directory(self.options.logging) / self.identity.canonical_name


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that only one program of a host can have: `what` it is and whose."""

    owner: str
    key: str
    port: int = 0
    address: str = _EVERYWHERE
    directory: Path | None = None
    is_closed: bool = False
    """Whether whatever is inside the directory, at any depth, is the owner's."""

    def conflicts_with(self, other: Claim) -> bool:
        """Whether both want the same port or the same directory, or one what is inside the
        other's."""
        if self.directory is not None and other.directory is not None:
            return (
                self.directory == other.directory
                or (self.is_closed and other.directory.is_relative_to(self.directory))
                or (other.is_closed and self.directory.is_relative_to(other.directory))
            )
        return self.port == other.port != 0 and (
            self.address == other.address or _EVERYWHERE in (self.address, other.address)
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
    file = _read(path)
    try:
        _check_controller_mode(file)
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
        place = "" if str(path) in error.text else f"{path}: "
        raise BrokerSettingsError(f"{place}{error.text}") from error
    warnings = (*_overruled(file, forced), *options.warnings)
    broker = options.broker
    identity = BrokerIdentity(broker.broker_cluster_name, broker.broker_name, broker.broker_id)
    _check_names(path, identity)
    return ContainedOptions(identity, dataclasses.replace(options, warnings=warnings))


def _read(path: Path) -> list[Setting]:
    """Raises UnreadableSettingsError. A pipe would hold a request thread of the container, and
    with it the container's stop, until somebody writes into it; a device may have no end."""
    try:
        if path.exists() and not path.is_file():
            raise UnreadableSettingsError(
                f"{path}: cannot read the settings file: not a regular file"
            )
        file = read_settings_file(path)
    except ConfigError as error:
        raise UnreadableSettingsError(str(error)) from error
    except (OSError, ValueError) as error:  # no right to look there; a NUL in the path
        raise UnreadableSettingsError(f"{str(path)!r}: {error}") from error
    for setting in file:
        if "\0" in setting.text:
            raise UnreadableSettingsError(f"{setting.source}: {setting.key} has a NUL character")
    return file


def _check_names(path: Path, identity: BrokerIdentity) -> None:
    """The identity names a directory of log files, in logDir and nowhere else. Raises
    BrokerSettingsError."""
    for key, name in (
        ("brokerClusterName", identity.cluster_name),
        ("brokerName", identity.broker_name),
    ):
        if "/" in name:
            raise BrokerSettingsError(
                f"{path}: {key} = {name}: a name with '/' cannot be used in a broker container, "
                "where it is part of the name of the directory of the log files"
            )


def _metrics_port(file: Sequence[Setting]) -> dict[str, str]:
    """The program default of metricsPort; a listenPort that is no number is refused elsewhere."""
    texts = {setting.key: setting.text for setting in file}
    text = texts.get("listenPort", PROGRAM_DEFAULTS["listenPort"])
    port = int(text) - METRICS_DISTANCE if text.isdecimal() else 0
    return {"metricsPort": str(port if port >= _LEAST_METRICS_PORT else 0)}


def _check_controller_mode(file: Sequence[Setting]) -> None:
    """A broker is known by its id in a container, and in controller mode gets it later. Raises
    ConfigError."""
    for setting in file:
        if setting.key == "enableControllerMode" and setting.text.strip().lower() == "true":
            raise ConfigError(
                [
                    f"{setting.source}: enableControllerMode is not available in a broker "
                    "container; start this broker with bin/mqbroker"
                ]
            )


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
    store = options.store
    address = options.server.bind_address
    listen_port = options.server.listen_port
    exporter = options.supervisor.metrics_address or address
    console_port = options.supervisor.console_port if options.supervisor.console_enable else 0
    return [
        Claim(owner, "listenPort", listen_port, address),
        Claim(owner, "listenPort - 2", max(listen_port - VIP_DISTANCE, 0), address),
        Claim(owner, "haListenPort", options.ha.ha_listen_port, address),
        Claim(owner, "metricsPort", options.supervisor.metrics_port, exporter),
        Claim(owner, "consolePort", console_port, "127.0.0.1"),
        Claim(owner, "storePathRootDir", directory=store.root.resolve()),
        *(
            Claim(owner, "storePathCommitLog", directory=path.resolve(), is_closed=True)
            for path in store.log_directories
        ),
        *(
            Claim(owner, f"storePathRootDir/{path.name}", directory=path.resolve(), is_closed=True)
            for path in (store.consume_queue_path, store.index_path, store.config_path)
        ),
        Claim(owner, "log directory", directory=contained.log_dir.resolve()),
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
                is_same = claim.directory == other.directory
                relation = (
                    f"is already {other.key}" if is_same else f"and {other} overlap, which is"
                )
                raise BrokerSettingsError(
                    f"{claim.owner}: {claim} {relation} of {other.owner}; each broker of a "
                    "container needs ports and directories of its own"
                )
