"""IP addresses as they are written, and what a host's name stands for. Any thread.

Open to the other rooms (tests/test_architecture.py): what is one address to one of them is one to
all.
"""

from __future__ import annotations

import ipaddress
import socket

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_ip(text: str) -> IpAddress | None:
    """The address, in brackets or not; of an IPv4-mapped one (::ffff:10.1.2.3) the IPv4 address.
    None: it is none."""
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def addresses_of(host: str) -> list[str]:
    """The addresses of a name, or of an address itself, as the operating system resolves it, in its
    order. May block for seconds. Raises OSError, UnicodeError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))
