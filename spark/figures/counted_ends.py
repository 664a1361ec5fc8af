"""How a life of a master ended, where its broker's next life tells: at an orderly stop its last
line counts all; what a killed one had counted at its death stands in `ended` of the next one's.

Runs in the executors; pure. The next life may be that of a slave, after another host was promoted.
The counters survive the processes, not the machine; the rule is in docs/sla_report.md ("Counted
ends"). Must not know objectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from spark.vocabulary import SEND_ANSWERS, SYNC_RESULTS

if TYPE_CHECKING:
    from spark.dumps.dump_line import Ended, Latency
    from spark.figures.sample_stream import Sample
    from spark.figures.two_masters import Ancestry
    from spark.reported_day import Day


class LifeEnd(NamedTuple):
    """Of the life before a boot in the stream. `after`: the first sample of its broker's next life;
    `ended`: what it had counted, None where its last line says it."""

    after: Sample
    ended: Ended | None

    def is_inside(self, last: Sample, day: Day) -> bool:
        """Whether all that it counted behind its last line, `last`, was in the window."""
        after = self.after
        is_known = last.in_window and after.in_window and not after.hidden_down_ms
        return is_known and day.w0_ms <= after.line.boot_ts < day.w1_ms


def life_end(sample: Sample, ancestry: Ancestry) -> LifeEnd | None:
    """How the life before the boot that begins with this sample ended; None where nothing proves
    it."""
    before = sample.predecessor
    after = None if before is None else ancestry.next_life(sample)
    if before is None or after is None:
        return None
    if before.line.final and after.line.seq == 1 and after.line.prev_seq == before.line.seq:
        return LifeEnd(after, None)
    ended = _counted(before, after, ancestry)
    return None if ended is None else LifeEnd(after, ended)


def _counted(before: Sample, after: Sample, ancestry: Ancestry) -> Ended | None:
    """Both were on one boot of one machine."""
    line, past = after.line, before.line
    ended, machine = line.ended, line.machine_boot
    if ended is None or ended.boot != past.boot or past.sends is None:
        return None
    if machine is None or machine != past.machine_boot or (line.prev_seq or 0) < past.seq:
        return None
    if not ancestry.comes_from(line.boot, past.boot):
        return None
    rose = _rose(SYNC_RESULTS, ended.sync, past.sync) and _rose(
        SEND_ANSWERS, ended.sends, past.sends
    )
    return ended if rose and _are_later(ended.sends.latency, past.sends.latency) else None


def _are_later(now: Latency, past: Latency) -> bool:
    """By other bounds they cannot be compared: of the latencies nothing is known then."""
    pairs = zip(now.counts, past.counts, strict=False)
    return now.le != past.le or all(count >= before for count, before in pairs)


def _rose(names: Sequence[str], now: object, past: object) -> bool:
    return all(getattr(now, name) >= getattr(past, name) for name in names)
