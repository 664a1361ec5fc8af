"""StartupOptions: the checked settings of one broker, and their flat form for its processes.

Plain data, made in the supervisor (broker_startup.py) and again in every child, which therefore
must not need what reads files and command lines: importing that takes 50 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from broker.settings.broker_config import BrokerConfig
from broker.settings.supervisor_config import SupervisorConfig
from conf.config_loader import build, describe
from conf.logging_setup import LoggingConfig
from ha.ha_config import HaConfig
from remoting.remoting_config import RemotingClientConfig, RemotingServerConfig
from remoting.tls_config import TlsConfig
from store.message_store_config import MessageStoreConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupOptions:
    """Everything a broker is started with.

    `namesrv_addresses` is empty where none is configured: then the embedded name server serves.
    `warnings` are for the log, once it is open.
    """

    broker: BrokerConfig
    server: RemotingServerConfig
    client: RemotingClientConfig
    store: MessageStoreConfig
    ha: HaConfig
    supervisor: SupervisorConfig
    logging: LoggingConfig
    tls: TlsConfig = field(default_factory=TlsConfig)
    config_file: Path | None = None
    namesrv_addresses: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> Self:
        """The configs of a flat table of texts (what `child_settings` gave). Raises
        ConfigError."""
        return cls(
            broker=build(BrokerConfig, settings),
            server=build(RemotingServerConfig, settings),
            client=build(RemotingClientConfig, settings),
            store=build(MessageStoreConfig, settings),
            ha=build(HaConfig, settings),
            supervisor=build(SupervisorConfig, settings),
            logging=build(LoggingConfig, settings),
            tls=build(TlsConfig, settings),
        )

    def settings(self, *, important_only: bool = False) -> dict[str, str]:
        """Every key with its text, in the order that -p prints; without those of TLS, which the
        original never shows: one is a password."""
        parts = (self.broker, self.server, self.client, self.store)
        own = (self.ha, self.supervisor, self.logging)
        return describe(*parts, *own, important_only=important_only)

    def child_settings(self) -> dict[str, str]:
        """All that a child process is built from."""
        return {**self.settings(), **describe(self.tls)}
