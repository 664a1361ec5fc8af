"""ReplicaView: the replicas as seen by the supervisor, even while process `ha` is down or hangs.

Any thread of the supervisor. `ha` writes its observations to its metric slots several times a
second, with the time of the last observation. While `ha` does not observe, replicas are shown as
disconnected, ages increase, and lags grow with the log. Both sides use CLOCK_MONOTONIC. When `ha`
is back, it books a gap of more than GAP_MS as disconnected time itself: first it sets
HA_OBSERVED_MS, then the time in each state. Knows no HTTP and no files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeGuard

from broker.metrics import metrics_table as table
from broker.supervisor.child_state import ChildState
from ha.control_slots import REPLICA_COUNT
from ha.replica_clock import GAP_MS
from ha.slave_progress import ReplicaState
from ipc.clock import Clock
from ipc.control_page import ControlPage, ProcessIndex
from ipc.metric_slots import OVERFLOW, Labels, MetricSlotsReader
from remoting.metrics.metric import Rows
from store.control_slots import MAX_PHY_OFFSET

_DISCONNECTED: Final = ReplicaState.disconnected.value
_NOT_NOW: Final = {
    table.HA_REPLICA_CONNECTED.name,
    table.HA_REPLICA_IN_SYNC.name,
    table.HA_CLIENT_CONNECTED.name,
}
_GROWING: Final = {
    table.HA_REPLICA_LAG_BYTES.name,
    table.HA_UNREPLICATED_BYTES.name,
    table.HA_MASTER_MAX_OFFSET.name,
}
_AGEING: Final = {
    table.HA_REPLICA_LAG_SECONDS.name: table.HA_REPLICA_LAG_BYTES.name,
    table.HA_OLDEST_UNREPLICATED.name: table.HA_UNREPLICATED_BYTES.name,
}
"""Metric of an age to the metric of its bytes: without bytes the age does not increase."""
_EXACT: Final = {
    table.HA_REPLICA_LAG_EXACT.name: table.HA_REPLICA_LAG_BYTES.name,
    table.HA_UNREPLICATED_EXACT.name: table.HA_UNREPLICATED_BYTES.name,
}
"""Metric of exactness to the metric of its bytes: 0 bytes is exact; a part of more bytes may have
been acknowledged after the last observation of `ha`."""


class ReplicaViewSnapshot:
    """A snapshot with the `read` of MetricSlotsReader, corrected for the time that `ha` did not
    observe."""

    def __init__(
        self,
        reader: MetricSlotsReader,
        state_seconds: Rows,
        *,
        now_ms: int = 0,
        stale_ms: int | None = None,
        growth: float = 0.0,
    ) -> None:
        """stale_ms: age of the last observation of `ha`, None while it is observing; growth: bytes
        added to the log since then."""
        self._reader = reader
        self._state_seconds = state_seconds
        self._now_ms = now_ms
        self._stale_ms = stale_ms
        self._growth = growth

    @property
    def is_stale(self) -> bool:
        """Whether process `ha` is down or hangs."""
        return self._stale_ms is not None

    def read(self, metric: str) -> Rows:
        """The series of `metric`, of any process."""
        if metric == table.HA_STATE_SECONDS.name:
            return self._state_seconds
        rows = self._reader.read(metric)
        if self._stale_ms is None:
            return rows
        if metric in _NOT_NOW:
            return [(labels, [0.0]) for labels, _ in rows]
        if metric in _GROWING:
            return [(labels, [values[0] + self._growth]) for labels, values in rows]
        if metric in _EXACT:
            behind = self._behind(_EXACT[metric])
            return [(labels, [0.0] if labels in behind else values) for labels, values in rows]
        if metric == table.HA_REPLICA_LEFT.name:
            lost = (self._now_ms - self._stale_ms) / 1000
            return [(labels, [values[0] or lost]) for labels, values in rows]
        if metric in _AGEING:
            passed = self._stale_ms / 1000
            behind = self._behind(_AGEING[metric])
            return [
                (labels, [values[0] + passed] if labels in behind else values)
                for labels, values in rows
            ]
        return rows

    def _behind(self, size_metric: str) -> set[Labels]:
        """The series with a nonzero number of bytes."""
        return {labels for labels, values in self.read(size_metric) if values[0] > 0}


class ReplicaView:
    """Takes the snapshots. Guarded by: its lock."""

    def __init__(
        self,
        reader: MetricSlotsReader,
        page: ControlPage,
        children: Callable[[], Iterable[ChildState]],
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._counters = page.counters
        self._children = children
        self._clock = clock
        self._lock = threading.Lock()
        self._shown: dict[Labels, float] = {}

    def look(self) -> ReplicaViewSnapshot:
        """Take a snapshot."""
        with self._lock:
            # Read the time in each state first: it may lag behind HA_OBSERVED_MS, never the
            # other way round, and the values shown before fill the gap.
            state_seconds = self._reader.read(table.HA_STATE_SECONDS.name)
            gap_ms = self._gap_ms()
            state_seconds = self._with_gap(state_seconds, gap_ms if _is_long(gap_ms) else 0)
        if not self._is_stale(gap_ms):
            return ReplicaViewSnapshot(self._reader, state_seconds)
        return ReplicaViewSnapshot(
            self._reader,
            state_seconds,
            now_ms=self._clock.now_ms(),
            stale_ms=gap_ms or 0,
            growth=self._growth(),
        )

    def replica_count(self) -> int:
        """Distinct slaves that are connected and not too far behind; 0 while `ha` does not
        observe."""
        return 0 if self._is_stale(self._gap_ms()) else self._counters[REPLICA_COUNT]

    def _gap_ms(self) -> int | None:
        """Age of the last observation of `ha`; None if there was none."""
        rows = self._reader.read(table.HA_OBSERVED_MS.name)
        if not rows or not rows[0][1][0]:
            return None
        return max(0, self._clock.monotonic_ms() - int(rows[0][1][0]))

    def _is_stale(self, gap_ms: int | None) -> bool:
        """Whether `ha` hangs, is down, or was restarted and has not observed yet."""
        if _is_long(gap_ms):
            return True
        observed_ms = self._clock.monotonic_ms() - (gap_ms or 0)
        return any(
            child.process is None or (gap_ms is not None and observed_ms < child.started_ms)
            for child in self._children()
            if child.spec.index is ProcessIndex.HA
        )

    def _growth(self) -> float:
        rows = self._reader.read(table.HA_MASTER_MAX_OFFSET.name)
        return max(0.0, self._counters[MAX_PHY_OFFSET] - rows[0][1][0]) if rows else 0.0

    def _with_gap(self, rows: Rows, gap_ms: int) -> Rows:
        """Time in each state, with the gap counted as disconnected; never less than shown
        before."""
        seconds = {labels: values[0] for labels, values in rows}
        for replica in {labels[0] for labels in seconds} - {OVERFLOW}:
            key = (replica, _DISCONNECTED)
            counted = seconds.get(key, 0.0) + gap_ms / 1000
            shown = max(counted, self._shown.get(key, 0.0))
            if shown or key in seconds:
                seconds[key] = shown
        self._shown = {
            key: value
            for key, value in seconds.items()
            if key[1] == ReplicaState.disconnected.value
        }
        return [(labels, [value]) for labels, value in seconds.items()]


def _is_long(gap_ms: int | None) -> TypeGuard[int]:
    """Whether a gap of this length means that `ha` hangs."""
    return gap_ms is not None and gap_ms > GAP_MS
