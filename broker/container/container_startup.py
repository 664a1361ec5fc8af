"""BrokerContainerStartup: turns the command line of mqbrokercontainer into validated settings.

Runs first in the container's process; starts nothing. RocketMQ's counterpart is
org.apache.rocketmq.container.BrokerContainerStartup: same flags, order of checks, messages and exit
codes; --auto is not RocketMQ's. The files of the brokers are read later (contained_options.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from broker.container.auto_brokers import prepare_auto_brokers
from broker.container.container_config import BrokerContainerConfig
from broker.container.core_pairs import count_pairs, usable_cores
from conf.command_line import (
    CONFIG_FILE,
    HELP,
    NAMESRV_ADDR,
    PRINT_ALL,
    PRINT_IMPORTANT,
    Option,
    cannot_start,
    config_file,
    parse_command_line,
    require_addresses,
    require_home,
    unused_variables,
)
from conf.config_fields import field_specs
from conf.config_loader import (
    KeySpace,
    LoadedSettings,
    build,
    describe,
    load_settings,
    require_readable,
)
from conf.errors import EXIT_BAD_SETTING, EXIT_OK, ConfigError, StartupExitError
from conf.file_permissions import FilePermissionConfig, exposure_warnings, parse_umask
from conf.ignored_keys import IGNORED_BROKER_KEYS, IGNORED_CONTAINER_KEYS
from conf.logging_setup import LoggingConfig
from conf.setting import Setting
from conf.tls_file import password_files, with_tls_file
from remoting.address_patterns import parse_patterns
from remoting.remoting_config import RemotingClientConfig, RemotingServerConfig
from remoting.tls_config import DEFAULT_TLS_CONFIG_FILE, TlsConfig
from remoting.tls_context import TlsSettingError, check_tls

PROGRAM: Final = "mqbrokercontainer"
BROKER_FILES: Final = Option(
    "b", "brokerConfigFiles", True, "The path of broker config files, split by ':'"
)
AUTO: Final = Option(
    "a", "auto", False, "Start a master for every two cores (autoBrokerCount, autoBrokerDirectory)"
)
OPTIONS: Final = (
    NAMESRV_ADDR,
    CONFIG_FILE,
    BROKER_FILES,
    AUTO,
    PRINT_ALL,
    PRINT_IMPORTANT,
    HELP,
)
PROGRAM_DEFAULTS: Final = {"listenPort": "10811"}
KEYS: Final = KeySpace(
    (
        BrokerContainerConfig,
        RemotingServerConfig,
        RemotingClientConfig,
        LoggingConfig,
        FilePermissionConfig,
        TlsConfig,
    ),
    IGNORED_BROKER_KEYS | IGNORED_CONTAINER_KEYS,
)
_TLS_KEYS: Final = KeySpace((TlsConfig,))
_TRANSPORT: Final = (RemotingServerConfig, RemotingClientConfig, TlsConfig)
_SEPARATOR: Final = ":"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOptions:
    """Everything that a container needs to start; `warnings` are logged once the log is open."""

    container: BrokerContainerConfig
    server: RemotingServerConfig
    client: RemotingClientConfig
    logging: LoggingConfig
    files: FilePermissionConfig = field(default_factory=FilePermissionConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    config_file: Path | None = None
    namesrv_addresses: tuple[str, ...] = ()
    broker_files: tuple[Path, ...] = ()
    transport: tuple[Setting, ...] = ()
    """Network settings that were given to the container: they hold for every broker in it."""
    fallbacks: Mapping[str, str] = field(default_factory=dict)
    """Settings of log files and permissions that hold for a broker whose own file has none."""
    warnings: tuple[str, ...] = ()

    @property
    def embeds_namesrv(self) -> bool:
        """Whether the container runs an embedded name server."""
        return self.container.embedded_namesrv_enable and not self.namesrv_addresses

    def settings(self, *, important_only: bool = False) -> dict[str, str]:
        """Every key with its text, in the order printed by -p; without TLS keys, one of which is a
        password."""
        parts = (self.container, self.server, self.client, self.logging, self.files)
        return describe(*parts, important_only=important_only)


def load_container_options(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> ContainerOptions:
    """Read command line, environment and file, with RocketMQ's order of checks.

    With --auto the settings files of brokers that are missing are written. Raises StartupExitError:
    the text to print and the exit code, also for -h, -p and -m.
    """
    given = parse_command_line(PROGRAM, arguments, OPTIONS)
    path, file = config_file(given)
    key = NAMESRV_ADDR.long
    try:
        loaded = load_settings(
            KEYS,
            defaults=PROGRAM_DEFAULTS,
            environment=environment,
            file=file,
            command_line=[Setting(key, given[key], "option -n")] if key in given else [],
        )
        loaded = with_tls_file(_TLS_KEYS, loaded, DEFAULT_TLS_CONFIG_FILE)
        options = _options(path, loaded, environment)
        tls_warnings = _validate(options, loaded.sources)
    except ConfigError as error:
        raise cannot_start(error) from error
    require_home(options.container.rocketmq_home)
    addresses = options.container.namesrv_addr or given.get(key)
    namesrv = () if addresses is None else require_addresses(addresses)
    if PRINT_ALL.long in given or PRINT_IMPORTANT.long in given:
        items = options.settings(important_only=PRINT_ALL.long not in given).items()
        raise StartupExitError(EXIT_OK, "\n".join(f"{key}={text}" for key, text in items))
    return dataclasses.replace(
        options,
        namesrv_addresses=namesrv,
        broker_files=_broker_files(given, options.container),
        warnings=(*options.warnings, *tls_warnings),
    )


def _options(
    path: Path | None, loaded: LoadedSettings, environment: Mapping[str, str]
) -> ContainerOptions:
    values, tls = loaded.values, build(TlsConfig, loaded.values)
    return ContainerOptions(
        container=build(BrokerContainerConfig, values),
        server=build(RemotingServerConfig, values),
        client=build(RemotingClientConfig, values),
        logging=build(LoggingConfig, values),
        files=build(FilePermissionConfig, values),
        tls=tls,
        config_file=path,
        transport=tuple(_transport_settings(loaded)),
        fallbacks={
            spec.key: values[spec.key]
            for cls in (LoggingConfig, FilePermissionConfig)
            for spec in field_specs(cls)
            if spec.key in values
        },
        warnings=(
            *unused_variables(environment),
            *loaded.warnings,
            *exposure_warnings([*password_files(loaded.sources), *tls.private_keys()]),
        ),
    )


def _transport_settings(loaded: LoadedSettings) -> list[Setting]:
    keys = {spec.key for cls in _TRANSPORT for spec in field_specs(cls)} - PROGRAM_DEFAULTS.keys()
    return [
        Setting(key, text, loaded.sources[key])
        for key, text in loaded.values.items()
        if key in keys
    ]


def _validate(options: ContainerOptions, sources: Mapping[str, str]) -> tuple[str, ...]:
    """Returns warnings. Raises ConfigError."""
    addresses = {
        "adminAllowedAddresses": options.container.admin_allowed_addresses,
        "registerAllowedAddresses": options.container.register_allowed_addresses,
    }
    require_readable(sources, addresses, parse_patterns)
    require_readable(sources, {"umask": options.files.umask}, parse_umask)
    try:
        return check_tls(options.tls, use_tls=options.client.use_tls)
    except TlsSettingError as error:
        raise ConfigError([str(error)]) from error


def _broker_files(given: Mapping[str, str], config: BrokerContainerConfig) -> tuple[Path, ...]:
    """-b, else brokerConfigPaths; or what --auto makes."""
    text = given.get(BROKER_FILES.long, config.broker_config_paths) or ""
    named = tuple(Path(item.strip()).absolute() for item in text.split(_SEPARATOR) if item.strip())
    if AUTO.long not in given:
        return named
    if named:
        raise StartupExitError(
            EXIT_BAD_SETTING,
            f"--auto chooses the brokers itself: remove it, or {BROKER_FILES.long} (-b) and "
            "brokerConfigPaths",
        )
    directory = Path(config.auto_broker_directory).expanduser().absolute()
    count = config.auto_broker_count or count_pairs(usable_cores())
    try:
        return tuple(prepare_auto_brokers(directory, count))
    except OSError as error:
        problem = f"autoBrokerDirectory = {directory}: {error.strerror}"
        raise cannot_start(ConfigError([problem])) from error
