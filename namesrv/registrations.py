"""What a broker's registration is made of, and what the name server keeps of it.

Pure data, any thread; made by DefaultRequestProcessor, kept by RouteInfoManager. Knows no request
and no table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from remoting.body.data_version import DataVersion
from remoting.body.topic_config import TopicConfig
from remoting.body.topic_queue_mapping import TopicQueueMappingInfo
from remoting.request_processor import ConnectionLike

BROKER_CHANNEL_EXPIRED_MS: Final = 120_000
"""A broker that has been silent for longer is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """The content of one REGISTER_BROKER (103)."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    data_version: DataVersion
    topic_configs: Mapping[str, TopicConfig]
    filter_servers: tuple[str, ...] = ()
    timeout_ms: int = BROKER_CHANNEL_EXPIRED_MS
    enable_acting_master: bool | None = None
    """None: a broker of 4.9, whose slaves decide on no topics."""
    zone_name: str | None = None
    topic_queue_mappings: Mapping[str, TopicQueueMappingInfo] = field(default_factory=dict)
    """Of its static topics."""

    def __str__(self) -> str:
        return (
            f"broker {self.broker_name}[{self.broker_id}] of cluster {self.cluster_name}: ha "
            f"{self.ha_server_addr}, address {self.broker_addr}"
        )


@dataclass(frozen=True, slots=True)
class RegisterBrokerResult:
    """A slave's master; both None for a master, or while no master is known."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(frozen=True, slots=True)
class MinBrokerIdChange:
    """The smallest broker id of a broker name is another one now."""

    broker_name: str
    broker_addrs: Mapping[int, str]
    """Those that are left, or there now; never empty."""
    offline_broker_addr: str | None = None
    """The broker that has gone; None: one with a smaller id has come."""
    ha_broker_addr: str | None = None
    """The HA port of the one that has come."""

    @property
    def min_broker_id(self) -> int:
        """The smallest id now."""
        return min(self.broker_addrs)

    @property
    def to_notify(self) -> list[str]:
        """Who is told: who is left, or who was there before the new one."""
        everybody = self.offline_broker_addr is not None or len(self.broker_addrs) == 1
        least = self.min_broker_id
        return [addr for i, addr in self.broker_addrs.items() if everybody or i != least]


@dataclass(slots=True)
class BrokerLiveInfo:
    """One live broker address. Guarded by: the lock of RouteInfoManager."""

    broker_addr: str
    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    connection: ConnectionLike
    ha_server_addr: str
