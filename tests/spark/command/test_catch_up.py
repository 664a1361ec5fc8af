"""--catch-up: the dates that are missing, and the verdicts that no exit code has told yet."""

from __future__ import annotations

import datetime
from pathlib import Path

from spark.command.catch_up import CatchUp, first_dump
from tests.spark.local_results import LocalFiles, dumps, report

DATE = datetime.date(2026, 3, 10)


def catch_up(out: Path, count: int, *paths: str, last: datetime.date = DATE) -> CatchUp:
    return CatchUp(LocalFiles(), paths, str(out), last, count)


def missing(out: Path, count: int, *paths: str) -> list[str]:
    return [str(date)[5:] for date in catch_up(out, count, *paths).missing]


def untold(found: CatchUp) -> dict[str, int]:
    return {str(date)[5:]: code for date, code in found.untold.items()}


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


def test_a_breach_is_not_lost_when_a_later_date_failed(tmp_path: Path) -> None:
    """The first run makes 09, breached, and fails on 10; the retry makes 10 alone."""
    path, out = dumps(tmp_path / "d", "2026-01-01"), tmp_path / "o"
    report(out, "2026-03-08", exit_code=1)
    catch_up(out, 3, path).begin()
    report(out, "2026-03-09", exit_code=1)
    retry = catch_up(out, 3, path)
    assert (retry.missing, untold(retry)) == ([DATE], {"03-09": 1})
    retry.begin()
    report(out, "2026-03-10")
    killed = catch_up(out, 3, path)  # before it came to its end: the retry of the retry
    assert (killed.missing, untold(killed)) == ([], {"03-09": 1, "03-10": 0})
    killed.end()
    next_night = catch_up(out, 4, path, last=DATE + datetime.timedelta(days=1))
    assert (len(next_night.missing), untold(next_night)) == (1, {})


def test_a_date_that_fails_every_night_does_not_keep_the_job_red(tmp_path: Path) -> None:
    """Until it is out of reach the job fails; then the breaches in reach count once."""
    path, out = dumps(tmp_path / "d", "2026-03-01"), tmp_path / "o"
    for day in range(1, 9):
        night = catch_up(out, 7, path, last=datetime.date(2026, 3, day))
        night.begin()
        for date in night.missing:
            if date.day > 1:
                report(out, str(date), exit_code=1 if date.day < 4 else 0)
    assert untold(night) == {"03-02": 1, "03-03": 1} | {f"03-0{n}": 0 for n in range(4, 8)}
    night.end()
    assert untold(catch_up(out, 7, path)) == {}


def test_dates_after_the_range_stay_untold(tmp_path: Path) -> None:
    path, out = dumps(tmp_path / "d", "2026-01-01"), tmp_path / "o"
    catch_up(out, 1, path).begin()
    report(out, "2026-03-10", exit_code=2)
    old = catch_up(out, 2, path, last=datetime.date(2026, 2, 1))
    old.begin()
    report(out, "2026-01-31")
    report(out, "2026-02-01")
    old.end()
    assert untold(catch_up(out, 1, path)) == {"03-10": 2}


def test_what_ended_well_leaves_nothing(tmp_path: Path) -> None:
    path, out = dumps(tmp_path / "d", "2026-01-01"), tmp_path / "o"
    found = catch_up(out, 1, path)
    found.begin()
    report(out, "2026-03-10")
    found.end()
    assert [entry.name for entry in (out / "report").iterdir()] == ["dt=2026-03-10"]


def test_a_mark_that_is_none(tmp_path: Path) -> None:
    path, out = dumps(tmp_path / "d", "2026-01-01"), tmp_path / "o"
    report(out, "2026-03-10", exit_code=1)
    for text in ("half", "[1]", "{}", "null"):
        (out / "report" / "_untold.json").write_text(text)
        assert untold(catch_up(out, 1, path)) == {}
