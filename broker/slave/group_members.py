"""GroupMembers: which brokers share this broker's name, as the name servers know them (106).

Asked for by the HA port's trust check (every 30 s and for unknown peers), by the master that
returns and asks its slaves, by the replica list. Runs in process `remoting`, on whichever thread
asks; blocks for as long as the name servers take, at most CLUSTER_INFO_TIMEOUT_MS. Keeps nothing:
what an answer, or none, means is the asker's business.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from typing import Protocol

from broker.out.broker_outer_api import BrokerIdentity
from remoting.body.route import ClusterInfo

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


class ClusterInfoSource(Protocol):
    """What is needed of BrokerOuterAPI."""

    def get_broker_cluster_info(self) -> list[ClusterInfo]:
        """The answers of the name servers; empty when none answered."""


class GroupMembers:
    """The other members of one broker group. Stateless, any thread but a loop's."""

    def __init__(self, identity: BrokerIdentity, api: ClusterInfoSource) -> None:
        self._identity = identity
        self._api = api

    def fetch_member_ips(self) -> list[MemberAddress] | None:
        """Everybody but this broker, by id; None when no name server answered.

        The union of what the name servers know. A member whose host name cannot be resolved is
        left out, with a line in the log.
        """
        infos = self._api.get_broker_cluster_info()
        if not infos:
            return None
        found: set[MemberAddress] = set()
        for info in infos:
            found.update(self._members_in(info))
        return sorted(found)

    def _members_in(self, info: ClusterInfo) -> list[MemberAddress]:
        own = self._identity
        group = info.broker_addr_table.get(own.broker_name)
        if group is None or group.cluster not in (None, own.cluster_name):
            return []
        others = [
            (broker_id, address)
            for broker_id, address in group.broker_addrs.items()
            if address != own.broker_addr
        ]
        return [
            MemberAddress(broker_id, resolved)
            for broker_id, address in others
            if (resolved := _resolved(broker_id, address)) is not None
        ]


def _resolved(broker_id: int, address: str) -> str | None:
    """ "ip:port" for "host:port"; an IP needs no look-up."""
    host, _, port = address.rpartition(":")
    try:
        return f"{socket.gethostbyname(host)}:{port}"
    except (OSError, UnicodeError) as error:
        log.warning("broker %s at %s: left out, no IP: %s", broker_id, address, error)
        return None
