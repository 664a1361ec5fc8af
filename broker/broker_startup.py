"""BrokerStartup: turns the command line into validated settings; starts nothing.

Runs in the supervisor, first of all. RocketMQ's counterpart is
org.apache.rocketmq.broker.BrokerStartup: same flags, order of checks, messages and exit codes. The
result is plain data. The child processes get the same settings as a flat table, so that a file that
changes meanwhile cannot make the processes of one broker disagree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from broker.settings.auth_config import SECRET_KEYS, AuthConfig
from broker.settings.broker_config import BrokerConfig
from broker.settings.controller_mode_config import ControllerModeConfig
from broker.settings.controller_mode_rules import (
    MEMBER_DEFAULTS,
    NO_NAME_SERVER,
    forced_settings,
    warnings_of,
)
from broker.settings.startup_options import StartupOptions
from broker.settings.supervisor_config import SupervisorConfig
from conf.command_line import (
    CONFIG_FILE,
    HELP,
    NAMESRV_ADDR,
    PRINT_ALL,
    PRINT_IMPORTANT,
    cannot_start,
    config_file,
    parse_command_line,
    require_addresses,
    require_home,
    unused_variables,
)
from conf.config_loader import (
    KeySpace,
    LoadedSettings,
    build,
    load_settings,
    require_readable,
    with_source,
)
from conf.credentials import TOOLS_FILE, find_credentials
from conf.errors import EXIT_BAD_SETTING, EXIT_OK, ConfigError, StartupExitError, as_config_error
from conf.file_permissions import FilePermissionConfig, exposure_warnings, parse_umask
from conf.ignored_keys import IGNORED_BROKER_KEYS
from conf.logging_setup import LoggingConfig
from conf.setting import Setting
from conf.tls_file import password_files, with_tls_file
from ha.ha_config import HaConfig
from ha.shared_secret import SharedSecretError, read_shared_secret
from ha.transport import HaTlsError, make_tls_context
from ha.trusted_peers import parse_networks
from remoting.address_patterns import parse_patterns
from remoting.control_characters import holds_control
from remoting.remoting_config import RemotingClientConfig, RemotingServerConfig
from remoting.tls_config import DEFAULT_TLS_CONFIG_FILE, ClientAuth, TlsConfig, TlsMode
from remoting.tls_context import TlsSettingError, check_tls
from store.errors import StoreError
from store.message_store_config import FlushDiskType, MessageStoreConfig

PROGRAM: Final = "mqbroker"
OPTIONS: Final = (NAMESRV_ADDR, CONFIG_FILE, PRINT_ALL, PRINT_IMPORTANT, HELP)
PROGRAM_DEFAULTS: Final = {"listenPort": "10911"}
KEYS: Final = KeySpace(
    (
        BrokerConfig,
        RemotingServerConfig,
        RemotingClientConfig,
        MessageStoreConfig,
        AuthConfig,
        HaConfig,
        ControllerModeConfig,
        SupervisorConfig,
        LoggingConfig,
        FilePermissionConfig,
        TlsConfig,
    ),
    IGNORED_BROKER_KEYS,
)
_TLS_KEYS: Final = KeySpace((TlsConfig,))
_FREE_PORT: Final = "0"
_LEAST_ADDRESS: Final = 6
"""A shorter haMasterAddress counts as unset, as in RocketMQ."""
_SLAVE_ID: Final = (
    ": set brokerId=1 (the next slave of the group: 2), or brokerRole=ASYNC_MASTER for a master"
)
_HA_KEYS: Final = (
    "haSharedSecretFile",
    "haTrustedAddresses",
    "haTlsTrustedCertificates",
    "haTlsPrivateKey",
    "haTlsCertificate",
    "haTlsEnable",
)


def load_startup_options(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> StartupOptions:
    """Read command line, environment and file, with RocketMQ's order of checks.

    Raises StartupExitError: the text to print and the exit code, also for -h, -p and -m.
    """
    given = parse_command_line(PROGRAM, arguments, OPTIONS)
    path, file = config_file(given)
    key = NAMESRV_ADDR.long
    options = check_settings(
        environment,
        path,
        file,
        command_line=[Setting(key, given[key], "option -n")] if key in given else [],
        addresses=given.get(key),
    )
    if PRINT_ALL.long in given or PRINT_IMPORTANT.long in given:
        raise StartupExitError(EXIT_OK, _printed(options, PRINT_ALL.long not in given))
    return options


def check_settings(
    environment: Mapping[str, str],
    path: Path | None,
    file: Sequence[Setting],
    *,
    defaults: Mapping[str, str] = PROGRAM_DEFAULTS,
    command_line: Sequence[Setting] = (),
    addresses: str | None = None,
) -> StartupOptions:
    """The options of a broker whose settings file at `path` holds `file`.

    command_line: settings that precede those of the file. addresses: name servers if no setting
    names any. Raises StartupExitError.
    """
    try:
        loaded = load_settings(
            KEYS,
            defaults=defaults,
            environment=environment,
            file=file,
            command_line=command_line,
        )
        loaded = with_tls_file(_TLS_KEYS, loaded, DEFAULT_TLS_CONFIG_FILE)
        options = StartupOptions.from_settings(_resolve(loaded.values))
        _validate(options.store, loaded.sources)
        _validate_replication(options.ha, loaded.sources)
        _validate_controller_mode(options, loaded.sources)
        _validate_access(options, loaded.sources)
        tls_warnings = _validate_tls(options)
    except ConfigError as error:
        raise cannot_start(error) from error
    require_home(options.broker.rocketmq_home)
    addresses = options.broker.namesrv_addr or addresses
    namesrv = () if addresses is None else require_addresses(addresses)
    has_namesrv = bool(namesrv) or options.broker.fetch_namesrv_addr_by_address_server
    role_warnings = _check_role(options, loaded, has_namesrv=has_namesrv)
    return dataclasses.replace(
        options,
        config_file=path,
        namesrv_addresses=namesrv,
        warnings=(
            *unused_variables(environment),
            *loaded.warnings,
            *role_warnings,
            *warnings_of(options.controller_mode, options.ha, loaded.values, loaded.sources),
            *tls_warnings,
            *_useless_lookups(options.broker, has_namesrv_addr=bool(namesrv)),
            *_shut_out(options, embeds_namesrv=not has_namesrv),
            *exposure_warnings(_secret_files(options, loaded.sources)),
        ),
    )


def _resolve(loaded: Mapping[str, str]) -> dict[str, str]:
    """Derived values: the HA port, a master's id, whether outgoing calls use TLS; in controller
    mode what takes the place of role and id.

    4.9.8 always takes listenPort + 1 for the HA port; a configured one is honoured here, as in 5.x.
    With listenPort 0 both ports are chosen by the system.
    """
    values = dict(loaded)
    if "haListenPort" not in values:
        listen_port = int(values["listenPort"])
        values["haListenPort"] = str(listen_port + 1) if listen_port else _FREE_PORT
    store, controller_mode = build(MessageStoreConfig, values), build(ControllerModeConfig, values)
    if controller_mode.enable_controller_mode:
        sync_flush = store.flush_disk_type is FlushDiskType.SYNC_FLUSH
        forced = forced_settings(controller_mode, store.root, sync_flush=sync_flush)
        values = {**MEMBER_DEFAULTS, **values, **forced}
    elif store.broker_role.name != "SLAVE":
        values["brokerId"] = "0"
    if "useTLS" not in values and build(TlsConfig, values).mode is TlsMode.enforcing:
        values["useTLS"] = "true"
    return values


def _validate(store: MessageStoreConfig, sources: Mapping[str, str]) -> None:
    """Check the store's settings for contradictions; errors name the source of the key."""
    try:
        store.validate()
    except StoreError as error:
        source = sources.get(str(error).partition(" ")[0])
        raise ConfigError([with_source(source, error)]) from error


def _validate_replication(config: HaConfig, sources: Mapping[str, str]) -> None:
    """Check what would otherwise fail later in process `ha`; errors name the source of the key."""
    try:
        parse_networks(config.ha_trusted_addresses or "")
        read_shared_secret(config.ha_shared_secret_file)
        make_tls_context(config, server_side=True)
    except (ValueError, HaTlsError, SharedSecretError) as error:
        named = (sources[key] for key in _HA_KEYS if key in str(error) and key in sources)
        raise ConfigError([with_source(next(named, None), error)]) from error
    address = config.ha_master_address or ""
    if len(address) >= _LEAST_ADDRESS and not _is_address(address):
        problem = (
            f"haMasterAddress = {address}: expected ip:port of the master's HA port (its"
            " listenPort + 1 unless haListenPort says otherwise)"
        )
        raise ConfigError([with_source(sources.get("haMasterAddress"), problem)])


def _validate_controller_mode(options: StartupOptions, sources: Mapping[str, str]) -> None:
    """Check what a member of a group with a controller needs; all problems are named at once."""
    problems = options.controller_mode.problems_of(
        cluster_name=options.broker.broker_cluster_name,
        broker_name=options.broker.broker_name,
        heartbeat_interval_ms=options.broker.broker_heartbeat_interval,
        store_root=options.store.root,
    )
    if options.controller_mode.enable_controller_mode and ":" in options.broker.broker_ip1:
        problem = (
            f"{options.broker.broker_ip1[:100]!a}: the ports of a broker are IPv4, and "
            "controllers, followers and clients come to this address: name one of IPv4"
        )
        problems = [*problems, ("brokerIP1", problem)]
    if problems:
        named = [with_source(sources.get(key), f"{key}: {problem}") for key, problem in problems]
        raise ConfigError(named)


def _validate_access(options: StartupOptions, sources: Mapping[str, str]) -> None:
    """Check what would otherwise fail later, in process `remoting` or when files are created;
    errors in files name the line."""
    config = options.broker
    for key, name in (
        ("brokerName", config.broker_name),
        ("brokerClusterName", config.broker_cluster_name),
    ):
        if holds_control(name):
            problem = (
                f"{key} = {name[:100]!a}: it holds a control character; no name server registers it"
            )
            raise ConfigError([with_source(sources.get(key), problem)])
    for key, problem in options.auth.problems_of(acl_enable=config.acl_enable):
        raise ConfigError([with_source(sources.get(key), f"{key}: {problem}")])
    addresses = {
        "adminAllowedAddresses": config.admin_allowed_addresses,
        "registerAllowedAddresses": config.register_allowed_addresses,
        "aclAdminAllowedAddresses": config.acl_admin_allowed_addresses,
    }
    require_readable(sources, addresses, parse_patterns)
    require_readable(sources, {"umask": options.files.umask}, parse_umask)
    if config.rocketmq_home is not None:
        conf = Path(config.rocketmq_home, "conf")
        find_credentials(conf)
        if config.acl_enable or options.auth.migrate_auth_from_v1_enabled:
            # Here: its modules are a third of what the supervisor imports, and few brokers use it.
            from broker.acl.acl_files import merge, read_files

            merge(read_files(conf))


def _validate_tls(options: StartupOptions) -> tuple[str, ...]:
    """Check what would otherwise fail later in processes `remoting` and `namesrv`; returns
    warnings."""
    with as_config_error(TlsSettingError):
        return check_tls(options.tls, use_tls=options.client.use_tls)


def _useless_lookups(config: BrokerConfig, *, has_namesrv_addr: bool) -> tuple[str, ...]:
    """Warnings about ways to find name servers that have no effect, as in RocketMQ."""
    if has_namesrv_addr and config.fetch_namesrv_addr_by_address_server:
        return (
            "fetchNamesrvAddrByAddressServer has no effect: namesrvAddr is set, and counts; remove "
            "one of them",
        )
    if config.fetch_name_srv_addr_by_dns_lookup and not has_namesrv_addr:
        return ("fetchNameSrvAddrByDnsLookup has no effect without namesrvAddr",)
    return ()


def _shut_out(options: StartupOptions, *, embeds_namesrv: bool) -> tuple[str, ...]:
    """Warnings if the embedded name server, which has the same settings, would reject this
    broker."""
    tls, use_tls = options.tls, options.client.use_tls
    is_enforcing = tls.mode is TlsMode.enforcing
    if not embeds_namesrv or not options.supervisor.embedded_namesrv_enable:
        return ()
    if is_enforcing and not use_tls:
        return ("tls.enable = false: this broker cannot reach its own enforcing name server",)
    if use_tls and tls.mode is TlsMode.disabled:
        return ("tls.server.mode = disabled: this broker cannot reach its own name server by TLS",)
    asks = not tls.tls_test_mode_enable and tls.client_auth is ClientAuth.require
    if use_tls and asks and not tls.tls_client_cert_path:
        return (
            "tls.server.need.client.auth = require: this broker needs tls.client.certPath and "
            "tls.client.keyPath to reach its own name server",
        )
    return ()


def _secret_files(options: StartupOptions, sources: Mapping[str, str]) -> list[Path]:
    """The files with secrets that this broker reads; an exposed haSharedSecretFile is refused."""
    found = [*password_files(sources, sorted(SECRET_KEYS)), *options.tls.private_keys()]
    if options.ha.ha_tls_enable and options.ha.ha_tls_private_key:
        found.append(Path(options.ha.ha_tls_private_key))
    if options.auth.keeps_users:
        for name in ("users.json", "acls.json"):
            found += [options.store.config_path / name, options.store.config_path / f"{name}.bak"]
    if options.broker.rocketmq_home is not None:
        conf = Path(options.broker.rocketmq_home, "conf")
        if find_credentials(conf) is not None:
            found.append(conf / TOOLS_FILE)
        if options.broker.acl_enable:
            from broker.acl.acl_files import read_files

            found += [file.path for file in read_files(conf) if file.values.accounts]
    return found


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host.strip()) and port.isascii() and port.isdigit() and 0 < int(port) <= 65535


def _check_role(
    options: StartupOptions, loaded: LoadedSettings, *, has_namesrv: bool
) -> tuple[str, ...]:
    """Warnings about a role and an id that are inconsistent.

    Raises StartupExitError where continuing would do harm. RocketMQ makes every broker that is not
    a slave master 0, whatever its brokerId: a slave without brokerRole then replaces the master at
    the name servers.
    """
    role = options.store.broker_role.name
    if options.controller_mode.enable_controller_mode:
        return () if has_namesrv else (NO_NAME_SERVER,)
    if options.store.is_slave:
        if options.broker.broker_id <= 0:
            raise StartupExitError(EXIT_BAD_SETTING, f"Slave's brokerId must be > 0{_SLAVE_ID}")
        return _without_master(options, has_namesrv=has_namesrv)
    given = loaded.values.get("brokerId", "0")
    if int(given) == 0:
        return ()
    shown = with_source(loaded.sources["brokerId"], f"brokerId = {given}")
    if "brokerRole" not in loaded.sources:
        text = (
            f"{shown} without brokerRole: it would start as a master, with id 0, although the "
            "group may already have one; set brokerRole=SLAVE for a slave, brokerId=0 for a master"
        )
        raise StartupExitError(EXIT_BAD_SETTING, text, to_stdout=False)
    return (
        f"{shown} has no effect: with brokerRole = {role} it is the master of its group, with id "
        "0; set brokerId=0, or brokerRole=SLAVE for a slave",
    )


def _without_master(options: StartupOptions, *, has_namesrv: bool) -> tuple[str, ...]:
    """Warnings for a slave that cannot learn its master's address."""
    if has_namesrv:
        return ()
    known = "it has no name server to learn its master from"
    if options.supervisor.embedded_namesrv_enable:
        known = "its own name server knows its master only if that registers there"
    return (
        f"brokerRole = SLAVE without namesrvAddr: {known}, and cannot know where to get topics, "
        "offsets and groups; name the master's name servers with -n or namesrvAddr",
    )


def _printed(options: StartupOptions, important_only: bool) -> str:
    items = options.settings(important_only=important_only)
    return "\n".join(f"{key}={text}" for key, text in items.items())
