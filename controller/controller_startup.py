"""ControllerStartup: turns the command line into validated settings; starts nothing.

Runs first in the controller's process. Kin: org.apache.rocketmq.controller.ControllerStartup: same
options, order and messages; -m is mqbroker's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from conf.command_line import CONFIG_FILE, HELP, PRINT_ALL, cannot_start
from conf.config_loader import KeySpace, require_readable, with_source
from conf.errors import ConfigError, as_config_error
from conf.file_permissions import FilePermissionConfig, parse_umask
from conf.ignored_keys import IGNORED_CONTROLLER_KEYS
from conf.logging_setup import LoggingConfig
from conf.standalone_settings import Readable, StandaloneSettings, read_settings
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
_READABLE: Final = Readable(
    PROGRAM,
    OPTIONS,
    lambda _: KEYS,
    PROGRAM_DEFAULTS,
    KeySpace((TlsConfig,)),
    DEFAULT_TLS_CONFIG_FILE,
)


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
    settings = read_settings(_READABLE, arguments, environment)
    try:
        options = controller_options(settings)
    except ConfigError as error:
        raise cannot_start(error) from error
    settings.end_or_go_on(
        options.home, options.controller, options.etcd, options.server, options.client
    )
    return options


def controller_options(
    settings: StandaloneSettings, own_port: int | None = None
) -> ControllerOptions:
    """Checked. own_port: of a controller in a name server, whose port listenPort is. Raises
    ConfigError."""
    tls, client = settings.build(TlsConfig), settings.build(RemotingClientConfig)
    with as_config_error(TlsSettingError):
        tls_warnings = check_tls(tls, use_tls=client.use_tls)
    controller, etcd = settings.build(ControllerConfig), settings.build(EtcdConfig)
    files = settings.build(FilePermissionConfig)
    _validate(controller, files, settings.sources)
    etcd_warnings = _checked_etcd(controller, etcd, settings.sources)
    if settings.path is not None:
        controller = dataclasses.replace(controller, config_store_path=str(settings.path))
    server = settings.build(RemotingServerConfig)
    port_warnings: tuple[str, ...] = ()
    if own_port is None:
        server, port_warnings = _with_port(server, controller, settings.sources)
    else:
        server = dataclasses.replace(server, listen_port=own_port)
        server, _ = _with_port(server, controller, {})
    warnings = (*tls_warnings, *port_warnings, *etcd_warnings)
    secret_files = (*tls.private_keys(), *etcd.private_keys())
    return ControllerOptions(
        controller=controller,
        server=server,
        client=client,
        logging=settings.build(LoggingConfig),
        files=files,
        tls=tls,
        etcd=etcd,
        messages=settings.messages,
        warnings=settings.warnings(warnings, secret_files),
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
