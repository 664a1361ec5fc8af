"""The replicas as the supervisor sees them, also while process `ha` is dead or hangs.

Any thread of the supervisor. `ha` writes what it sees into its metric slots several times a second
and says when it looked last. While it does not look, its replicas are not connected, what it knew
gets older, and the log grows without them: what is shown says so. Both sides read CLOCK_MONOTONIC.
`ha` books a gap of more than GAP_MS as disconnected itself, when it is back: first its new
HA_OBSERVED_MS, then the time. It knows no HTTP and no files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeGuard

from broker.metrics import metrics_table as table
from broker.supervisor.supervisor import ChildState
from ha.control_slots import REPLICA_COUNT
from ha.replica_clock import GAP_MS
from ha.slave_progress import ReplicaState
from ipc.clock import Clock
from ipc.control_page import ControlPage, ProcessIndex
from ipc.metric_slots import OVERFLOW, Labels, MetricSlotsReader
from store.control_slots import MAX_PHY_OFFSET

Rows = list[tuple[Labels, list[float]]]
"""Label values, without the base labels, and slot values of each series of a metric."""

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
"""Age of something to its bytes: where there are none, nothing gets older."""
_EXACT: Final = {
    table.HA_REPLICA_LAG_EXACT.name: table.HA_REPLICA_LAG_BYTES.name,
    table.HA_UNREPLICATED_EXACT.name: table.HA_UNREPLICATED_BYTES.name,
}
"""Whether something is exact to its bytes: 0 of them is exact, and of more a part may have been
acknowledged after `ha` looked last."""


class Sight:
    """One look: `read` as MetricSlotsReader does, corrected for what `ha` did not see."""

    def __init__(
        self,
        reader: MetricSlotsReader,
        state_seconds: Rows,
        *,
        now_ms: int = 0,
        blind_ms: int | None = None,
        growth: float = 0.0,
    ) -> None:
        """blind_ms: how long ago `ha` looked last, None while it looks; growth: bytes of the log
        since then."""
        self._reader = reader
        self._state_seconds = state_seconds
        self._now_ms = now_ms
        self._blind_ms = blind_ms
        self._growth = growth

    @property
    def is_blind(self) -> bool:
        """Whether process `ha` is dead or hangs."""
        return self._blind_ms is not None

    def read(self, metric: str) -> Rows:
        """The series of `metric`, of any process."""
        if metric == table.HA_STATE_SECONDS.name:
            return self._state_seconds
        rows = self._reader.read(metric)
        if self._blind_ms is None:
            return rows
        if metric in _NOT_NOW:
            return [(labels, [0.0]) for labels, _ in rows]
        if metric in _GROWING:
            return [(labels, [values[0] + self._growth]) for labels, values in rows]
        if metric in _EXACT:
            behind = self._behind(_EXACT[metric])
            return [(labels, [0.0] if labels in behind else values) for labels, values in rows]
        if metric == table.HA_REPLICA_LEFT.name:
            lost = (self._now_ms - self._blind_ms) / 1000
            return [(labels, [values[0] or lost]) for labels, values in rows]
        if metric in _AGEING:
            passed = self._blind_ms / 1000
            behind = self._behind(_AGEING[metric])
            return [
                (labels, [values[0] + passed] if labels in behind else values)
                for labels, values in rows
            ]
        return rows

    def _behind(self, size_metric: str) -> set[Labels]:
        """Where there are some bytes."""
        return {labels for labels, values in self.read(size_metric) if values[0] > 0}


class ReplicaSight:
    """Makes the looks. Guarded by: its lock."""

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

    def look(self) -> Sight:
        """What is there now."""
        with self._lock:
            # The time in each state first: it may lack what HA_OBSERVED_MS promises, never the
            # other way round, and what was shown before fills the hole.
            state_seconds = self._reader.read(table.HA_STATE_SECONDS.name)
            gap_ms = self._gap_ms()
            state_seconds = self._with_gap(state_seconds, gap_ms if _is_long(gap_ms) else 0)
        if not self._is_blind(gap_ms):
            return Sight(self._reader, state_seconds)
        return Sight(
            self._reader,
            state_seconds,
            now_ms=self._clock.now_ms(),
            blind_ms=gap_ms or 0,
            growth=self._growth(),
        )

    def replica_count(self) -> int:
        """Distinct slaves that are connected and not too far back; 0 while `ha` does not look."""
        return 0 if self._is_blind(self._gap_ms()) else self._counters[REPLICA_COUNT]

    def _gap_ms(self) -> int | None:
        """How long ago `ha` looked; None: it never did."""
        rows = self._reader.read(table.HA_OBSERVED_MS.name)
        if not rows or not rows[0][1][0]:
            return None
        return max(0, self._clock.monotonic_ms() - int(rows[0][1][0]))

    def _is_blind(self, gap_ms: int | None) -> bool:
        """Whether `ha` hangs, does not run, or was started again and has not looked yet."""
        if _is_long(gap_ms):
            return True
        looked_ms = self._clock.monotonic_ms() - (gap_ms or 0)
        return any(
            child.process is None or (gap_ms is not None and looked_ms < child.started_ms)
            for child in self._children()
            if child.spec.index is ProcessIndex.HA
        )

    def _growth(self) -> float:
        rows = self._reader.read(table.HA_MASTER_MAX_OFFSET.name)
        return max(0.0, self._counters[MAX_PHY_OFFSET] - rows[0][1][0]) if rows else 0.0

    def _with_gap(self, rows: Rows, gap_ms: int) -> Rows:
        """Time in each state, the gap booked as disconnected; never less than was shown."""
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
    """Whether so long a silence means that `ha` hangs."""
    return gap_ms is not None and gap_ms > GAP_MS
