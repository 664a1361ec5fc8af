"""How many sends of clients were answered well, otherwise, and how fast: bounds from both sides.

Runs in the executors, over the masters' stream of a group. Counters are those of `sends` in lines
of version 2, of all answers; what they cannot show is bounded as in spark/figures/send_bounds.py,
but that a send which is refused stores nothing, so that the log does not bound those. The rule is
in docs/sla_report.md ("All sends"). Must not know objectives.

Tested by tests/spark/figures/test_group_report.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from spark.dumps.dump_line import Latency, Sends
from spark.figures.counted_ends import life_end
from spark.figures.sample_stream import Sample, Stream
from spark.figures.send_bounds import (
    LEAST_RECORD_BYTES,
    MOST_SENDS_A_MS,
    ClockDoubts,
    before_boot,
    is_asked,
    most_of_gap,
    shown_behind,
    true_ms,
)
from spark.figures.two_masters import Ancestry
from spark.reported_day import Day

UNCOUNTED_MS: Final = 64
"""So long at most were the turns whose good answers process `remoting` had not counted yet."""


@dataclass(slots=True)
class AnswerBounds:
    """Counts of the window. `le`: upper bounds of the latency's buckets, seconds; `least` and
    `most`: answers in each, one more than `le`. `unmeasured`: answers at most of whose latency
    nothing is known. `uncounted`: lines of the window without these counters."""

    ok_least: int = 0
    ok_most: int = 0
    failed_least: int = 0
    failed_most: int = 0
    le: list[float] = field(default_factory=list)
    least: list[int] = field(default_factory=list)
    most: list[int] = field(default_factory=list)
    unmeasured: int = 0
    uncounted: int = 0

    def add(self, now: Sends, past: Sends | None, *, is_inside: bool) -> None:
        """What counters counted; not `is_inside`: perhaps not in the window."""
        ok = max(0, now.ok - (past.ok if past else 0))
        failed = sum(
            max(0, getattr(now, name) - (getattr(past, name) if past else 0)) for name in _FAILED
        )
        self.ok_most += ok
        self.failed_most += failed
        if is_inside:
            self.ok_least += ok
            self.failed_least += failed
        counts = _risen(now.latency, past.latency if past else None)
        if now.latency.le != self.le:
            self.unmeasured += sum(counts)
            return
        for place, count in enumerate(counts):
            self.most[place] += count
            if is_inside:
                self.least[place] += count

    def add_unknown(self, answered: int, stored: int) -> None:
        """So many were answered at most, and so many of them stored: nobody counted them."""
        self.ok_most += stored
        self.failed_most += answered
        self.unmeasured += answered

    def add_good(self, most: int) -> None:
        """So many at most were answered well, and nobody counted them."""
        self.ok_most += most
        self.unmeasured += most


_FAILED = ("flush_disk_timeout", "flush_slave_timeout", "slave_not_available", "refused")


def _risen(now: Latency, past: Latency | None) -> list[int]:
    if past is None or past.le != now.le:
        return list(now.counts)
    return [max(0, a - b) for a, b in zip(now.counts, past.counts, strict=True)]


def answer_bounds(stream: Stream, ancestry: Ancestry, day: Day) -> AnswerBounds:
    """Of the whole window."""
    found, samples = AnswerBounds(), stream.samples
    newest = next((each.line.sends for each in reversed(samples) if each.line.sends), None)
    if newest is not None:
        found.le = list(newest.latency.le)
        found.least = [0] * (len(found.le) + 1)
        found.most = [0] * (len(found.le) + 1)
    doubts = ClockDoubts(samples, day)
    inside: str | None = None
    """The boot of which a sample was in the window: see spark/figures/send_bounds.py."""
    for place, sample in enumerate(samples):
        before, line = sample.boot_predecessor, sample.line
        found.uncounted += sample.in_window and line.sends is None
        if before is not None:
            if (
                sample.ts >= day.w0_ms
                or before.ts >= day.w0_ms
                or inside == line.boot
                or doubts.may_be_later(sample)
            ):
                _add_counted(found, sample, before.ts, before, day)
            inside = line.boot if sample.in_window else inside
            continue
        inside = line.boot if sample.in_window else inside
        if sample.ts >= day.w0_ms or doubts.may_be_later(sample):
            since_ms = line.boot_ts if sample.from_zero else day.w0_ms - 1
            _add_counted(found, sample, since_ms, None, day)
        unseen = before_boot(samples, place, ancestry, day)
        end, past = life_end(sample, ancestry), sample.predecessor
        if end is None or past is None:
            found.add_unknown(unseen.answered, unseen.stored)
        elif end.ended is not None and is_asked(samples, place, ancestry, day):
            ended = end.ended
            found.add(ended.sends, past.line.sends, is_inside=end.is_inside(past, day))
            found.add_good(min(unseen.stored, ended.uncounted_ms * MOST_SENDS_A_MS))
        behind = shown_behind(samples, place, day)
        found.add_unknown(behind, behind)
    most = most_of_gap(true_ms(samples, len(samples) - 1) if samples else day.w0_ms, day.w1_ms, day)
    found.add_unknown(most, most)
    return found


def _add_counted(
    found: AnswerBounds, sample: Sample, since_ms: int, before: Sample | None, day: Day
) -> None:
    """What the counters of a sample counted since `since_ms`."""
    if sample.ts >= day.w1_ms and since_ms >= day.w1_ms:
        return
    now, past = sample.line.sends, before.line.sends if before is not None else None
    if now is None or (before is not None and past is None):
        # By the monotonic clock where the wall clock has no room for it.
        most = max(most_of_gap(since_ms, sample.ts, day), sample.span_ms * MOST_SENDS_A_MS)
        found.add_unknown(most, most)
        return
    found.add(now, past, is_inside=sample.in_window and day.w0_ms <= since_ms < day.w1_ms)
    if before is not None:
        found.add_good(_lost_with_remoting(sample, before))


def _lost_with_remoting(sample: Sample, before: Sample) -> int:
    """Good answers at most that process `remoting` had not counted when it died alone: it has been
    started again since the line before, which may have been written just before that was seen."""
    deaths = _restarts(sample) - _restarts(before)
    since = before.boot_predecessor or before
    grown = sample.line.max_offset - since.line.max_offset
    return max(0, min(deaths * UNCOUNTED_MS * MOST_SENDS_A_MS, grown // LEAST_RECORD_BYTES))


def _restarts(sample: Sample) -> int:
    return sum(each.restarts for each in sample.line.processes if each.name == "remoting")
