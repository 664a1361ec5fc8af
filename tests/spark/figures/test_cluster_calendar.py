"""Calendar periods of clusters and in replicas.csv: sums that a person can add up, and columns
that earlier readers do not stumble over."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from typing import Any

from spark.figures.cluster_calendar import cluster_calendar
from spark.figures.result_tables import CLUSTER_CALENDAR_FIGURES, TABLES
from spark.page.report_page import report_html
from spark.page.summary import replicas_csv, summary_json
from tests.spark.demo_report import demo_report
from tests.spark.told_reports import calendar_row, told_report

HOUR_MS = 3_600_000


def row(cluster: str, name: str, verdict: str, **seconds: float) -> dict[str, Any]:
    """A quarter of 90 days or a month of 30, of which 10 h have come."""
    begin_ms = 0
    days = 90 if "Q" in name else 30
    known = {"good_s": 35_000.0, "bad_s": 1_000.0, "unknown_s": 0.0, "excluded_s": 0.0}
    return (
        calendar_row(name, verdict)
        | {"cluster": cluster, "from_ms": begin_ms, "to_ms": begin_ms + days * 24 * HOUR_MS}
        | {"open_s": days * 86_400.0 - 36_000, **known, **seconds}
    )


ROWS = [
    row("c", "2026-Q1", "met"),
    row("c", "2026-03", "breached"),
    row("c", "2026-Q1", "insufficient data", good_s=17_000.0, unknown_s=18_000.0),
    row("c", "2026-03", "met"),
    row("d", "2026-03", "met"),
    row("d", "2026-Q1", "met"),
]


def test_sums_and_the_worst_verdict() -> None:
    month, quarter = cluster_calendar("c", ROWS, ())
    assert month == {
        "period": "month",
        "name": "2026-03",
        "final": False,
        "verdict": "breached",
        "replicas_met": 1,
        "replicas_breached": 1,
        "replicas_insufficient": 0,
        "window_s": 2 * 30 * 86_400.0,
        "open_s": 2 * (30 * 86_400.0 - 36_000.0),
        "good_s": 70_000.0,
        "bad_s": 2_000.0,
        "unknown_s": 0.0,
        "excluded_s": 0.0,
        "coverage": 1.0,
        "availability": 70_000 / 72_000,
    }
    assert (quarter["name"], quarter["verdict"]) == ("2026-Q1", "insufficient data")
    assert quarter["coverage"] == 54_000 / 72_000
    assert month.keys() == quarter.keys() == CLUSTER_CALENDAR_FIGURES.keys()


def test_a_cluster_that_waits_for_slaves_is_not_met() -> None:
    verdicts = [one["verdict"] for one in cluster_calendar("d", ROWS, {"d"})]
    assert verdicts == ["insufficient data"] * 2


def test_a_cluster_without_a_replica_has_the_periods_all_the_same() -> None:
    found = cluster_calendar("empty", ROWS, {"empty"})
    assert [(one["name"], one["verdict"]) for one in found] == [
        *(("2026-03", "insufficient data"), ("2026-Q1", "insufficient data")),
    ]
    assert [one["availability"] for one in found] == [None, None]
    assert cluster_calendar("c", [], ()) == []


def test_it_is_the_last_column_of_the_table() -> None:
    assert list(TABLES["clusters"])[-1] == "calendar"


def test_the_page_has_a_row_for_each_cluster_and_period() -> None:
    demo = demo_report()
    key = {"cluster": "DefaultCluster"}
    rows = [one | key for one in ROWS[:4]]
    clusters = [
        {**one, "calendar": cluster_calendar("DefaultCluster", rows, ())}
        if one["days"] == 1
        else one
        for one in demo.clusters
    ]
    groups = [*demo.group_days, {**demo.group_days[0], "broker": "another"}]
    data = dataclasses.replace(demo, calendar_windows=rows, clusters=clusters, group_days=groups)
    page = report_html(data).decode()
    start = page.index('id="cluster-periods-table"')
    section = page[start : page.index("</table>", start)]
    assert [name for name in ("2026-03, so far", "2026-Q1, so far") if name in section] == [
        *("2026-03, so far", "2026-Q1, so far"),
    ]
    assert section.count("<tr>") == 3
    assert "97.222\u00a0%" in section
    (summary, *_) = json.loads(summary_json(data))["clusters"]
    assert [one["name"] for one in summary["calendar"]] == ["2026-03", "2026-Q1"]


def cells(rows: list[dict[str, Any]]) -> tuple[list[str], list[dict[str, str]]]:
    text = replicas_csv(told_report(calendar_windows=rows)).decode()
    return text.splitlines()[0].split(","), list(csv.DictReader(io.StringIO(text, newline="")))


def test_calendar_columns_stand_behind_all_others_in_the_csv() -> None:
    before, _ = cells([])
    rows = [
        calendar_row("2026-Q1", "breached"),
        calendar_row("2026-03", used=0.25),
        calendar_row("2026-03", replica="b:9", final=True),
    ]
    header, found = cells(rows)
    assert header[: len(before)] == before
    assert {name.split("_")[0] for name in header[len(before) :]} == {"month", "quarter"}
    assert header.index("month_name") < header.index("quarter_name")
    by_replica = {one["replica"]: one for one in found}
    first = by_replica["b:1"]
    assert [first[f"month_{name}"] for name in ("name", "verdict", "budget_used_ratio")] == [
        *("2026-03", "met", "0.25"),
    ]
    assert first["month_final"] == "false"
    assert first["quarter_verdict"] == "breached"
    assert by_replica["b:9"]["month_final"] == "true"
    assert by_replica["b:9"]["quarter_verdict"] == ""
