"""How long it was from the last line of a life to the first one of the next: the wall clock may
have been set in between, while nobody wrote.

Runs in the executors; pure. A machine counts its own time since it was switched on, which nobody
sets; over a reboot only a clock that a time service held on both sides proves anything. The rule is
in docs/sla_report.md ("Hidden time"). Must not know what the time was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spark.dumps.dump_line import Line
    from spark.figures.sample_stream import Sample

AGREE_MS: Final = 1_000
"""Two clocks that differ by no more tell the same; a time service holds a clock if its error is at
most that."""


def passed_ms(past: Sequence[Sample], life: Sequence[Sample]) -> int | None:
    """From the last sample of a life to the first one of the next, which may be of another broker;
    None where nothing proves it. Both in the order of seq, and not empty."""
    before, first = past[-1].line, life[0].line
    if before.machine_boot is not None and before.machine_boot == first.machine_boot:
        if before.uptime is not None and first.uptime is not None:
            return max(0, first.uptime - before.uptime)
    elif before.machine_boot is None and first.machine_boot is None:
        # Lines from before these fields: two clocks agree, and one of them nobody sets.
        by_mono_ms = first.mono - before.mono
        if abs(by_mono_ms - (first.ts - before.ts)) <= AGREE_MS:
            return max(0, by_mono_ms)
    then = _true_ms(before, (each.line for each in reversed(past)))
    now = _true_ms(first, (each.line for each in life))
    return None if then is None or now is None else max(0, now - then)


def _true_ms(line: Line, of_its_life: Iterable[Line]) -> int | None:
    """Its moment by the first of these lines at which a time service held the wall clock."""
    for each in of_its_life:
        if each.clock_error_ms is not None and each.clock_error_ms <= AGREE_MS:
            return each.ts + line.mono - each.mono
    return None


def is_asked(before: Line, first: Line) -> bool:
    """Whether the clock of both is the same one: the broker went on, or lines of its host did.
    Clocks of different hosts are taken to agree (docs/sla_report.md, "What is not promised"); lives
    of one host that overlap are two masters at once, which are judged as such."""
    if first.prev_boot == before.boot:
        return True
    is_behind = first.ts >= before.ts - AGREE_MS
    return first.host is not None and first.host == before.host and is_behind
