"""The date and window that are reported on, and how far around it lines matter.

Plain values for the driver and the executors. docs/sla_report.md says what is computed from them.
Must not know where dumps lie or what the figures are.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Final

from spark.vocabulary import DAY_MS, HOUR_MS

REACH_MS: Final = 2 * HOUR_MS
"""How far lines around the window are read: those before it show what its first samples follow,
those after it how it ended. Two lines of the longest interval."""


class InputError(Exception):
    """What the report was given cannot be read; the text names it and the way out."""


@dataclass(frozen=True, slots=True)
class Day:
    """A date (UTC) and the part of it that is reported on: [w0_ms, w1_ms), epoch ms."""

    date: datetime.date
    w0_ms: int
    w1_ms: int

    def __post_init__(self) -> None:
        if not self.start_ms <= self.w0_ms < self.w1_ms <= self.start_ms + DAY_MS:
            raise ValueError(f"no window of {self.date}: [{self.w0_ms}, {self.w1_ms})")

    @property
    def start_ms(self) -> int:
        """Midnight (UTC) at which the date begins."""
        return midnight_ms(self.date)

    @property
    def window_ms(self) -> int:
        return self.w1_ms - self.w0_ms

    def needs(self, ts: int, seq: int) -> bool:
        """Whether a good line of this moment and number matters to the date at all."""
        return self.w0_ms - REACH_MS <= ts and (ts < self.w1_ms + REACH_MS or seq == 1)

    def is_long_before(self, ts: int) -> bool:
        """Whether a line of this moment is of a time of which only the ends of lives matter."""
        return ts < self.w0_ms - REACH_MS

    @classmethod
    def whole(cls, date: datetime.date) -> Day:
        """All 24 hours of `date`."""
        w0_ms = midnight_ms(date)
        return cls(date, w0_ms, w0_ms + DAY_MS)


def midnight_ms(date: datetime.date) -> int:
    """Epoch ms at which a UTC date begins."""
    midnight = datetime.datetime.combine(date, datetime.time(), datetime.UTC)
    return int(midnight.timestamp()) * 1000
