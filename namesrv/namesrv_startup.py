"""NamesrvStartup: turns the command line into validated settings; starts nothing.

Runs first in the name server's process. Kin: org.apache.rocketmq.namesrv.NamesrvStartup: same
options (-n is accepted and has no effect), order, messages and exit codes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from conf.command_line import CONFIG_FILE, HELP, NAMESRV_ADDR, PRINT_ALL, cannot_start
from conf.config_loader import KeySpace, require_readable
from conf.errors import ConfigError, as_config_error
from conf.file_permissions import FilePermissionConfig, parse_umask
from conf.ignored_keys import IGNORED_NAMESRV_KEYS
from conf.logging_setup import LoggingConfig
from conf.setting import Setting
from conf.standalone_settings import Readable, StandaloneSettings, read_settings
from namesrv.controller_in_namesrv import (
    ControllerOptions,
    asks_for_controller,
    controller_of,
    shown_settings,
    with_controller,
)
from namesrv.namesrv_config import NamesrvConfig
from remoting.address_patterns import parse_patterns
from remoting.remoting_config import RemotingServerConfig
from remoting.tls_config import DEFAULT_TLS_CONFIG_FILE, TlsConfig
from remoting.tls_context import TlsSettingError, check_tls

PROGRAM: Final = "mqnamesrv"
OPTIONS: Final = (NAMESRV_ADDR, CONFIG_FILE, PRINT_ALL, HELP)
PROGRAM_DEFAULTS: Final = {"listenPort": "9876"}
KEYS: Final = KeySpace(
    (NamesrvConfig, RemotingServerConfig, LoggingConfig, FilePermissionConfig, TlsConfig),
    IGNORED_NAMESRV_KEYS,
)


def _find_keys(file: Sequence[Setting]) -> KeySpace:
    """Those of a controller, too, if the file asks for one: else they have no effect, and the start
    says so."""
    return with_controller(KEYS) if asks_for_controller(file) else KEYS


_READABLE: Final = Readable(
    PROGRAM,
    OPTIONS,
    _find_keys,
    PROGRAM_DEFAULTS,
    KeySpace((TlsConfig,)),
    DEFAULT_TLS_CONFIG_FILE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvOptions:
    """Everything that a name server needs to start; `warnings` are logged once the log is open.

    `messages` are printed to stdout before the boot line ("load config properties file OK, FILE").
    """

    namesrv: NamesrvConfig
    server: RemotingServerConfig
    logging: LoggingConfig
    files: FilePermissionConfig = field(default_factory=FilePermissionConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    config_file: Path | None = None
    controller: ControllerOptions | None = None
    """Of the controller in it (enableControllerInNamesrv), if there is one."""
    messages: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def home(self) -> str | None:
        """The install directory."""
        return self.namesrv.rocketmq_home


def load_namesrv_options(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> NamesrvOptions:
    """Reads command line, environment and file; checks in RocketMQ's order.

    Raises StartupExitError: the text to print and the exit code, also for -h and -p (which, as in
    RocketMQ, works without ROCKETMQ_HOME).
    """
    settings = read_settings(_READABLE, arguments, environment)
    try:
        options = _namesrv_options(settings)
    except ConfigError as error:
        raise cannot_start(error) from error
    shown = shown_settings(options.controller)
    settings.end_or_go_on(options.home, options.namesrv, options.server, *shown)
    return options


def _namesrv_options(settings: StandaloneSettings) -> NamesrvOptions:
    """Checked. Raises ConfigError."""
    tls = settings.build(TlsConfig)
    with as_config_error(TlsSettingError):
        tls_warnings = check_tls(tls, use_tls=False)
    namesrv, files = settings.build(NamesrvConfig), settings.build(FilePermissionConfig)
    _validate_access(namesrv, files, settings.sources)
    if settings.path is not None:
        namesrv = dataclasses.replace(namesrv, config_store_path=str(settings.path))
    own = settings.warnings(tls_warnings, tls.private_keys())
    controller = controller_of(settings) if namesrv.enable_controller_in_namesrv else None
    return NamesrvOptions(
        namesrv=namesrv,
        server=settings.build(RemotingServerConfig),
        logging=settings.build(LoggingConfig),
        files=files,
        tls=tls,
        config_file=settings.path,
        controller=controller,
        messages=settings.messages,
        warnings=own if controller is None else controller.warnings,
    )


def _validate_access(
    config: NamesrvConfig, files: FilePermissionConfig, sources: Mapping[str, str]
) -> None:
    addresses = {
        "adminAllowedAddresses": config.admin_allowed_addresses,
        "registerAllowedAddresses": config.register_allowed_addresses,
    }
    require_readable(sources, addresses, parse_patterns)
    require_readable(sources, {"umask": files.umask}, parse_umask)
