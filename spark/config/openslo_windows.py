"""The time window of an OpenSLO document: rolling days, or a calendar period of a time zone.

Plain Python over parsed YAML, for spark/config/openslo_reader.py and openslo_documents.py. Must not
know objectives or queries.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark.config.calendar_periods import MONTH, QUARTER, WEEK, timezone_problem

CALENDAR_DURATIONS: Final = {WEEK: "1w", MONTH: "1M", QUARTER: "1Q"}
"""As OpenSLO writes them."""
CALENDAR_START: Final = "2024-01-01 00:00:00"
"""A Monday, and the first day of a month and of a quarter."""
_DAYS: Final = {"d": 1, "w": 7}


class WindowRefusedError(Exception):
    """Why a time window cannot be taken over."""


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """So many rolling `days`, or a `calendar` period (calendar_periods.CALENDARS) of the days of
    `timezone`."""

    days: int | None = None
    calendar: str | None = None
    timezone: str | None = None

    def __str__(self) -> str:
        return f"{self.days}d" if self.days else f"{self.calendar} in {self.timezone}"


def time_window(windows: Any) -> TimeWindow:
    """What `spec.timeWindow` says. Raises WindowRefusedError."""
    if not isinstance(windows, list) or len(windows) != 1 or not isinstance(windows[0], Mapping):
        raise WindowRefusedError("spec.timeWindow needs exactly one entry")
    (window,) = windows
    duration, is_rolling = str(window.get("duration")), window.get("isRolling")
    calendar = window.get("calendar")
    if calendar is None and is_rolling is True:
        match = re.fullmatch(r"([1-9]\d{0,3})([dw])", duration)
        if match is None:
            raise WindowRefusedError(
                f"spec.timeWindow has duration {duration!r}: write days or weeks, 30d"
            )
        return TimeWindow(days=int(match[1]) * _DAYS[match[2]])
    if not isinstance(calendar, Mapping) or is_rolling not in (None, False):
        raise WindowRefusedError(
            "spec.timeWindow: write isRolling: true, or isRolling: false and a calendar with"
            " startTime and timeZone"
        )
    return _calendar_window(duration, calendar)


def _calendar_window(duration: str, calendar: Mapping[str, Any]) -> TimeWindow:
    period = next((name for name, one in CALENDAR_DURATIONS.items() if one == duration), None)
    if period is None:
        known = ", ".join(CALENDAR_DURATIONS.values())
        raise WindowRefusedError(
            f"spec.timeWindow has duration {duration!r}: calendar windows have one of {known}"
        )
    if unknown := sorted(set(calendar) - {"startTime", "timeZone"}):
        raise WindowRefusedError(f"spec.timeWindow: calendar.{unknown[0]} is not known")
    timezone = str(calendar.get("timeZone"))
    if problem := timezone_problem(timezone):
        raise WindowRefusedError(f"spec.timeWindow: calendar.timeZone is {timezone!r}: {problem}")
    if not _begins(period, calendar.get("startTime")):
        raise WindowRefusedError(
            f"spec.timeWindow: calendar.startTime is {str(calendar.get('startTime'))!r}: it must be"
            f" the midnight at which a {period} begins, such as {CALENDAR_START}"
        )
    return TimeWindow(calendar=period, timezone=timezone)


def _begins(period: str, start: Any) -> bool:
    """Whether a local time (YAML reads it as a time or a text) is the first of such a period."""
    try:
        moment = datetime.datetime.fromisoformat(str(start))
    except ValueError:
        return False
    if moment.tzinfo is not None or moment.time() != datetime.time():
        return False
    if period == WEEK:
        return moment.isoweekday() == 1
    return moment.day == 1 and (period == MONTH or moment.month % 3 == 1)
