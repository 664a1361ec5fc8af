"""Requests of 5.x brokers only: 901 (members of a broker group) and 904 (heartbeat).

Headers and bodies, data only. Kin: BrokerMemberGroup, GetBrokerMemberGroupRequestHeader,
BrokerHeartbeatRequestHeader of 5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import CommandCustomHeader, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerMemberGroupRequestHeader(CommandCustomHeader):
    """GET_BROKER_MEMBER_GROUP (901)."""

    cluster_name: str
    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatRequestHeader(CommandCustomHeader):
    """BROKER_HEARTBEAT (904); the fields that only a controller needs are ignored."""

    cluster_name: str
    broker_addr: str
    broker_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMemberGroup(JsonBean):
    """Broker id to address, for one broker name."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerMemberGroupResponseBody(JsonBean):
    """Response to 901."""

    broker_member_group: BrokerMemberGroup
