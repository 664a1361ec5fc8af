"""Calendar periods count as the longest rolling window does: exit code, policy, line, files.

Whose budget is used up when is counted from a month of days that a person can read."""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any

import pytest

from spark.command.report_run import verdict_line
from spark.command.slack import report_payload
from spark.command.webhook import message_of
from spark.config.calendar_periods import periods_of
from spark.config.objectives import Objective, PolicyStep
from spark.figures.calendar_windows import calendar_windows
from spark.figures.report_data import ReportData
from spark.page.report_page import report_html
from spark.page.summary import summary_json
from spark.reported_day import Day
from spark.vocabulary import REPLICA
from tests.spark.demo_report import demo_report
from tests.spark.told_reports import calendar_row, told_report

MET, BREACHED, INSUFFICIENT = "met", "breached", "insufficient data"


def told(*rows: dict[str, Any], **others: Any) -> ReportData:
    return told_report(calendar_windows=rows, **others)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize(
    ("exit_on", "day", "window", "period", "code"),
    [
        *(("day", MET, MET, BREACHED, 0), ("window", MET, MET, BREACHED, 1)),
        *(("both", MET, MET, BREACHED, 1), ("both", MET, MET, INSUFFICIENT, 2)),
        *(("window", MET, MET, MET, 0), ("window", MET, BREACHED, MET, 1)),
        *(("window", BREACHED, MET, MET, 0), ("both", BREACHED, MET, INSUFFICIENT, 1)),
        ("window", MET, INSUFFICIENT, BREACHED, 1),
    ],
)
def test_the_exit_code(
    exit_on: str, day: str, window: str, period: str, code: int, *, final: bool
) -> None:
    rows = [calendar_row("2026-03", MET), calendar_row("2026-Q1", period, final=final)]
    assert told(*rows, day=day, window=window, exit_on=exit_on).exit_code == code


def test_the_worst_replica_decides() -> None:
    rows = [calendar_row("2026-03"), calendar_row("2026-03", BREACHED, replica="b:9")]
    assert told(*rows, exit_on="window").exit_code == 1


# -- a month of days -------------------------------------------------------------------------

BAD_S = {f"2026-04-{day:02}": 300.0 for day in range(3, 13)}
"""Ten days of 300 s: 3,000 s of 2,592 s allowed in April; half is used up with the fifth day, all
with the ninth. The seven days that end with the 19th and later ones are clean."""
POLICY = (PolicyStep(50, "slow down"), PolicyStep(100, "freeze", exit_code=17))


def of_date(date: str) -> ReportData:
    """A report with what the stored days of April and May make of the month."""
    last = datetime.date.fromisoformat(date)
    days = []
    for back in range((last - datetime.date(2026, 4, 1)).days + 1):
        dt = str(last - datetime.timedelta(days=back))
        bad_s = BAD_S.get(dt, 0.0)
        days.append({"dt": dt, "good_s": 86_400.0 - bad_s, "bad_s": bad_s, "excluded_s": 0.0})
    periods = periods_of(last, ["month"], "UTC")
    day = Day.whole(last)
    (found,) = calendar_windows(days, [], Objective("default"), day, periods)
    key = {"cluster": "c", "broker": "b", "replica": "b:1"}
    return told(key | found, date=date, policy=POLICY, exit_on="window")


@pytest.mark.parametrize(
    ("date", "verdict", "step", "code"),
    [
        *(("2026-04-06", MET, None, 0), ("2026-04-07", MET, "slow down", 0)),
        # 8 × 300 s are within 2,592 s, 9 are not; from then on until the month ends.
        *(("2026-04-10", MET, "slow down", 0), ("2026-04-11", BREACHED, "freeze", 17)),
        *(("2026-04-29", BREACHED, "freeze", 17), ("2026-04-30", BREACHED, "freeze", 17)),
        ("2026-05-01", MET, None, 0),
    ],
)
def test_a_month_counts_by_its_budget_so_far(
    date: str, verdict: str, step: str | None, code: int
) -> None:
    data = of_date(date)
    assert data.judged_windows[1].verdict == verdict
    assert data.judged_windows[1].is_final == (date == "2026-04-30")
    assert [one.step.label for one in data.budget_steps] == ([step] if step else [])
    assert data.exit_code == code


def test_each_window_has_its_own_step() -> None:
    rows = [calendar_row("2026-03", used=0.6), calendar_row("2026-Q1", used=0.2)]
    data = told(*rows, used=1.5, policy=POLICY)
    assert [(one.window.text, one.step.label) for one in data.budget_steps] == [
        *(("30 days", "freeze"), ("2026-03", "slow down")),
    ]
    steps = json.loads(summary_json(data))["budget_steps"]
    assert [(one["days"], one["period"], one["name"]) for one in steps] == [
        *((30, None, None), (None, "month", "2026-03")),
    ]


# -- who tells it ----------------------------------------------------------------------------


def test_the_line_says_what_decided() -> None:
    assert verdict_line(of_date("2026-04-11"), "/o") == (
        "2026-04-11 met: 2 replicas; 30 days met; 2026-04 (so far) breached: c/b/b:1: availability"
        " 99.715 % so far: 45 min bad of 43 min 12 s allowed; freeze at 100 %: c/b/b:1 (104 % of"
        " the budget of 2026-04 used); page: /o"
    )
    line = verdict_line(of_date("2026-04-30"), "/o")
    assert "; 2026-04 breached: c/b/b:1: availability 99.884 %: 50 min bad of 43 min 12 s" in line


def test_files_page_and_messages_say_it() -> None:
    data = of_date("2026-04-11")
    verdict = {
        "period": "month",
        "name": "2026-04",
        "timezone": "UTC",
        "final": False,
        "verdict": BREACHED,
    }
    assert json.loads(summary_json(data))["calendar"] == [verdict]
    (message,) = message_of(data, "/o")["calendar"]
    reason = "c/b/b:1: availability 99.715 % so far: 45 min bad of 43 min 12 s allowed"
    assert message == verdict | {"reasons": [reason]}
    blocks = json.dumps(report_payload(data, "/o"), ensure_ascii=False)
    assert "30 days met; 2026-04 (so far) breached" in blocks
    assert f"• 2026-04 (so far): {reason}" in blocks.replace("\u00a0", " ")


def test_without_calendar_periods_nothing_changes() -> None:
    data = told_report(window="breached", exit_on="window")
    assert data.exit_code == 1
    assert verdict_line(data, "/o").count("breached") == 1
    assert json.loads(summary_json(data))["calendar"] == []


def test_the_page_has_a_box_and_the_reasons() -> None:
    demo = demo_report()
    key = {name: demo.replica_days[0][name] for name in REPLICA}
    row = calendar_row("2026-03", BREACHED) | key
    page = report_html(dataclasses.replace(demo, calendar_windows=[row])).decode()
    assert "2026-03 <span" in page
    assert "Why, over 2026-03 (so far)" in page
