"""TrustedPeers: who may receive the log: trusted networks and registered brokers of the group.

Any thread may ask; GroupMembersService supplies the members. Pure: addresses in, yes or no out; no
I/O. RocketMQ sends the log to anyone who connects (haAllowAnyPeer).
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Collection

log = logging.getLogger(__name__)

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class TrustedPeers:
    """See the module. The set of members is replaced whole: readers need no lock."""

    def __init__(self, networks: str, allow_any: bool) -> None:
        """`networks`: haTrustedAddresses, addresses or networks between commas (semicolons and
        spaces do as well); empty: none. Raises ValueError naming the key."""
        self._networks = parse_networks(networks)
        self._allow_any = allow_any
        self._members: frozenset[_Address] = frozenset()

    def is_trusted(self, ip: str) -> bool:
        """Whether a peer with this address may be given the log."""
        if self._allow_any:
            return True
        address = _parse(ip)
        if address is None:
            return False
        return address in self._members or any(address in net for net in self._networks)

    def set_members(self, ips: Collection[str]) -> None:
        """Replace the registered brokers of the group."""
        members = frozenset(address for ip in ips if (address := _parse(ip)) is not None)
        if members != self._members:
            self._members = members
            names = ", ".join(sorted(map(str, members)))
            log.info("HA port: members of the group are %s", names or "unknown")


def parse_networks(text: str) -> list[_Network]:
    """The networks of haTrustedAddresses. Raises ValueError naming the key and the wrong part."""
    networks: list[_Network] = []
    for part in text.replace(",", " ").replace(";", " ").split():
        try:
            networks.append(ipaddress.ip_network(part, strict=False))
        except ValueError as error:
            raise ValueError(
                f"haTrustedAddresses: {part!r} is not an address or network; use, for example, "
                "127.0.0.0/8,10.1.2.3"
            ) from error
    return networks


def _parse(ip: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
