"""A replica's calendar month, quarter and week, judged as far as it has come.

Plain functions over stored days and hours, never over samples; they run in the executors. The
periods come from the driver (spark/config/calendar_periods.py). A period of a zone that is not UTC
cuts its first and last UTC day: of these, table `hours` has the parts. The rule is in
docs/sla_report.md ("Calendar periods"). Knows no dump, no path and no time zone.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark.config.calendar_periods import Period
from spark.config.objectives import Objective
from spark.figures import wording
from spark.figures.criteria import availability_verdict, is_covered
from spark.figures.distributions import whole_ms
from spark.figures.report_data import BREACHED, INSUFFICIENT
from spark.figures.verdicts import budget_columns, budget_s
from spark.reported_day import Day
from spark.vocabulary import DAY_MS

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Part:
    """Of one UTC date, ms: what of the period's time is known to be what."""

    good_ms: int = 0
    bad_ms: int = 0
    excluded_ms: int = 0

    def within(self, span_ms: int) -> _Part:
        """At most a span: extra time has no room of its own."""
        excluded_ms = min(self.excluded_ms, span_ms)
        bad_ms = min(self.bad_ms, span_ms - excluded_ms)
        return _Part(min(self.good_ms, span_ms - excluded_ms - bad_ms), bad_ms, excluded_ms)


_NOTHING: Final = _Part()


def calendar_windows(
    days: Iterable[Row],
    hours: Iterable[Row],
    objective: Objective,
    day: Day,
    periods: Sequence[Period],
) -> list[dict[str, Any]]:
    """Rows of table `calendar_windows`, one for each period, without the columns of the key.

    `days`: rows with `dt` and the seconds good, bad and excluded of a replica's days (or of its
    group's), D's own among them; `hours`: rows of table `hours` of D and of the dates that
    `first_dates` names.
    """
    of_dates = {row["dt"]: _part_of_day(row) for row in days}
    of_hours = {
        row["hour"]: _Part(row["good_ms"], row["bad_ms"], row["excluded_ms"]) for row in hours
    }
    return [_window(period, of_dates, of_hours, objective, day) for period in periods]


def first_dates(periods: Iterable[Period]) -> list[str]:
    """The UTC dates in which periods begin, YYYY-MM-DD: the dates that are needed go from the
    earliest of them to D, and of each one the hours."""
    return sorted({_date_of(period.from_ms) for period in periods})


def _date_of(moment_ms: int) -> str:
    return str(datetime.datetime.fromtimestamp(moment_ms / 1000, datetime.UTC).date())


def _part_of_day(row: Row) -> _Part:
    return _Part(*(whole_ms(row[name] or 0.0) for name in ("good_s", "bad_s", "excluded_s")))


def _window(
    period: Period,
    of_dates: Mapping[str, _Part],
    of_hours: Mapping[int, _Part],
    objective: Objective,
    day: Day,
) -> dict[str, Any]:
    until_ms = min(period.to_ms, day.w1_ms)
    parts = list(_parts(period, until_ms, of_dates, of_hours))
    good_ms = sum(part.good_ms for part in parts)
    bad_ms = sum(part.bad_ms for part in parts)
    excluded_ms = sum(part.excluded_ms for part in parts)
    asked_ms = until_ms - period.from_ms - excluded_ms
    known_ms = good_ms + bad_ms
    length_s = (period.to_ms - period.from_ms) / 1000
    row: dict[str, Any] = {
        "period": period.period,
        "name": period.name,
        "timezone": period.timezone,
        "from_ms": period.from_ms,
        "to_ms": period.to_ms,
        "until_ms": until_ms,
        "final": until_ms == period.to_ms,
        "days_with_data": sum(part.good_ms + part.bad_ms > 0 for part in parts),
        "window_s": length_s,
        "open_s": (period.to_ms - until_ms) / 1000,
        "good_s": good_ms / 1000,
        "bad_s": bad_ms / 1000,
        "unknown_s": (asked_ms - known_ms) / 1000,
        "excluded_s": excluded_ms / 1000,
        "coverage": known_ms / asked_ms if asked_ms else None,
        "availability": good_ms / known_ms if known_ms else None,
    }
    budget = budget_s(objective.availability_percent, length_s - row["excluded_s"])
    row |= budget_columns(budget, row["bad_s"])
    row["verdict"] = availability_verdict(
        row["bad_s"],
        row["unknown_s"],
        budget,
        # Where all is excluded nothing was promised.
        is_covered=not asked_ms or is_covered(row["coverage"], objective.min_coverage_percent),
    )
    return row | {"reason": _reason(row)}


def _parts(
    period: Period,
    until_ms: int,
    of_dates: Mapping[str, _Part],
    of_hours: Mapping[int, _Part],
) -> Iterable[_Part]:
    """Of each UTC date that the period touches up to `until_ms`."""
    first_ms = period.from_ms - period.from_ms % DAY_MS
    for date_ms in range(first_ms, until_ms, DAY_MS):
        start_ms, end_ms = max(date_ms, period.from_ms), min(date_ms + DAY_MS, until_ms)
        if period.from_ms <= date_ms and date_ms + DAY_MS <= period.to_ms:
            part = of_dates.get(_date_of(date_ms), _NOTHING)
        else:  # the period has some of its hours only
            inside = [part for hour, part in of_hours.items() if start_ms <= hour < end_ms]
            part = _Part(
                sum(each.good_ms for each in inside),
                sum(each.bad_ms for each in inside),
                sum(each.excluded_ms for each in inside),
            )
        yield part.within(end_ms - start_ms)


def _reason(row: Row) -> str:
    """In words, also where it is met."""
    bad, allowed = wording.duration(row["bad_s"]), wording.duration(row["budget_s"])
    so_far = "" if row["final"] else " so far"
    if row["verdict"] == INSUFFICIENT:
        unknown, coverage = wording.duration(row["unknown_s"]), wording.share(row["coverage"])
        text = f"availability not proved{so_far}: {bad} bad and {unknown} unknown of {allowed}"
        text += f" allowed, coverage {coverage}"
    else:
        share = wording.share(row["availability"])
        text = f"availability {share}{so_far}: {bad} bad of {allowed} allowed"
    if row["excluded_s"]:
        text += f", {wording.duration(row['excluded_s'])} excluded"
    if row["verdict"] != BREACHED and row["open_s"]:
        text += f"; {wording.duration(row['open_s'])} to come"
    return text.replace("\u00a0", " ")  # programs read it as well
