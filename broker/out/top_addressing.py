"""TopAddressing: where the name servers are, as an address server or the DNS says.

Called on the scheduled executor; each look-up may take its timeout. It keeps no list and registers
nowhere. RocketMQ's counterparts: TopAddressing, and BrokerOuterAPI.dnsLookupAddressByDomain of 5.x.
"""

from __future__ import annotations

import http.client
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Final

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
        raise LookupFailedError(f"{url}: {text!r:.100} is no list of name servers")
    return list(dict.fromkeys(words))


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found["port"] or found["v6"]) <= _MOST_PORT


def resolve_name_servers(domains: Sequence[str]) -> list[str]:
    """The IPv4 addresses behind each "domain:port", sorted. Raises LookupFailedError: one of them
    cannot be resolved."""
    found: list[str] = []
    for domain in domains:
        host, _, port = domain.rpartition(":")
        try:
            answers = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise LookupFailedError(f"{domain}: {error}") from error
        found += sorted({f"{answer[4][0]}:{port}" for answer in answers})
    return list(dict.fromkeys(found))
