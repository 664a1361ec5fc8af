"""How long a replica's lag was above a limit: what marks, counters and samples of lines prove.

Runs in the executors, over the masters' stream of a group. Lines of version 2 carry the largest lag
since the line before and counters of the time in sync by lag; of older lines only the moments are
known, and that a lag grows no faster than time. The rules are in docs/sla_report.md ("The lag").
Must not know objectives or verdicts.

Tested by tests/spark/figures/test_replica_time.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark.dumps.dump_line import ReplicaRow
from spark.figures.sample_stream import Sample, Stream, mark_reaches
from spark.reported_day import Day
from spark.vocabulary import STATES

_IN_SYNC, _DISCONNECTED = STATES[0], STATES[2]
_REST_MS = 1_000
"""So much of an interval may be left over: counters are looked at five times a second."""


def counted_lag(
    sample: Sample, row: ReplicaRow, row_before: ReplicaRow | None, limit_ms: float
) -> tuple[int, int] | None:
    """(below_ms, above_ms): time in sync since the predecessor of its boot with a lag of at most
    `limit_ms`, and above it, as `lag_time` counted; what lies in the bucket around a limit that is
    no bound is in neither. None where nothing counted it."""
    bounds, now = sample.line.lag_le, row.lag_time
    if not bounds or now is None or len(now) != len(bounds) + 1:
        return None
    past: Sequence[int] | None = [0] * len(now)
    before = sample.boot_predecessor
    if row_before is not None and before is not None:
        past = row_before.lag_time if before.line.lag_le == bounds else None
    elif before is not None or not sample.from_zero:
        return None
    if past is None or len(past) != len(now):
        return None
    below_ms = above_ms = 0
    for place, (this, that) in enumerate(zip(now, past, strict=True)):
        if this > that:
            if place < len(bounds) and bounds[place] <= limit_ms:
                below_ms += this - that
            elif place and bounds[place - 1] >= limit_ms:
                above_ms += this - that
    return below_ms, above_ms


def hidden_doubt_ms(sample: Sample, replica: str, limit_ms: float) -> int:
    """What the wall clock has no room for, as it was set back (`hidden_ms`), counts unless all of
    it is proved good: in sync throughout, with a lag of at most `limit_ms`."""
    row, before = sample.rows.get(replica), sample.boot_predecessor
    past = before.rows.get(replica) if before is not None else None
    if not sample.hidden_ms or row is None or past is None:
        return sample.hidden_ms
    now, then = row.state_ms, past.state_ms
    is_in_sync = (
        row.state == past.state == _IN_SYNC
        and now.disconnected == then.disconnected
        and now.catching_up == then.catching_up
        and now.in_sync - then.in_sync >= sample.span_ms - _REST_MS
    )
    if row.lag_ms_max is not None:
        is_within = row.lag_ms_max <= limit_ms and mark_reaches(sample)
    else:
        was_sure = past.lag_exact or not past.lag_bytes
        is_within = was_sure and past.lag_ms + sample.span_ms <= limit_ms
    return 0 if is_in_sync and is_within else sample.hidden_ms


@dataclass(slots=True)
class LagBounds:
    """Of the time that is neither excluded nor down, ms: `above` the limit for sure; not known.
    `neighbours`: the bounds (ms) around a limit that the lines do not count by."""

    asked_ms: int
    above_ms: int = 0
    below_ms: int = 0
    neighbours: list[int] | None = None

    @property
    def unknown_ms(self) -> int:
        return max(0, self.asked_ms - self.above_ms - self.below_ms)


def lag_bounds(
    stream: Stream,
    replica: str,
    limit_ms: float,
    left_out: Sequence[tuple[int, int]],
    day: Day,
) -> LagBounds:
    """`left_out`: spans of the window that are excluded or down, ascending and apart from each
    other: nothing is asked of them."""
    found = LagBounds(day.window_ms - sum(end - start for start, end in left_out))
    place = 0
    for sample in stream.samples:
        row = sample.rows.get(replica)
        if sample.hidden_ms and sample.in_window and not _is_within(left_out, sample.ts):
            found.asked_ms += hidden_doubt_ms(sample, replica, limit_ms)
        start_ms, end_ms = max(sample.start_ms, day.w0_ms), min(sample.ts, day.w1_ms)
        if row is None or start_ms >= end_ms:
            continue
        while place < len(left_out) and left_out[place][1] <= start_ms:
            place += 1
        inside_ms = end_ms - start_ms - _overlap_ms(left_out, place, start_ms, end_ms)
        if inside_ms <= 0:
            continue
        length_ms = sample.ts - sample.start_ms
        below_ms, above_ms = _of_interval(sample, replica, limit_ms, length_ms)
        outside_ms = length_ms - inside_ms
        found.below_ms += max(0, below_ms - outside_ms)
        found.above_ms += max(0, above_ms - outside_ms)
        if sample.line.lag_le:
            found.neighbours = _neighbours(sample.line.lag_le, limit_ms)
    return found


def _overlap_ms(spans: Sequence[tuple[int, int]], place: int, start_ms: int, end_ms: int) -> int:
    """Clocks that were set may lead back by some spans."""
    while place > 0 and spans[place - 1][1] > start_ms:
        place -= 1
    found = 0
    while place < len(spans) and spans[place][0] < end_ms:
        found += max(0, min(end_ms, spans[place][1]) - max(start_ms, spans[place][0]))
        place += 1
    return found


def _is_within(spans: Sequence[tuple[int, int]], ts: int) -> bool:
    return any(start_ms <= ts < end_ms for start_ms, end_ms in spans)


def _of_interval(sample: Sample, replica: str, limit_ms: float, length_ms: int) -> tuple[int, int]:
    """(below_ms, above_ms) of the whole interval of a sample with a row, in whatever state."""
    before, row = sample.boot_predecessor, sample.rows[replica]
    row_before = before.rows.get(replica) if before is not None else None
    above_ms = 0
    if row.lag_exact or row.state != _DISCONNECTED:  # at least that old
        above_ms = _cut(row.lag_ms - limit_ms, length_ms)
    safe_ms = 0
    if before is not None and row_before is not None and _is_at_most(row_before):
        passed_ms = sample.start_ms - (sample.ts - (sample.line.mono - before.line.mono))
        safe_ms = _cut(limit_ms - row_before.lag_ms - max(0, passed_ms), length_ms)
    if row.lag_ms_max is not None and row.lag_ms_max <= limit_ms:
        since = sample.line.since
        reach_ms = 0 if since is None else min(length_ms, max(0, sample.line.mono - since))
        if mark_reaches(sample):
            reach_ms = length_ms
        safe_ms = min(length_ms, safe_ms + reach_ms)
    below_ms = safe_ms
    counted = counted_lag(sample, row, row_before, limit_ms)
    if counted is not None:
        below_ms = max(below_ms, min(counted[0], length_ms))
        above_ms = max(above_ms, min(counted[1], length_ms))
    return min(below_ms, length_ms - above_ms), above_ms


def _is_at_most(row: ReplicaRow) -> bool:
    """Whether its lag is exact or an upper bound."""
    return row.lag_exact or not row.lag_bytes or row.state == _DISCONNECTED


def _cut(ms: float, most_ms: int) -> int:
    return max(0, min(most_ms, int(ms)))


def _neighbours(bounds: Sequence[int], limit_ms: float) -> list[int] | None:
    if limit_ms in bounds:
        return None
    lower = [bound for bound in bounds if bound < limit_ms]
    upper = [bound for bound in bounds if bound > limit_ms]
    return [*lower[-1:], *upper[:1]]
