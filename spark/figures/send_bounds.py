"""How many synchronous sends succeeded and failed at least and at most: bounds from both sides.

Runs in the executors, over the masters' stream of a group. What a counter shows between two lines
of the window is exact; what lies across its edges may belong to either day; what a killed broker
answered after its last line nobody counted, and the log bounds it. The rule is in
docs/sla_report.md ("Sends that nobody counted"). Must not know objectives.

Tested by tests/spark/figures/test_bounds.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark.dumps.dump_line import SyncResults
from spark.figures.counted_ends import life_end
from spark.figures.sample_stream import Sample, Stream
from spark.figures.two_masters import CLOCKS_MS, Ancestry
from spark.reported_day import Day

LEAST_RECORD_BYTES: Final = 91
"""Of the commit log: every synchronous send stores a record before it is answered."""
MOST_SENDS_A_MS: Final = 1_000
"""No broker answers a million sends a second."""


@dataclass(slots=True)
class SendBounds:
    """Counts of the window."""

    ok_least: int = 0
    ok_most: int = 0
    failed_least: int = 0
    failed_most: int = 0

    def add(self, ok: int, failed: int, *, is_inside: bool) -> None:
        """What a counter counted; not `is_inside`: perhaps not in the window."""
        self.ok_most += ok
        self.failed_most += failed
        if is_inside:
            self.ok_least += ok
            self.failed_least += failed

    def add_unknown(self, most: int) -> None:
        """So many sends at most, of which nothing is known."""
        self.ok_most += most
        self.failed_most += most


class ClockDoubts:
    """Of which samples before the window a later one of their life shows that they may be in it:
    its clock was set forward in between."""

    def __init__(self, samples: Sequence[Sample], day: Day) -> None:
        self._day: Final = day
        self._ahead: Final[dict[str, int]] = {}
        """Boot -> how far its wall clock was ahead of the monotonic one, at most."""
        boot, most = "", 0
        for sample in samples:
            ahead_ms = sample.ts - sample.line.mono
            if sample.line.boot != boot:
                boot = sample.line.boot
                most = self._ahead.get(boot, ahead_ms)
            elif ahead_ms <= most:
                continue
            self._ahead[boot] = most = max(most, ahead_ms)

    def may_be_later(self, sample: Sample) -> bool:
        """Whether a sample before the window may be one of it."""
        later_ms = sample.line.mono + self._ahead[sample.line.boot]
        return later_ms - sample.ts > CLOCKS_MS and later_ms >= self._day.w0_ms


def send_bounds(stream: Stream, ancestry: Ancestry, day: Day) -> SendBounds:
    """Of the whole window."""
    found, samples = SendBounds(), stream.samples
    doubts = ClockDoubts(samples, day)
    inside: str | None = None
    """The boot of which a sample was in the window: what follows was not before it, whatever the
    wall clock says."""
    for place, sample in enumerate(samples):
        before = sample.boot_predecessor
        if before is not None:
            if sample.line.sync == before.line.sync:
                pass  # nobody sent
            elif (
                sample.ts >= day.w0_ms
                or before.ts >= day.w0_ms
                or inside == sample.line.boot
                or doubts.may_be_later(sample)
            ):
                _add_counted(found, sample, before.ts, before, day)
            inside = sample.line.boot if sample.in_window else inside
            continue
        line = sample.line
        inside = line.boot if sample.in_window else inside
        if sample.ts >= day.w0_ms or doubts.may_be_later(sample):
            since_ms = line.boot_ts if sample.from_zero else day.w0_ms - 1
            _add_counted(found, sample, since_ms, None, day)
        end, past = life_end(sample, ancestry), sample.predecessor
        if end is None or past is None:
            found.add_unknown(before_boot(samples, place, ancestry, day).stored)
        elif end.ended is not None and is_asked(samples, place, ancestry, day):
            ok, failed = _risen(end.ended.sync, past.line.sync)
            found.add(ok, failed, is_inside=end.is_inside(past, day))
        found.add_unknown(shown_behind(samples, place, day))
    if samples:
        found.add_unknown(most_of_gap(true_ms(samples, len(samples) - 1), day.w1_ms, day))
    return found


def _add_counted(
    found: SendBounds, sample: Sample, since_ms: int, before: Sample | None, day: Day
) -> None:
    """What the counters of a sample counted since `since_ms`."""
    if sample.ts >= day.w1_ms and since_ms >= day.w1_ms:
        return
    ok, failed = _risen(sample.line.sync, before.line.sync if before is not None else None)
    if ok or failed:
        found.add(ok, failed, is_inside=sample.in_window and day.w0_ms <= since_ms < day.w1_ms)


def _risen(now: SyncResults, past: SyncResults | None) -> tuple[int, int]:
    """(ok, failed)."""
    ok = max(0, now.ok - (past.ok if past else 0))
    failed = (
        max(0, now.flush_slave_timeout - (past.flush_slave_timeout if past else 0))
        + max(0, now.slave_not_available - (past.slave_not_available if past else 0))
        + max(0, now.flush_disk_timeout - (past.flush_disk_timeout if past else 0))
    )
    return ok, failed


def is_asked(samples: Sequence[Sample], place: int, ancestry: Ancestry, day: Day) -> bool:
    """Whether anything between the boot whose first sample is at `place` and the last line of the
    life before can be in the window."""
    if _comes_back(samples, place, day):
        return True
    is_behind = _until_ms(samples, place, ancestry, day) > day.w0_ms
    is_behind = is_behind or _hidden_ms(samples[place], day) > 0
    return is_behind and true_ms(samples, place - 1) < day.w1_ms


def _until_ms(samples: Sequence[Sample], place: int, ancestry: Ancestry, day: Day) -> int:
    """Until when the life before may have answered: the boot whose first sample is at `place`. But
    of two masters at once the other one's boot ended nothing."""
    before, first = samples[place - 1], samples[place]
    begin_ms = first.ts if first.line.seq > 1 else min(first.line.boot_ts, first.ts)
    if (
        before.in_window
        and not before.line.final
        and true_ms(samples, place - 1) - begin_ms > CLOCKS_MS
        and not ancestry.comes_from(first.line.boot, before.line.boot)
    ):
        return day.w1_ms
    return _begun_ms(first)


def _begun_ms(first: Sample) -> int:
    """When the boot whose first sample is `first` began, at the latest. Where its clock shows more
    time since then than its lines take, it may have been set forward in between."""
    line = first.line
    by_lines_ms = first.ts - (line.seq - 1) * line.interval_ms
    return by_lines_ms if by_lines_ms - line.boot_ts > line.interval_ms else line.boot_ts


class Uncounted(NamedTuple):
    """At most so many sends were answered, and so many of them stored a record."""

    answered: int
    stored: int


def before_boot(samples: list[Sample], place: int, ancestry: Ancestry, day: Day) -> Uncounted:
    """Between the last line of the life before and the boot whose first sample is at `place`."""
    sample, before = samples[place], samples[place].predecessor
    if before is None:
        most = most_of_gap(day.w0_ms, _begun_ms(sample), day) + _hidden_sends(sample, day)
        return Uncounted(most, most)
    if _comes_back(samples, place, day):
        most = most_of_gap(day.w0_ms, day.w1_ms, day)
        return Uncounted(most, most)
    since_ms = true_ms(samples, place - 1)
    if not is_asked(samples, place, ancestry, day):
        return Uncounted(0, 0)
    # Where clocks contradict each other, a line could be missing all the same.
    until_ms = _until_ms(samples, place, ancestry, day)
    most = max(most_of_gap(since_ms, until_ms, day), before.line.interval_ms * MOST_SENDS_A_MS)
    most += _hidden_sends(sample, day)
    if not ancestry.follows(sample):
        return Uncounted(most, most)
    opened = next((each.line for each in _life_from(samples, place) if each.line.max_offset), None)
    if opened is None:
        return Uncounted(most, most)
    grown = opened.max_offset - opened.bytes_in - before.line.max_offset
    return Uncounted(most, min(most, max(0, grown) // LEAST_RECORD_BYTES))


def _comes_back(samples: Sequence[Sample], place: int, day: Day) -> bool:
    """Whether the life before is behind the window and this boot is not: a clock was wrong, and
    what was left out as later than the window may be of it, whole lives among it."""
    return samples[place].ts < day.w1_ms <= samples[place - 1].ts


def shown_behind(samples: Sequence[Sample], place: int, day: Day) -> int:
    """At most so many sends of the window may be of the life whose first sample is at `place`: its
    clock shows it behind the window, and more time since the life before than passed."""
    sample = samples[place]
    if place == 0 or sample.ts < day.w1_ms or not sample.shows_more:
        return 0
    return most_of_gap(true_ms(samples, place - 1), day.w1_ms, day)


def _hidden_sends(sample: Sample, day: Day) -> int:
    """What may have been answered in time that the wall clock has no room for."""
    return _hidden_ms(sample, day) * MOST_SENDS_A_MS


def _hidden_ms(sample: Sample, day: Day) -> int:
    """Of the time before a boot that its clock does not show, how much may be of the window."""
    before_ms = max(0, day.w0_ms - sample.line.boot_ts)
    return max(0, sample.hidden_down_ms - before_ms, sample.carried_ms)


def true_ms(samples: Sequence[Sample], place: int) -> int:
    """The moment of a sample by the monotonic clock, from the sample of its boot at which the wall
    clock was least ahead: it may have been set forward since."""
    line, ahead_ms = samples[place].line, samples[place].ts - samples[place].line.mono
    while place >= 0 and samples[place].line.boot == line.boot:
        ahead_ms = min(ahead_ms, samples[place].ts - samples[place].line.mono)
        place -= 1
    return line.mono + ahead_ms


def _life_from(samples: list[Sample], place: int) -> list[Sample]:
    boot, end = samples[place].line.boot, place
    while end < len(samples) and samples[end].line.boot == boot and end - place < _LOOKED_AT:
        end += 1
    return samples[place:end]


_LOOKED_AT: Final = 20
"""So many lines of a boot may pass until its store is open."""


def most_of_gap(start_ms: int, end_ms: int, day: Day) -> int:
    """So many sends at most were answered in a span of time, clipped to the window."""
    return max(0, min(end_ms, day.w1_ms) - max(start_ms, day.w0_ms)) * MOST_SENDS_A_MS
