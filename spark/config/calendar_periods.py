"""Months, quarters and ISO weeks of a named time zone, as spans of epoch ms.

On the driver: executors need no table of time zones, they get the spans. Knows the calendar and the
standard library's time zones, no result and no objective. The rule of which period a date belongs
to is in docs/sla_report.md ("Calendar periods").
"""

from __future__ import annotations

import datetime
import difflib
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spark.reported_day import InputError, midnight_ms
from spark.vocabulary import HOUR_MS

MONTH: Final = "month"
QUARTER: Final = "quarter"
WEEK: Final = "week"
CALENDARS: Final = (WEEK, MONTH, QUARTER)
"""Shortest first."""
UTC: Final = "UTC"
_DAY: Final = datetime.timedelta(days=1)
_CHECKED_YEARS: Final = range(2019, 2041)
"""Not those before there were dumps: Caracas had half hours until 2016, Pyongyang until 2018."""


@dataclass(frozen=True, slots=True)
class Period:
    """One calendar period: [from_ms, to_ms), epoch ms, both at a midnight of its zone.

    `period`: one of CALENDARS; `name`: 2026-11, 2026-Q4 or 2026-W48.
    """

    period: str
    name: str
    timezone: str
    from_ms: int
    to_ms: int


def periods_of(date: datetime.date, calendars: Sequence[str], timezone: str) -> tuple[Period, ...]:
    """The periods in which the UTC date `date` begins, one for each of `calendars`.

    Raises InputError where a period begins or ends within an hour of UTC: results are stored by
    whole hours.
    """
    zone = zoneinfo.ZoneInfo(timezone)
    begins = datetime.datetime.fromtimestamp(midnight_ms(date) / 1000, zone).date()
    found = []
    for calendar in calendars:
        try:
            name, first, behind = _bounds(begins, calendar)
            span = _midnight_ms(first, zone), _midnight_ms(behind, zone)
        except (OverflowError, ValueError):
            raise InputError(f"{date}: the calendar ends before its {calendar} does") from None
        if any(moment % HOUR_MS for moment in span):
            raise InputError(f"{date}: {_not_whole(timezone)}")
        found.append(Period(calendar, name, timezone, *span))
    return tuple(found)


def _bounds(day: datetime.date, calendar: str) -> tuple[str, datetime.date, datetime.date]:
    """Name, first day and the day behind the last one of the period that has `day`."""
    if calendar == WEEK:
        iso = day.isocalendar()
        first = day - (iso.weekday - 1) * _DAY
        return f"{iso.year}-W{iso.week:02}", first, first + 7 * _DAY
    if calendar == MONTH:
        first = day.replace(day=1)
        return f"{day:%Y-%m}", first, (first + 31 * _DAY).replace(day=1)
    quarter = (day.month - 1) // 3
    first = day.replace(month=3 * quarter + 1, day=1)
    # No quarter has more than 92 days, and no month fewer than 28.
    return f"{day.year:04}-Q{quarter + 1}", first, (first + 92 * _DAY).replace(day=1)


def _midnight_ms(day: datetime.date, zone: zoneinfo.ZoneInfo) -> int:
    """Where a local day begins: the first of two midnights, the end of a gap that has none."""
    return int(datetime.datetime.combine(day, datetime.time(), zone).timestamp()) * 1000


def timezone_problem(timezone: str) -> str | None:
    """Why periods cannot be of that zone; None: they can."""
    known = zoneinfo.available_timezones()
    if timezone not in known:
        near = difflib.get_close_matches(timezone, sorted(known), n=1)
        hint = f"; did you mean {near[0]}?" if near else ", like Europe/Berlin or UTC"
        return f"write the name of a time zone of the IANA database{hint}"
    zone = zoneinfo.ZoneInfo(timezone)
    firsts = (datetime.date(year, month, 1) for year in _CHECKED_YEARS for month in (1, 4, 7, 10))
    return (
        _not_whole(timezone) if any(_midnight_ms(day, zone) % HOUR_MS for day in firsts) else None
    )


def _not_whole(timezone: str) -> str:
    return (
        f"days of {timezone} do not begin at a whole hour of UTC, and results are stored by whole"
        " hours; name a zone whose offset is whole hours, or UTC"
    )
