"""Where lives began and ended that are long over when the window begins: a line or two of each.

Runs in the executors; pure. A broker that was down for longer than lines are read before the window
would else be one of which nobody knows how long it was down: its clock may have been set. The rule
is in docs/sla_report.md ("Samples"). Must not know streams or figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from spark.dumps.dump_line import Line
from spark.vocabulary import DAY_MS

if TYPE_CHECKING:
    from spark.figures.sample_stream import Sample
    from spark.reported_day import Day

_Key = tuple[int, str]
"""Broker id and boot."""
_Text = tuple[Line, bytes]


class LifeEnds:
    """Of lines long before the window: each life's first one and its last."""

    def __init__(self) -> None:
        self._firsts: Final[dict[_Key, _Text]] = {}
        self._lasts: Final[dict[_Key, _Text]] = {}

    def add(self, line: Line, text: bytes) -> None:
        """A good line; of several texts of one sample the smallest counts."""
        key = line.broker_id, line.boot
        first, last = self._firsts.get(key), self._lasts.get(key)
        if first is None or (line.seq, text) < (first[0].seq, first[1]):
            self._firsts[key] = line, text
        if last is None or (-line.seq, text) < (-last[0].seq, last[1]):
            self._lasts[key] = line, text

    def asked(self, samples: Iterable[Sample], day: Day) -> Iterator[_Text]:
        """Those that matter beside `samples`, which are all that are near enough: how a life began
        within the last day, and where one ended or was seen before the window, if none of its
        samples tells."""
        nearest: dict[_Key, Sample] = {}
        for sample in samples:
            key = sample.line.broker_id, sample.line.boot
            if key not in nearest or sample.line.seq < nearest[key].line.seq:
                nearest[key] = sample
        for key, last in self._lasts.items():
            near, first = nearest.get(key), self._firsts[key]
            found = {}
            if first[0].boot_ts >= day.w0_ms - DAY_MS:
                found[first[0].seq] = first
            if near is None or near.ts >= day.w0_ms:
                found[last[0].seq] = last
            yield from (one for seq, one in found.items() if near is None or seq < near.line.seq)
