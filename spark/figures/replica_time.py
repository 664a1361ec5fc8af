"""The time of one replica, in pieces: good, bad, unknown or excluded, and in which state.

Runs in the executors, over the masters' stream of a group (spark/figures/sample_stream.py). Time
out of sync is what the counters of the lines show, time in sync is judged by the lag; the rules are
in docs/sla_report.md ("The time of a replica"). Must not know figures or results.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spark.dumps.dump_line import ReplicaRow
from spark.figures.lag_judge import LagJudge
from spark.figures.lag_marks import hidden_doubt_ms
from spark.figures.replica_names import BEFORE_ALL, Place, is_unnamed, place_of
from spark.figures.sample_stream import Sample, Stream, mark_reaches
from spark.figures.time_pieces import (
    BAD,
    CATCHING_UP,
    DISCONNECTED,
    DOWN,
    EXCLUDED,
    GOOD,
    IN_SYNC,
    NEVER,
    UNKNOWN,
    Extra,
    Piece,
    ReplicaTime,
    doubted,
    exclude,
    shared,
)
from spark.reported_day import Day
from spark.vocabulary import NOT_YET, STATES

_BEFORE_OWN: Final = (DISCONNECTED, CATCHING_UP, IN_SYNC)
"""The order, within an interval, of states of which the samples on both ends say nothing."""
_REST_MS: Final = 1_000
"""So much of an interval may be left over: counters are looked at five times a second."""
_BOOKED_LATE_MS: Final = 2_500
"""By so much counters may rise faster than the clock: a silence of process `ha` is booked late."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of one replica.

    `limit_ms`: of the lag. `known_ms`: from then on its row is missed. `unnamed_since`: from this
    sample on it may have been there before that, under the ip of its connection. `copy_since_ms`:
    when its first copy began, None for a replica that had its copy; it may take `copy_ms`.
    `maintenance`: (from_ms, to_ms, reason). `doubted`: spans of two masters at once, in which
    nothing is good.
    """

    replica: str
    limit_ms: float
    known_ms: int
    copy_since_ms: int | None = None
    copy_ms: int = 0
    maintenance: Sequence[tuple[int, int, str]] = ()
    doubted: Sequence[tuple[int, int]] = ()
    unnamed_since: Place | None = None


def replica_time(stream: Stream, asked: Asked, day: Day) -> ReplicaTime:
    """The whole window of one replica."""
    builder = _Builder(stream, asked, day)
    builder.add_all(stream.samples)
    found = ReplicaTime(builder.whole(), builder.extras)
    for start_ms, end_ms in asked.doubted:
        found.pieces = list(doubted(found.pieces, start_ms, end_ms))
    exclude(found, asked.maintenance, asked.copy_since_ms, asked.copy_ms)
    return found


def elsewhere(stream: Stream, replica: str) -> tuple[int, int] | None:
    """From when to when a master that another one overtook had this replica."""
    moments = [
        sample.ts
        for sample in stream.samples
        if sample.overtaken and replica in sample.rows and sample.rows[replica].connected
    ]
    return (min(moments), max(moments)) if moments else None


class _Builder:
    """Lays out one interval after the other; clips to the window."""

    def __init__(self, stream: Stream, asked: Asked, day: Day) -> None:
        self._asked: Final = asked
        self._day: Final = day
        self._other: Final = elsewhere(stream, asked.replica)
        self._known: list[Piece] = []
        self.extras: list[Extra] = []

    def add_all(self, samples: Iterable[Sample]) -> None:
        """The samples in their order. Nearly all of them lengthen the good piece before them."""
        replica, w1_ms = self._asked.replica, self._day.w1_ms
        good: Piece | None = None
        for sample in samples:
            row, before = sample.rows.get(replica), sample.boot_predecessor
            row_before = before.rows.get(replica) if before is not None else None
            if (
                good is not None
                and good.end_ms == sample.start_ms
                and sample.ts <= w1_ms
                and not sample.hidden_ms
                and row is not None
                and row_before is not None
                and self._is_calm(sample, row, row_before)
            ):
                good.end_ms = sample.ts
                continue
            told = len(self.extras)
            self._add(sample, row, row_before)
            if sample.carried_ms and self._may_precede_window():
                self.extras.append(Extra(self._day.w0_ms, sample.carried_ms, None, UNKNOWN))
            if (sample.hidden_ms or sample.hidden_down_ms) and sample.in_window:
                self._add_hidden(sample, sum(extra.ms for extra in self.extras[told:]))
            elif sample.hidden_down_ms and sample.line.boot_ts < w1_ms <= sample.ts:
                self._add_hidden_down(sample)  # It began in the window, whose lines are lost.
            good = self._known[-1] if self._known and self._known[-1].quality == GOOD else None

    def _add(self, sample: Sample, row: ReplicaRow | None, row_before: ReplicaRow | None) -> None:
        """One sample's down time and interval."""
        if sample.down_ms is not None:
            end_ms = min(sample.line.boot_ts, sample.ts)
            if end_ms > self._asked.known_ms:
                self._put(sample.down_ms, end_ms, BAD, DOWN, sample)
            else:
                self._put_unborn(sample.down_ms, end_ms, sample, sample.predecessor)
        if sample.ts <= self._day.w0_ms:
            return
        if row is None:
            self._add_without_row(sample)
        elif row_before is not None and self._is_calm(sample, row, row_before):
            self._put(sample.start_ms, sample.ts, GOOD, IN_SYNC, sample)
        elif row.state == DISCONNECTED and self._is_elsewhere(sample):
            self._put(sample.start_ms, sample.ts, UNKNOWN, None, sample)
        else:
            self._add_counted(sample, row, row_before)

    def _add_hidden(self, sample: Sample, bad_ms: int) -> None:
        """What a clock that was set back has no room for is unknown, but for what is proved:
        `bad_ms` of it were bad."""
        hidden_ms = 0
        if self._may_be_there(sample, place_of(sample)):
            hidden_ms = hidden_doubt_ms(sample, self._asked.replica, self._asked.limit_ms)
            hidden_ms = max(0, hidden_ms - bad_ms)
        if hidden_ms:
            self.extras.append(Extra(sample.ts, hidden_ms, None, UNKNOWN))
        self._add_hidden_down(sample)

    def _add_hidden_down(self, sample: Sample) -> None:
        """The same of the time before a life's first sample."""
        before = sample.predecessor
        last = BEFORE_ALL if before is None else place_of(before)
        if sample.hidden_down_ms and self._may_be_there(sample, last):
            ts = min(sample.ts, self._day.w1_ms - 1)
            self.extras.append(Extra(ts, sample.hidden_down_ms, None, UNKNOWN))

    def _may_be_there(self, sample: Sample, last: Place) -> bool:
        """Whether time before a sample is that of a replica which existed: it is known by then, or
        a line up to `last` may show it under an ip."""
        asked, since = self._asked, self._asked.unnamed_since
        if sample.ts > asked.known_ms:
            return True
        return since is not None and since <= last and asked.known_ms < NEVER

    def _may_precede_window(self) -> bool:
        """Whether it existed before the window, maybe without its name."""
        known_ms, since = self._asked.known_ms, self._asked.unnamed_since
        return known_ms < self._day.w0_ms or (since is not None and known_ms < NEVER)

    def _is_calm(self, sample: Sample, row: ReplicaRow, row_before: ReplicaRow) -> bool:
        """The way of nearly all samples, in one look: nothing but in sync, and never late."""
        now, past, limit_ms = row.state_ms, row_before.state_ms, self._asked.limit_ms
        start_ms = sample.start_ms
        if (
            row.state != IN_SYNC
            or row_before.state != IN_SYNC
            or now.disconnected != past.disconnected
            or now.catching_up != past.catching_up
            or row.lag_ms > limit_ms
            or (row.lag_bytes and not row.lag_exact)
            or sample.spoken_ms != start_ms
        ):
            return False
        counted_ms, span_ms = now.in_sync - past.in_sync, sample.span_ms
        length_ms = sample.ts - start_ms
        if counted_ms < 0 or not length_ms - _REST_MS <= counted_ms <= span_ms + _BOOKED_LATE_MS:
            return False
        if row.lag_ms_max is not None:
            return row.lag_ms_max <= limit_ms and mark_reaches(sample)
        room_ms = limit_ms - row_before.lag_ms
        return (
            (row_before.lag_exact or not row_before.lag_bytes)
            and counted_ms <= room_ms
            and span_ms <= room_ms
            and length_ms <= room_ms
        )

    def _is_elsewhere(self, sample: Sample) -> bool:
        other = self._other
        return other is not None and sample.start_ms < other[1] and sample.ts >= other[0]

    def _add_without_row(self, sample: Sample) -> None:
        if self._is_elsewhere(sample):
            self._put(sample.start_ms, sample.ts, UNKNOWN, None, sample)
            return
        if sample.ts <= self._asked.known_ms:
            self._put_unborn(sample.start_ms, sample.ts, sample, sample)
            return
        if self._is_unnamed(sample):
            self._put(sample.start_ms, sample.ts, UNKNOWN, None, sample)
            return
        self._put(sample.start_ms, sample.spoken_ms, UNKNOWN, None, sample)
        self._put(sample.spoken_ms, sample.ts, BAD, DISCONNECTED, sample)

    def _is_unnamed(self, sample: Sample) -> bool:
        """Whether a connection that has no name yet may be that of the replica: one that was there
        at any time since the sample before it."""
        if self._asked.unnamed_since is None:
            return False
        group = sample.line.cluster, sample.line.broker
        return any(
            is_unnamed(group, name) and _was_connected(sample, row)
            for name, row in sample.rows.items()
        )

    def _add_counted(self, sample: Sample, row: ReplicaRow, row_before: ReplicaRow | None) -> None:
        counted = _counted(sample, row, row_before)
        start_ms = sample.start_ms
        order = _from_the_end(row.state, row_before.state if row_before else None)
        taken = _taken(counted, order, sample.ts - start_ms)
        if sample.is_free and sample.ts >= self._day.w0_ms and sample.ts < self._day.w1_ms:
            for state in (DISCONNECTED, CATCHING_UP):
                if counted[state] > taken[state]:
                    self.extras.append(Extra(sample.ts, counted[state] - taken[state], state))
        judge = LagJudge(sample, row, row_before, self._asked.limit_ms)
        untold_ms = max(0, sample.span_ms - sum(counted.values())) if sample.same_boot else 0
        parts: list[tuple[int, int, str, str | None]] = []
        end_ms = sample.ts
        for state in order:
            begin_ms = end_ms - taken[state]
            if state == IN_SYNC:
                judged = judge.judged(begin_ms, end_ms, begin_ms - untold_ms)
                parts += [(*part, IN_SYNC) for part in reversed(judged)]
            else:
                parts.append((begin_ms, end_ms, BAD, state))
            end_ms = begin_ms
        if end_ms > start_ms:
            was_in_sync = row_before is not None and row_before.state == IN_SYNC
            if row.state == IN_SYNC and was_in_sync and end_ms - start_ms <= _REST_MS:
                judged = judge.judged(start_ms, end_ms, start_ms, is_counted=False)
                parts += [(*part, IN_SYNC) for part in reversed(judged)]
            elif row_before is None and self._is_unborn(sample):
                self._put(start_ms, end_ms, EXCLUDED, None, sample, NOT_YET)
            else:
                parts.append((start_ms, end_ms, UNKNOWN, None))
        parts = [part for part in reversed(parts) if part[0] < part[1]]
        before = sample.boot_predecessor
        if before is None or not before.in_window or not sample.in_window:
            parts = shared(parts, self._day)
        for begin_ms, until_ms, quality, state_of_part in parts:
            self._put(begin_ms, until_ms, quality, state_of_part, sample)

    def _is_unborn(self, sample: Sample) -> bool:
        """Whether it has its first row here, and no line before may show it under an ip."""
        since = self._asked.unnamed_since
        is_first = sample.same_boot and sample.ts <= self._asked.known_ms
        return is_first and (since is None or place_of(sample) < since)

    def _put_unborn(self, start_ms: int, end_ms: int, sample: Sample, last: Sample | None) -> None:
        """Lines before its first row show that it did not exist yet; if there is any such row, and
        no line up to `last` may show it under an ip."""
        since = self._asked.unnamed_since
        is_sure = since is None or last is None or place_of(last) < since
        if self._asked.known_ms < NEVER and is_sure:
            self._put(start_ms, end_ms, EXCLUDED, None, sample, NOT_YET)
        else:
            self._put(start_ms, end_ms, UNKNOWN, None, sample)

    def _put(
        self,
        start_ms: int,
        end_ms: int,
        quality: str,
        state: str | None,
        sample: Sample,
        reason: str = "",
    ) -> None:
        """A piece, clipped to the window; what is the same goes on as one, but for bad time of
        which rows tell."""
        if start_ms < self._day.w0_ms:
            start_ms = self._day.w0_ms
        if end_ms > self._day.w1_ms:
            end_ms = self._day.w1_ms
        if start_ms >= end_ms:
            return
        if self._known:
            last = self._known[-1]
            is_same = last.quality == quality and last.state == state and last.end_ms == start_ms
            if is_same and (quality != BAD or self._is_silent(last.sample, sample)):
                last.end_ms = end_ms
                return
        self._known.append(Piece(start_ms, end_ms, quality, state, sample, reason))

    def _is_silent(self, one: Sample | None, other: Sample) -> bool:
        """Whether neither of two samples has a row: a name that went would have a piece for each
        line, a megabyte a day. What the first two of a boot tell stands alone: it is a cause."""
        before = one.boot_predecessor if one is not None else None
        if one is None or before is None or not before.same_boot:
            return False
        if one.line.boot != other.line.boot:
            return False
        name = self._asked.replica
        return name not in one.rows and name not in other.rows

    def whole(self) -> list[Piece]:
        """All pieces in order, and unknown time between them."""
        known = self._known
        if any(a.start_ms > b.start_ms for a, b in itertools.pairwise(known)):
            known.sort(key=lambda piece: piece.start_ms)  # a clock was set
        pieces: list[Piece] = []
        at_ms = self._day.w0_ms
        for piece in known:
            if piece.start_ms > at_ms:
                pieces.append(Piece(at_ms, piece.start_ms, UNKNOWN))
            pieces.append(piece)
            at_ms = piece.end_ms
        if at_ms < self._day.w1_ms:
            pieces.append(Piece(at_ms, self._day.w1_ms, UNKNOWN))
        return pieces


def _was_connected(sample: Sample, row: ReplicaRow) -> bool:
    """Whether a replica was connected at a sample, or since the one before it."""
    before = sample.boot_predecessor
    past = before.rows.get(row.id) if before is not None else None
    past_ms = past.state_ms.in_sync + past.state_ms.catching_up if past is not None else 0
    return row.connected or row.state_ms.in_sync + row.state_ms.catching_up > past_ms


def _counted(sample: Sample, row: ReplicaRow, row_before: ReplicaRow | None) -> dict[str, int]:
    """How long the replica was in each state since the predecessor, by its counters."""
    now, past = row.state_ms, row_before.state_ms if row_before is not None else None
    if past is None and not sample.same_boot and not sample.from_zero:
        return dict.fromkeys(STATES, 0)
    found = {
        IN_SYNC: max(0, now.in_sync - (past.in_sync if past else 0)),
        CATCHING_UP: max(0, now.catching_up - (past.catching_up if past else 0)),
        DISCONNECTED: max(0, now.disconnected - (past.disconnected if past else 0)),
    }
    too_much_ms = sum(found.values()) - sample.span_ms
    boot_ms = max(0, sample.ts - sample.line.boot_ts)
    if past is None and sample.same_boot and too_much_ms <= boot_ms - sample.span_ms:
        # A row that comes back may have counted since the boot: not all of it is this interval's.
        for state in _BEFORE_OWN:
            taken_ms = max(0, min(too_much_ms, found[state]))
            found[state] -= taken_ms
            too_much_ms -= taken_ms
    if too_much_ms > _BOOKED_LATE_MS:
        return dict.fromkeys(STATES, 0)  # they cannot be of this interval
    return found


def _taken(counted: dict[str, int], order: Sequence[str], room_ms: int) -> dict[str, int]:
    """What of it has room in the interval: time out of sync first, and of that what lies nearest to
    its end. `order`: see `_from_the_end`."""
    taken = dict.fromkeys(STATES, 0)
    for state in order:
        if state != IN_SYNC:
            taken[state] = min(counted[state], room_ms)
            room_ms -= taken[state]
    taken[IN_SYNC] = min(counted[IN_SYNC], room_ms)
    return taken


def _from_the_end(own: str, before: str | None) -> list[str]:
    """The states of an interval, the last one first."""
    first = [before] if before is not None and before != own else []
    between = [state for state in _BEFORE_OWN if state != own and state not in first]
    return [own, *reversed(between), *first]
