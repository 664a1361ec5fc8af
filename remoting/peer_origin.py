"""Where a peer comes from, and whether an address that it names is its own.

Any thread; may look a name up, but only for peers on this machine: a stranger's would block the
thread. Only the IP counts, so that peers of one host are not told apart. Name server and controller
use it to keep brokers from speaking for others.
"""

from __future__ import annotations

import socket
from typing import Final

from conf.ip_addresses import addresses_of, parse_ip
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
    parsed = parse_ip(ip)
    if connection.is_from_this_machine or (parsed is not None and parsed.is_loopback):
        return _THIS_MACHINE
    return _normal(ip)


def _normal(host: str) -> str:
    parsed = parse_ip(host)
    return host if parsed is None else str(parsed)


def _is_of_this_machine(host: str) -> bool:
    """Whether `host`, an IP or a name that resolves to one, is an address of this machine. Names
    are looked up for peers on this machine only: a stranger's would block this thread."""
    try:
        return any(_can_bind(address) for address in addresses_of(host))
    except (OSError, UnicodeError):
        return False


def _can_bind(text: str) -> bool:
    address = parse_ip(text)
    if address is None or address.is_unspecified or address.is_multicast:
        return False
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((text, 0))
        except OSError:
            return False
    return True
