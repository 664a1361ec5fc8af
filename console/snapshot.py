"""ClusterSnapshot: what the console knows of the cluster at one moment.

Immutable, made by the poller's thread, read by all. What a broker last said stays, with its age and
the reason why there is nothing newer: a page shows old figures as old, never as current. What is
new is told by the monotonic clock: the wall clock may be set back, and then every error would seem
older than the answer before it. Must not know how anything is shown.

Tested by tests/console/test_poller.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from remoting.body.ha_runtime_info import HARuntimeInfo
from tools.admin_client import MASTER_ID, BrokerAddress

T = TypeVar("T")

MAX_BROKERS: Final = 1_000
MAX_TOPICS: Final = 50_000
"""Of which the console keeps track: anybody may register any number at a name server."""

NOT_SUPPORTED: Final = "NOT_SUPPORTED"
"""In the words of a broker that does not know a request."""


@dataclass(frozen=True, slots=True)
class Told(Generic[T]):
    """What a peer last said about one thing."""

    value: T | None = None
    at_ms: int = 0
    """When it was told, monotonic; 0: never."""
    error: str | None = None
    """Why the last attempt failed; None when it did not."""
    error_at_ms: int = 0
    """Monotonic."""
    refused_ms: int = 0
    """When it last answered that it will not say (monotonic); 0: never."""
    wall_ms: int = 0
    """When it was told by the wall clock, to be compared with times that the peer says."""

    def failed(self, error: str, at_ms: int, *, is_refusal: bool = False) -> Told[T]:
        """It has not said it; what it said before stays."""
        refused_ms = at_ms if is_refusal else self.refused_ms
        return replace(self, error=error, error_at_ms=at_ms, refused_ms=refused_ms)


@dataclass(frozen=True, slots=True)
class HaTold:
    """An answer to 907, and the same as JSON."""

    info: HARuntimeInfo
    tree: Any


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """One broker that a name server knows, or knew until lately."""

    place: BrokerAddress
    runtime: Told[Mapping[str, str]] = Told()
    """Answer to 28."""
    ha: Told[HaTold] = Told()
    """Answer to 907."""
    metrics: Told[Metrics] = Told()
    """Of our brokers only."""
    registered: bool = True
    """Whether a name server still lists it."""
    since_ms: int = 0
    """When a name server first listed it (monotonic)."""

    @property
    def title(self) -> str:
        """name:id, as haStatus says it."""
        return f"{self.place.broker_name}:{self.place.broker_id}"

    @property
    def is_master(self) -> bool:
        """By its id at the name server."""
        return self.place.broker_id == MASTER_ID

    @property
    def version(self) -> str | None:
        """What it says of its version."""
        return (self.runtime.value or {}).get("brokerVersionDesc")

    @property
    def is_ours(self) -> bool | None:
        """Whether it answers the requests that only our brokers know; None: not known yet."""
        if self.metrics.value is not None:
            return True
        return False if NOT_SUPPORTED in (self.metrics.error or "") else None

    @property
    def has_answered(self) -> bool:
        """Whether a broker has answered there, be it that it will say nothing: what a name server
        lists may be any address."""
        return any(told.at_ms or told.refused_ms for told in (self.runtime, self.ha, self.metrics))

    @property
    def newest_ms(self) -> int:
        """When it last said anything (monotonic); 0: never."""
        return max(self.runtime.at_ms, self.ha.at_ms, self.metrics.at_ms)

    @property
    def newest_error(self) -> str | None:
        """Why it says nothing now; None when its last answer came."""
        for told in (self.ha, self.runtime):
            if told.error is None or NOT_SUPPORTED in told.error:  # a refusal is a sign of life
                continue
            if told.error_at_ms > self.newest_ms:
                return told.error
        return None

    @property
    def skew_ms(self) -> int:
        """How far its clock is ahead of the console's, as its last HA status tells; 0: unknown."""
        told = self.ha.value.info.timestamp if self.ha.value is not None else None
        return told - self.ha.wall_ms if told and self.ha.wall_ms else 0

    @property
    def is_refusing(self) -> bool:
        """Whether that last error is its own answer: it says no, so it lives."""
        return any(
            told.error is not None and told.error_at_ms == told.refused_ms
            for told in (self.ha, self.runtime)
        )


class Metrics:
    """Samples by name, as request 28913 tells them."""

    def __init__(self, samples: Mapping[str, list[tuple[dict[str, str], float]]]) -> None:
        self._samples = samples

    def rows(self, name: str) -> list[tuple[dict[str, str], float]]:
        """All series of a name: labels and value."""
        return self._samples.get(name, [])

    def total(self, name: str, **labels: str) -> float | None:
        """The sum of the series with these labels; None when there is none."""
        found = [
            value
            for own, value in self.rows(name)
            if all(own.get(key) == wanted for key, wanted in labels.items())
        ]
        return sum(found) if found else None

    def names(self) -> Iterator[str]:
        """Of all samples."""
        return iter(self._samples)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """All of it. `number` rises with every change."""

    number: int = 0
    taken_ms: int = 0
    """Wall clock, for the reader and the history's axis."""
    taken_at_ms: int = 0
    """Monotonic, as the times of what was told."""
    names: Mapping[str, Told[Mapping[str, BrokerAddress]]] = field(default_factory=dict)
    """What each name server says of who is there, by broker address."""
    brokers: tuple[BrokerSeen, ...] = ()
    """Sorted by cluster, name, id."""
    topics: Told[tuple[str, ...]] = Told()
    """Names, sorted."""
    brokers_left_out: int = 0
    """That a name server lists and nobody watches: too many, or their address is none."""
    topics_left_out: int = 0
    _by_address: Mapping[str, BrokerSeen] = field(default_factory=dict)

    def broker(self, address: str) -> BrokerSeen | None:
        """By its address."""
        return self._by_address.get(address)

    def registered(self) -> list[BrokerSeen]:
        """Those that a name server lists now."""
        return [broker for broker in self.brokers if broker.registered]

    def masters(self) -> list[BrokerSeen]:
        """The broker of each name that takes messages, as far as the name servers know."""
        return [broker for broker in self.registered() if broker.is_master]

    def groups(self) -> dict[tuple[str, str], list[BrokerSeen]]:
        """Brokers by (cluster, brokerName), sorted."""
        found: dict[tuple[str, str], list[BrokerSeen]] = {}
        for broker in self.brokers:
            found.setdefault((broker.place.cluster, broker.place.broker_name), []).append(broker)
        return found
