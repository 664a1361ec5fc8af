"""Calendar periods on index.html: of each kind the last ones and the worst, as far as judged.

Called on the driver by spark/page/calendar_page.py with what the history keeps of each date. The
last date that begins in a period has its result. It must not know Spark, HTML or time zones.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spark.figures.report_data import MET, SEVERITY
from spark.page.history import DayResult, PeriodResult

KINDS: Final = ("week", "month", "quarter")
"""As docs/report_files.md names them, the shortest first."""
MAX_PERIODS: Final = 13
"""So many of a kind are shown, the last ones."""


@dataclass(frozen=True)
class JudgedPeriod:
    """A period as the report of `date` judged it, the last one of the dates that it has."""

    date: datetime.date
    result: PeriodResult

    @property
    def is_over_budget(self) -> bool:
        return self.result.left_s is not None and self.result.left_s < 0

    @property
    def badness(self) -> tuple[float, ...]:
        """The larger the worse. Least severe is the verdict `met`."""
        result = self.result
        severity = -SEVERITY[result.verdict]
        return severity, result.used or 0.0, -(result.left_s or 0.0), result.unknown_s


@dataclass(frozen=True)
class ContractPeriods:
    """All of one kind (`month`): `last` are shown, the newest first, `more` are not; `worst` is
    the worst of all, None where each one was met."""

    period: str
    last: Sequence[JudgedPeriod]
    more: int
    worst: JudgedPeriod | None

    @property
    def any_excluded(self) -> bool:
        """Of those that are shown."""
        return any(one.result.excluded_s for one in self.last)


def contract_periods(days: Iterable[DayResult]) -> list[ContractPeriods]:
    """The shortest kind first; kinds that no date has are left out."""
    found: dict[str, dict[tuple[str, str], JudgedPeriod]] = {}
    for day in sorted(days, key=lambda day: day.date):
        for result in day.periods:
            of_kind = found.setdefault(result.period, {})
            of_kind[result.name, result.timezone] = JudgedPeriod(day.date, result)
    return [_of_kind(kind, list(found[kind].values())) for kind in KINDS if kind in found]


def _of_kind(kind: str, periods: Sequence[JudgedPeriod]) -> ContractPeriods:
    newest_first = sorted(periods, key=lambda one: one.date, reverse=True)
    bad = [one for one in periods if one.result.verdict != MET]
    return ContractPeriods(
        kind,
        newest_first[:MAX_PERIODS],
        max(0, len(periods) - MAX_PERIODS),
        max(bad, key=lambda one: (one.badness, one.date), default=None),
    )
