"""--date and --between: the windows that they mean."""

from __future__ import annotations

import datetime

import pytest

from spark.command.days import parse_date, window
from spark.reported_day import Day, InputError

DATE = datetime.date(2026, 3, 10)
MIDNIGHT = Day.whole(DATE).w0_ms
HOUR = 3_600_000
NOON = MIDNIGHT + 12 * HOUR


@pytest.mark.parametrize(
    ("text", "now_ms", "expected"),
    [
        ("today", MIDNIGHT, DATE),
        ("today", MIDNIGHT - 1, DATE - datetime.timedelta(days=1)),
        ("yesterday", MIDNIGHT, DATE - datetime.timedelta(days=1)),
        ("2024-02-29", NOON, datetime.date(2024, 2, 29)),
        ("2026-03-10", MIDNIGHT, DATE),
    ],
)
def test_dates_are_utc(text: str, now_ms: int, expected: datetime.date) -> None:
    assert parse_date(text, now_ms) == expected


@pytest.mark.parametrize(
    "text", ["20260310", "2026-02-30", "2026-3-1", "tomorrow", "", "２０２６-01-01"]
)
def test_what_is_no_date(text: str) -> None:
    with pytest.raises(InputError, match="is not a date; write YYYY-MM-DD"):
        parse_date(text, NOON)


def test_a_date_to_come() -> None:
    with pytest.raises(InputError, match="03-11: is in the future; today is 2026-03-10 in UTC"):
        parse_date("2026-03-11", NOON)


@pytest.mark.parametrize("text", ["0001-01-05", "1969-12-31"])
def test_a_date_that_no_dump_can_be_from(text: str) -> None:
    with pytest.raises(InputError, match=f"--date {text}: no dumps are older than 1970"):
        parse_date(text, NOON)
    assert parse_date("1970-01-01", NOON).year == 1970


def test_windows() -> None:
    later = MIDNIGHT + 48 * HOUR
    assert window(DATE, None, later) == Day.whole(DATE)
    assert window(DATE, None, NOON) == Day(DATE, MIDNIGHT, NOON)
    assert window(DATE, (90, 120), later) == Day(
        DATE, MIDNIGHT + HOUR * 3 // 2, MIDNIGHT + 2 * HOUR
    )
    assert window(DATE, (0, 1440), later) == Day.whole(DATE)
    assert window(DATE, (660, 1440), NOON) == Day(DATE, NOON - HOUR, NOON)


def test_a_window_that_is_to_come() -> None:
    with pytest.raises(InputError, match="begins at 12:00 UTC, in the future"):
        window(DATE, (12 * 60, 13 * 60), NOON)
