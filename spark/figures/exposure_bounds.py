"""What would have been lost, had the master died at the worst moment: proved at least, and at most.

Runs in the executors, over the masters' stream of a group. Lines of version 2 carry high-water
marks and counters of them; where those do not reach, the log itself bounds the exposure: nothing
that was acknowledged is at risk, and no more was written than the next line shows. The rules are in
docs/sla_report.md ("Data at risk"). Must not know objectives.

Tested by tests/spark/figures/test_bounds.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from spark.dumps.dump_line import Line
from spark.figures.counted_ends import life_end
from spark.figures.sample_stream import Sample, Stream, mark_reaches
from spark.figures.two_masters import Ancestry
from spark.reported_day import Day

_SEEN_AGO_MS: Final = 1_000
"""A line shows what process `ha` saw at its last look, up to so long ago."""


@dataclass(slots=True)
class ExposureBounds:
    """Bytes: `at_least` proved, `at_most` of the time that is bounded; None of nothing.
    `unbounded_ms`: time of which nothing is known. `unmarked`: samples of the window whose lines
    carry no marks."""

    at_least: int | None = None
    at_most: int | None = None
    unbounded_ms: int = 0
    unmarked: int = 0
    lost_ms: int = 0
    """At least that much of it."""
    _bounded: list[tuple[int, int]] = field(default_factory=list)

    def bound(
        self, start_ms: int, end_ms: int, at_most: int | None, day: Day, *, is_inside: bool = False
    ) -> None:
        """Of a span of time, clipped to the window. `is_inside`: it counts even where the wall
        clock has no room for it."""
        start_ms, end_ms = max(start_ms, day.w0_ms), min(end_ms, day.w1_ms)
        if at_most is None or (start_ms >= end_ms and not is_inside):
            self.lost_ms += at_most is None and is_inside
            return
        self.at_most = max(at_most, self.at_most or 0)
        if start_ms >= end_ms:
            return
        if self._bounded and self._bounded[-1][1] == start_ms:
            self._bounded[-1] = self._bounded[-1][0], end_ms
        else:
            self._bounded.append((start_ms, end_ms))

    def prove(self, at_least: int) -> None:
        """That much was at risk."""
        self.at_least = max(at_least, self.at_least or 0)

    def close(self, day: Day) -> None:
        """All spans are there: what is in none of them is unbounded."""
        at_ms, free_ms = day.w0_ms, 0
        for start_ms, end_ms in sorted(self._bounded):
            free_ms += max(0, start_ms - at_ms)
            at_ms = max(at_ms, end_ms)
        self.unbounded_ms = max(self.lost_ms, free_ms + day.w1_ms - at_ms)


def reported_positions(samples: Sequence[Sample]) -> dict[str, int]:
    """Boot -> where the furthest replica that the boot heard of stood, at least, when it first
    reported: what the boot sent it since is taken off."""
    found: dict[str, int] = {}
    for sample in samples:
        if sample.rows and sample.line.boot not in found:
            found[sample.line.boot] = max(
                row.ack_offset - row.transferred for row in sample.rows.values()
            )
    return found


def at_risk(sample: Sample, stood: int | None) -> tuple[int | None, int | None]:
    """(bytes, age of the oldest, ms) at the sample's moment. `stood`: the position that the first
    replica of its boot reported later. Until then the master counts its whole log; how old the
    oldest record is that the replica lacked, nobody knows."""
    line = sample.line
    size, age_ms = line.unreplicated_bytes, line.oldest_unreplicated_ms
    if size is not None and stood is not None and not sample.rows:
        return min(size, max(0, line.max_offset - stood)), None
    return size, age_ms


class _Bounds:
    """Goes over the samples in their order; used once."""

    def __init__(self, stream: Stream, ancestry: Ancestry, day: Day) -> None:
        self._samples: Final = stream.samples
        self._ancestry: Final = ancestry
        self._day: Final = day
        self._stood: Final = reported_positions(stream.samples)
        self._ends: Final = self._log_ends()
        self._opened: Final[dict[str, int]] = {}
        """Boot -> end of the log in the first line that knows it."""
        self.found: Final = ExposureBounds()

    def _log_ends(self) -> list[int | None]:
        """Of each sample the end of the log there, or in the first later one that knows it and is
        of the same log."""
        ends: list[int | None] = [None] * len(self._samples)
        later: int | None = None
        for place in range(len(self._samples) - 1, -1, -1):
            sample = self._samples[place]
            ends[place] = later = sample.line.max_offset or later
            if not sample.same_boot and not self._ancestry.follows(sample):
                later = None
        return ends

    def run(self) -> ExposureBounds:
        """All of it."""
        acked: int | None = None
        first_boot = ""
        for place, sample in enumerate(self._samples):
            line, end = sample.line, self._ends[place]
            is_same_log = sample.same_boot or self._ancestry.follows(sample)
            left = None if is_same_log else self._left_behind(sample, acked)
            if not is_same_log:
                acked, first_boot = self._stood.get(line.boot), line.boot
            if line.max_offset and line.boot not in self._opened:
                self._opened[line.boot] = line.max_offset
                if line.boot != first_boot:
                    acked = self._kept_by_recovery(line, acked)
            grown = self._grown(sample, end, acked, is_same_log=is_same_log)
            if not sample.same_boot and is_same_log:
                self._bound_before(sample, grown)
            elif not sample.same_boot:
                self._bound_before(sample, left)
            marked = self._marked(sample)
            bounds = [each for each in (grown, marked) if each is not None]
            at_most = min(bounds, default=None)
            before = sample.boot_predecessor
            is_inside = sample.in_window or (before is not None and before.in_window)
            self.found.bound(sample.start_ms, sample.ts, at_most, self._day, is_inside=is_inside)
            acked = self._acked(sample, acked)
            if sample.in_window:
                self._prove(sample)
        self.found.close(self._day)
        return self.found

    @staticmethod
    def _kept_by_recovery(line: Line, acked: int | None) -> int | None:
        """What of the log was acknowledged is, after a loss of its end, at most what its life began
        with: what is written there since is not what a replica had there before."""
        return None if acked is None else min(acked, max(0, line.max_offset - line.bytes_in))

    def _left_behind(self, sample: Sample, acked: int | None) -> int | None:
        """What of the log of the life before no replica had, where it ended with its last line and
        this one is another broker's: nobody wrote in between."""
        before, end = sample.predecessor, life_end(sample, self._ancestry)
        if before is None or end is None or end.ended is not None:
            return None
        line = before.line
        return max(0, line.max_offset - max(line.min_offset, acked or 0))

    def _bound_before(self, sample: Sample, at_most: int | None) -> None:
        """Between the last line of the life before and the boot; not where the clock was set ahead
        in between, so that other lines may be of that time."""
        if sample.predecessor is not None and not sample.shows_more:
            end_ms = min(sample.line.boot_ts, sample.ts)
            self.found.bound(sample.predecessor.ts, end_ms, at_most, self._day)

    @staticmethod
    def _grown(
        sample: Sample, end: int | None, acked: int | None, *, is_same_log: bool
    ) -> int | None:
        """Up to the end of the log from what was acknowledged, or is no longer kept."""
        if end is None:
            return None
        before = sample.boot_predecessor
        if is_same_log and sample.predecessor is not None:
            end = max(end, sample.predecessor.line.max_offset)  # recovery may cut the log
        kept = (before or sample).line.min_offset
        return max(0, end - max(kept, kept if acked is None else acked))

    @staticmethod
    def _marked(sample: Sample) -> int | None:
        """By the line's own mark, and by the counters of marks where lines are lost."""
        mark = sample.line.exposure
        if mark is None:
            return None
        if mark_reaches(sample):
            return mark.bytes_at_most
        before = sample.boot_predecessor
        past = before.line.exposure if before is not None else None
        if past is None or past.le != mark.le or len(past.counts) != len(mark.counts):
            return None
        risen = [k for k in range(len(mark.counts)) if mark.counts[k] > past.counts[k]]
        highest = risen[-1] if risen else -1
        if highest == len(mark.le):
            return None
        return max(mark.bytes_at_most, mark.le[highest] if risen else 0)

    @staticmethod
    def _acked(sample: Sample, acked: int | None) -> int | None:
        """Up to where some replica has the log, at least."""
        end = sample.line.max_offset
        if not end or not sample.rows:
            return acked
        position = min(end, max(row.ack_offset for row in sample.rows.values()))
        return position if acked is None else max(position, acked)

    def _prove(self, sample: Sample) -> None:
        line, mark = sample.line, sample.line.exposure
        self.found.unmarked += mark is None
        if sample.ts - _SEEN_AGO_MS < self._day.w0_ms:
            return
        opened = self._opened.get(line.boot)
        if not sample.rows:
            # It has heard of no replica and counts its whole log; what no replica can have is what
            # this life wrote itself.
            if opened is not None and line.unreplicated_bytes is not None:
                self.found.prove(min(line.unreplicated_bytes, max(0, line.max_offset - opened)))
            return
        if line.unreplicated_bytes is not None:
            self.found.prove(line.unreplicated_bytes)
        if mark is not None and line.since is not None:
            since_ms = sample.ts - (line.mono - line.since)
            if since_ms >= self._day.w0_ms and self._had_rows(sample):
                self.found.prove(mark.bytes_at_least)

    @staticmethod
    def _had_rows(sample: Sample) -> bool:
        """Not so where the mark reaches back to when no replica had reported yet."""
        return sample.boot_predecessor is not None and bool(sample.boot_predecessor.rows)


def exposure_bounds(stream: Stream, ancestry: Ancestry, day: Day) -> ExposureBounds:
    """Of the whole window."""
    return _Bounds(stream, ancestry, day).run()
