"""The nightly report once more, slow and obvious: the time of a replica, piece by piece.

Standard library only, like plain_report.py, which uses this: docs/sla_report.md, "The time of a
replica". A piece is good, bad, unknown or excluded, and has a state or none.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.spark.plain_bounds import counted_lag, hidden_doubt, never_above
from tests.spark.plain_samples import STATES, Json, Sample, Window, is_unnamed
from tests.spark.plain_spells import IS_MASTER

GOOD, BAD, UNKNOWN, EXCLUDED = "good", "bad", "unknown", "excluded"
CLOCK_SLACK_MS: Final = 1000
"""So much of an interval may be left over."""
BOOKED_LATE_MS: Final = 2500
"""By so much counters may rise faster than the clock: a silence of process `ha` is booked late."""
FIRST_COPY: Final = "first copy"
NOT_YET: Final = "did not exist yet"
BETWEEN: Final = ("disconnected", "catching_up", "in_sync")
"""The order of states that are neither the sample's own nor its predecessor's."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Piece:
    """Part of the window of one replica. `sample` is None for time that nothing tells of."""

    start: float
    end: float
    quality: str
    state: str | None = None
    sample: Sample | None = None
    reason: str | None = None
    """Why it is excluded."""

    @property
    def ends_incident(self) -> bool:
        return self.quality == GOOD or self.reason == IS_MASTER

    @property
    def length_ms(self) -> float:
        return self.end - self.start

    def within(self, start: float, end: float) -> float:
        """How much of it lies there, ms."""
        return max(0, min(self.end, end) - max(self.start, start))


@dataclass(frozen=True)
class Extra:
    """Time out of sync, or unknown, that the wall clock has no room for; it counts at `ts`."""

    ts: int
    length_ms: float
    state: str | None
    quality: str = BAD


@dataclass
class Time:
    """All time of a replica: pieces without gap or overlap, and extra time."""

    pieces: list[Piece]
    extra: list[Extra]
    first_copy_since_ms: int | None = None

    def told_ms(self, start: float, end: float) -> dict[str, float]:
        """The pieces of [start, end), by quality, and extra time on top."""
        told = {q: self._of_quality(q, start, end) for q in (GOOD, BAD, UNKNOWN, EXCLUDED)}
        for extra in self.extra:
            if start <= extra.ts < end:
                told[extra.quality] += extra.length_ms
        return told

    def total_ms(self, start: float, end: float) -> dict[str, float]:
        """Of [start, end), by quality: together all of it."""
        told = self.told_ms(start, end)
        excluded, good = told[EXCLUDED], told[GOOD]
        left = end - start - excluded
        bad = min(left, told[BAD])
        hidden: float = sum(
            e.length_ms for e in self.extra if start <= e.ts < end and e.quality == UNKNOWN
        )
        good = min(max(0, left - bad - hidden), good)
        return {GOOD: good, BAD: bad, UNKNOWN: left - bad - good, EXCLUDED: excluded}

    def _of_quality(self, quality: str, start: float, end: float) -> float:
        first = bisect.bisect_right(self.pieces, start, key=lambda p: p.end)
        last = bisect.bisect_left(self.pieces, end, key=lambda p: p.start)
        return sum(p.within(start, end) for p in self.pieces[first:last] if p.quality == quality)

    def state_ms(self, state: str) -> float:
        pieces = sum(piece.length_ms for piece in self.pieces if piece.state == state)
        return pieces + sum(extra.length_ms for extra in self.extra if extra.state == state)

    def counted_ms(self, sample: Sample, start: float, end: float) -> float:
        """How much of its segment lies in [start, end) and is not excluded."""
        first, last = max(sample.segment[0], start), min(sample.segment[1], end)
        return last - first - self._of_quality(EXCLUDED, first, last) if first < last else 0


@dataclass(frozen=True)
class Known:
    """What decides about a replica's time beside the samples."""

    name: str
    limit_ms: float
    since: float
    """Since when it is known."""
    other: tuple[int, int] | None
    """From when to when a master that was passed over had it."""
    doubted: Sequence[tuple[float, float]] = ()
    """Two masters at once."""
    unnamed_from: float = math.inf
    """The place in the stream from which on it may have been there under an ip."""

    def unborn(self, start: float, end: float, sample: Sample, place: int) -> Piece:
        """Time before its first row; of a replica without any row nobody knows, nor of one that may
        have been there up to the sample at `place`."""
        if self.since == math.inf or place >= self.unnamed_from:
            return Piece(start, end, UNKNOWN, None, sample)
        return Piece(start, end, EXCLUDED, None, sample, NOT_YET)

    def may_exist(self, sample: Sample, place: int) -> bool:
        """It is known by the sample, or may have been there up to the one at `place`."""
        return sample.ts > self.since or (self.unnamed_from <= place and self.since < math.inf)


def time_of(stream: list[Sample], known: Known, window: Window) -> Time:
    """The whole window, cut into pieces; nothing is excluded yet."""
    told: list[Piece] = []
    extra: list[Extra] = []
    for place, sample in enumerate(stream):
        told += _down(sample, known, place)
        row = sample.row(known.name)
        is_unnamed_since = known.unnamed_from < math.inf and known.since < math.inf
        if sample.carried_ms and (known.since < window.w0 or is_unnamed_since):
            extra.append(Extra(window.w0, sample.carried_ms, None, UNKNOWN))
        if sample.in_window:
            extra += _hidden(sample, known, window, place)
        elif sample.is_closing and sample.boot_ts < window.w1 and sample.hidden_down_ms:
            is_there = known.may_exist(sample, place - 1)
            hidden = sample.hidden_down_ms if is_there else 0
            extra += [Extra(window.w1 - 1, hidden, None, UNKNOWN)] if hidden else []
        is_away = row is None or row["state"] == "disconnected"
        if is_away and known.other is not None:
            first, last = known.other
            if sample.start < last and sample.ts >= first:
                told.append(Piece(sample.start, sample.ts, UNKNOWN, None, sample))
                continue
        if row is None:
            if sample.ts <= known.since:
                told.append(known.unborn(sample.start, sample.ts, sample, place))
                continue
            group = sample.cluster, sample.broker
            some = (name for name in sample.rows if _was_connected(sample, name))
            if known.unnamed_from < math.inf and any(is_unnamed(group, name) for name in some):
                told.append(Piece(sample.start, sample.ts, UNKNOWN, None, sample))
                continue
            covered = max(sample.start, sample.ts - sample.covered_ms)
            told.append(Piece(sample.start, covered, UNKNOWN, None, sample))
            told.append(Piece(covered, sample.ts, BAD, "disconnected", sample))
            continue
        laid_out, more = _laid_out(sample, row, known, place)
        told += _of_the_window(laid_out, sample, window)
        if sample.in_window:
            extra += more
    pieces = _filled(told, window)
    for start, end in known.doubted:
        pieces = [part for piece in pieces for part in _in_doubt(piece, start, end)]
    return Time(pieces, extra)


def _was_connected(sample: Sample, name: str) -> bool:
    """At the sample, or at any time since its predecessor, by its counters."""
    row, past = sample.rows[name], sample.before.row(name) if sample.before is not None else None
    counted = [
        each["state_ms"]["in_sync"] + each["state_ms"]["catching_up"]
        for each in (row, past)
        if each is not None
    ]
    return bool(row["connected"] or counted[0] > sum(counted[1:]))


def _hidden(sample: Sample, known: Known, window: Window, place: int) -> list[Extra]:
    """Unknown time that a clock that was set back has no room for, less what is bad of it; while it
    is known, or may be there under an ip."""
    row, bad = sample.row(known.name), 0.0
    is_elsewhere = (
        known.other is not None
        and sample.start < known.other[1]
        and sample.ts >= known.other[0]
        and (row is None or row["state"] == "disconnected")
    )
    if row is not None and not is_elsewhere and sample.ts > window.w0:
        bad = sum(extra.length_ms for extra in _laid_out(sample, row, known, 0)[1])
    hidden = 0.0
    if known.may_exist(sample, place):
        hidden = max(0.0, hidden_doubt(sample, known.name, known.limit_ms) - bad)
    if known.may_exist(sample, place - 1):
        hidden += sample.hidden_down_ms
    return [Extra(sample.ts, hidden, None, UNKNOWN)] if hidden else []


def _in_doubt(piece: Piece, start: float, end: float) -> list[Piece]:
    """Of two masters at once neither proves that anything was good."""
    start, end = max(piece.start, start), min(piece.end, end)
    if piece.quality != GOOD or start >= end:
        return [piece]
    parts = [
        dataclasses.replace(piece, end=start),
        dataclasses.replace(piece, start=start, end=end, quality=UNKNOWN, state=None),
        dataclasses.replace(piece, start=end),
    ]
    return [part for part in parts if part.start < part.end]


def _of_the_window(laid_out: list[Piece], sample: Sample, window: Window) -> list[Piece]:
    """An interval across an edge of the window: when its states were, the counters do not say. What
    of a quality finds no room outside was inside; the rest inside is unknown."""
    laid_out = [piece for piece in laid_out if piece.start < piece.end]
    start, end = max(sample.start, window.w0), min(sample.ts, window.w1)
    if sample.in_window and sample.before is not None and sample.before.in_window:
        return laid_out  # It lies in the window, whatever the wall clock says.
    mine = [p for p in laid_out if p.quality != EXCLUDED]
    length = sum(p.length_ms for p in mine)
    if start >= end or len({p.quality for p in mine}) < 2:
        return laid_out
    first, last = min(p.start for p in mine), max(p.end for p in mine)
    start, end = max(start, first), min(end, last)
    if start >= end or (start, end) == (first, last):
        return laid_out
    outside = length - (end - start)
    bad = max(0, sum(p.length_ms for p in mine if p.quality == BAD) - outside)
    good = max(0, sum(p.length_ms for p in mine if p.quality == GOOD) - outside)
    bad_ms = {
        s: sum(p.length_ms for p in mine if (p.quality, p.state) == (BAD, s)) for s in BETWEEN
    }
    state = sorted(BETWEEN, key=lambda s: -bad_ms[s])[0]  # of equal ones the first
    return [
        *(p for p in laid_out if p.quality == EXCLUDED),
        Piece(start, start + bad, BAD, state, sample),
        Piece(start + bad, end - good, UNKNOWN, None, sample),
        Piece(end - good, end, GOOD, "in_sync", sample),
    ]


def _down(sample: Sample, known: Known, place: int) -> list[Piece]:
    """Bad for whom was known by its end."""
    if sample.down_end > known.since:
        return [Piece(sample.down_start, sample.down_end, BAD, "down", sample)]
    return [known.unborn(sample.down_start, sample.down_end, sample, place - 1)]


def _filled(told: list[Piece], window: Window) -> list[Piece]:
    """Clipped to the window; what nobody told of is unknown."""
    pieces: list[Piece] = []
    at: float = window.w0
    for piece in sorted(told, key=lambda p: p.start):
        start, end = max(piece.start, window.w0), min(piece.end, window.w1)
        if start >= end:
            continue
        assert start >= at, "pieces overlap"
        if start > at:
            pieces.append(Piece(at, start, UNKNOWN))
        pieces.append(dataclasses.replace(piece, start=start, end=end))
        at = end
    if at < window.w1:
        pieces.append(Piece(at, window.w1, UNKNOWN))
    return pieces


# -- what the counters say -------------------------------------------------------------------


def _counted(sample: Sample, name: str) -> dict[str, int]:
    """How long it was in each state since the predecessor; zeros where the counters do not tell."""
    nothing = dict.fromkeys(STATES, 0)
    row, before = sample.row(name), sample.before
    if row is None:
        return nothing
    if before is not None:
        earlier, passed = before.row(name), sample.mono_ms
    elif sample.from_zero:
        earlier, passed = None, sample.since_boot_ms
    else:
        return nothing
    began = earlier["state_ms"] if earlier is not None else nothing
    rises = {state: max(0, row["state_ms"][state] - began[state]) for state in STATES}
    too_much = sum(rises.values()) - passed
    if before is not None and earlier is None and too_much <= sample.since_boot_ms - passed:
        for state in BETWEEN:  # What was before the predecessor is not this interval's.
            taken = max(0, min(too_much, rises[state]))
            rises[state] -= taken
            too_much -= taken
    return rises if too_much <= BOOKED_LATE_MS else nothing


def _laid_out(
    sample: Sample, row: Json, known: Known, place: int
) -> tuple[list[Piece], list[Extra]]:
    """The time of a sample, the one at `place`, that has a row of the replica."""
    counted = _counted(sample, known.name)
    earlier = sample.before.row(known.name) if sample.before is not None else None
    length = sample.ts - sample.start
    out_of_sync = counted["disconnected"] + counted["catching_up"]
    untold = max(0, sample.mono_ms - sum(counted.values())) if sample.before is not None else 0
    lengths = counted | {"in_sync": min(counted["in_sync"], max(0, length - out_of_sync))}
    pieces: list[Piece] = []
    extra: list[Extra] = []
    end = sample.ts
    for state in reversed(_order(row, earlier)):
        start = max(sample.start, end - lengths[state])
        if state == "in_sync":
            pieces += _judged(sample, row, known, start, end, untold)
        else:
            pieces.append(Piece(start, end, BAD, state, sample))
            no_room = lengths[state] - (end - start)
            if no_room > 0 and not sample.others_told:
                extra.append(Extra(sample.ts, no_room, state))
        end = start
    both_in_sync = earlier is not None and earlier["state"] == row["state"] == "in_sync"
    if both_in_sync and end - sample.start <= CLOCK_SLACK_MS:
        pieces += _judged(sample, row, known, sample.start, end, 0, is_counted=False)
    elif earlier is None and sample.same_boot and sample.ts <= known.since:
        pieces.append(known.unborn(sample.start, end, sample, place))
    else:
        pieces.append(Piece(sample.start, end, UNKNOWN, None, sample))
    return pieces, extra


def _order(row: Json, earlier: Json | None) -> list[str]:
    """The predecessor's state first, the sample's own last."""
    own = row["state"]
    first = [earlier["state"]] if earlier is not None and earlier["state"] != own else []
    return [*first, *(state for state in BETWEEN if state not in (*first, own)), own]


# -- time in sync, judged by the lag -----------------------------------------------------------


def _judged(
    sample: Sample,
    row: Json,
    known: Known,
    x: float,
    y: float,
    untold: float,
    *,
    is_counted: bool = True,
) -> list[Piece]:
    """Time in sync [x, y) of a sample, by its lag and its predecessor's. `untold`: so much of what
    was before may have been in sync, too. `is_counted`: the counters counted it."""
    if never_above(sample, row, known.limit_ms):
        return [Piece(x, y, GOOD, "in_sync", sample)] if x < y else []
    by_lag = counted_lag(sample, known.name, known.limit_ms) if is_counted else None
    if by_lag is not None:
        parts = _by_lag_time(sample, row, known, x, y, by_lag)
        return [Piece(a, b, quality, "in_sync", sample) for a, b, quality in parts if a < b]
    seen = max(x, min(y, sample.ts - sample.covered_ms))
    qualities = [(x, seen, UNKNOWN), *_seen_in_sync(sample, row, known, (seen, y), x - untold)]
    return [
        Piece(start, end, quality, "in_sync", sample)
        for start, end, quality in qualities
        if start < end
    ]


def _by_lag_time(
    sample: Sample, row: Json, known: Known, x: float, y: float, by_lag: tuple[int, int]
) -> list[tuple[float, float, str]]:
    """Late time lies at the begin if that was late and the end was not, else at the end."""
    good = min(y - x, by_lag[0])
    bad = min(y - x - good, by_lag[1])
    before = sample.before.row(known.name) if sample.before is not None else None
    ends = [
        each is not None and each["state"] == "in_sync" and each["lag_ms"] > known.limit_ms
        for each in (before, row)
    ]
    if ends == [True, False]:
        return [(x, x + bad, BAD), (x + bad, y - good, UNKNOWN), (y - good, y, GOOD)]
    return [(x, x + good, GOOD), (x + good, y - bad, UNKNOWN), (y - bad, y, BAD)]


def _seen_in_sync(
    sample: Sample, row: Json, known: Known, time: Interval, since: float
) -> list[tuple[float, float, str]]:
    """`since`: when the lag may have begun to grow from what the predecessor saw."""
    x, y = time
    limit, lag = known.limit_ms, row["lag_ms"]
    is_bound = row["lag_exact"] or row["lag_bytes"] == 0
    until = since + limit
    """So long the lag cannot have grown above the limit: it came in sync without one."""
    p_row = sample.before.row(known.name) if sample.before is not None else None
    if sample.before is not None and p_row is not None and p_row["state"] == "in_sync":
        was_bound = p_row["lag_exact"] or p_row["lag_bytes"] == 0
        until = until - p_row["lag_ms"] if was_bound else -math.inf
    certain = _between(x, until, y)
    if row["state"] == "in_sync" and lag > limit:
        above = _between(x, sample.ts - (lag - limit), y)
        certain = min(certain, above)
        return [(x, certain, GOOD), (certain, above, UNKNOWN), (above, y, BAD)]
    if row["state"] == "in_sync" and not is_bound:
        return [(x, y, UNKNOWN)]
    return [(x, certain, GOOD), (certain, y, UNKNOWN)]


def _between(lowest: float, value: float, highest: float) -> float:
    return max(lowest, min(value, highest))


# -- what is taken out -----------------------------------------------------------------------


def exclude(
    time: Time,
    maintenance: Sequence[tuple[float, float, str]],
    first_copy_since: int | None,
    first_copy_ms: float,
) -> Time:
    """The same without the time of maintenance (from, to, reason) and of a first copy."""
    pieces, extra = time.pieces, time.extra
    copy: Interval | None = None
    still_since = None
    if first_copy_since is not None and first_copy_ms:
        in_sync = [p.start for p in pieces if p.state == "in_sync"]
        copied = min(in_sync, default=math.inf)
        copy = -math.inf, min(copied, first_copy_since + first_copy_ms)
        still_since = first_copy_since if not in_sync else None
    for start, end, reason in maintenance:
        pieces = [part for p in pieces for part in _taken_out(p, (start, end), reason)]
    for start, end in _without_overlaps([(start, end) for start, end, _ in maintenance]):
        extra = _more_than(extra, start, end)
    if copy is not None:
        pieces = [
            part
            for piece in pieces
            for part in (
                _taken_out(piece, copy, FIRST_COPY) if piece.state == "catching_up" else [piece]
            )
        ]
        extra = [e for e in extra if e.state != "catching_up" or not copy[0] <= e.ts < copy[1]]
    return Time(pieces, extra, still_since)


def _taken_out(piece: Piece, interval: Interval, reason: str) -> list[Piece]:
    if piece.quality == EXCLUDED:
        return [piece]
    start, end = max(piece.start, interval[0]), min(piece.end, interval[1])
    if start >= end:
        return [piece]
    parts = [
        dataclasses.replace(piece, end=start),
        dataclasses.replace(
            piece, start=start, end=end, quality=EXCLUDED, state=None, reason=reason
        ),
        dataclasses.replace(piece, start=end),
    ]
    return [part for part in parts if part.start < part.end]


def _without_overlaps(intervals: list[Interval]) -> list[Interval]:
    """Each stretch of time that some interval has, once."""
    moments = sorted({moment for interval in intervals for moment in interval})
    found: list[Interval] = []
    for start, end in itertools.pairwise(moments):
        if any(first <= start and end <= last for first, last in intervals):
            if found and found[-1][1] == start:
                found[-1] = found[-1][0], end
            else:
                found.append((start, end))
    return found


def _more_than(extra: list[Extra], start: float, end: float) -> list[Extra]:
    """What of the extra time of maintenance is longer than that; bad time is taken out first."""
    inside = [e for e in extra if start <= e.ts < end]
    left, room = [e for e in extra if e not in inside], end - start
    for quality in (BAD, UNKNOWN):
        for each in sorted((e for e in inside if e.quality == quality), key=lambda e: e.ts):
            kept = max(0, each.length_ms - room)
            room = max(0, room - each.length_ms)
            if kept:
                left.append(Extra(each.ts, kept, each.state, quality))
    return left


def exclusions_of(time: Time) -> list[Json]:
    """Seconds by reason, by the reasons' names."""
    reasons = sorted({piece.reason for piece in time.pieces if piece.reason is not None})
    return [
        {
            "reason": reason,
            "seconds": sum(p.length_ms for p in time.pieces if p.reason == reason) / 1000,
        }
        for reason in reasons
    ]
