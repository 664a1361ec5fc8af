"""What a killed broker had counted when it died, where its next life tells: `ended` of a line.

Runs in the executors; pure. The counters survive the processes, not the machine; the rule is in
docs/sla_report.md ("Counted ends"). Must not know objectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark.vocabulary import SEND_ANSWERS, SYNC_RESULTS

if TYPE_CHECKING:
    from spark.dumps.dump_line import Ended
    from spark.figures.sample_stream import Sample
    from spark.figures.two_masters import Ancestry
    from spark.reported_day import Day


def counted_end(sample: Sample, ancestry: Ancestry) -> Ended | None:
    """The counters of the life before the boot that begins with this sample, at its death; None
    where nothing proves that they are. Both were on one boot of one machine."""
    before, line = sample.predecessor, sample.line
    ended = line.ended
    if before is None or ended is None or ended.boot != before.line.boot:
        return None
    machine, past = line.machine_boot, before.line
    if machine is None or machine != past.machine_boot or not ancestry.follows(sample):
        return None
    if not ancestry.comes_from(line.boot, past.boot) or past.sends is None:
        return None
    rose = _rose(SYNC_RESULTS, ended.sync, past.sync) and _rose(
        SEND_ANSWERS, ended.sends, past.sends
    )
    return ended if rose else None


def is_inside(sample: Sample, day: Day) -> bool:
    """Whether all that the life before counted after its last line was in the window."""
    before = sample.predecessor
    is_known = before is not None and before.in_window and not sample.hidden_down_ms
    return is_known and sample.in_window and day.w0_ms <= sample.line.boot_ts < day.w1_ms


def _rose(names: Sequence[str], now: object, past: object) -> bool:
    return all(getattr(now, name) >= getattr(past, name) for name in names)
