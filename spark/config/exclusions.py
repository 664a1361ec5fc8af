"""Time that is agreed not to count: one-off and weekly maintenance, as intervals in UTC.

Plain values that sla.yaml becomes (spark/config/sla_config.py) and the report's core asks;
picklable, so that executors have them. Knows no YAML, no Spark and no figure: what excluded time
means for a verdict is said in docs/sla_report.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from spark.vocabulary import DAY_MS

WEEK_MS: Final = 7 * DAY_MS
WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_FIRST_MONDAY_MS: Final = 4 * DAY_MS
"""1970-01-05 00:00 UTC; 1970-01-01 was a Thursday."""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Replicas whose time does not count, when, and why.

    `patterns`: of cluster, broker group and replica (`objectives.pattern_regex`). Either
    `once_ms`, an interval in epoch ms, or `weekly_ms`, one in ms since Monday 00:00 UTC that comes
    again each week and may reach into the next one. Intervals are [begin, end).
    """

    patterns: tuple[str, str, str]
    reason: str
    once_ms: tuple[int, int] | None = None
    weekly_ms: tuple[int, int] | None = None

    def intervals(self, w0_ms: int, w1_ms: int) -> list[tuple[int, int]]:
        """What of the window [w0, w1) it excludes: ascending epoch ms that do not touch."""
        found = [self.once_ms] if self.once_ms else []
        if self.weekly_ms:
            begin_ms, end_ms = self.weekly_ms
            first_week = (w0_ms - _FIRST_MONDAY_MS) // WEEK_MS - 1
            last_week = (w1_ms - _FIRST_MONDAY_MS) // WEEK_MS
            mondays = (_FIRST_MONDAY_MS + n * WEEK_MS for n in range(first_week, last_week + 1))
            found += [(monday_ms + begin_ms, monday_ms + end_ms) for monday_ms in mondays]
        clipped = ((max(begin, w0_ms), min(end, w1_ms)) for begin, end in found)
        return merged((begin, end) for begin, end in clipped if begin < end)


def merged(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same time as ascending intervals that do not touch."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found
