"""index.html below --out: a calendar of verdicts that leads to each day's report.

Called on the driver by spark/job/calendar_files.py with what the history keeps of each date
(spark/page/history.py); gives bytes. One page without script and network, as the report itself:
from one month to the next by links within it. It must not know Spark or where files go.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import Environment

from spark.figures import wording
from spark.figures.report_data import BREACHED, INSUFFICIENT, MET, SEVERITY
from spark.page.contract_periods import contract_periods
from spark.page.history import DayResult, Group, PeriodResult
from spark.page.page_template import page_bytes, page_environment

MAX_GROUPS: Final = 30
"""So many groups of a month are shown, the worst."""
MONTHS_WITH_GROUPS: Final = 13
"""So many months show their groups, the last ones; all of them show their days."""
MAX_WEEKS: Final = 26
TREND_DAYS: Final = 28
_DAY: Final = datetime.timedelta(days=1)
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)


@dataclass(frozen=True)
class Sum:
    """Several days: how many have a result, of these by verdict; bad and known time, s."""

    days: int
    results: int
    met: int
    breached: int
    insufficient: int
    good_s: float
    bad_s: float
    incidents: int
    sends_failed: int
    excluded_s: float

    @property
    def verdict(self) -> str | None:
        """The worst of the days'; None without any."""
        if self.breached:
            return BREACHED
        if self.insufficient:
            return INSUFFICIENT
        return MET if self.results else None

    @property
    def availability(self) -> float | None:
        known = self.good_s + self.bad_s
        return self.good_s / known if known else None

    @property
    def badness(self) -> tuple[float, ...]:
        """The larger the worse."""
        return self.breached, self.bad_s, self.insufficient


@dataclass(frozen=True)
class Week:
    """An ISO week, which begins on its Monday."""

    monday: datetime.date
    sum: Sum

    @property
    def label(self) -> str:
        year, week, _ = self.monday.isocalendar()
        return f"{year}-W{week:02d}"

    @property
    def span(self) -> str:
        return f"{_day(self.monday)} to {_day(self.monday + 6 * _DAY)}"


@dataclass(frozen=True)
class Month:
    """A calendar month: `weeks` are (week, its seven dates or None where another month has it)."""

    first: datetime.date
    sum: Sum
    weeks: Sequence[tuple[Week, Sequence[datetime.date | None]]]
    dates: Sequence[datetime.date]
    groups: Sequence[tuple[Group, str | None, Sequence[str | None]]]
    more_groups: int
    shows_groups: bool

    @property
    def id(self) -> str:
        return f"m-{self.first:%Y-%m}"

    @property
    def label(self) -> str:
        return f"{_MONTHS[self.first.month - 1]} {self.first.year}"


def calendar_html(days: Iterable[DayResult]) -> bytes:
    """The page, UTF-8. Equal days give equal bytes."""
    results = {day.date: day for day in days}
    sheets = ("report.css", "index.css")
    return page_bytes(_environment(), "index.html.j2", sheets, _view(results))


@functools.cache
def _environment() -> Environment:
    filters: dict[str, Callable[..., str]] = {
        "day": _day,
        "budget": _budget,
        "used": wording.used,
        "excluded": _excluded,
    }
    return page_environment(filters, {"WEEKDAYS": _WEEKDAYS, "plural": wording.plural})


def _view(results: Mapping[datetime.date, DayResult]) -> dict[str, Any]:
    dates = sorted(results)
    weeks = weeks_of(results)
    bad = [week for week in weeks if week.sum.verdict not in (None, MET)]
    return {
        "results": results,
        "dates": dates,
        "latest": results[dates[-1]] if dates else None,
        "all": sum_of(results.values(), len(dates)),
        "trend": _trend(results),
        "worst": max(bad, key=lambda week: (week.sum.badness, week.monday), default=None),
        "weeks": weeks[::-1][:MAX_WEEKS],
        "more_weeks": max(0, len(weeks) - MAX_WEEKS),
        "longest_bad_s": max((week.sum.bad_s for week in weeks[-MAX_WEEKS:]), default=0.0),
        "months": months_of(results),
        "contracts": contract_periods(results.values()),
        "max_groups": MAX_GROUPS,
    }


def sum_of(days: Iterable[DayResult], length: int) -> Sum:
    """Of `length` days those that have a result."""
    found = list(days)
    verdicts = [day.verdict for day in found]
    return Sum(
        days=length,
        results=len(found),
        met=verdicts.count(MET),
        breached=verdicts.count(BREACHED),
        insufficient=verdicts.count(INSUFFICIENT),
        good_s=sum(day.good_s for day in found),
        bad_s=sum(day.bad_s for day in found),
        incidents=sum(day.incidents for day in found),
        sends_failed=sum(day.sends_failed for day in found),
        excluded_s=sum(day.excluded_s for day in found),
    )


def weeks_of(results: Mapping[datetime.date, DayResult]) -> list[Week]:
    """Every week from the first result to the last, also those without any."""
    if not results:
        return []
    first, last = min(results), max(results)
    monday = first - first.weekday() * _DAY
    found = []
    while monday <= last:
        found.append(_week(monday, results))
        monday += 7 * _DAY
    return found


def _week(monday: datetime.date, results: Mapping[datetime.date, DayResult]) -> Week:
    dates = [monday + back * _DAY for back in range(7)]
    return Week(monday, sum_of((results[date] for date in dates if date in results), 7))


def months_of(results: Mapping[datetime.date, DayResult]) -> list[Month]:
    """Every month from the first result to the last, the newest first."""
    if not results:
        return []
    last = max(results).replace(day=1)
    first = min(results).replace(day=1)
    found: list[Month] = []
    while last >= first:
        found.append(_month(last, results, shows_groups=len(found) < MONTHS_WITH_GROUPS))
        last = (last - _DAY).replace(day=1)
    return found


def _month(
    first: datetime.date, results: Mapping[datetime.date, DayResult], *, shows_groups: bool
) -> Month:
    dates = [date for back in range(31) if (date := first + back * _DAY).month == first.month]
    weeks = []
    monday = first - first.weekday() * _DAY
    while monday <= dates[-1]:
        of_week = [monday + back * _DAY for back in range(7)]
        own = [date if date.month == first.month else None for date in of_week]
        weeks.append((_week(monday, results), own))
        monday += 7 * _DAY
    groups = _groups(dates, results) if shows_groups else []
    return Month(
        first,
        sum_of((results[date] for date in dates if date in results), len(dates)),
        weeks,
        dates,
        groups[:MAX_GROUPS],
        max(0, len(groups) - MAX_GROUPS),
        shows_groups,
    )


def _groups(
    dates: Sequence[datetime.date], results: Mapping[datetime.date, DayResult]
) -> list[tuple[Group, str | None, list[str | None]]]:
    """(group, worst verdict, verdict by date), the worst first."""
    there = [results[date].groups if date in results else {} for date in dates]
    found = []
    for group in sorted({group for groups in there for group in groups}):
        verdicts = [groups.get(group) for groups in there]
        known = [verdict for verdict in verdicts if verdict is not None]
        found.append((group, min(known, key=SEVERITY.__getitem__, default=None), verdicts))
    return sorted(
        found, key=lambda row: (-row[2].count(BREACHED), -row[2].count(INSUFFICIENT), row[0])
    )


def _trend(results: Mapping[datetime.date, DayResult]) -> list[str]:
    """The last four weeks against the four before, in sentences."""
    if not results:
        return []
    last = max(results)
    now, before = (
        sum_of(
            (day for date, day in results.items() if begin < (last - date).days + 1 <= end),
            TREND_DAYS,
        )
        for begin, end in ((0, TREND_DAYS), (TREND_DAYS, 2 * TREND_DAYS))
    )
    found = [f"The last {TREND_DAYS} days: {_in_words(now)}."]
    if not before.results:
        return [*found, "There are no earlier days to compare them with."]
    return [*found, f"The {TREND_DAYS} days before: {_in_words(before)}.", _compared(now, before)]


def _in_words(days: Sum) -> str:
    met = f"{days.met} of {wording.plural(days.results, 'reported day', 'reported days')} met"
    text = f"{met}, {wording.duration(days.bad_s)} bad"
    if days.availability is not None:
        text += f" (availability {wording.share(days.availability)})"
    if days.sends_failed:
        sends = wording.plural(days.sends_failed, "send", "sends")
        text += f", {sends} refused, late or unproved"
    return text


def _compared(now: Sum, before: Sum) -> str:
    rates = [one.availability for one in (now, before)]
    if rates[0] is None or rates[1] is None:
        return "Too little is known to compare them."
    if rates[0] == rates[1]:
        return "Trend: unchanged."
    return f"Trend: {'better' if rates[0] > rates[1] else 'worse'}."


def _budget(period: PeriodResult) -> str:
    """`46 % of the budget used, 23 min left`, of the replica that has used the most."""
    if period.left_s is None:
        return "nothing is known of its budget"
    if period.left_s < 0:
        text = f"{wording.duration(-period.left_s)} more than allowed"
    else:
        text = f"{wording.duration(period.left_s)} left"
    if period.used is not None:
        text = f"{wording.used(period.used)} of the budget used, {text}"
    return text


def _excluded(seconds: float) -> str:
    """`, 2 h excluded` in an enumeration; nothing of no time."""
    return f", {wording.duration(seconds)} excluded" if seconds else ""


def _day(date: datetime.date) -> str:
    """`14 March 2026`."""
    return f"{date.day} {_MONTHS[date.month - 1]} {date.year}"
