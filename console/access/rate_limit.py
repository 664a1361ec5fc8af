"""RateLimit: how often somebody may try to sign in. Any thread; costs the same for any number.

One bucket for each address, and one for all together, which protects the brokers that prove
accounts, and makes the table's bound harmless: only attempts that the common bucket lets through
enter it, one a second in the long run, so that what it drops has long been full again. Whoever is
signed in needs no attempt, and the operator's token, which nobody can guess, has no limit.

IPv6 addresses count by their /64: whoever has one has all of it.

Tested by tests/console/access/test_rate_limit.py.
"""

from __future__ import annotations

import ipaddress
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from conf.ip_addresses import parse_ip

MAX_ADDRESSES: Final = 1_000
_V6_HOST_BITS: Final = 64
_ROUNDING: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Rate:
    """So many at once, then one in so many milliseconds."""

    burst: int
    every_ms: int


BY_ADDRESS: Final = Rate(burst=5, every_ms=12_000)
OF_ALL: Final = Rate(burst=20, every_ms=1_000)


class _Bucket:
    __slots__ = ("_at_ms", "_rate", "_tokens")

    def __init__(self, rate: Rate, now_ms: int) -> None:
        self._rate = rate
        self._tokens = float(rate.burst)
        self._at_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """0: one may be taken."""
        grown = (now_ms - self._at_ms) / self._rate.every_ms
        self._tokens = min(float(self._rate.burst), self._tokens + grown)
        self._at_ms = now_ms
        return max(0, math.ceil((1 - self._tokens) * self._rate.every_ms - _ROUNDING))

    def take(self) -> None:
        self._tokens -= 1


class RateLimit:
    """Buckets by address. Owned by: Access."""

    def __init__(
        self, now_ms: Callable[[], int], by_address: Rate = BY_ADDRESS, of_all: Rate = OF_ALL
    ) -> None:
        self._now_ms = now_ms
        self._by_address = by_address
        self._lock = threading.Lock()
        self._all = _Bucket(of_all, now_ms())
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        """The least recently used first."""

    def wait_ms(self, address: str) -> int:
        """Take one attempt: 0; or how long there is none for this address."""
        who = network_of(address)
        now_ms = self._now_ms()
        with self._lock:
            bucket = self._buckets.get(who)
            if bucket is not None and (wait_ms := bucket.wait_ms(now_ms)):
                return wait_ms
            if wait_ms := self._all.wait_ms(now_ms):
                return wait_ms
            if bucket is None:
                bucket = self._buckets[who] = _Bucket(self._by_address, now_ms)
                if len(self._buckets) > MAX_ADDRESSES:
                    self._buckets.popitem(last=False)
            self._buckets.move_to_end(who)
            bucket.take()
            self._all.take()
            return 0

    def __len__(self) -> int:
        return len(self._buckets)


def network_of(address: str) -> str:
    """Who asks, as far as an address tells: an IPv4 address, or the /64 of an IPv6 address."""
    ip = parse_ip(address)
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(ip), 128 - _V6_HOST_BITS), strict=False))
    return address[:64] if ip is None else str(ip)
