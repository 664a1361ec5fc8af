"""Source addresses of ACL entries: an address, or a network as address/bits. Pure, any thread.

Java: IPAddressUtils. An IPv4-mapped IPv6 address of a peer is its IPv4 address here. Names are not
looked up, as RocketMQ does for a network.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

from conf.ip_addresses import parse_ip

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_CACHED: Final = 4096
_address: Final = lru_cache(_CACHED)(parse_ip)


def is_valid_source(text: str) -> bool:
    """Whether it is an address or address/bits."""
    return _network(text) is not None


def is_in_source(ip: str, source: str) -> bool:
    """Whether the peer's `ip` is that address or in that network."""
    address, network = _address(ip), _network(source)
    return address is not None and network is not None and address in network


@lru_cache(_CACHED)
def _network(text: str) -> Network | None:
    base, slash, bits = text.partition("/")
    if slash and not (bits.isascii() and bits.isdigit()):
        return None
    address = _address(base)
    if address is None:
        return None
    try:
        return ipaddress.ip_network(f"{address}/{bits}" if slash else str(address), strict=False)
    except ValueError:
        return None
