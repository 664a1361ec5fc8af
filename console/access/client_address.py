"""Whence a request comes and by which name: behind named proxies, what they say of it. Pure.

`X-Forwarded-For`, `-Proto` and `-Host` count only from a peer that `--trusted-proxies` names; from
anybody else they are a stranger's words. Of a chain of proxies the last address counts that is none
of them: what stands before it was written by the client.

A Host header that is neither an address nor a name of this console is refused: a page of another
site whose name was turned to this address (DNS rebinding) would otherwise be of our origin. An
address in its place cannot be turned.

Tested by tests/console/access/test_client_address.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from conf.ip_addresses import parse_ip
from remoting.address_patterns import AddressPatterns

MAX_FORWARDED: Final = 2_000
UNKNOWN: Final = "unknown"
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Origin:
    """Of one request."""

    address: str
    """The client's, without port."""
    host: str
    """The name and port by which the reader reaches the console."""
    is_tls: bool


@dataclass(frozen=True, slots=True)
class Ways:
    """How the console is reached."""

    trusted_proxies: AddressPatterns
    host_names: frozenset[str]
    """In small letters, besides localhost and addresses."""

    def origin(self, peer: str, headers: Mapping[str, str], scheme: str) -> Origin:
        """`peer`: the address of the connection; `scheme`: http or https, of the connection."""
        host, is_tls, address = headers.get("host", ""), scheme == "https", peer or UNKNOWN
        if self.trusted_proxies.matches(peer):
            host = _last(headers.get("x-forwarded-host", "")) or host
            if proto := _last(headers.get("x-forwarded-proto", "")):
                is_tls = proto.lower() == "https"
            address = self._client(peer, headers.get("x-forwarded-for", ""))
        return Origin(address, host, is_tls)

    def knows(self, host: str) -> bool:
        """Whether the console is reached by this Host header."""
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found[1].lower().removesuffix(".")
        return name == "localhost" or name in self.host_names or parse_ip(name) is not None

    def _client(self, peer: str, forwarded: str) -> str:
        known = peer
        for text in reversed(forwarded[-MAX_FORWARDED:].split(",")):
            address = _address(text.strip())
            if address is None:
                return known
            known = address
            if not self.trusted_proxies.matches(known):
                return known
        return known


def _last(text: str) -> str:
    """What the nearest proxy says."""
    return text[-MAX_FORWARDED:].rpartition(",")[2].strip()


def _address(text: str) -> str | None:
    """Of `10.1.2.3`, `10.1.2.3:4711`, `2001:db8::1` or `[2001:db8::1]:4711`."""
    found = parse_ip(text)
    if found is None:
        found = parse_ip(text.rpartition(":")[0])
    return None if found is None else str(found)
