"""A file that is left out is never green: whatever its lines would have told, nobody knows it."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any

import pytest

from spark.command.report_run import verdict_line
from spark.figures.cluster_calendar import without_left_out
from spark.figures.report_data import ReportData, is_any_left_out
from spark.page.notices import notices as report_notices
from spark.page.report_page import report_html
from spark.page.summary import summary_json
from spark.reported_day import midnight_ms
from tests.spark.demo_report import demo_report
from tests.spark.told_reports import calendar_row, told_report

WHY = "the file is left out: unpacks to more than 5 MB; --max-dump-file-mb 10 reads twice as much"


def bad_line(reason: str, files: int = 1) -> dict[str, Any]:
    return {
        "reason": reason,
        "lines": files,
        "files": files,
        "example_text": "",
        "example_file": "/d/<b>.gz",
    }


def told(verdict: str, *reasons: str, **others: Any) -> ReportData:
    """What the pipeline gives: the date's own verdict has the file in it already."""
    data = told_report(
        day=verdict,
        bad_lines=[bad_line(reason) for reason in reasons],
        calendar_windows=[calendar_row("2026-03")],
        **others,
    )
    lowered = "insufficient data" if verdict == "met" else verdict
    object.__setattr__(data, "verdict", lowered)
    return data


@pytest.mark.parametrize("exit_on", ["day", "window", "both"])
def test_nothing_is_met(exit_on: str) -> None:
    data = told("met", WHY, exit_on=exit_on)
    assert data.exit_code == 2
    assert [one.verdict for one in data.judged_windows] == ["insufficient data"] * 2
    assert told("breached", WHY, exit_on="day").exit_code == 1
    # Other bad lines were judged by what is there.
    assert told_report(bad_lines=[bad_line("not one JSON object")]).exit_code == 0


def test_the_line_the_page_and_the_summary_name_the_file() -> None:
    data = told("met", WHY)
    assert verdict_line(data, "/o").startswith(
        "2026-03-10 insufficient data: /d/<b>.gz: the file is left out: unpacks to more than 5 MB;"
        " --max-dump-file-mb 10 reads twice as much; 30 days insufficient data: /d/<b>.gz: "
    )
    assert json.loads(summary_json(data))["rolling"]["verdict"] == "insufficient data"


def test_several_files_for_one_reason_are_counted() -> None:
    data = told_report(bad_lines=[bad_line(WHY, 3)])
    assert "/d/<b>.gz and 2 more files: the file is left out" in verdict_line(data, "/o")


def test_no_cluster_is_met_either() -> None:
    calendar = [{"verdict": verdict, "name": verdict} for verdict in ("met", "breached")]
    row = {"verdict": "met", "calendar": calendar, "days": 1}
    begins = {"met": "2026-03-01", "breached": "2026-03-01"}
    date = datetime.date(2026, 3, 10)

    def verdicts(left_out: str, **others: Any) -> list[str]:
        found = without_left_out(row | others, date, [left_out], begins)
        return [one["verdict"] for one in (found, *(found["calendar"] or ()))]

    assert verdicts("2026-03-10") == ["insufficient data", "insufficient data", "breached"]
    assert verdicts("2026-03-01") == ["met", "insufficient data", "breached"]
    assert verdicts("2026-02-28") == ["met", "met", "breached"]
    assert verdicts("2026-03-04", days=7, calendar=None) == ["insufficient data"]
    assert verdicts("2026-03-03", days=7, calendar=None) == ["met"]
    assert verdicts("2026-03-10", verdict="breached", calendar=None) == ["breached"]
    assert without_left_out(row, date, [], begins) == row
    assert is_any_left_out([bad_line("x"), bad_line(WHY)])
    assert not is_any_left_out([bad_line("x")])


def test_the_page_says_so_above_its_figures() -> None:
    demo = demo_report()
    data = dataclasses.replace(demo, bad_lines=[bad_line(WHY)])
    page = report_html(data).decode()
    notice = page.index("Insufficient data: /d/&lt;b&gt;.gz: the file is left out")
    assert notice < page.index('<main id="main">')
    assert "<b>.gz" not in page


@pytest.mark.parametrize(
    ("date", "days", "month"),
    [("2026-03-09", 2, 2), ("2026-02-28", 2, 0), ("2026-02-09", 2, 0), ("2026-02-08", 0, 0)],
)
def test_windows_remember_a_file_of_an_earlier_date(date: str, days: int, month: int) -> None:
    """30 days reach to 9 February, the month to its first: the day itself is met."""
    from_ms = midnight_ms(datetime.date(2026, 3, 1))
    data = told_report(
        past_left_out=[date],
        calendar_windows=[calendar_row("2026-03") | {"from_ms": from_ms}],
        exit_on="both",
    )
    codes = {"met": 0, "insufficient data": 2}
    assert [codes[one.verdict] for one in data.judged_windows] == [days, month]
    assert data.exit_code == days
    assert (f"files or replicas of {date} were left out" in verdict_line(data, "/o")) == bool(days)
    assert any(
        f"Files or replicas of {date} were left out" in text for text in report_notices(data, "w")
    )
