"""Body of 901: the members of a broker group, of 5.x. Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int64


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
