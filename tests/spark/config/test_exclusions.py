"""Agreed maintenance as intervals, against the calendar of Python's datetime."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from spark.config.exclusions import WEEKDAYS, Exclusion
from spark.config.sla_config import parse_sla

ALL = ("*", "*", "*")


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def weekly(text: str) -> Exclusion:
    (found,) = parse_sla(f"maintenance: [{{weekly: {text}, reason: r}}]", "x").exclusions
    return found


def test_once_is_clipped_to_the_window() -> None:
    once = Exclusion(ALL, "r", (1000, 5000))
    assert once.intervals(0, 10_000) == [(1000, 5000)]
    assert once.intervals(2000, 3000) == [(2000, 3000)]
    assert once.intervals(5000, 9000) == []
    assert once.intervals(0, 1000) == []


def test_each_week_over_midnight_and_over_the_end_of_the_week() -> None:
    # 2026-11-22 was a Sunday.
    late = weekly("sunday 23:00-01:00")
    assert late.intervals(ms("2026-11-22T00:00Z"), ms("2026-11-23T00:00Z")) == [
        (ms("2026-11-22T23:00Z"), ms("2026-11-23T00:00Z"))
    ]
    assert late.intervals(ms("2026-11-23T00:00Z"), ms("2026-11-24T00:00Z")) == [
        (ms("2026-11-23T00:00Z"), ms("2026-11-23T01:00Z"))
    ]
    assert late.intervals(ms("2026-11-24T00:00Z"), ms("2026-11-25T00:00Z")) == []


def test_a_whole_day_and_both_sides_of_a_window() -> None:
    whole = weekly("monday 00:00-24:00")
    day = (ms("2026-11-23T00:00Z"), ms("2026-11-24T00:00Z"))
    assert whole.intervals(*day) == [day]
    eight_days = (ms("2026-11-23T12:00Z"), ms("2026-12-01T00:00Z"))
    assert whole.intervals(*eight_days) == [
        (ms("2026-11-23T12:00Z"), ms("2026-11-24T00:00Z")),
        (ms("2026-11-30T00:00Z"), ms("2026-12-01T00:00Z")),
    ]


MINUTES = st.integers(0, 1439)


@given(
    st.sampled_from(WEEKDAYS),
    MINUTES,
    MINUTES.filter(bool),
    st.integers(-400 * 1440, 30_000 * 1440),
    st.integers(1, 20 * 1440),
    st.integers(0, 20 * 1440 - 1),
)
def test_each_week_as_the_calendar_says(
    day: str, begin: int, length: int, first_minute: int, minutes: int, look: int
) -> None:
    """Whether a minute is excluded, asked of the calendar: it, or the one `length` before it."""
    end = (begin + length) % 1440
    texts = [f"{minute // 60:02}:{minute % 60:02}" for minute in (begin, end)]
    w0_ms = first_minute * 60_000
    found = weekly(f"{day} {texts[0]}-{texts[1]}").intervals(w0_ms, w0_ms + minutes * 60_000)
    assert all(w0_ms <= one < other <= w0_ms + minutes * 60_000 for one, other in found)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(found))
    at_ms = w0_ms + look % minutes * 60_000
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    began = [
        midnight + timedelta(minutes=begin)
        for back in (0, 1)
        if (midnight := moment.replace(hour=0, minute=0) - timedelta(days=back))
        .strftime("%A")
        .lower()
        == day
    ]
    expected = any(start <= moment < start + timedelta(minutes=length) for start in began)
    assert any(one <= at_ms < other for one, other in found) == expected
