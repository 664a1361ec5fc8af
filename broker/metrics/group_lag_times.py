"""GroupLagTimes: for how long the lag of consumer groups was within, and beyond, fixed bounds.

Written each second on the scheduled executor of `remoting`, for the groups that metricsDumpGroups
names, online or not; read by the supervisor's dump. Counters of time, so that lost lines lose
nothing. A stretch between two looks counts only as far as both prove it: offsets and queues only
grow, and the oldest message that a group has not consumed ages by a second a second. Where an
offset was set back, or a queue came or went in between, nothing of it counts. How old a message
is that was stored before the wall clock was set, nobody knows. Of a group that pops it is what the
group has not got yet. The series are no metrics of the
table: /metrics does not show them. Knows no lines.

Tested by tests/broker/metrics/test_group_lag_times.py.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ipc.metric_slots import MAX_LABEL_BYTES, OVERFLOW
from store.errors import QueueDamagedError

if TYPE_CHECKING:
    # The supervisor reads and looks at nothing.
    from broker.metrics.consumer_lag_calculator import LatestOffset
    from broker.metrics.replica_view import ReplicaViewSnapshot
    from broker.offset.consumer_offset_manager import ConsumerOffsetManager
    from ipc.clock import Clock
    from ipc.metric_slots import MetricSlots
    from ipc.scheduled_executor import ScheduledExecutor

AGE_LE_MS: Final = (
    *(1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000),
    *(900_000, 1_800_000, 3_600_000, 21_600_000),
)
"""Of the oldest message that is not consumed. Those that objectives may name: twins of
spark/config/objectives.py, LAG_SECONDS."""
MESSAGES_LE: Final = (
    *(100, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000),
    *(1_000_000, 10_000_000),
)
"""Of the messages that are not consumed (LAG_MESSAGES)."""
MOST_ROWS: Final = 100
"""Groups in topics of one line; the rest is only counted. A row that is there stays."""
MOST_QUEUES: Final = 1_024
"""Of a row: a client may commit to queues that nobody has."""
MOST_PLACES: Final = 8_192
"""Of all rows: a look takes 3 us for each."""
LOOK_MS: Final = 1_000
_PAIRS_MS: Final = 10_000
"""So often it looks for new groups: a broker may have very many."""
_CLOCK_SET_MS: Final = 50
"""The wall clock went on by so much more or less than the monotonic one: it was set."""
_MOMENT_MS: Final = 5
"""A look at a row that takes no longer is one moment."""
_TRIES: Final = 5
_DECISIONS: Final = 16_384
"""Groups of which it is remembered whether a wildcard means them."""
_WILD: Final = frozenset("*?[")
_ROW: Final = "dump_group_lag"
_LOOK: Final = "dump_group_looks"
_LOOK_SIZE: Final = 3
_SIZE: Final = 4 + 2 * (len(AGE_LE_MS) + len(MESSAGES_LE))


class Queues(Protocol):
    """What is asked of the store (StoreAccess)."""

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) queue offsets."""

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """Its first value is the physical offset of a message."""

    def store_timestamp_at(self, phy_offset: int) -> int:
        """When that message was stored, wall clock ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLagSources:
    """Where the figures come from. `names`: metricsDumpGroups."""

    names: str
    offsets: ConsumerOffsetManager
    queues: Queues
    pop_offset: LatestOffset


class _Place(NamedTuple):
    """A group in a queue: its offset, the queue's end, and when the message at the offset was
    stored (0: there is none)."""

    offset: int
    end: int
    stored_ms: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a look saw of a group in a topic, from `at_ms` until `done_ms` (monotonic).

    set_backs: when it began, and when it had read the offsets; age_ms: at least, when it began,
    late_ms: at most, when it was done; None where a queue could not be read, or nobody knows.
    """

    at_ms: int
    done_ms: int
    places: dict[int, _Place]
    set_backs: tuple[int, int]
    lag: int
    age_ms: int | None
    late_ms: int

    @property
    def end(self) -> int:
        """Messages that were ever stored in its queues."""
        return sum(place.end for place in self.places.values())

    def follows(self, before: _Seen) -> bool:
        """Whether nothing but consuming and storing happened since."""
        return (
            self.set_backs[1] == before.set_backs[0]
            and self.places.keys() == before.places.keys()
            and all(
                place.offset >= before.places[queue_id].offset
                and place.end >= before.places[queue_id].end
                for queue_id, place in self.places.items()
            )
        )


class GroupLagTimes:
    """The writer. Owned by: the scheduled executor."""

    def __init__(self, slots: MetricSlots, sources: GroupLagSources, clock: Clock) -> None:
        self._slots: Final = slots
        self._from: Final = sources
        self._clock: Final = clock
        names = set(filter(None, map(str.strip, sources.names.split(","))))
        self._names: Final = frozenset(name for name in names if not _WILD.intersection(name))
        likes = "|".join(map(fnmatch.translate, sorted(names - self._names)))
        self._is_like: Final = functools.lru_cache(_DECISIONS)(re.compile(likes or "(?!)").match)
        self._rows: list[tuple[str, str]] = []
        """(group, topic)."""
        self._left_out = 0
        self._pairs_due_ms = 0
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._wall_ahead_ms = 0
        """Of the monotonic clock, at the last look."""
        self._known_from_ms = 0
        """By the wall clock: what says that it was stored before may say so by another clock."""

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """Begin to look, if any group is named."""
        if self._from.names.strip():
            executor.schedule(
                "metrics-groups", self.look, first_delay_ms=LOOK_MS, period_ms=LOOK_MS
            )

    def look(self) -> None:
        """Runs every second."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._pairs_due_ms:
            self._pairs_due_ms = now_ms + _PAIRS_MS
            self._find_rows()
        first = self._slots.find(_LOOK, (), _LOOK_SIZE)
        self._read_clocks(first)
        self._seen = {row: self._look_at(*row, self._seen.get(row)) for row in self._rows}
        self._slots.values[first] = self._left_out

    def _find_rows(self) -> None:
        """Who was there stays before who is new."""
        found = {
            (group, topic)
            for topic, group in self._from.offsets.pairs()
            if group in self._names or self._is_like(group)
        }
        kept = [row for row in self._rows if row in found]
        kept = self._that_fit([*kept, *sorted(found.difference(kept))])
        self._rows, self._left_out = kept, len(found) - len(kept)
        self._from.offsets.set_backs.watch(f"{topic}@{group}" for group, topic in kept)
        for labels in self._slots.series(_ROW).keys() - set(kept):
            self._slots.hide(_ROW, labels, is_gauge=True)

    def _that_fit(self, rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """The first ones."""
        kept: list[tuple[str, str]] = []
        room = MOST_PLACES
        for row in rows:
            if len(kept) >= MOST_ROWS:
                break
            queues = len(self._from.offsets.query_offsets(*row))
            if queues <= min(MOST_QUEUES, room) and _fits(row):
                kept.append(row)
                room -= queues
        return kept

    def _read_clocks(self, first: int) -> None:
        """See how far the wall clock is ahead, and whether it was set since the last look, be it of
        a predecessor: the series keeps what is known."""
        at_ms = self._clock.monotonic_ms()
        for _ in range(_TRIES):
            wall_ms, later_ms = self._clock.now_ms(), self._clock.monotonic_ms()
            if later_ms - at_ms <= _MOMENT_MS:
                break
            at_ms = later_ms
        values, ahead_ms = self._slots.values, wall_ms - at_ms
        known_from_ms, before_ms = (round(values[place]) for place in (first + 1, first + 2))
        if before_ms and abs(ahead_ms - before_ms) > _CLOCK_SET_MS:
            known_from_ms = max(known_from_ms, at_ms + max(before_ms, ahead_ms))
        self._known_from_ms, self._wall_ahead_ms = known_from_ms, ahead_ms
        values[first + 1], values[first + 2] = known_from_ms, ahead_ms

    def _look_at(self, group: str, topic: str, before: _Seen | None) -> _Seen:
        now = self._see(group, topic, before)
        values, first = self._slots.values, self._slots.find(_ROW, (group, topic), _SIZE)
        # The first number is written last, and read first: who finds it to be the last one has what
        # belongs together.
        values[first + _SIZE - 1] = now.at_ms
        values[first + 1] = now.lag
        values[first + 2] = -1 if now.age_ms is None else now.age_ms
        if before is not None and now.follows(before):
            self._count(first + 3, _ages(before, now))
            self._count(first + 3 + 2 * len(AGE_LE_MS), _messages(before, now))
        values[first] = now.at_ms
        return now

    def _count(self, first: int, spent: list[tuple[int, int]]) -> None:
        """(within, beyond) ms of each bound."""
        values, size = self._slots.values, len(spent)
        for place, (within_ms, beyond_ms) in enumerate(spent, first):
            values[place] += within_ms
            values[place + size] += beyond_ms

    def _see(self, group: str, topic: str, before: _Seen | None) -> _Seen:
        """Offsets are read before the ends: so the lag was at most, and later at least, so much."""
        offsets, key = self._from.offsets, f"{topic}@{group}"
        at_ms = self._clock.monotonic_ms()
        first_count = offsets.set_backs.of(key)
        found = offsets.query_offsets(group, topic)
        popped = {each: self._from.pop_offset(topic, group, each) or 0 for each in found}
        last_count = offsets.set_backs.of(key)
        is_same = before is not None and before.set_backs == (first_count, last_count)
        known = before.places if before is not None and is_same else {}
        places = {
            each: self._place(topic, each, max(stored, popped[each]), known.get(each))
            for each, stored in found.items()
        }
        done_ms = self._clock.monotonic_ms()
        if done_ms - at_ms <= _MOMENT_MS:
            done_ms = at_ms
        behind = [place for place in places.values() if place.end > place.offset]
        age_ms, late_ms = self._ages_of(behind, at_ms, done_ms)
        lag = sum(place.end - place.offset for place in behind)
        return _Seen(at_ms, done_ms, places, (first_count, last_count), lag, age_ms, late_ms)

    def _ages_of(self, behind: list[_Place], at_ms: int, done_ms: int) -> tuple[int | None, int]:
        """`age_ms` and `late_ms` of a look."""
        if not behind:
            return 0, done_ms - at_ms
        ahead_ms = self._wall_ahead_ms
        latest_ms = done_ms + ahead_ms + _CLOCK_SET_MS
        if not all(max(1, self._known_from_ms) <= p.stored_ms <= latest_ms for p in behind):
            return None, 0
        since_ms = min(place.stored_ms for place in behind) - ahead_ms
        # Where there was no message, one may have come while it looked.
        return max(0, at_ms - since_ms), max(done_ms - since_ms, done_ms - at_ms)

    def _place(self, topic: str, queue_id: int, offset: int, past: _Place | None) -> _Place:
        low, end = self._from.queues.offsets(topic, queue_id)
        offset = max(offset, low)
        if offset >= end:
            return _Place(offset, end, 0)
        if past is not None and past.offset == offset and past.end <= end and past.stored_ms:
            return _Place(offset, end, past.stored_ms)
        try:
            unit = self._from.queues.unit_at(topic, queue_id, offset)
        except QueueDamagedError:
            # Reported where it was found; nothing is counted until it is rebuilt.
            unit = None
        stored_ms = 0 if unit is None else max(self._from.queues.store_timestamp_at(unit[0]), 0)
        return _Place(offset, end, stored_ms)


def _fits(names: tuple[str, str]) -> bool:
    """Longer names would be cut, and be those of others."""
    return all(len(name.encode("utf-8", "replace")) <= MAX_LABEL_BYTES for name in names)


def _ages(before: _Seen, now: _Seen) -> list[tuple[int, int]]:
    """Of each bound the time from one look to the next in which the age was certainly within it,
    and certainly beyond it: it grows as time goes by, and falls at once."""
    passed_ms = _passed_ms(before, now)
    if before.age_ms is None or now.age_ms is None:
        return [(0, 0)] * len(AGE_LE_MS)
    if now.age_ms > before.late_ms + passed_ms + _CLOCK_SET_MS:
        # Stored while the clock was behind: an older message lies behind a younger one.
        return [(0, 0)] * len(AGE_LE_MS)
    spent = []
    for bound_ms in AGE_LE_MS:
        within_ms = min(max(bound_ms - before.late_ms, 0), passed_ms)
        spent.append((within_ms, min(max(now.age_ms - bound_ms, 0), passed_ms - within_ms)))
    return spent


def _passed_ms(before: _Seen, now: _Seen) -> int:
    """From when one look was done until the next one began."""
    return max(0, now.at_ms - before.done_ms)


def _messages(before: _Seen, now: _Seen) -> list[tuple[int, int]]:
    """The same of the messages: at most what was left plus what was stored, at least what is left
    less what was stored."""
    passed_ms, stored = _passed_ms(before, now), now.end - before.end
    most, least = before.lag + stored, now.lag - stored
    return [
        (passed_ms if most <= bound else 0, passed_ms if least > bound else 0)
        for bound in MESSAGES_LE
    ]


def read_groups(snapshot: ReplicaViewSnapshot, now_ms: int) -> dict[str, Any] | None:
    """`groups` of a line (docs/metrics_dump.md); None before the first look. Supervisor."""
    looks = snapshot.read(_LOOK)
    if not looks:
        return None
    found: list[tuple[tuple[str, ...], list[float]]] = []
    for _ in range(_TRIES):
        found = sorted(snapshot.read(_ROW))
        # Of one that was killed while it wrote, a row stays in halves until the next one looks.
        if all(_is_whole(values) for _, values in found):
            break
    rows = [
        _row(labels, values, now_ms)
        for labels, values in found
        if labels[0] != OVERFLOW and _is_whole(values)
    ]
    return {
        "age_le": list(AGE_LE_MS),
        "messages_le": list(MESSAGES_LE),
        # With metricsMaxSeries below MOST_ROWS some share a row that is nobody's.
        "left_out": round(looks[0][1][0]) + len(found) - len(rows),
        "rows": rows,
    }


def _is_whole(values: list[float]) -> bool:
    """All numbers are of one look."""
    return values[0] == values[-1] != 0


def _row(labels: tuple[str, ...], values: list[float], now_ms: int) -> dict[str, Any]:
    numbers = [round(value) for value in values]
    at_ms, lag, age_ms = numbers[:3]
    ages, messages = len(AGE_LE_MS), len(MESSAGES_LE)
    of_ages, of_messages = numbers[3 : 3 + 2 * ages], numbers[3 + 2 * ages : -1]
    return {
        "group": labels[0],
        "topic": labels[1],
        "looked_ms": max(0, now_ms - at_ms),
        "messages": lag,
        "age_ms": None if age_ms < 0 else age_ms,
        "age_within": of_ages[:ages],
        "age_beyond": of_ages[ages:],
        "messages_within": of_messages[:messages],
        "messages_beyond": of_messages[messages:],
    }
