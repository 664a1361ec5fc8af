"""Where a peer comes from, and whether an address that it names is its own.

Any thread; may look a name up, but only for peers on this machine: a stranger's would block the
thread. Only the IP counts, so that peers of one host are not told apart. Name server and controller
use it to keep brokers from speaking for others.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, Final

from remoting.address_patterns import ip_of
from remoting.request_processor import ConnectionLike

_THIS_MACHINE: Final = "this machine"


def is_own_address(connection: ConnectionLike, address: str) -> bool:
    """Whether the peer may say that `address` ("host:port") is its own: the IP that its connection
    comes from, or, for a peer on this machine, any address of this machine (a broker registers
    brokerIP1 while it connects through 127.0.0.1)."""
    host = ip_of(address)
    if origin_of(connection) == _THIS_MACHINE:
        return _is_of_this_machine(host)
    return _normal(host) == _normal(ip_of(connection.remote_address))


def origin_of(connection: ConnectionLike) -> str:
    """Which host a connection comes from: its IP, or one word for all addresses of ours."""
    ip = ip_of(connection.remote_address)
    parsed = _parse(ip)
    if connection.is_from_this_machine or (parsed is not None and parsed.is_loopback):
        return _THIS_MACHINE
    return _normal(ip)


def _normal(host: str) -> str:
    parsed = _parse(host)
    return host if parsed is None else str(parsed)


def _parse(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _is_of_this_machine(host: str) -> bool:
    """Whether `host`, an IP or a name that resolves to one, is an address of this machine. Names
    are looked up for peers on this machine only: a stranger's would block this thread."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return any(_can_bind(family, target) for family, _, _, _, target in found)


def _can_bind(family: int, target: tuple[Any, ...]) -> bool:
    address = _parse(str(target[0]))
    if address is None or address.is_unspecified or address.is_multicast:
        return False
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(target)
        except OSError:
            return False
    return True
