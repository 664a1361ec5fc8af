"""For how long each consumer group of a broker group's day lagged, by the counters of its lines.

Runs in the executors, over the masters' stream of a group. A *run* is what one life's lines tell of
a consumer group in a topic without a break: what its counters rose from its first line to its last
one is exact, however many lines are lost in between. All other time of the window is unknown, but
for time in which the lines show that there is no such group. The rule is in docs/sla_report.md
("Consumer lag"). Must not know objectives.

Tested by tests/spark/figures/test_consumer_lag.py.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark.dumps.dump_line import GroupRow, Groups, decode_groups
from spark.figures.sample_stream import Sample, Stream
from spark.reported_day import Day

Row = dict[str, Any]
Key = tuple[str, str]
"""Consumer group and topic."""

MOST_NAMES: Final = 1_000
"""Consumer groups in topics of one broker group and day; the rest is left out."""
_CLOCK_MS: Final = 50
"""What both clocks of a line may differ by from those of the line before."""
_COUNTED_MS: Final = 1_000
"""So much more than its time a run may have counted: of its lines and their looks, clocks are not
read at the same moment."""
_KINDS: Final = ("age_within", "age_beyond", "messages_within", "messages_beyond")


@dataclass(slots=True)
class Lags:
    """Of a broker group's day. `rows`: of table consumer_lag without the names of the broker group;
    `lines`: how many of the window's tell of consumer groups; `left_out`: the most that one of
    them, or this report, left out."""

    rows: list[Row] = field(default_factory=list)
    lines: int = 0
    left_out: int = 0


@dataclass(slots=True)
class _Run:
    """From one line to another one of a life. Its counters count from the look before the first
    line to the look before the last one."""

    first: tuple[Sample, GroupRow]
    last: tuple[Sample, GroupRow]
    is_over_edge: bool = False
    """It is from one line to the next one, and an edge of the window lies between the looks."""

    def bounds(self) -> tuple[int, int]:
        """Epoch ms of those two looks."""
        (first, row), (last, last_row) = self.first, self.last
        start_ms = max(first.start_ms, first.ts - row.looked_ms)
        return start_ms, max(start_ms, last.ts - last_row.looked_ms)

    def passed_ms(self) -> int:
        """Between them, by the monotonic clock."""
        (first, row), (last, last_row) = self.first, self.last
        return max(0, last.line.mono - first.line.mono + row.looked_ms - last_row.looked_ms)

    def rises(self, kind: str) -> list[int]:
        """Of one of _KINDS, by bound."""
        now, then = getattr(self.last[1], kind), getattr(self.first[1], kind)
        return [a - b for a, b in zip(now, then, strict=True)]


@dataclass(slots=True)
class _Tally:
    """One consumer group in a topic. `present_ms`: of the time of which both lines tell all groups,
    that in which one of them has it."""

    runs: list[_Run] = field(default_factory=list)
    is_running: bool = False
    lines: int = 0
    messages_max: int = 0
    age_max_ms: int | None = None
    present_ms: int = 0


class _Reader:
    """Passes once over the lines."""

    def __init__(self, day: Day) -> None:
        self._day: Final = day
        self.tallies: Final[dict[Key, _Tally]] = {}
        self.lines = 0
        self.left_out = 0
        self.told_ms = 0
        """Time of which both lines tell all groups."""
        self.le: tuple[list[int], list[int]] = ([], [])
        """Bounds of the newest line."""
        self._before: frozenset[Key] | set[Key] | None = None
        """Of the line before, if the next one goes on from it: which groups it has; None where it
        left some out."""

    def read(self, samples: Sequence[Sample]) -> None:
        """All of them, in their order."""
        for sample in samples:
            groups = decode_groups(sample.line) if sample.is_line else None
            if groups is None or not _goes_on(sample):
                self._break()
            if groups is not None:
                self._add(sample, groups)

    def _break(self) -> None:
        self._before = None
        for tally in self.tallies.values():
            tally.is_running = False

    def _add(self, sample: Sample, groups: Groups) -> None:
        le = groups.age_le, groups.messages_le
        if le != self.le:
            # What was counted by other bounds is unknown: of the day of an update.
            self._break()
            self.le = le
            for tally in self.tallies.values():
                tally.runs.clear()
        if sample.in_window:
            self.lines += 1
            self.left_out = max(self.left_out, groups.left_out)
        rows = {(row.group, row.topic): row for row in reversed(groups.rows)}
        for key, row in rows.items():
            self._look(sample, key, row)
        for key in self.tallies.keys() - rows.keys():
            self.tallies[key].is_running = False
        names = set(rows)
        if self._before is not None and not groups.left_out:
            inside_ms = _inside_ms(sample.start_ms, sample.ts, self._day)
            self.told_ms += inside_ms
            for key in self.tallies.keys() & (names | self._before):
                self.tallies[key].present_ms += inside_ms
        self._before = None if groups.left_out else names

    def _look(self, sample: Sample, key: Key, row: GroupRow) -> None:
        tally = self.tallies.get(key)
        if tally is None:
            if len(self.tallies) >= MOST_NAMES:
                self.left_out = max(self.left_out, 1)
                return
            # That it was not there before is as true as that others were not.
            tally = self.tallies[key] = _Tally()
        if sample.in_window:
            tally.lines += 1
            tally.messages_max = max(tally.messages_max, row.messages)
            if row.age_ms is not None:
                tally.age_max_ms = max(tally.age_max_ms or 0, row.age_ms)
        now, last = (sample, row), tally.runs[-1].last if tally.is_running else None
        if last is None or not _is_above(row, last[1]):
            tally.runs.append(_Run(now, now))
        elif (is_over := self._is_inside(last) != self._is_inside(now)) or (
            tally.runs[-1].is_over_edge
        ):
            # Of what is told over an edge of the window nobody knows on which side it was.
            tally.runs.append(_Run(last, now, is_over))
        else:
            tally.runs[-1].last = now
        tally.is_running = True

    def _is_inside(self, told: tuple[Sample, GroupRow]) -> bool:
        """Whether the look was in the window."""
        sample, row = told
        return self._day.w0_ms <= sample.ts - row.looked_ms < self._day.w1_ms


def _goes_on(sample: Sample) -> bool:
    """Whether it tells of the time since the line before: no clock was set in between, and nobody
    else told of a part of it."""
    before = sample.boot_predecessor
    if before is None or sample.hidden_ms:
        return False
    by_mono_ms = sample.line.mono - before.line.mono
    is_whole = by_mono_ms - (sample.ts - sample.start_ms) <= _CLOCK_MS
    return is_whole and abs(sample.ts - before.ts - by_mono_ms) <= _CLOCK_MS


def _is_above(now: GroupRow, before: GroupRow) -> bool:
    """Counters of a series that was there all the time do not fall."""
    return not any(any(map(operator.lt, getattr(now, k), getattr(before, k))) for k in _KINDS)


def _inside_ms(start_ms: int, end_ms: int, day: Day) -> int:
    return max(0, min(end_ms, day.w1_ms) - max(start_ms, day.w0_ms))


def consumer_lags(stream: Stream, day: Day) -> Lags:
    """Of the whole window."""
    reader = _Reader(day)
    reader.read(stream.samples)
    hidden_ms = sum(_hidden_ms(sample, day) for sample in stream.samples)
    rows = [
        _row(key, tally, reader, hidden_ms, day)
        for key, tally in sorted(reader.tallies.items())
        if tally.lines
    ]
    return Lags(rows, reader.lines, reader.left_out)


def _hidden_ms(sample: Sample, day: Day) -> int:
    """Time of the window that the wall clock has no room for: nobody knows of it."""
    hidden_ms = sample.hidden_ms if sample.in_window else 0
    if sample.boot_predecessor is None:
        before_ms = max(0, day.w0_ms - sample.line.boot_ts)
        hidden_ms += max(0, sample.hidden_down_ms - before_ms, sample.carried_ms)
    return hidden_ms


def _row(key: Key, tally: _Tally, reader: _Reader, hidden_ms: int, day: Day) -> Row:
    absent_ms = reader.told_ms - tally.present_ms
    spent = {kind: [0] * len(reader.le[kind.startswith("messages")]) for kind in _KINDS}
    told_ms = passed_inside_ms = 0
    for run in filter(_is_possible, tally.runs):
        inside_ms = _inside_ms(*run.bounds(), day)
        # Of what it counted so much may lie outside the window; on which side nobody knows.
        outside_ms = max(0, _length(run) - inside_ms)
        told_ms += inside_ms
        passed_inside_ms += max(0, run.passed_ms() - outside_ms)
        for kind, sums in spent.items():
            for place, rise in enumerate(run.rises(kind)):
                sums[place] += max(0, rise - outside_ms)
    silent_ms = max(0, day.window_ms - absent_ms - told_ms) + hidden_ms
    row: Row = {
        "consumer_group": key[0],
        "topic": key[1],
        "window_s": day.window_ms / 1000,
        "absent_s": absent_ms / 1000,
        "lines": tally.lines,
        "messages_max": tally.messages_max,
        "age_max_ms": tally.age_max_ms,
    }
    for kind, le in zip(("age", "messages"), reader.le, strict=True):
        within, beyond = spent[f"{kind}_within"], spent[f"{kind}_beyond"]
        row[f"{kind}_le"] = le
        row[f"{kind}_within_ms"], row[f"{kind}_beyond_ms"] = within, beyond
        row[f"{kind}_unknown_ms"] = [
            silent_ms + max(0, passed_inside_ms - some - other)
            for some, other in zip(within, beyond, strict=True)
        ]
    return row


def _is_possible(run: _Run) -> bool:
    """No time is counted twice. What a line claims that nobody can have counted proves nothing."""
    most_ms = run.passed_ms() + _COUNTED_MS
    return all(
        some + other <= most_ms
        for kind in ("age", "messages")
        for some, other in zip(
            run.rises(f"{kind}_within"), run.rises(f"{kind}_beyond"), strict=True
        )
    )


def _length(run: _Run) -> int:
    """Of what it counted, by either clock."""
    start_ms, end_ms = run.bounds()
    return max(run.passed_ms(), end_ms - start_ms)
