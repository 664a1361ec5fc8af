"""How old a slave's copy of one kind of metadata was at most, also between its lines.

Runs in the executors, over a slave's own stream. A line of version 2 carries an upper bound of the
age since the line before; of older lines the ages at two of them tell when the last copy succeeded,
and what lies between two successes was never older than the time between them. The rule is in
docs/sla_report.md ("Metadata"). Must not know objectives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from spark.dumps.dump_line import Metadata
from spark.figures.between_lives import slept_ms
from spark.figures.sample_stream import Sample, Stream
from spark.figures.two_masters import Ancestry
from spark.reported_day import Day

_AWAKE_MS: Final = 100
"""Two clocks of one line are read one after the other: so little is no sleep."""


def first_of_kind(sample: Sample) -> list[Metadata]:
    """The rows of a line by kind; of two of one kind the first."""
    return list({each.kind: each for each in reversed(sample.line.metadata or [])}.values())


@dataclass(slots=True)
class AgeBounds:
    """`at_most_ms`: of the time that is bounded. `at_least_ms`: a line of the window had it; a mark
    proves nothing, as it is an upper bound itself."""

    at_most_ms: int | None = None
    at_least_ms: int | None = None
    unbounded_ms: int = 0
    lost_ms: int = 0
    """At least that much of it."""
    _bounded: list[tuple[int, int]] = field(default_factory=list)

    def bound(self, start_ms: int, sample: Sample, at_most_ms: int, day: Day) -> None:
        """Of the time from `start_ms` to a sample, clipped to the window; of one in the window also
        where the wall clock has no room for it."""
        start_ms, end_ms = max(start_ms, day.w0_ms), min(sample.ts, day.w1_ms)
        if start_ms < end_ms:
            self._bounded.append((start_ms, end_ms))
        if start_ms < end_ms or sample.in_window:
            self.at_most_ms = max(at_most_ms, self.at_most_ms or 0)

    def close(self, day: Day) -> None:
        """All spans are there: what is in none of them is unbounded."""
        at_ms, free_ms = day.w0_ms, 0
        for start_ms, end_ms in sorted(self._bounded):
            free_ms += max(0, start_ms - at_ms)
            at_ms = max(at_ms, end_ms)
        self.unbounded_ms = max(self.lost_ms, free_ms + day.w1_ms - at_ms)


@dataclass(slots=True)
class _Sleep:
    """How long the machine slept since the last success, at most: ages leave it out, as they are
    measured by a clock that stood still."""

    asleep_ms: int = 0
    woke_mono: int = 0

    def pass_to(self, before: Sample | None, sample: Sample) -> int:
        """How long it slept between two lines of a life. A new life begins with no age."""
        slept = slept_ms(before.line, sample.line) if before is not None else 0
        slept = slept if slept > _AWAKE_MS else 0
        if before is None:
            self.asleep_ms = 0
        elif slept:
            self.asleep_ms += slept
            self.woke_mono = sample.line.mono
        return slept

    def end_with(self, sample: Sample, age_ms: int) -> None:
        """A sample's last success was behind all sleep, or not."""
        if age_ms < sample.line.mono - self.woke_mono:
            self.asleep_ms = 0


@dataclass(slots=True)
class _Told:
    """The last sample that knew its age, and that age at most; how long ago it was, by clocks that
    nobody sets."""

    sample: Sample
    age_ms: int
    ago_ms: int = 0


def age_bounds(slave: Stream, kind: str, ancestry: Ancestry, day: Day) -> AgeBounds:
    """Of one kind over the whole window."""
    found = AgeBounds()
    told: _Told | None = None
    sleep = _Sleep()
    for sample in slave.samples:
        before = sample.boot_predecessor
        slept = sleep.pass_to(before, sample)
        if told is not None and before is not None:
            told.ago_ms += sample.line.mono - before.line.mono + slept
        elif told is not None and ancestry.follows(sample) and sample.passed_ms is not None:
            told.ago_ms += sample.passed_ms
        elif told is not None:
            # How long it was nobody knows, whatever room the wall clock has for it.
            found.lost_ms += told.sample.in_window or sample.in_window
            told = None
        row = next((each for each in first_of_kind(sample) if each.kind == kind), None)
        if row is None or row.age_ms is None:
            continue
        _bound_marked(found, sample, row, sleep, day)
        sleep.end_with(sample, row.age_ms)
        if not _is_marked(sample, row, told):
            _bound(found, sample, (row.age_ms, row.age_ms + sleep.asleep_ms), told, day)
        told = _Told(sample, row.age_ms + sleep.asleep_ms)
        if sample.in_window:
            found.at_least_ms = max(row.age_ms, found.at_least_ms or 0)
    found.close(day)
    return found


def _bound_marked(found: AgeBounds, sample: Sample, row: Metadata, sleep: _Sleep, day: Day) -> None:
    since = sample.line.since
    if row.age_ms_max is not None and since is not None:
        start_ms = sample.ts - (sample.line.mono - since)
        found.bound(start_ms, sample, row.age_ms_max + sleep.asleep_ms, day)


def _is_marked(sample: Sample, row: Metadata, told: _Told | None) -> bool:
    """Whether a line's marks reach back to the sample that told of an age before."""
    since = sample.line.since
    if told is None or row.age_ms_max is None or since is None:
        return False
    reach_ms = sample.line.mono - since
    return told.ago_ms <= reach_ms and told.sample.ts >= sample.ts - reach_ms


def _bound(
    found: AgeBounds, sample: Sample, ages_ms: tuple[int, int], told: _Told | None, day: Day
) -> None:
    """`ages_ms`: that of the sample at least and at most."""
    least_ms, most_ms = ages_ms
    if told is None:
        found.bound(sample.ts - least_ms, sample, most_ms, day)
        return
    # From the last success that the past one knew of to the last one that this one knows of.
    between_ms = told.age_ms + told.ago_ms - least_ms
    found.bound(told.sample.ts, sample, max(most_ms, between_ms, told.age_ms), day)
