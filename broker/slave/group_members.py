"""GroupMembers: the registered brokers with this broker's name, from the name servers (106).

Used by the HA port's trust check (every 30 s and for unknown peers), by a restarted master that
queries its slaves, and by the replica list. Runs in process `remoting` on the caller's thread,
which it blocks for at most CLUSTER_INFO_TIMEOUT_MS. Stateless: the caller decides what a response,
or none, means. An isolated broker asks in BrokerPreOnlineService's way (105 or 901), which names no
slave as id 0 in a master's place.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.out.broker_outer_api import CLUSTER_INFO_TIMEOUT_MS, BrokerIdentity
from broker.topic.system_topics import MEMBER_TOPIC_PREFIX
from remoting.body.route import ClusterInfo, TopicRouteData

if TYPE_CHECKING:
    from broker.out.broker_outer_api import BrokerOuterAPI

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class MemberAddress:
    """One registered broker of the group: its id and brokerIP1:listenPort, the IP as numbers."""

    broker_id: int
    address: str

    @property
    def ip(self) -> str:
        """The address without the port."""
        return self.address.rpartition(":")[0]


FindMembers = Callable[[], list[MemberAddress] | None]
"""The other members of the group; None: nobody knows (GroupMembers.fetch_member_ips)."""


class GroupMembers:
    """The other members of one broker group. Stateless, any thread but a loop's."""

    def __init__(self, identity: BrokerIdentity, api: BrokerOuterAPI) -> None:
        self._identity = identity
        self._api = api

    def fetch_member_ips(self) -> list[MemberAddress] | None:
        """All members except this broker, by id; None if no name server responded.

        The union over all name servers. A member whose host name cannot be resolved is left out,
        with a log line.
        """
        infos = self._api.get_broker_cluster_info()
        if not infos:
            return None
        found: set[MemberAddress] = set()
        for info in infos:
            found.update(self._members_in(info))
        return sorted(found)

    def fetch_sync_group(self, *, is_old_compatible: bool) -> list[MemberAddress] | None:
        """The same by the route of the group's own topic (105), or by 901 if the name servers need
        not be old ones. A name server that knows no such topic has answered: with nobody."""
        own, found = self._identity, set[MemberAddress]()
        groups: list[Mapping[int, str]]
        if is_old_compatible:
            topic = MEMBER_TOPIC_PREFIX + own.broker_name
            routes = self._api.get_topic_routes(topic, CLUSTER_INFO_TIMEOUT_MS)
            groups = [_group_in(route, own) for route in routes]
        else:
            groups = self._api.get_broker_member_groups(own, CLUSTER_INFO_TIMEOUT_MS)
        for group in groups:
            found.update(self._others(group))
        return sorted(found) if groups else None

    def _members_in(self, info: ClusterInfo) -> list[MemberAddress]:
        own = self._identity
        group = info.broker_addr_table.get(own.broker_name)
        if group is None or group.cluster not in (None, own.cluster_name):
            return []
        return self._others(group.broker_addrs)

    def _others(self, group: Mapping[int, str]) -> list[MemberAddress]:
        others = [
            (broker_id, address)
            for broker_id, address in group.items()
            if address != self._identity.broker_addr
        ]
        return [
            MemberAddress(broker_id, found)
            for broker_id, address in others
            if (found := resolved(broker_id, address)) is not None
        ]


def _group_in(route: TopicRouteData | None, own: BrokerIdentity) -> Mapping[int, str]:
    """The brokers of the own group in a route, which may name others."""
    for data in () if route is None else route.broker_datas:
        if data.broker_name == own.broker_name and data.cluster in (None, own.cluster_name):
            return data.broker_addrs
    return {}


def resolved(broker_id: int, address: str) -> str | None:
    """ "ip:port" for "host:port"; an IP needs no look-up."""
    host, _, port = address.rpartition(":")
    try:
        if not host:
            raise ValueError("no host")  # It would be found: as 0.0.0.0.
        return f"{socket.gethostbyname(host)}:{port}"
    except (OSError, ValueError, TypeError) as error:  # TypeError: it holds a zero character
        log.warning(
            "broker %s at %.80s: ignored, cannot resolve its address: %s",
            broker_id,
            address,
            error,
        )
        return None
