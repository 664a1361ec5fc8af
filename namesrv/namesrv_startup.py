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

from conf.command_line import (
    CONFIG_FILE,
    HELP,
    NAMESRV_ADDR,
    PRINT_ALL,
    cannot_start,
    config_file,
    parse_command_line,
    require_home,
    unused_variables,
)
from conf.config_loader import KeySpace, build, describe, load_settings, require_readable
from conf.errors import EXIT_OK, ConfigError, StartupExitError
from conf.file_permissions import FilePermissionConfig, exposure_warnings, parse_umask
from conf.ignored_keys import IGNORED_NAMESRV_KEYS
from conf.logging_setup import LoggingConfig
from conf.tls_file import password_files, with_tls_file
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
_TLS_KEYS: Final = KeySpace((TlsConfig,))


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
    given = parse_command_line(PROGRAM, arguments, OPTIONS)
    path, file = config_file(given)
    try:
        loaded = load_settings(KEYS, defaults=PROGRAM_DEFAULTS, environment=environment, file=file)
        loaded = with_tls_file(_TLS_KEYS, loaded, DEFAULT_TLS_CONFIG_FILE)
        tls = build(TlsConfig, loaded.values)
        _validate_tls(tls)
        namesrv = build(NamesrvConfig, loaded.values)
        files = build(FilePermissionConfig, loaded.values)
        _validate_access(namesrv, files, loaded.sources)
    except ConfigError as error:
        raise cannot_start(error) from error
    if path is not None:
        namesrv = dataclasses.replace(namesrv, config_store_path=str(path))
    server = build(RemotingServerConfig, loaded.values)
    messages = (f"load config properties file OK, {given[CONFIG_FILE.long]}",) if path else ()
    if PRINT_ALL.long in given:
        items = describe(namesrv, server).items()
        raise StartupExitError(
            EXIT_OK, "\n".join([*messages, *(f"{key}={text}" for key, text in items)])
        )
    require_home(namesrv.rocketmq_home)
    return NamesrvOptions(
        namesrv=namesrv,
        server=server,
        logging=build(LoggingConfig, loaded.values),
        files=files,
        tls=tls,
        config_file=path,
        messages=messages,
        warnings=(
            *unused_variables(environment),
            *loaded.warnings,
            *tls.warnings(),
            *exposure_warnings([*password_files(loaded.sources), *tls.private_keys()]),
        ),
    )


def _validate_tls(tls: TlsConfig) -> None:
    try:
        check_tls(tls, use_tls=False)
    except TlsSettingError as error:
        raise ConfigError([str(error)]) from error


def _validate_access(
    config: NamesrvConfig, files: FilePermissionConfig, sources: Mapping[str, str]
) -> None:
    addresses = {
        "adminAllowedAddresses": config.admin_allowed_addresses,
        "registerAllowedAddresses": config.register_allowed_addresses,
    }
    require_readable(sources, addresses, parse_patterns)
    require_readable(sources, {"umask": files.umask}, parse_umask)
