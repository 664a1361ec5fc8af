"""Calendar periods from a timeline of UTC hours that a person can read.

What is expected is counted hour by hour: an hour belongs to a period if its own local date does.
Begins, ends and lengths of periods are written down from a calendar.
"""

from __future__ import annotations

import datetime
import itertools
import zoneinfo
from pathlib import Path
from typing import Any

import pytest

from spark.config.calendar_periods import Period, periods_of, timezone_problem
from spark.config.exclusions import Exclusion
from spark.config.objectives import Objective, SlaConfig
from spark.figures.calendar_windows import calendar_windows, first_dates
from spark.reported_day import Day, InputError
from tests.spark.core_tables import core_tables
from tests.spark.dump_lines_builder import Life, replica, write_dump

HOUR = 3_600_000
Row = dict[str, Any]
Times = dict[str, tuple[int, int, int]]
"""UTC hour, `2026-10-31T22` -> good, bad, excluded ms."""


def utc(text: str) -> int:
    return int(
        datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp() * 1000
    )


def date(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text)


@pytest.mark.parametrize(
    ("day", "timezone", "calendar", "name", "begin", "end", "hours"),
    [
        ("2026-11-27", "UTC", "month", "2026-11", "2026-11-01T00", "2026-12-01T00", 720),
        ("2026-10-25", "Europe/Berlin", "month", "2026-10", "2026-09-30T22", "2026-10-31T23", 745),
        ("2026-03-29", "Europe/Berlin", "month", "2026-03", "2026-02-28T23", "2026-03-31T22", 743),
        # The last UTC date begins in October, and has its last hours.
        (
            *("2026-11-01", "America/New_York", "month", "2026-10"),
            *("2026-10-01T04", "2026-11-01T04", 744),
        ),
        (
            *("2026-11-02", "America/New_York", "month", "2026-11"),
            *("2026-11-01T04", "2026-12-01T05", 721),
        ),
        (
            *("2026-03-08", "America/New_York", "month", "2026-03"),
            *("2026-03-01T05", "2026-04-01T04", 743),
        ),
        ("2026-12-31", "UTC", "quarter", "2026-Q4", "2026-10-01T00", "2027-01-01T00", 2208),
        (
            "2026-03-31",
            "Europe/Berlin",
            "quarter",
            "2026-Q1",
            "2025-12-31T23",
            "2026-03-31T22",
            2159,
        ),
        (
            "2026-06-30",
            "America/New_York",
            "quarter",
            "2026-Q2",
            "2026-04-01T04",
            "2026-07-01T04",
            2184,
        ),
        # The week of the change has an hour less in March, one more in October.
        ("2026-03-29", "Europe/Berlin", "week", "2026-W13", "2026-03-22T23", "2026-03-29T22", 167),
        ("2026-10-25", "Europe/Berlin", "week", "2026-W43", "2026-10-18T22", "2026-10-25T23", 169),
        # ISO: the first week of 2027 is the one that has its first Thursday.
        ("2027-01-03", "UTC", "week", "2026-W53", "2026-12-28T00", "2027-01-04T00", 168),
        ("2024-12-30", "UTC", "week", "2025-W01", "2024-12-30T00", "2025-01-06T00", 168),
        ("2024-02-29", "UTC", "month", "2024-02", "2024-02-01T00", "2024-03-01T00", 696),
        # 13 hours ahead: the date begins on the afternoon of its own local day.
        (
            "2026-10-31",
            "Pacific/Auckland",
            "month",
            "2026-10",
            "2026-09-30T11",
            "2026-10-31T11",
            744,
        ),
        # The clocks change on the month's last day.
        ("2024-03-31", "Europe/Berlin", "month", "2024-03", "2024-02-29T23", "2024-03-31T22", 743),
        ("2021-10-31", "Europe/Berlin", "month", "2021-10", "2021-09-30T22", "2021-10-31T23", 745),
        ("2021-11-01", "Europe/Berlin", "month", "2021-11", "2021-10-31T23", "2021-11-30T23", 720),
        # Samoa went over the date line and had no 30 December: 30 days of 24 h, a week of six.
        ("2011-12-30", "Pacific/Apia", "month", "2011-12", "2011-12-01T10", "2011-12-31T10", 720),
        ("2011-12-30", "Pacific/Apia", "week", "2011-W52", "2011-12-26T10", "2012-01-01T10", 144),
        ("2011-12-31", "Pacific/Apia", "week", "2011-W52", "2011-12-26T10", "2012-01-01T10", 144),
        ("2012-01-01", "Pacific/Apia", "month", "2012-01", "2011-12-31T10", "2012-01-31T10", 744),
        # Summer time began there at a midnight, which did not exist.
        (
            "2018-11-04",
            "America/Sao_Paulo",
            "week",
            "2018-W44",
            "2018-10-29T03",
            "2018-11-05T02",
            167,
        ),
    ],
)
def test_bounds_of_periods(
    day: str, timezone: str, calendar: str, name: str, begin: str, end: str, hours: int
) -> None:
    (found,) = periods_of(date(day), [calendar], timezone)
    assert found == Period(calendar, name, timezone, utc(f"{begin}:00"), utc(f"{end}:00"))
    assert found.to_ms - found.from_ms == hours * HOUR


def test_every_moment_is_in_one_period_that_one_date_ends() -> None:
    """Over three years, in zones of both sides of UTC."""
    for timezone in ("Europe/Berlin", "America/New_York", "Pacific/Auckland", "UTC"):
        for calendar in ("week", "month", "quarter"):
            of_dates = [
                periods_of(date("2025-01-01") + datetime.timedelta(days=n), [calendar], timezone)[0]
                for n in range(3 * 365)
            ]
            periods = list(dict.fromkeys(of_dates))
            assert all(a.to_ms == b.from_ms for a, b in itertools.pairwise(periods))
            finals = [
                period
                for n, period in enumerate(of_dates)
                if period.to_ms <= utc("2025-01-01T00:00") + (n + 1) * 24 * HOUR
            ]
            assert finals == periods[:-1] or finals == periods


@pytest.mark.parametrize(
    ("timezone", "words"),
    [
        ("Europe/Berln", "did you mean Europe/Berlin?"),
        ("CEST", "time zone of the IANA database"),
        ("Asia/Kolkata", "do not begin at a whole hour of UTC"),
        ("Australia/Lord_Howe", "do not begin at a whole hour of UTC"),
    ],
)
def test_zones_that_cannot_be_used(timezone: str, words: str) -> None:
    assert words in str(timezone_problem(timezone))


@pytest.mark.parametrize(
    "timezone",
    [
        *("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Pacific/Apia"),
        # Half hours until May 2016 and May 2018: nobody has dumps of then.
        *("America/Caracas", "Asia/Pyongyang"),
    ],
)
def test_zones_that_can_be_used(timezone: str) -> None:
    assert timezone_problem(timezone) is None


def test_a_half_hour_is_refused_with_the_date() -> None:
    with pytest.raises(InputError, match=r"2026-11-27: days of Asia/Kolkata do not begin"):
        periods_of(date("2026-11-27"), ["month"], "Asia/Kolkata")


# -- judged from hours that a person wrote ------------------------------------------------------


def hours_from(begin: str, end: str) -> list[str]:
    return [
        datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime("%Y-%m-%dT%H")
        for ms in range(utc(f"{begin}:00"), utc(f"{end}:00"), HOUR)
    ]


def timeline(begin: str, end: str, **changes: tuple[int, int, int]) -> Times:
    """Good hours, but for those named `h2026_10_31T22`."""
    times = dict.fromkeys(hours_from(begin, end), (HOUR, 0, 0))
    for name, one in changes.items():
        hour = name[1:].replace("_", "-")
        assert hour in times
        times[hour] = one
    return times


def rows_of(times: Times) -> tuple[list[Row], list[Row]]:
    """Rows of replica_days and of hours, as a report stores them."""
    days: dict[str, Row] = {}
    hours = []
    for hour, (good, bad, excluded) in times.items():
        day = days.setdefault(
            hour[:10], {"dt": hour[:10], "good_s": 0.0, "bad_s": 0.0, "excluded_s": 0.0}
        )
        day["good_s"] += good / 1000
        day["bad_s"] += bad / 1000
        day["excluded_s"] += excluded / 1000
        hours.append(
            {"hour": utc(f"{hour}:00"), "good_ms": good, "bad_ms": bad, "excluded_ms": excluded}
        )
    return list(days.values()), hours


def judge(
    times: Times, day: str, timezone: str, calendar: str = "month", until: str = "", **asked: Any
) -> Row:
    periods = periods_of(date(day), [calendar], timezone)
    days, hours = rows_of(times)
    wanted = {*first_dates(periods), day}
    stored = [
        row
        for row in hours
        if str(datetime.datetime.fromtimestamp(row["hour"] / 1000, datetime.UTC).date()) in wanted
    ]
    asked_day = Day.whole(date(day))
    if until:
        asked_day = Day(date(day), asked_day.w0_ms, utc(until))
    (row,) = calendar_windows(days, stored, Objective("o", **asked), asked_day, periods)
    return row


def counted(times: Times, timezone: str, month: str) -> tuple[float, float, float]:
    """Good, bad and excluded seconds of the hours whose local date is in the month."""
    zone = zoneinfo.ZoneInfo(timezone)
    inside = [
        one
        for hour, one in times.items()
        if datetime.datetime.fromtimestamp(utc(f"{hour}:00") / 1000, zone).strftime("%Y-%m")
        == month
    ]
    good, bad, excluded = (sum(each) / 1000 for each in zip(*inside, strict=True))
    return good, bad, excluded


BAD_MINUTE = (HOUR - 60_000, 60_000, 0)


def test_a_month_without_one_of_its_days() -> None:
    """Samoa's December of 2011: each hour of UTC once, none of the day that nobody had."""
    times = timeline(
        "2011-11-30T00",
        "2012-01-02T00",
        h2011_12_01T09=BAD_MINUTE,
        h2011_12_01T10=BAD_MINUTE,
        h2011_12_30T09=BAD_MINUTE,
        h2011_12_30T10=BAD_MINUTE,
        h2011_12_31T09=BAD_MINUTE,
        h2011_12_31T10=BAD_MINUTE,
    )
    found = judge(times, "2011-12-31", "Pacific/Apia")
    good, bad, excluded = counted(times, "Pacific/Apia", "2011-12")
    assert (found["good_s"], found["bad_s"], found["excluded_s"]) == (good, bad, excluded)
    assert (found["bad_s"], found["window_s"], found["unknown_s"]) == (240.0, 30 * 86_400, 0.0)
    assert (found["final"], found["verdict"]) == (True, "met")


@pytest.mark.parametrize(
    ("timezone", "day", "month", "bad_s"),
    [
        # Of 30 September and 31 October only two hours and 23 are October's: the bad minutes of
        # 21:00 and of 23:00 are not.
        ("Europe/Berlin", "2026-10-31", "2026-10", 120.0),
        ("America/New_York", "2026-11-01", "2026-10", 180.0),
        ("UTC", "2026-10-31", "2026-10", 120.0),
    ],
)
def test_a_month_over_the_change_of_time(timezone: str, day: str, month: str, bad_s: float) -> None:
    times = timeline(
        "2026-09-25T00",
        "2026-11-02T00",
        h2026_09_30T21=BAD_MINUTE,
        h2026_09_30T22=BAD_MINUTE,
        h2026_10_31T22=BAD_MINUTE,
        h2026_10_31T23=BAD_MINUTE,
        h2026_11_01T03=BAD_MINUTE,
        h2026_11_01T04=BAD_MINUTE,
    )
    found = judge(times, day, timezone)
    good, bad, excluded = counted(times, timezone, month)
    assert (found["good_s"], found["bad_s"], found["excluded_s"]) == (good, bad, excluded)
    assert found["bad_s"] == bad_s
    assert (found["name"], found["final"], found["open_s"]) == (month, True, 0.0)
    assert found["unknown_s"] == 0.0
    assert found["verdict"] == "met"


def test_the_days_to_come_are_open_and_the_budget_is_the_whole_months() -> None:
    times = timeline("2026-10-01T00", "2026-11-11T00", h2026_11_03T10=(HOUR - 600_000, 600_000, 0))
    found = judge(times, "2026-11-10", "UTC")
    assert not found["final"]
    assert found["open_s"] == 20 * 86_400
    assert found["unknown_s"] == 0.0
    assert found["window_s"] == 30 * 86_400
    assert found["budget_s"] == 2_592.0  # 0.1 % of thirty days
    assert found["budget_left_s"] == 1_992.0
    assert found["verdict"] == "met"
    assert found["reason"] == (
        "availability 99.93 % so far: 10 min bad of 43 min 12 s allowed; 20 d to come"
    )


@pytest.mark.parametrize(
    ("bad_minutes", "unknown_minutes", "verdict"),
    [
        (43, 0, "met"),
        (44, 0, "breached"),
        (40, 3, "met"),  # even if the unknown time had been bad
        (40, 4, "insufficient data"),
        (44, 300, "breached"),
    ],
)
def test_never_met_with_unknown_time_beyond_the_budget(
    bad_minutes: int, unknown_minutes: int, verdict: str
) -> None:
    """43.2 min of November may be bad. Judged on the tenth."""
    bad, unknown = bad_minutes * 60_000, unknown_minutes * 60_000
    times = timeline("2026-11-01T00", "2026-11-11T00")
    for place, hour in enumerate(("2026-11-02T05", "2026-11-02T06")):
        some = bad // 2 if place == 0 else bad - bad // 2
        times[hour] = (HOUR - some, some, 0)
    for place in range(5):
        lost = min(HOUR, max(0, unknown - place * HOUR))
        times[f"2026-11-05T{place:02}"] = (HOUR - lost, 0, 0)
    found = judge(times, "2026-11-10", "UTC")
    assert (found["bad_s"], found["unknown_s"]) == (bad / 1000, unknown / 1000)
    assert found["verdict"] == verdict


def test_a_day_without_a_result_and_lost_hours_of_the_first_day_are_unknown() -> None:
    times = timeline("2026-09-30T00", "2026-10-10T00")
    for hour in hours_from("2026-10-05T00", "2026-10-06T00"):
        del times[hour]
    times["2026-09-30T22"] = (HOUR // 2, 0, 0)
    found = judge(times, "2026-10-09", "Europe/Berlin", min_coverage_percent=50.0)
    assert found["unknown_s"] == 86_400 + 1_800
    assert found["verdict"] == "insufficient data"
    assert found["days_with_data"] == 9


def test_excluded_time_shrinks_the_budget() -> None:
    times = timeline("2026-11-01T00", "2026-12-01T00", h2026_11_07T10=(0, 0, HOUR))
    found = judge(times, "2026-11-30", "UTC")
    assert found["excluded_s"] == 3_600
    assert found["budget_s"] == 2_588.4
    assert (found["final"], found["verdict"]) == (True, "met")


def test_all_time_excluded_promises_nothing() -> None:
    times = dict.fromkeys(hours_from("2026-11-01T00", "2026-11-03T00"), (0, 0, HOUR))
    found = judge(times, "2026-11-02", "UTC")
    assert (found["verdict"], found["coverage"], found["availability"]) == ("met", None, None)


def test_a_part_of_the_last_day_is_not_final() -> None:
    """`--between` up to noon, or a day that is not over."""
    times = timeline("2026-11-01T00", "2026-11-30T12")
    found = judge(times, "2026-11-30", "UTC", until="2026-11-30T12:00")
    assert (found["final"], found["open_s"], found["unknown_s"]) == (False, 43_200.0, 0.0)


def test_a_week_with_the_long_day() -> None:
    times = timeline("2026-10-18T00", "2026-10-26T00", h2026_10_25T22=BAD_MINUTE)
    found = judge(times, "2026-10-25", "Europe/Berlin", "week")
    assert (found["window_s"], found["bad_s"], found["final"]) == (169 * 3600, 60.0, True)
    assert found["good_s"] == 169 * 3600 - 60


def test_a_week_from_dumps_of_three_dates(tmp_path: Path) -> None:
    """In Auckland the week begins on Sunday 11:00 UTC: of the first date, two minutes are its."""
    bad = [
        ("2026-03-08T10:30", "2026-03-08T10:31"),  # of the week before
        ("2026-03-08T11:30", "2026-03-08T11:32"),
        ("2026-03-10T05:00", "2026-03-10T05:03"),
    ]
    spans = [(utc(begin), utc(end)) for begin, end in bad]
    life = Life(start_ms=utc("2026-03-08T00:00") - 60_000, interval_ms=30_000)
    lines = [
        life.line(
            ts,
            replicas=[
                replica(
                    state="disconnected"
                    if any(begin < ts <= end for begin, end in spans)
                    else "in_sync"
                )
            ],
        )
        for ts in range(utc("2026-03-07T23:59"), utc("2026-03-11T00:01"), 30_000)
    ]
    write_dump(tmp_path, lines)
    sla = SlaConfig(
        (Objective("o", lag_seconds=60),),
        calendars=("week", "month"),
        timezone="Pacific/Auckland",
    )
    history: list[Any] = []
    for day in ("2026-03-08", "2026-03-09", "2026-03-10"):
        history.append(core_tables([tmp_path], Day.whole(date(day)), sla, history))
    first, month = history[0]["calendar_windows"]
    assert (first["name"], first["final"], first["bad_s"]) == ("2026-W10", True, 60.0)
    assert first["verdict"] == "insufficient data"  # nothing is known of the days before
    assert month["name"] == "2026-03"
    week, month = history[-1]["calendar_windows"]
    assert (week["name"], week["final"], week["bad_s"]) == ("2026-W11", False, 300.0)
    assert week["good_s"] == (13 + 24 + 24) * 3600 - 300
    assert (week["unknown_s"], week["budget_s"], week["verdict"]) == (0.0, 604.8, "met")
    assert (month["bad_s"], month["good_s"]) == (360.0, 72 * 3600 - 360)


def test_an_exclusion_over_the_end_of_a_month(tmp_path: Path) -> None:
    """An hour around Berlin's midnight, 23:00 UTC: half of it is October's, half November's, and
    so is the outage of 22:40 to 23:50, as far as it is not excluded."""
    life = Life(start_ms=utc("2026-10-31T21:00"), interval_ms=30_000)
    outage = utc("2026-10-31T22:40"), utc("2026-10-31T23:50")
    lines = [
        life.line(
            ts,
            replicas=[replica(state="disconnected" if outage[0] < ts <= outage[1] else "in_sync")],
        )
        for ts in range(utc("2026-10-31T21:00"), utc("2026-11-01T02:00"), 30_000)
    ]
    write_dump(tmp_path, lines)
    hour = utc("2026-10-31T22:30"), utc("2026-10-31T23:30")
    sla = SlaConfig(
        (Objective("o", lag_seconds=60),),
        calendars=("month",),
        timezone="Europe/Berlin",
        exclusions=(Exclusion(("*", "*", "*"), "new disks", once_ms=hour),),
    )
    history: list[Any] = []
    for day in ("2026-10-31", "2026-11-01"):
        history.append(core_tables([tmp_path], Day.whole(date(day)), sla, history))
    (october,), (november,) = (tables["calendar_windows"] for tables in history)
    assert (october["name"], october["final"], november["name"]) == ("2026-10", True, "2026-11")
    assert (october["excluded_s"], november["excluded_s"]) == (1_800, 1_800)
    assert "30 min excluded" in october["reason"], "a month does not become green unseen"
    assert (october["bad_s"], november["bad_s"]) == (0, 1_200)
    # 0.1 % of what is not excluded of 745 and of 720 hours.
    assert (october["budget_s"], november["budget_s"]) == (2_680.2, 2_590.2)
    assert november["good_s"] == 2 * 3600 + 600 - 30
