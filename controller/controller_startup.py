"""ControllerStartup: turns the command line into validated settings; starts nothing.

Runs first in the controller's process. Kin: org.apache.rocketmq.controller.ControllerStartup: same
options, order and messages; -m is mqbroker's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from conf.command_line import (
    CONFIG_FILE,
    HELP,
    PRINT_ALL,
    cannot_start,
    config_file,
    parse_command_line,
    require_home,
    unused_variables,
)
from conf.config_loader import (
    KeySpace,
    build,
    describe,
    load_settings,
    require_readable,
    with_source,
)
from conf.errors import EXIT_OK, ConfigError, StartupExitError
from conf.file_permissions import FilePermissionConfig, exposure_warnings, parse_umask
from conf.ignored_keys import IGNORED_CONTROLLER_KEYS
from conf.logging_setup import LoggingConfig
from conf.tls_file import password_files, with_tls_file
from controller.controller_config import ETCD, ControllerConfig
from controller.etcd_config import EtcdConfig
from controller.etcd_login import make_context, read_login
from remoting.address_patterns import parse_patterns
from remoting.remoting_config import RemotingClientConfig, RemotingServerConfig
from remoting.tls_config import DEFAULT_TLS_CONFIG_FILE, TlsConfig
from remoting.tls_context import TlsSettingError, check_tls

PROGRAM: Final = "mqcontroller"
OPTIONS: Final = (CONFIG_FILE, PRINT_ALL, HELP)
PROGRAM_DEFAULTS: Final = {"listenPort": "9877"}
"""RocketMQ's is in controllerDLegerPeers; its examples have 9877."""
KEYS: Final = KeySpace(
    (
        ControllerConfig,
        EtcdConfig,
        RemotingServerConfig,
        RemotingClientConfig,
        LoggingConfig,
        FilePermissionConfig,
        TlsConfig,
    ),
    IGNORED_CONTROLLER_KEYS,
)
_TLS_KEYS: Final = KeySpace((TlsConfig,))


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Everything that a controller needs to start; `warnings` are logged once the log is open.

    `messages` are printed to stdout before the boot line ("load config properties file OK, FILE").
    """

    controller: ControllerConfig
    server: RemotingServerConfig
    client: RemotingClientConfig
    logging: LoggingConfig
    files: FilePermissionConfig = field(default_factory=FilePermissionConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    etcd: EtcdConfig = field(default_factory=EtcdConfig)
    messages: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def home(self) -> str | None:
        """The install directory."""
        return self.controller.rocketmq_home


def load_controller_options(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> ControllerOptions:
    """Reads command line, environment and file. Raises StartupExitError: the text to print and the
    exit code, also for -h and -p."""
    given = parse_command_line(PROGRAM, arguments, OPTIONS)
    path, file = config_file(given)
    try:
        loaded = load_settings(KEYS, defaults=PROGRAM_DEFAULTS, environment=environment, file=file)
        loaded = with_tls_file(_TLS_KEYS, loaded, DEFAULT_TLS_CONFIG_FILE)
        tls = build(TlsConfig, loaded.values)
        client = build(RemotingClientConfig, loaded.values)
        _validate_tls(tls, client)
        controller = build(ControllerConfig, loaded.values)
        etcd = build(EtcdConfig, loaded.values)
        files = build(FilePermissionConfig, loaded.values)
        _validate(controller, files, loaded.sources)
        etcd_warnings = _checked_etcd(controller, etcd, loaded.sources)
    except ConfigError as error:
        raise cannot_start(error) from error
    if path is not None:
        controller = dataclasses.replace(controller, config_store_path=str(path))
    server, port_warnings = _with_port(
        build(RemotingServerConfig, loaded.values), controller, loaded.sources
    )
    messages = (f"load config properties file OK, {given[CONFIG_FILE.long]}",) if path else ()
    if PRINT_ALL.long in given:
        items = describe(controller, etcd, server, client).items()
        raise StartupExitError(
            EXIT_OK, "\n".join([*messages, *(f"{key}={text}" for key, text in items)])
        )
    require_home(controller.rocketmq_home)
    return ControllerOptions(
        controller=controller,
        server=server,
        client=client,
        logging=build(LoggingConfig, loaded.values),
        files=files,
        tls=tls,
        etcd=etcd,
        messages=messages,
        warnings=(
            *unused_variables(environment),
            *loaded.warnings,
            *tls.warnings(),
            *port_warnings,
            *etcd_warnings,
            *exposure_warnings(
                [*password_files(loaded.sources), *tls.private_keys(), *etcd.private_keys()]
            ),
        ),
    )


def _with_port(
    server: RemotingServerConfig, config: ControllerConfig, sources: Mapping[str, str]
) -> tuple[RemotingServerConfig, tuple[str, ...]]:
    """RocketMQ's brokers come to the port in controllerDLegerPeers, whatever listenPort says; so
    does who comes here. Also a warning, if listenPort says something else."""
    peer = config.peer_address
    if peer is None:
        return server, ()
    port = int(peer.rpartition(":")[2])
    given = sources.get("listenPort")
    warnings: tuple[str, ...] = ()
    if given is not None and server.listen_port != port:
        warnings = (f"listenPort ({given}) has no effect: controllerDLegerPeers names {port}",)
    return dataclasses.replace(server, listen_port=port), warnings


def _checked_etcd(
    config: ControllerConfig, etcd: EtcdConfig, sources: Mapping[str, str]
) -> tuple[str, ...]:
    """Warnings. Raises ConfigError; also for files that cannot be used."""
    if config.controller_store != ETCD:
        keys = etcd.set_keys()
        return (f"without controllerStore=etcd no effect: {', '.join(keys)}",) if keys else ()
    problems = etcd.problems()
    if problems:
        raise ConfigError([with_source(sources.get(key), text) for key, text in problems])
    read_login(etcd)
    make_context(etcd)
    return etcd.warnings()


def _validate_tls(tls: TlsConfig, client: RemotingClientConfig) -> None:
    try:
        check_tls(tls, use_tls=client.use_tls)
    except TlsSettingError as error:
        raise ConfigError([str(error)]) from error


def _validate(
    config: ControllerConfig, files: FilePermissionConfig, sources: Mapping[str, str]
) -> None:
    problems = config.problems()
    if problems:
        raise ConfigError([with_source(sources.get(key), text) for key, text in problems])
    addresses = {
        "adminAllowedAddresses": config.admin_allowed_addresses,
        "registerAllowedAddresses": config.register_allowed_addresses,
    }
    require_readable(sources, addresses, parse_patterns)
    require_readable(sources, {"umask": files.umask}, parse_umask)
