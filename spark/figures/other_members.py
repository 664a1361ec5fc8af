"""What members of a group with a controller answered while they did not lead: no send well, but a
client whose send was refused by a fenced master was refused by the group.

Runs in the executors, over the streams of a group's slaves. Counters are exact between two lines of
a life, lost lines or not; what a killed one refused behind its last line is not promised. The rule
is in docs/sla_report.md ("All sends"). Must not know objectives.

Tested by tests/spark/figures/test_elections.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from spark.figures.sample_stream import GroupSamples, Sample
from spark.reported_day import Day
from spark.vocabulary import SEND_ANSWERS, SYNC_RESULTS


@dataclass(slots=True)
class OtherAnswers:
    """By column of table group_days: what was certainly in the window, and what may have been."""

    least: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)

    def failed(self, kind: str, names: tuple[str, ...]) -> tuple[int, int]:
        """Least and most of what was not answered well. kind: sends or sync; names: of answers."""
        columns = [f"{kind}_{name}" for name in names if name != "ok"]
        least = sum(self.least[column] for column in columns)
        return least, sum(self.most[column] for column in columns)


def answered_by_others(samples: GroupSamples, day: Day) -> OtherAnswers:
    """Of the window; nothing for a group without a controller."""
    found = OtherAnswers()
    if not samples.has_members:
        return found
    for stream in samples.slaves.values():
        for sample in stream.samples:
            if sample.line.member is not None:
                _add(found, sample, day)
    return found


def _add(found: OtherAnswers, sample: Sample, day: Day) -> None:
    line, before = sample.line, sample.boot_predecessor
    if before is None and not sample.from_zero:
        return
    since_ms = line.boot_ts if before is None else before.ts
    if sample.ts < day.w0_ms or since_ms >= day.w1_ms:
        return
    past = None if before is None else before.line
    is_inside = sample.in_window and since_ms >= day.w0_ms
    for kind, names in (("sends", SEND_ANSWERS), ("sync", SYNC_RESULTS)):
        now, then = getattr(line, kind), None if past is None else getattr(past, kind)
        if now is None:
            continue
        for name in names:
            if name == "ok":
                continue
            rise = max(0, getattr(now, name) - (0 if then is None else getattr(then, name)))
            found.most[f"{kind}_{name}"] += rise
            found.least[f"{kind}_{name}"] += rise if is_inside else 0
