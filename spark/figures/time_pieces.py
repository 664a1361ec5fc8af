"""Time of one replica in pieces, and what is done to them when all are laid out: shared between the
days on both sides of an edge, put in doubt, excluded.

Runs in the executors; spark/figures/replica_time.py lays the pieces out. The rules are in
docs/sla_report.md ("The time of a replica"). Must not know lines' counters, figures or results.

Tested by tests/spark/figures/test_replica_time.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from spark.config.exclusions import merged
from spark.figures.sample_stream import Sample
from spark.reported_day import Day
from spark.vocabulary import FIRST_COPY, IS_MASTER, NOT_YET, STATES

GOOD, BAD, UNKNOWN, EXCLUDED = "good", "bad", "unknown", "excluded"
IN_SYNC, CATCHING_UP, DISCONNECTED = STATES
DOWN = "down"
NEVER: Final = 2**62
"""Since when a replica is known that no line names."""


@dataclass(slots=True)
class Piece:
    """[start_ms, end_ms) of the window. `state`: one of STATES, DOWN, or None. `sample`: that of
    the interval; of good time the first one's. `reason`: of excluded time."""

    start_ms: int
    end_ms: int
    quality: str
    state: str | None = None
    sample: Sample | None = None
    reason: str = ""

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.start_ms

    @property
    def ends_incident(self) -> bool:
        """Good time does, and so does time as the master: its copy is what the others are to
        have."""
        return self.quality == GOOD or self.reason == IS_MASTER


@dataclass(slots=True)
class Extra:
    """Bad or unknown time for which the wall clock has no room: it counts at `ts`."""

    ts: int
    ms: int
    state: str | None
    quality: str = BAD


@dataclass(slots=True)
class ReplicaTime:
    """`pieces` tile the window in order; `extras` come on top. `copy_since_ms`: of a first copy
    that is still running at the end of the window."""

    pieces: list[Piece]
    extras: list[Extra] = field(default_factory=list)
    copy_since_ms: int | None = None

    @property
    def is_unborn(self) -> bool:
        """Whether the replica did not exist in any of the window."""
        return all(piece.reason == NOT_YET for piece in self.pieces)


Part = tuple[int, int, str, str | None]
"""Begin and end (ms), quality and state."""


def shared(parts: list[Part], day: Day) -> list[Part]:
    """The parts of an interval that lies across an edge of the window. Counters tell how long each
    state lasted, not when: of each quality counts in the window what has no room outside, and the
    rest of the time there is unknown."""
    if not parts or (day.w0_ms <= parts[0][0] and parts[-1][1] <= day.w1_ms):
        return parts
    sums = dict.fromkeys((GOOD, BAD, UNKNOWN), 0)
    for start_ms, end_ms, quality, _ in parts:
        sums[quality] += end_ms - start_ms
    begin_ms, until_ms = max(parts[0][0], day.w0_ms), min(parts[-1][1], day.w1_ms)
    outside_ms = sum(sums.values()) - (until_ms - begin_ms)
    if begin_ms >= until_ms or max(sums.values()) == sum(sums.values()):
        return parts
    bad_ms = begin_ms + max(0, sums[BAD] - outside_ms)
    good_ms = until_ms - max(0, sums[GOOD] - outside_ms)
    of_state = dict.fromkeys((DISCONNECTED, CATCHING_UP, IN_SYNC), 0)
    for start_ms, end_ms, quality, state in parts:
        if quality == BAD and state is not None:
            of_state[state] += end_ms - start_ms
    worst = max(of_state, key=of_state.__getitem__)
    return [
        (begin_ms, bad_ms, BAD, worst),
        (bad_ms, good_ms, UNKNOWN, None),
        (good_ms, until_ms, GOOD, IN_SYNC),
    ]


def doubted(pieces: Iterable[Piece], start_ms: int, end_ms: int) -> Iterable[Piece]:
    """The same pieces; what is good in [start_ms, end_ms) is unknown: two masters at once."""
    for piece in pieces:
        begin_ms, until_ms = max(piece.start_ms, start_ms), min(piece.end_ms, end_ms)
        if begin_ms >= until_ms or piece.quality != GOOD:
            yield piece
            continue
        if piece.start_ms < begin_ms:
            yield Piece(piece.start_ms, begin_ms, GOOD, piece.state, piece.sample)
        yield Piece(begin_ms, until_ms, UNKNOWN, None, piece.sample)
        if until_ms < piece.end_ms:
            yield Piece(until_ms, piece.end_ms, GOOD, piece.state, piece.sample)


# -- excluded time ---------------------------------------------------------------------------


def exclude(
    found: ReplicaTime,
    maintenance: Iterable[tuple[int, int, str]],
    copy_since_ms: int | None,
    copy_ms: int,
) -> None:
    """Takes out maintenance (from_ms, to_ms, reason), and the first copy that began at
    `copy_since_ms` and may take `copy_ms`."""
    in_sync = (piece.start_ms for piece in found.pieces if piece.state == IN_SYNC)
    synced_ms = min(in_sync, default=None)
    spans = list(maintenance)
    for start_ms, end_ms, reason in spans:
        found.pieces = list(_without(found.pieces, start_ms, end_ms, reason))
    # The same time again gives no more room.
    for start_ms, end_ms in merged((start_ms, end_ms) for start_ms, end_ms, _ in spans):
        found.extras = list(_extras_without(found.extras, start_ms, end_ms))
    since_ms = copy_since_ms
    if since_ms is not None and copy_ms:
        end_ms = since_ms + copy_ms
        _exclude_first_copy(found, end_ms if synced_ms is None else min(end_ms, synced_ms))
        found.copy_since_ms = since_ms if synced_ms is None else None


def _extras_without(extras: Iterable[Extra], start_ms: int, end_ms: int) -> Iterable[Extra]:
    """The same but for those at a moment of [start_ms, end_ms): of time that the wall clock does
    not show no more is excluded than that lasts, bad time first."""
    room_ms = end_ms - start_ms
    for each in sorted(extras, key=lambda extra: (extra.quality != BAD, extra.ts)):
        taken_ms = min(room_ms, each.ms) if start_ms <= each.ts < end_ms else 0
        room_ms -= taken_ms
        if taken_ms < each.ms:
            yield Extra(each.ts, each.ms - taken_ms, each.state, each.quality)


def _exclude_first_copy(found: ReplicaTime, end_ms: int) -> None:
    """It may have begun before its first row, whose counters tell of it."""
    pieces: list[Piece] = []
    for piece in found.pieces:
        if piece.state == CATCHING_UP:
            pieces += _without([piece], 0, end_ms, FIRST_COPY)
        else:
            pieces.append(piece)
    found.pieces = pieces
    found.extras = [each for each in found.extras if each.state != CATCHING_UP or each.ts >= end_ms]


def _without(pieces: Iterable[Piece], start_ms: int, end_ms: int, reason: str) -> Iterable[Piece]:
    """The same pieces, but excluded between two moments."""
    for piece in pieces:
        begin_ms, until_ms = max(piece.start_ms, start_ms), min(piece.end_ms, end_ms)
        if begin_ms >= until_ms or piece.quality == EXCLUDED:
            yield piece
            continue
        if piece.start_ms < begin_ms:
            yield Piece(piece.start_ms, begin_ms, piece.quality, piece.state, piece.sample)
        yield Piece(begin_ms, until_ms, EXCLUDED, None, piece.sample, reason)
        if until_ms < piece.end_ms:
            yield Piece(until_ms, piece.end_ms, piece.quality, piece.state, piece.sample)
