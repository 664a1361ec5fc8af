"""Rates: what happened each second between a broker's last two answers, from its counters.

The poller's thread. A counter that went back means that its broker has started anew: that step is a
gap, never a negative rate or a jump. Latencies are those of what was acknowledged, and of the
transactions that ended, in the step alone, read from the difference of two histograms.

Tested by tests/console/test_rates.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from console import metric_names as names
from console.history import Key
from console.snapshot import BrokerSeen, ClusterSnapshot, Metrics

OK: Final = "ok"
REFUSED: Final = "refused"
STATUSES: Final = (
    OK,
    "flush_slave_timeout",
    "slave_not_available",
    "flush_disk_timeout",
    REFUSED,
)
"""Of the answers to sends; refused: every other one, which promises nothing."""
SEND_REQUESTS: Final = frozenset(
    {
        "send_message",
        "send_message_v2",
        "send_batch_message",
        "send_reply_message",
        "send_reply_message_v2",
    }
)
ACK_P50: Final = "ack_p50"
ACK_P99: Final = "ack_p99"
COMMITS: Final = "commits"
ROLLBACKS: Final = "rollbacks"
"""Halves that ended, each second."""
FINISH_P50: Final = "finish_p50"
FINISH_P99: Final = "finish_p99"
EXPOSED_BYTES: Final = "exposed_bytes"
EXPOSED_SECONDS: Final = "exposed_seconds"

_K = TypeVar("_K", str, float)
Buckets = dict[float, float]
"""Cumulative counts by upper bound."""


def sends_figure(status: str) -> str:
    """The name of a status' rate in the history."""
    return f"sends_{status}"


@dataclass(frozen=True, slots=True)
class _Counted:
    at_ms: int
    """Monotonic: a wall clock that is set would be a jump."""
    sends: Mapping[str, float]
    acks: Buckets
    ends: Mapping[str, float]
    finishes: Buckets


class Rates:
    """See the module. Owned by: the poller's thread."""

    def __init__(self) -> None:
        self._before: dict[str, _Counted] = {}

    def figures(self, snapshot: ClusterSnapshot) -> dict[Key, float]:
        """What the metrics that came since the last call say of the time since those before."""
        found: dict[Key, float] = {}
        for broker in snapshot.brokers:
            for name, value in self._of_broker(broker).items():
                if math.isfinite(value):
                    found[broker.place.address, name] = value
        gone = self._before.keys() - {broker.place.address for broker in snapshot.brokers}
        for address in gone:
            del self._before[address]
        return found

    def _of_broker(self, broker: BrokerSeen) -> dict[str, float]:
        address, told = broker.place.address, broker.metrics
        before = self._before.get(address)
        if told.value is None or (before is not None and told.at_ms == before.at_ms):
            return {}
        now = _counted(told.at_ms, told.value)
        self._before[address] = now
        return {**_exposure(told.value), **_between(before, now)}


def _counted(at_ms: int, metrics: Metrics) -> _Counted:
    ends = {COMMITS: names.COMMITS, ROLLBACKS: names.ROLLBACKS}
    totals = {figure: metrics.total(name) for figure, name in ends.items()}
    finishes = buckets(metrics, names.FINISH_LATENCY)
    return _Counted(
        at_ms,
        send_counts(metrics),
        buckets(metrics, names.ACK_LATENCY),
        # Such a broker has the histogram from its start on, and the counters from their first end.
        {figure: total or 0.0 for figure, total in totals.items()} if finishes else {},
        finishes,
    )


def send_counts(metrics: Metrics) -> dict[str, float]:
    """All answers to sends since the broker's start, by status."""
    counts: dict[str, float] = {}
    for labels, value in metrics.rows(f"{names.RPC_LATENCY}_count"):
        if labels.get("request_code") in SEND_REQUESTS:
            code = labels.get("response_code", "")
            status = OK if code == "success" else code if code in STATUSES else REFUSED
            counts[status] = counts.get(status, 0.0) + value
    return counts


def buckets(metrics: Metrics, name: str) -> Buckets:
    """A histogram's buckets, all series of it together."""
    found: Buckets = {}
    for labels, value in metrics.rows(f"{name}_bucket"):
        try:
            bound = float(labels.get("le", ""))
        except ValueError:
            continue
        if not math.isnan(bound):
            found[bound] = found.get(bound, 0.0) + value
    return found


def quantile(counts: Buckets, share: float) -> float | None:
    """Of a histogram: within a bucket evenly spread; beyond the last bound that bound, as the
    least that it can be. None when nothing is counted."""
    bounds = sorted(counts)
    if not bounds or counts[bounds[-1]] <= 0:
        return None
    wanted = share * counts[bounds[-1]]
    low, below = 0.0, 0.0
    for bound in bounds:
        if counts[bound] >= wanted:
            if math.isinf(bound):
                return low
            part = counts[bound] - below
            return bound if part <= 0 else low + (bound - low) * (wanted - below) / part
        low, below = bound, counts[bound]
    return low


def _exposure(metrics: Metrics) -> dict[str, float]:
    found = {
        EXPOSED_BYTES: metrics.total(names.UNREPLICATED_BYTES),
        EXPOSED_SECONDS: metrics.total(names.UNREPLICATED_SECONDS),
    }
    return {name: value for name, value in found.items() if value is not None}


def _between(before: _Counted | None, now: _Counted) -> dict[str, float]:
    """Rates and latencies of the step; nothing for one that a restart is in."""
    if before is None:
        return {}
    span_s = (now.at_ms - before.at_ms) / 1000
    found: dict[str, float] = {}
    sends, acks = _risen(before.sends, now.sends), _risen(before.acks, now.acks)
    if sends is not None and acks is not None:
        found |= {sends_figure(name): sends.get(name, 0.0) / span_s for name in STATUSES}
        found |= _quantiles(acks, {ACK_P50: 0.5, ACK_P99: 0.99})
    ends, finishes = _risen(before.ends, now.ends), _risen(before.finishes, now.finishes)
    if ends is not None and finishes is not None:
        found |= {name: value / span_s for name, value in ends.items()}
        found |= _quantiles(finishes, {FINISH_P50: 0.5, FINISH_P99: 0.99})
    return found


def _risen(before: Mapping[_K, float], now: Mapping[_K, float]) -> dict[_K, float] | None:
    """By how much each has grown; None if one went back or is gone."""
    risen = {name: value - before.get(name, 0.0) for name, value in now.items()}
    if before.keys() - now.keys() or min(risen.values(), default=0) < 0:
        return None
    return risen


def _quantiles(counts: Buckets, shares: Mapping[str, float]) -> dict[str, float]:
    found = {name: quantile(counts, share) for name, share in shares.items()}
    return {name: value for name, value in found.items() if value is not None}
