"""Which dates a run reports on: --date, --between and --catch-up turned into windows.

Run on the driver. All dates and times are UTC. Asks the results for what is there already and the
dumps for their first date, through a small interface.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Sequence
from typing import Final, Protocol

from spark.schema import DAY_MS, MINUTE_MS, Day, InputError

_PARTITION: Final = re.compile(r"dt=(\d{4}-\d\d-\d\d)")
_CLOCK_TIME: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)|24:00")


class Files(Protocol):
    """What spark/hadoop_files.py offers."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""

    def names(self, path: str) -> list[str]:
        """Names of what a directory holds."""

    def read_text(self, path: str) -> str:
        """The text of a file."""


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
        raise InputError(f"--date {text}: is no date; {way_out}") from error
    if date > today:
        raise InputError(f"--date {text}: is to come; in UTC it is {today} now")
    return date


def window(date: datetime.date, between: Sequence[str] | None, now_ms: int) -> Day:
    """The part of `date` that is reported on: `between` is HH:MM HH:MM, and what has not passed yet
    is left out. Raises InputError."""
    whole = Day.whole(date)
    w0_ms, w1_ms = whole.w0_ms, whole.w1_ms
    if between is not None:
        first, last = (_minutes(text) for text in between)
        if first >= last:
            raise InputError(
                f"--between {' '.join(between)}: the first time has to be before the"
                " second; a night takes two runs, one for each date"
            )
        w0_ms, w1_ms = w0_ms + first * MINUTE_MS, w0_ms + last * MINUTE_MS
    w1_ms = min(w1_ms, now_ms)
    if w0_ms >= w1_ms:
        begins = datetime.datetime.fromtimestamp(w0_ms / 1000, datetime.UTC)
        raise InputError(f"the window of {date} begins at {begins:%H:%M} UTC: that is to come")
    return Day(date, w0_ms, w1_ms)


def _minutes(text: str) -> int:
    match = _CLOCK_TIME.fullmatch(text)
    if match is None:
        raise InputError(f"--between {text}: is no time of day; write HH:MM (UTC), up to 24:00")
    return 24 * 60 if match[1] is None else int(match[1]) * 60 + int(match[2])


def missing_days(
    files: Files, dumps: Sequence[str], out: str, last: datetime.date, count: int
) -> list[datetime.date]:
    """Those of the `count` dates up to `last` without a result for the whole date, oldest first.

    Dates before the first dump are left out: nobody watched then. Without any dump it is `last`
    alone, so that a lost directory is not passed over in silence.
    """
    first = first_dump(files, dumps)
    dates = [last - datetime.timedelta(days=back) for back in reversed(range(count))]
    watched = [date for date in dates if first is not None and date >= first] or [last]
    return [date for date in watched if not _is_reported(files, out, date)]


def first_dump(files: Files, dumps: Sequence[str]) -> datetime.date | None:
    """The oldest date for which there is a directory of dumps."""
    dates = [_partition_date(name) for path in dumps for name in files.names(path)]
    return min((date for date in dates if date is not None), default=None)


def _partition_date(name: str) -> datetime.date | None:
    match = _PARTITION.fullmatch(name)
    try:
        return datetime.date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def report_directory(out: str, date: datetime.date) -> str:
    """Where the page and the files for programs of a date are."""
    return f"{out.rstrip('/')}/report/dt={date}"


def _is_reported(files: Files, out: str, date: datetime.date) -> bool:
    summary = f"{report_directory(out, date)}/summary.json"
    if not files.exists(summary):
        return False
    try:
        # A part of a date (--date today, --between) is not that date's result.
        return float(json.loads(files.read_text(summary))["window"]["seconds"]) * 1000 >= DAY_MS
    except (ValueError, TypeError, KeyError):
        return False
