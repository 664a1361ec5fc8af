"""DumpMarks: what happened to the replicas between two lines of the metrics dump.

Written at each look by the thread of process `ha` that observes (broker/metrics/ha_metrics.py),
read by the supervisor's dump (`read_*`). High-water marks are kept by seconds (HighWaterRing), so
that the reader finds the largest since its last line; times and numbers of looks are counters. The
series are no metrics of the table: /metrics does not show them. Knows no files and no lines.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.metrics.high_water_ring import HighWaterRing
from broker.metrics.replica_view import ReplicaViewSnapshot
from ha.replica_clock import GAP_MS
from ha.slave_progress import ReplicaState
from ipc.metric_slots import OVERFLOW, Labels

if TYPE_CHECKING:
    # The supervisor reads marks and observes nothing.
    from ha.ha_observer import HaFacts, ReplicaFacts
    from ipc.metric_slots import MetricSlots

EXPOSURE_LE: Final = (0, *(1 << power for power in range(10, 41, 2)), 1 << 50)
"""Bytes: upper bounds of the counts of looks; 1 KiB, 4 KiB and so on."""
LAG_LE_MS: Final = (
    *(5, 10, 20, 50, 100, 200, 300, 500, 700),
    *(1_000, 1_500, 2_000, 3_000, 4_000, 5_000, 7_000),
    *(10_000, 15_000, 20_000, 30_000, 45_000),
    *(60_000, 120_000, 180_000, 300_000, 600_000, 900_000, 1_800_000),
    *(3_600_000, 7_200_000, 21_600_000, 43_200_000, 86_400_000),
)
"""Upper bounds of the time in sync by lag. Those that objectives name: another limit leaves the
time of its bucket unknown."""
_LATE_MS: Final = 1_000
"""A look that comes later may have missed a lag that matters: looks are 200 ms apart."""
_EXPOSURE: Final = "dump_exposure"
_LOOKS: Final = "dump_exposure_looks"
_LAG: Final = "dump_lag"
_LAG_TIME: Final = "dump_lag_time"
_LINK: Final = "dump_link"
_EXPOSURE_VALUES: Final = 4


@dataclass(slots=True)
class _Seen:
    """What the last look saw of a replica."""

    at_ms: int
    end: int
    """Of the log."""
    is_in_sync: bool
    lag_ms: int
    exact: bool
    link: Labels


class DumpMarks:
    """The writer. Owned by: the thread of HaMetrics."""

    def __init__(self, slots: MetricSlots, interval_ms: int) -> None:
        """`interval_ms`: of the dump's lines."""
        self._slots: Final = slots
        self._values: Final = slots.values
        self._exposure: Final = HighWaterRing(_EXPOSURE_VALUES, interval_ms)
        self._lag: Final = HighWaterRing(1, interval_ms)
        self._seen: dict[str, _Seen] = {}
        self._links: Final = {labels[0]: labels for labels in slots.series(_LINK)}
        """What a predecessor of this process left."""

    def write(self, facts: HaFacts) -> None:
        """One look at a master's replicas."""
        now_ms = facts.observed_ms
        at_risk, at_risk_ms = facts.at_risk, facts.at_risk_ms
        ring = self._slots.find(_EXPOSURE, (), self._exposure.size)
        marks = (at_risk.at_least, at_risk.at_most, at_risk_ms.at_least, at_risk_ms.at_most)
        self._exposure.write(self._values, ring, now_ms, marks)
        looks = self._slots.find(_LOOKS, (), len(EXPOSURE_LE) + 1)
        self._values[looks + bisect_left(EXPOSURE_LE, at_risk.at_most)] += 1
        seen = {}
        for each in facts.replicas:
            name = each.replica.id
            seen[name] = self._write_replica(each, self._seen.get(name), now_ms, facts.max_offset)
        for name in (self._seen.keys() | self._links.keys()) - seen.keys():
            self._hide(name)
        self._seen = seen

    def _write_replica(
        self, facts: ReplicaFacts, before: _Seen | None, now_ms: int, end: int
    ) -> _Seen:
        replica, values = facts.replica, self._values
        labels, lag_ms = (replica.id,), facts.lag.ms
        now = _Seen(
            at_ms=now_ms,
            end=end,
            is_in_sync=replica.state is ReplicaState.in_sync,
            lag_ms=lag_ms,
            exact=facts.lag.exact,
            link=(replica.id, replica.remote, replica.last_error or ""),
        )
        times = self._slots.find(_LAG_TIME, labels, len(LAG_LE_MS) + 1)
        passed_ms = 0 if before is None else now_ms - before.at_ms
        if before is not None and (before.lag_ms or before.end != end):
            # It may have grown as time went by, and fallen just before this look.
            lag_ms = max(lag_ms, before.lag_ms + passed_ms)
        if before is not None and before.is_in_sync and before.exact and now.exact:
            longer = bisect_left(LAG_LE_MS, max(before.lag_ms, now.lag_ms))
            # Of what a late look did not see it tells only where that changes nothing.
            is_sure = passed_ms <= _LATE_MS or longer == bisect_left(LAG_LE_MS, lag_ms)
            if is_sure and passed_ms <= GAP_MS:
                values[times + longer] += passed_ms
        ring = self._slots.find(_LAG, labels, self._lag.size)
        self._lag.write(values, ring, now_ms, (lag_ms,))
        self._write_link(now.link, replica.last_error_ms)
        return now

    def _write_link(self, link: Labels, last_error_ms: int | None) -> None:
        """The texts are labels; the value is the moment of the error."""
        before = self._links.get(link[0])
        if before is not None and before != link:
            self._slots.hide(_LINK, before)
        self._links[link[0]] = link
        self._values[self._slots.find(_LINK, link)] = last_error_ms or 0

    def _hide(self, name: str) -> None:
        link = self._links.pop(name, None)
        if link is not None:
            self._slots.hide(_LINK, link)
        for metric in (_LAG, _LAG_TIME):
            self._slots.hide(metric, (name,))


class Exposure(NamedTuple):
    """High-water marks, and the number of looks by their mark in bytes (EXPOSURE_LE)."""

    bytes_at_least: int
    bytes_at_most: int
    ms_at_least: int
    ms_at_most: int
    looks: list[int]


class Link(NamedTuple):
    """The connection of a replica, or its last one, and why the last one that ended did."""

    remote: str
    error: str
    error_ms: int


class DumpMarksReader:
    """The reader. Owned by: the dump's thread in the supervisor."""

    def __init__(self, interval_ms: int) -> None:
        self._exposure: Final = HighWaterRing(_EXPOSURE_VALUES, interval_ms)
        self._lag: Final = HighWaterRing(1, interval_ms)

    def since_ms(self, wanted_ms: int, now_ms: int) -> int:
        """What marks that are asked for since `wanted_ms` reach back to, monotonic ms."""
        return self._exposure.since_ms(wanted_ms, now_ms)

    def exposure(self, reader: ReplicaViewSnapshot, since_ms: int) -> Exposure | None:
        """None before the first look."""
        rings, looks = reader.read(_EXPOSURE), reader.read(_LOOKS)
        if not rings or not looks:
            return None
        bytes_least, bytes_most, ms_least, ms_most = self._exposure.largest(rings[0][1], since_ms)
        return Exposure(
            round(bytes_least),
            round(bytes_most),
            round(ms_least),
            round(ms_most),
            [round(count) for count in looks[0][1]],
        )

    def largest_lags(self, reader: ReplicaViewSnapshot, since_ms: int) -> dict[str, int]:
        """By replica, ms."""
        return {
            labels[0]: round(self._lag.largest(ring, since_ms)[0])
            for labels, ring in reader.read(_LAG)
        }

    @staticmethod
    def lag_times(reader: ReplicaViewSnapshot) -> dict[str, list[int]]:
        """By replica: ms in sync by lag (LAG_LE_MS)."""
        return {labels[0]: [round(ms) for ms in times] for labels, times in reader.read(_LAG_TIME)}

    @staticmethod
    def links(reader: ReplicaViewSnapshot) -> dict[str, Link]:
        """By replica."""
        return {
            labels[0]: Link(labels[1], labels[2], round(values[0]))
            for labels, values in reader.read(_LINK)
            if labels[0] != OVERFLOW and not math.isnan(values[0])
        }
