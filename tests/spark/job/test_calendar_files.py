"""index.html below --out: entered by each run from one small file, made anew where that is lost."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from spark.job.calendar_files import HISTORY, update_calendar
from spark.page.history import from_json
from spark.page.summary import summary_json
from tests.spark.demo_report import demo_report
from tests.spark.local_results import LocalFiles


class Counting(LocalFiles):
    """Which files a run reads."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def read_text(self, path: str) -> str:
        self.read.append(path)
        return super().read_text(path)


def summary(date: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(summary_json(dataclasses.replace(demo_report(), date=date)))
    return found


def write(out: Path, date: str) -> dict[str, Any]:
    """As a run leaves it."""
    of_date = summary(date)
    directory = out / "report" / f"dt={date}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "summary.json").write_text(json.dumps(of_date), encoding="utf-8")
    return of_date


def dates(out: Path) -> list[str]:
    return [str(day.date) for day in from_json((out / HISTORY).read_text(encoding="utf-8"))]


def test_a_run_reads_one_file_however_many_dates_there_are(tmp_path: Path) -> None:
    for number in range(1, 20):
        update_calendar(LocalFiles(), str(tmp_path), write(tmp_path, f"2026-03-{number:02d}"))
    files = Counting()
    update_calendar(files, f"{tmp_path}/", write(tmp_path, "2026-03-20"))
    assert files.read == [f"{tmp_path}/{HISTORY}"]
    assert dates(tmp_path) == [f"2026-03-{number:02d}" for number in range(1, 21)]
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.count('href="report/dt=2026-03-20/report.html"') >= 2
    assert all((tmp_path / "report" / f"dt={date}").is_dir() for date in dates(tmp_path))


def test_dates_come_and_go_with_their_directories(tmp_path: Path) -> None:
    update_calendar(LocalFiles(), str(tmp_path), write(tmp_path, "2026-03-01"))
    write(tmp_path, "2026-02-27")  # copied from elsewhere
    (tmp_path / "report" / "dt=2026-02-28").mkdir()  # never finished
    (tmp_path / "report" / "dt=nonsense").mkdir()
    files = Counting()
    update_calendar(files, str(tmp_path), write(tmp_path, "2026-03-02"))
    assert len(files.read) == 2
    assert dates(tmp_path) == ["2026-02-27", "2026-03-01", "2026-03-02"]
    (tmp_path / "report" / "dt=2026-02-27" / "summary.json").unlink()
    (tmp_path / "report" / "dt=2026-02-27").rmdir()
    update_calendar(LocalFiles(), str(tmp_path), write(tmp_path, "2026-03-02"))
    assert dates(tmp_path) == ["2026-03-01", "2026-03-02"]


@pytest.mark.parametrize("damage", ["", "{", '{"version": 99}'])
def test_a_history_that_is_none_is_made_anew(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "2026-03-01")
    broken = tmp_path / "report" / "dt=2026-02-28"
    broken.mkdir()
    (broken / "summary.json").write_text('{"version": 1}')
    (tmp_path / HISTORY).write_text(damage)
    update_calendar(LocalFiles(), str(tmp_path), write(tmp_path, "2026-03-02"))
    assert dates(tmp_path) == ["2026-03-01", "2026-03-02"]
    assert "rebuilding it from every summary.json" in caplog.text
    assert "dt=2026-02-28/summary.json: is left out of the calendar" in caplog.text
