"""Headers between broker and name server, and of a broker's own settings: 103, 104, 322, 26, and
901, 904, 905 of 5.x.

Pure data, any thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRequestHeader(CommandCustomHeader):
    """REGISTER_BROKER (103). body_crc32 0 means: do not check. The last two are 5.x."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    compressed: bool = False
    body_crc32: Int32 = 0
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerResponseHeader(CommandCustomHeader):
    """Answer to 103; filled for a slave whose master is known."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnRegisterBrokerRequestHeader(CommandCustomHeader):
    """UNREGISTER_BROKER (104)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersionRequestHeader(CommandCustomHeader):
    """QUERY_DATA_VERSION (322)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDataVersionResponseHeader(CommandCustomHeader):
    """Answer to 322."""

    changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerMemberGroupRequestHeader(CommandCustomHeader):
    """GET_BROKER_MEMBER_GROUP (901, 5.x)."""

    cluster_name: str
    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequestHeader(CommandCustomHeader):
    """BROKER_HEARTBEAT (904, 5.x); without the fields that only a controller needs."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyMinBrokerIdChangeRequestHeader(CommandCustomHeader):
    """NOTIFY_MIN_BROKER_ID_CHANGE (905, 5.x), oneway from a name server. `offline_broker_addr`: the
    broker that has gone; `ha_broker_addr`: the HA port of the one that has come."""

    min_broker_id: Int64
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerConfigResponseHeader(CommandCustomHeader):
    """Answer to GET_BROKER_CONFIG (26): the topic DataVersion as JSON text."""

    version: str
