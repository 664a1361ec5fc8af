"""How old a slave's copy of one kind of metadata was at most, also between its lines.

Runs in the executors, over a slave's own stream. A line of version 2 carries an upper bound of the
age since the line before; of older lines the ages at two of them tell when the last copy succeeded,
and what lies between two successes was never older than the time between them. The rule is in
docs/sla_report.md ("Metadata"). Must not know objectives.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark.dumps.dump_line import Metadata
from spark.figures.sample_stream import Sample, Stream
from spark.figures.two_masters import Ancestry
from spark.reported_day import Day


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
class _Told:
    """The last sample that knew its age, and that age; how long ago it was, by clocks that nobody
    sets."""

    sample: Sample
    age_ms: int
    ago_ms: int = 0


def age_bounds(slave: Stream, kind: str, ancestry: Ancestry, day: Day) -> AgeBounds:
    """Of one kind over the whole window."""
    found = AgeBounds()
    told: _Told | None = None
    for sample in slave.samples:
        before = sample.boot_predecessor
        if told is not None and before is not None:
            told.ago_ms += sample.line.mono - before.line.mono
        elif told is not None and ancestry.follows(sample) and sample.passed_ms is not None:
            told.ago_ms += sample.passed_ms
        elif told is not None:
            # How long it was nobody knows, whatever room the wall clock has for it.
            found.lost_ms += told.sample.in_window or sample.in_window
            told = None
        row = next((each for each in first_of_kind(sample) if each.kind == kind), None)
        if row is None or row.age_ms is None:
            continue
        _bound(found, sample, row, row.age_ms, told, day)
        told = _Told(sample, row.age_ms)
        if sample.in_window:
            found.at_least_ms = max(row.age_ms, found.at_least_ms or 0)
    found.close(day)
    return found


def _bound(
    found: AgeBounds,
    sample: Sample,
    row: Metadata,
    age_ms: int,
    told: _Told | None,
    day: Day,
) -> None:
    since = sample.line.since
    if row.age_ms_max is not None and since is not None:
        reach_ms = sample.line.mono - since
        found.bound(sample.ts - reach_ms, sample, row.age_ms_max, day)
        is_reached = told is not None and told.ago_ms <= reach_ms
        if told is not None and is_reached and told.sample.ts >= sample.ts - reach_ms:
            return
    if told is None:
        found.bound(sample.ts - age_ms, sample, age_ms, day)
        return
    # From the last success that the past one knew of to the last one that this one knows of.
    between_ms = told.age_ms + told.ago_ms - age_ms
    found.bound(told.sample.ts, sample, max(age_ms, between_ms, told.age_ms), day)
