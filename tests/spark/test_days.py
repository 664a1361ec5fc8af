"""--date, --between and --catch-up: the windows that they mean, and the dates that are missing."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from spark.days import first_dump, missing_days, parse_date, report_directory, window
from spark.schema import Day, InputError

DATE = datetime.date(2026, 3, 10)
MIDNIGHT = Day.whole(DATE).w0_ms
HOUR = 3_600_000
NOON = MIDNIGHT + 12 * HOUR


class LocalFiles:
    """What HadoopFiles does, on this machine."""

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def names(self, path: str) -> list[str]:
        return sorted(entry.name for entry in Path(path).iterdir()) if self.exists(path) else []

    def read_text(self, path: str) -> str:
        return Path(path).read_text(encoding="utf-8")


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
    with pytest.raises(InputError, match="is no date; write YYYY-MM-DD"):
        parse_date(text, NOON)


def test_a_date_to_come() -> None:
    with pytest.raises(InputError, match="2026-03-11: is to come; in UTC it is 2026-03-10 now"):
        parse_date("2026-03-11", NOON)


def test_windows() -> None:
    later = MIDNIGHT + 48 * HOUR
    assert window(DATE, None, later) == Day.whole(DATE)
    assert window(DATE, None, NOON) == Day(DATE, MIDNIGHT, NOON)
    assert window(DATE, ("1:30", "02:00"), later) == Day(
        DATE, MIDNIGHT + HOUR * 3 // 2, MIDNIGHT + 2 * HOUR
    )
    assert window(DATE, ("00:00", "24:00"), later) == Day.whole(DATE)
    assert window(DATE, ("11:00", "24:00"), NOON) == Day(DATE, NOON - HOUR, NOON)


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        (("02:00", "02:00"), "the first time has to be before the second; a night takes two runs"),
        (("23:00", "01:00"), "the first time has to be before"),
        (("1", "02:00"), "--between 1: is no time of day; write HH:MM"),
        (("24:01", "02:00"), "--between 24:01: is no time of day"),
        (("10:60", "11:00"), "--between 10:60: is no time of day"),
        (("12:00", "13:00"), "begins at 12:00 UTC: that is to come"),
    ],
)
def test_windows_that_are_none(between: tuple[str, str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        window(DATE, between, NOON)


def dumps(root: Path, *dates: str) -> str:
    for date in dates:
        (root / f"dt={date}").mkdir(parents=True)
    return str(root)


def report(out: Path, date: str, seconds: float = 86_400) -> None:
    directory = Path(report_directory(str(out), datetime.date.fromisoformat(date)))
    directory.mkdir(parents=True)
    (directory / "summary.json").write_text(json.dumps({"window": {"seconds": seconds}}))


def missing(out: Path, count: int, *paths: str) -> list[str]:
    return [str(date)[5:] for date in missing_days(LocalFiles(), paths, str(out), DATE, count)]


def test_catching_up_is_oldest_first_and_leaves_out_what_is_done(tmp_path: Path) -> None:
    path = dumps(tmp_path / "d", "2026-01-01", "dt", "2026-99-01")
    report(tmp_path / "o", "2026-03-08")
    assert missing(tmp_path / "o", 4, path) == ["03-07", "03-09", "03-10"]
    assert missing(tmp_path / "o", 1, path) == ["03-10"]
    report(tmp_path / "o", "2026-03-10")
    assert missing(tmp_path / "o", 1, path) == []


def test_a_part_of_a_date_is_not_its_result(tmp_path: Path) -> None:
    path = dumps(tmp_path / "d", "2026-01-01")
    report(tmp_path / "o", "2026-03-09", seconds=43_200)
    report(tmp_path / "o", "2026-03-10")
    (tmp_path / "o" / "report" / "dt=2026-03-10" / "summary.json").write_text("half")
    assert missing(tmp_path / "o", 2, path) == ["03-09", "03-10"]


def test_nobody_watched_before_the_first_dump(tmp_path: Path) -> None:
    paths = [dumps(tmp_path / "a", "2026-03-09"), dumps(tmp_path / "b", "2026-03-08", "2026-03-10")]
    assert missing(tmp_path / "o", 30, *paths) == ["03-08", "03-09", "03-10"]
    assert first_dump(LocalFiles(), paths) == datetime.date(2026, 3, 8)


def test_a_lost_directory_is_not_passed_over(tmp_path: Path) -> None:
    assert missing(tmp_path / "o", 30, str(tmp_path / "none")) == ["03-10"]
    assert missing(tmp_path / "o", 30, dumps(tmp_path / "d", "2026-03-11")) == ["03-10"]
