"""Two masters of one name at a time: lives of which none can come from the other, that both wrote.

Runs in the executors, over all distinct samples of a group. A restart and a failover are no two
masters: a life that names another one's last line comes from it, and one that begins when another
has ended follows it. Whatever else overlaps by more than clocks of hosts differ does; the rule is
in docs/sla_report.md ("Two masters at once"). Must not know replicas, figures or objectives.

Tested by tests/spark/figures/test_many_lives.py.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spark.dumps.dump_line import Line
from spark.figures.descent import Descent
from spark.figures.sample_stream import GroupSamples, Sample
from spark.reported_day import Day

CLOCKS_MS: Final = 1_000
"""So much may the clocks of two hosts differ: an overlap up to that is none."""
_SWITCHED_MS: Final = 60_000
"""In a longer time without a master a third one may have been promoted of which no line is left."""
MOST_AT_ONCE: Final = 16
"""More lives than that at a time are not one broker's, whatever they name."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """[start_ms, end_ms) in which two lives wrote as master; each by one of its samples."""

    start_ms: int
    end_ms: int
    one: Sample
    other: Sample


class Ancestry:
    """Which lives come from which, by what each found on its disk at its start."""

    def __init__(self, samples: GroupSamples) -> None:
        self._before: Final[dict[str, tuple[str | None, int | None]]] = {}
        self._last_seq: Final[dict[str, int]] = {}
        self._next: Final[dict[str, Sample | None]] = {}
        """Boot -> the first sample of the one life that names it as its past; None: there are
        several."""
        for stream in (samples.masters, *samples.slaves.values()):
            for sample in stream.samples:
                self._add(sample.line)
        for sample in samples.begins:
            self._add(sample.line)
            boot = sample.line.prev_boot
            if boot is not None:
                self._next[boot] = None if boot in self._next else sample

    def _add(self, line: Line) -> None:
        self._before.setdefault(line.boot, (line.prev_boot, line.prev_seq))
        if line.seq > self._last_seq.get(line.boot, 0):
            self._last_seq[line.boot] = line.seq

    def comes_from(self, young: str, old: str) -> bool:
        """Whether boot `young` is a later life of the broker that `old` was one of. A life that
        wrote on after the one that names it had begun is not its past: a copied disk."""
        return self._descent.comes_from(young, old)

    @functools.cached_property
    def _descent(self) -> Descent:
        return Descent(
            {
                boot: before
                for boot, (before, seq) in self._before.items()
                if before is not None
                and before != boot
                and self._last_seq.get(before, 0) <= (seq or 0)
            }
        )

    def follows(self, sample: Sample) -> bool:
        """Whether a boot's first sample comes from the life before it in the stream directly."""
        before, line = sample.predecessor, sample.line
        return (
            before is not None
            and line.prev_boot == before.line.boot
            and (line.prev_seq or 0) >= before.line.seq
        )

    def next_life(self, sample: Sample) -> Sample | None:
        """The first sample of the next life of the broker whose life is the one before this first
        sample of a boot: this one, or that of a broker that came back when another one had been
        promoted. None also where somebody may have been master in between: the life that a promoted
        one names has to be there, and is not that next one, whose clock was wrong; nor may they be
        far apart."""
        before, line = sample.predecessor, sample.line
        if before is None or self.follows(sample):
            return None if before is None else sample
        if line.seq != 1:
            return None
        after = self._next.get(before.line.boot)
        is_whole = line.prev_boot in self._before and line.prev_boot != line.boot
        if after is None or not is_whole or line.boot_ts - before.ts > _SWITCHED_MS:
            return None
        is_between = self.comes_from(line.boot, after.line.boot)
        return after if _is_next(before, after) and not is_between else None


def _is_next(before: Sample, after: Sample) -> bool:
    return (after.line.prev_seq or 0) >= before.line.seq and after.line.boot != before.line.boot


def overlaps(samples: GroupSamples, ancestry: Ancestry, day: Day) -> list[Overlap]:
    """Of each life the longest one with a life that began before it, if that has a part in the
    window; clipped to it, by their beginning."""
    lives = sorted(
        _lives(samples.masters.samples), key=lambda life: (_begin_ms(life), life[0].line.boot)
    )
    found: list[Overlap] = []
    running: list[Sequence[Sample]] = []
    for life in lives:
        begin_ms = _begin_ms(life)
        running = [each for each in running if each[-1].ts - begin_ms > CLOCKS_MS]
        others = [each for each in running if not _are_one_broker(each, life, ancestry)]
        running.append(life)
        if len(running) > MOST_AT_ONCE:
            first_to_end = min(running, key=lambda each: each[-1].ts)
            running.remove(first_to_end)
            others.append(first_to_end if first_to_end is not life else running[0])
        longest = max(others, key=lambda each: each[-1].ts, default=None)
        if longest is not None:
            end_ms = min(longest[-1].ts, life[-1].ts)
            if end_ms - begin_ms > CLOCKS_MS:
                found.append(Overlap(begin_ms, end_ms, longest[-1], life[0]))
    return [
        Overlap(max(each.start_ms, day.w0_ms), min(each.end_ms, day.w1_ms), each.one, each.other)
        for each in found
        if each.start_ms < day.w1_ms and each.end_ms > day.w0_ms
    ]


def _are_one_broker(one: Sequence[Sample], other: Sequence[Sample], ancestry: Ancestry) -> bool:
    """Whether one of two lives comes from the other."""
    boot, boot_of_other = one[0].line.boot, other[0].line.boot
    return ancestry.comes_from(boot, boot_of_other) or ancestry.comes_from(boot_of_other, boot)


def _lives(samples: Iterable[Sample]) -> Iterable[list[Sample]]:
    lives: dict[str, list[Sample]] = {}
    for sample in samples:
        lives.setdefault(sample.line.boot, []).append(sample)
    return lives.values()


def _begin_ms(life: Sequence[Sample]) -> int:
    first = life[0]
    return min(first.ts, first.line.boot_ts) if first.line.seq == 1 else first.ts


def joined(found: Iterable[Overlap]) -> list[tuple[int, int]]:
    """Their spans, ascending and apart from each other."""
    spans: list[tuple[int, int]] = []
    for each in sorted(found, key=lambda overlap: overlap.start_ms):
        if spans and each.start_ms <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], each.end_ms)
        else:
            spans.append((each.start_ms, each.end_ms))
    return spans


def told(found: Sequence[Overlap]) -> str | None:
    """The first of them in words, and how many more there are."""
    if not found:
        return None
    first = found[0]
    brokers = " and ".join(map(_broker, (first.one, first.other)))
    more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
    return f"{brokers}, from {_clock(first.start_ms)} to {_clock(first.end_ms)} UTC{more}"


def _broker(sample: Sample) -> str:
    line = sample.line
    host = f"{line.host}, " if line.host else ""
    return f"broker id {line.broker_id} ({host}boot {line.boot})"


def _clock(ms: int) -> str:
    return f"{datetime.datetime.fromtimestamp(ms // 1000, datetime.UTC):%H:%M:%S}"


def columns(found: Sequence[Overlap]) -> Mapping[str, float | str | None]:
    """Of table group_days."""
    seconds = sum(end - start for start, end in joined(found)) / 1000
    return {"two_masters_s": seconds, "two_masters": told(found)}
