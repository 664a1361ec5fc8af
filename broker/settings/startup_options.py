"""StartupOptions: the validated settings of one broker, and their flat form for its processes.

Plain data, built in the supervisor (broker_startup.py) and again in every child. So it must not
import the code that reads files and command lines, which takes 50 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from broker.settings.auth_config import SECRET_KEYS, AuthConfig
from broker.settings.broker_config import BrokerConfig
from broker.settings.controller_mode_config import ControllerModeConfig
from broker.settings.supervisor_config import SupervisorConfig
from conf.config_loader import build, describe
from conf.file_permissions import FilePermissionConfig
from conf.logging_setup import LoggingConfig
from ha.ha_config import HaConfig
from remoting.remoting_config import RemotingClientConfig, RemotingServerConfig
from remoting.tls_config import TlsConfig
from store.message_store_config import MessageStoreConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupOptions:
    """All options of a broker.

    `namesrv_addresses` is empty if none is configured: the embedded name server is used then.
    `warnings` are logged once logging is set up.
    """

    broker: BrokerConfig
    server: RemotingServerConfig
    client: RemotingClientConfig
    store: MessageStoreConfig
    ha: HaConfig
    supervisor: SupervisorConfig
    logging: LoggingConfig
    files: FilePermissionConfig = field(default_factory=FilePermissionConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    controller_mode: ControllerModeConfig = field(default_factory=ControllerModeConfig)
    config_file: Path | None = None
    namesrv_addresses: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> Self:
        """Build from a flat table of texts (the result of `child_settings`). Raises ConfigError."""
        return cls(
            broker=build(BrokerConfig, settings),
            server=build(RemotingServerConfig, settings),
            client=build(RemotingClientConfig, settings),
            store=build(MessageStoreConfig, settings),
            ha=build(HaConfig, settings),
            supervisor=build(SupervisorConfig, settings),
            logging=build(LoggingConfig, settings),
            files=build(FilePermissionConfig, settings),
            tls=build(TlsConfig, settings),
            auth=build(AuthConfig, settings),
            controller_mode=build(ControllerModeConfig, settings),
        )

    def settings(self, *, important_only: bool = False) -> dict[str, str]:
        """Every key with its text, in the order printed by -p; without TLS keys, which RocketMQ
        never shows, since one is a password, and the secrets of `auth`."""
        parts = (self.broker, self.server, self.client, self.store, self.auth)
        own = (self.ha, self.controller_mode, self.supervisor, self.logging, self.files)
        shown = describe(*parts, *own, important_only=important_only)
        return {key: text for key, text in shown.items() if key not in SECRET_KEYS}

    def child_settings(self) -> dict[str, str]:
        """All settings that a child process needs."""
        return {**self.settings(), **describe(self.tls), **describe(self.auth)}
