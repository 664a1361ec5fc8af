"""Time in sync of one interval, judged by the lag: good, bad, or nobody knows.

Runs in the executors, for spark/figures/replica_time.py. The rules are in docs/sla_report.md ("The
time of a replica"). Must not know other states, days or objectives.
"""

from __future__ import annotations

from typing import Final

from spark.dumps.dump_line import ReplicaRow
from spark.figures.lag_marks import counted_lag
from spark.figures.sample_stream import Sample, mark_reaches
from spark.figures.time_pieces import BAD, GOOD, IN_SYNC, UNKNOWN


class LagJudge:
    """Judges time in sync of one interval by the lag on both of its ends. The lag is the age of a
    record: it grows by one second a second at most."""

    def __init__(
        self,
        sample: Sample,
        row: ReplicaRow,
        row_before: ReplicaRow | None,
        limit_ms: float,
    ) -> None:
        self._sample: Final = sample
        self._row: Final = row
        self._limit_ms: Final = limit_ms
        self._is_sure: Final = row.lag_exact or not row.lag_bytes
        self._room_ms: float | None = limit_ms
        """So much may the lag grow before it passes the limit; None: nobody knows. A replica gets
        in sync without a lag."""
        if row_before is not None and row_before.state == IN_SYNC:
            was_sure = row_before.lag_exact or not row_before.lag_bytes
            self._room_ms = limit_ms - row_before.lag_ms if was_sure else None
        self._is_late_before: Final = (
            row_before is not None
            and row_before.state == IN_SYNC
            and row_before.lag_ms > limit_ms
            and (row.state != IN_SYNC or row.lag_ms <= limit_ms)
        )
        self._is_marked: Final = (
            row.lag_ms_max is not None and row.lag_ms_max <= limit_ms and mark_reaches(sample)
        )
        """No moment of the interval was above the limit."""
        self._lag_time: Final = counted_lag(sample, row, row_before, limit_ms)

    def judged(
        self, start_ms: int, end_ms: int, since_ms: int, *, is_counted: bool = True
    ) -> list[tuple[int, int, str]]:
        """(start_ms, end_ms, quality) of time in sync, in order, without empty ones. `since_ms`:
        from then on the lag may have grown. `is_counted`: it is what the counters counted."""
        if self._is_marked:
            return [(start_ms, end_ms, GOOD)] if start_ms < end_ms else []
        if self._lag_time is not None and is_counted:
            return self._by_counters(start_ms, end_ms)
        spoken_ms = max(start_ms, min(end_ms, self._sample.spoken_ms))
        parts = [(start_ms, spoken_ms, UNKNOWN), *self._spoken(spoken_ms, end_ms, since_ms)]
        return [part for part in parts if part[0] < part[1]]

    def _by_counters(self, start_ms: int, end_ms: int) -> list[tuple[int, int, str]]:
        """As `lag_time` counted; late time lies at the end that was seen late, or at the last."""
        assert self._lag_time is not None, "asked only where there are counters"
        below_ms, above_ms = self._lag_time
        good_ms = min(end_ms - start_ms, below_ms)
        bad_ms = min(end_ms - start_ms - good_ms, above_ms)
        if self._is_late_before:
            late_ms, safe_ms = start_ms + bad_ms, end_ms - good_ms
            parts = [
                (start_ms, late_ms, BAD),
                (late_ms, safe_ms, UNKNOWN),
                (safe_ms, end_ms, GOOD),
            ]
        else:
            safe_ms, late_ms = start_ms + good_ms, end_ms - bad_ms
            parts = [
                (start_ms, safe_ms, GOOD),
                (safe_ms, late_ms, UNKNOWN),
                (late_ms, end_ms, BAD),
            ]
        return [part for part in parts if part[0] < part[1]]

    def _spoken(self, start_ms: int, end_ms: int, since_ms: int) -> list[tuple[int, int, str]]:
        row, limit_ms = self._row, self._limit_ms
        is_late = row.lag_ms > limit_ms
        safe_ms = start_ms
        if self._room_ms is not None:
            safe_ms = _cut(since_ms + self._room_ms, start_ms, end_ms)
        if row.state == IN_SYNC and is_late:
            late_ms = _cut(self._sample.ts - (row.lag_ms - limit_ms), start_ms, end_ms)
            safe_ms = min(safe_ms, late_ms)
            return [
                (start_ms, safe_ms, GOOD),
                (safe_ms, late_ms, UNKNOWN),
                (late_ms, end_ms, BAD),
            ]
        if row.state == IN_SYNC and not self._is_sure:
            return [(start_ms, end_ms, UNKNOWN)]
        # The lag may have been above the limit and come down.
        return [(start_ms, safe_ms, GOOD), (safe_ms, end_ms, UNKNOWN)]


def _cut(at_ms: float, start_ms: int, end_ms: int) -> int:
    """A moment within [start_ms, end_ms]; whole ms."""
    return max(start_ms, min(end_ms, int(at_ms)))
