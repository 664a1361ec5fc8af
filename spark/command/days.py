"""--date and --between as windows; the dates of --catch-up come from spark/command/catch_up.py.

Runs on the driver, before Spark is started. All dates and times are UTC.
"""

from __future__ import annotations

import datetime
import re
from typing import Final

from spark.reported_day import Day, InputError
from spark.vocabulary import MINUTE_MS

_FIRST_DATE: Final = datetime.date(1970, 1, 1)
"""Moments are ms since then."""


def parse_date(text: str, now_ms: int) -> datetime.date:
    """YYYY-MM-DD, `today` or `yesterday`. Raises InputError, also for a date to come."""
    today = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC).date()
    if text == "today":
        return today
    if text == "yesterday":
        return today - datetime.timedelta(days=1)
    try:
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            raise ValueError(text)
        date = datetime.date.fromisoformat(text)
    except ValueError as error:
        way_out = "write YYYY-MM-DD (UTC), today or yesterday"
        raise InputError(f"--date {text}: is not a date; {way_out}") from error
    if date > today:
        raise InputError(f"--date {text}: is in the future; today is {today} in UTC")
    if date < _FIRST_DATE:
        raise InputError(f"--date {text}: no dumps are older than {_FIRST_DATE}")
    return date


def window(date: datetime.date, between: tuple[float, float] | None, now_ms: int) -> Day:
    """The part of `date` that is reported on: `between` are its minutes (parts of one to the ms),
    and what has not passed yet is left out. Raises InputError."""
    whole = Day.whole(date)
    w0_ms, w1_ms = whole.w0_ms, whole.w1_ms
    if between is not None:
        first, last = between
        w0_ms, w1_ms = w0_ms + round(first * MINUTE_MS), w0_ms + round(last * MINUTE_MS)
    w1_ms = min(w1_ms, now_ms)
    if w0_ms >= w1_ms:
        begins = datetime.datetime.fromtimestamp(w0_ms / 1000, datetime.UTC)
        raise InputError(f"the window of {date} begins at {begins:%H:%M} UTC, in the future")
    return Day(date, w0_ms, w1_ms)
