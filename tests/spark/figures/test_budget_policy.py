"""The error-budget policy: who reached which step, and what that does to code, line and files."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from spark.command.report_run import verdict_line
from spark.config.objectives import PolicyStep
from spark.figures.budget_policy import reached_steps
from spark.figures.report_data import REPLICA_DAY_COLUMNS, WINDOW_COLUMNS, ReportData
from spark.page.budget_steps import used
from spark.page.report_page import report_html
from spark.page.summary import summary_json
from tests.spark.demo_report import demo_report

SLOW, FREEZE = PolicyStep(50, "slow down"), PolicyStep(100, "freeze", exit_code=1, notify=True)
POLICY = (SLOW, FREEZE)


def window(replica: str, used: float | None, days: int = 30) -> dict[str, Any]:
    key = {"cluster": "c", "broker": "b", "replica": replica, "days": days, "verdict": "met"}
    return dict.fromkeys(WINDOW_COLUMNS) | key | {"budget_used_ratio": used}


def data(
    *used: float | None, policy: tuple[PolicyStep, ...] = POLICY, verdict: str = "met"
) -> ReportData:
    windows = [window(f"b:{n}", ratio) for n, ratio in enumerate(used)]
    row = {"cluster": "c", "broker": "b", "replica": "b:0", "verdict": verdict, "reasons": ["low"]}
    return ReportData(
        *("2026-03-10", 0, 1000, verdict),
        replica_days=[dict.fromkeys(REPLICA_DAY_COLUMNS) | row],
        windows=[*windows, window("b:0", 99.0, days=7)],
        budget_policy=policy,
    )


@pytest.mark.parametrize(
    ("used", "step"),
    [
        *((None, None), (0.0, None), (0.4999, None), (0.5, SLOW), (0.9999, SLOW), (1.0, FREEZE)),
        (123.0, FREEZE),
    ],
)
def test_the_highest_step_that_is_reached(used: float | None, step: PolicyStep | None) -> None:
    found = reached_steps([window("b:1", used)], POLICY)
    assert [one.step for one in found] == ([step] if step else [])


def test_who_may_have_no_bad_time_has_used_all_by_any() -> None:
    """An objective of 100 %: a month that is over its budget of nothing stops releases, too."""
    rows = [window("b:1", 3.0) | {"bad_s": 9.0}, window("b:2", None) | {"bad_s": 0.001}]
    found = reached_steps([*rows, window("b:3", None) | {"bad_s": 0.0}], POLICY)
    assert [(one.replica, one.step, used(one)) for one in found] == [
        ("b:2", FREEZE, "all"),
        ("b:1", FREEZE, "300\u00a0%"),
    ]
    report = dataclasses.replace(data(), windows=rows[1:])
    assert report.exit_code == 1
    assert "freeze at 100 %: c/b/b:2 (all of 30 days' budget used)" in verdict_line(report, "/o")


def test_a_share_that_no_float_has() -> None:
    policy = (PolicyStep(7, "seven"), PolicyStep(29, "x"))
    assert [one.step for one in reached_steps([window("b", 0.07)], policy)] == [policy[0]]
    assert [one.step for one in reached_steps([window("b", 0.29)], policy)] == [policy[1]]


def test_only_the_longest_window_counts_and_the_worst_comes_first() -> None:
    found = data(0.6, 2.0, None, 0.1, 0.6).budget_steps
    assert [(one.replica, one.step.label) for one in found] == [
        *(("b:1", "freeze"), ("b:0", "slow down"), ("b:4", "slow down")),
    ]


@pytest.mark.parametrize(
    ("verdict", "codes", "code"),
    [
        # The worse of the verdict's (0 met, 2 insufficient, 1 breached) and each reached step's.
        *(("met", (None, None), 0), ("met", (2, None), 2), ("met", (2, 1), 1), ("met", (1, 2), 1)),
        *(("breached", (2, 2), 1), ("insufficient data", (2, 1), 1), ("breached", (None, 10), 10)),
        *(("insufficient data", (None, None), 2), ("met", (99, 10), 99)),
    ],
)
def test_the_exit_code_is_never_better_than_the_verdict(
    verdict: str, codes: tuple[int | None, int | None], code: int
) -> None:
    policy = (PolicyStep(50, "slow down", codes[0]), PolicyStep(100, "freeze", codes[1]))
    assert data(1.5, policy=policy, verdict=verdict).exit_code == code


def test_a_step_that_nobody_reached_does_nothing() -> None:
    assert data(0.5).exit_code == 0
    assert data(1.0).exit_code == 1


def test_the_line_tells_it() -> None:
    assert verdict_line(data(1.234, 0.5, 0.6, 0.7, 0.8), "/o").endswith(
        "; freeze at 100 %: c/b/b:0 (123\u00a0% of 30 days' budget used)"
        "; slow down at 50 %: c/b/b:4 (80\u00a0% of 30 days' budget used);"
        " c/b/b:3 (70\u00a0% of 30 days' budget used); c/b/b:2 (60\u00a0% of 30 days' budget used);"
        " and 1 more; page: /o".replace("\u00a0", " ")
    )
    assert "budget used" not in verdict_line(data(0.4), "/o")


def test_summary_and_page_tell_it() -> None:
    plain = demo_report()
    used = max(row["budget_used_ratio"] for row in plain.longest_windows)
    policy = (PolicyStep(used * 100 - 1, "<b>stop & think</b>", exit_code=10),)
    found = dataclasses.replace(plain, budget_policy=policy)
    summary = json.loads(summary_json(found))
    assert summary["exit_code"] == 10
    (step, *_) = summary["budget_steps"]
    assert (step["label"], step["days"], step["used_ratio"]) == (policy[0].label, 30, used)
    assert (step["exit_code"], step["notify"]) == (10, False)
    page = report_html(found).decode()
    assert "Error-budget policy: &lt;b&gt;stop &amp; think&lt;/b&gt; at " in page
    assert "Error-budget policy" not in report_html(plain).decode()
