"""TopAddressing: where the name servers are, as an address server or the DNS says.

Called on the scheduled executor; each look-up may take its timeout, one of the DNS the resolver's
(resolv.conf). It registers nowhere. RocketMQ's counterparts: TopAddressing, and
BrokerOuterAPI.dnsLookupAddressByDomain of 5.x.
"""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import http.client

log = logging.getLogger(__name__)

FETCH_TIMEOUT_MS: Final = 3_000
_PORT: Final = 8080
_PATH: Final = "rocketmq"
_MOST_BYTES: Final = 64 << 10
_OK: Final = 200
_ADDRESS: Final = re.compile(r"[\w.-]+:(?P<port>[0-9]{1,5})|\[[0-9A-Fa-f:.]+\]:(?P<v6>[0-9]{1,5})")
_MOST_PORT: Final = 65_535


class LookupFailedError(Exception):
    """No name servers were learned; the message says from whom, and why."""


def address_server_url(domain: str, subgroup: str) -> str:
    """Where the list of name servers is: `domain` with its port, else 8080."""
    port = "" if ":" in domain[1:] else f":{_PORT}"
    return f"http://{domain}{port}/{_PATH}/{subgroup}"


def fetch_name_servers(url: str, timeout_ms: int = FETCH_TIMEOUT_MS) -> list[str]:
    """The addresses in the first line of the answer, separated by `;`. Raises LookupFailedError:
    no answer, another status than 200, or what no list of addresses is."""
    # Here: few brokers ask an address server.
    import http.client
    import urllib.error
    import urllib.request

    # Straight to it, as Java does: http_proxy and the like are for programs that browse.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline_s = time.monotonic() + timeout_ms / 1000
    try:
        with opener.open(url, timeout=timeout_ms / 1000) as answer:
            if answer.status != _OK:
                raise LookupFailedError(f"{url}: status {answer.status}")
            data = _read(answer, deadline_s)
    except urllib.error.HTTPError as error:
        raise LookupFailedError(f"{url}: status {error.code}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise LookupFailedError(f"{url}: {error or type(error).__name__}") from error
    if len(data) > _MOST_BYTES:
        raise LookupFailedError(f"{url}: more than {_MOST_BYTES} bytes")
    return _addresses(url, data)


def _read(answer: http.client.HTTPResponse, deadline_s: float) -> bytes:
    """Up to one byte too many; who sends bytes one by one does not get more time for it."""
    data = b""
    while len(data) <= _MOST_BYTES and (piece := answer.read1(_MOST_BYTES + 1 - len(data))):
        data += piece
        if time.monotonic() > deadline_s:
            raise TimeoutError("timed out")
    return data


def _addresses(url: str, data: bytes) -> list[str]:
    lines = data.decode("utf-8", errors="replace").strip().splitlines()
    text = lines[0] if lines else ""
    words = [word.strip() for word in text.split(";") if word.strip()]
    wrong = [word for word in words if not _is_address(word)]
    if wrong or not words:
        raise LookupFailedError(f"{url}: {text!r:.100} is not a list of name servers")
    return list(dict.fromkeys(words))


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found["port"] or found["v6"]) <= _MOST_PORT


class NamedServers:
    """The names in namesrvAddr, and the addresses that the DNS has for them.

    Owned by: who looks up, one thread at a time.
    """

    def __init__(self, domains: Sequence[str]) -> None:
        """domains: each "domain:port"."""
        self._domains: Final = tuple(domains)
        self._known: dict[str, list[str]] = {}
        self._failures: dict[str, str] = {}
        """Of the last look-up; the same one is not logged as an error again."""

    def look_up(self) -> list[str]:
        """The IPv4 addresses behind each name, sorted; of a name that the DNS does not know now,
        those that it had before. Raises LookupFailedError: there are none at all."""
        for domain in self._domains:
            try:
                self._known[domain] = _resolve(domain)
            except LookupFailedError as error:
                is_new = self._failures.get(domain) != str(error)
                level = logging.ERROR if is_new else logging.DEBUG
                kept = ", ".join(self._known.get(domain, [])) or "none"
                log.log(level, "name server %s; keeping its addresses: %s", error, kept)
                self._failures[domain] = str(error)
            else:
                self._failures.pop(domain, None)
        found = [address for domain in self._domains for address in self._known.get(domain, [])]
        if not found:
            raise LookupFailedError("; ".join(self._failures.values()))
        return list(dict.fromkeys(found))


def _resolve(domain: str) -> list[str]:
    host, _, port = domain.rpartition(":")
    try:
        answers = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise LookupFailedError(f"{domain}: {error}") from error
    return sorted({f"{answer[4][0]}:{port}" for answer in answers})
