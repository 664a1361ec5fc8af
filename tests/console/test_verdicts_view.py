"""Verdicts: the calendar, budgets, links; without reports the way to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from console.reports import Reports
from console.views import verdicts
from tests.console.pages import HOSTILE, page, reader, rows, shown, texts
from tests.console.test_reports import small, write

(VERDICTS,) = verdicts.VIEWS


def told(root: Path) -> Reports:
    replica = {
        "cluster": "C",
        "broker": "b",
        "replica": "b:1",
        "verdict": "breached",
        "reasons": ["lag", "availability 99.1 %"],
        "windows": {
            "7": {"verdict": "met", "budget_left_s": 5},
            "30": {
                "verdict": "insufficient data",
                "budget_s": 2_592.0,
                "budget_left_s": -60.0,
                "budget_used_ratio": 1.0231,
            },
        },
    }
    other = {"cluster": "C", "broker": "a", "verdict": "met"}
    worst = {"cluster": "C", "broker": "b", "verdict": "breached"}
    write(root, "2026-03-01", small("2026-03-01"), b"<!doctype html>")
    write(root, "2026-03-02", b"{")
    more = {"groups": [other, worst], "replicas": [replica], "window_days": [7, 30]}
    write(root, "2026-03-03", small("2026-03-03", "breached", **more))
    return Reports(root)


def test_groups_by_days_the_worst_first(tmp_path: Path) -> None:
    who = reader(options={"reports": told(tmp_path)})
    found = page(verdicts.verdicts, who)
    b, a = rows(found, "calendar")
    assert list(b) == ["broker", "cluster", "2026-03-01", "2026-03-02", "2026-03-03"]
    assert (b["broker"], b["2026-03-01"], b["2026-03-03"]) == ("b", "met", "breached")
    assert (a["2026-03-01"], a["2026-03-02"], a["2026-03-03"]) == (None, None, "met")
    (table, _, _) = found.tables
    urls = [getattr(cell, "url", None) for cell in table.rows[0][2:]]
    assert urls == ["/reports/dt=2026-03-01/report.html", None, None]
    dates = rows(found, "dates")
    assert dates[1]["problem"].startswith("summary.json is damaged")


def test_the_budget_that_is_left_over_the_longest_window(tmp_path: Path) -> None:
    who = reader(options={"reports": told(tmp_path)})
    (row,) = texts(page(verdicts.verdicts, who), "budgets")
    assert row == [
        "b",
        "b:1",
        "breached",
        "30",
        "insufficient_data",
        "43 min 12 s",
        "−1 min 0 s",
        "102%",
        "lag; availability 99.1 %",
    ]


def test_older_dates_have_their_page(tmp_path: Path) -> None:
    who = reader(options={"reports": told(tmp_path)})
    found = page(verdicts.verdicts, who, days="2")
    assert [row["date"] for row in rows(found, "dates")] == ["2026-03-03", "2026-03-02"]
    assert found.context["older_url"] == "/verdicts?until=2026-03-01&days=2"
    older = page(verdicts.verdicts, who, days="2", until="2026-03-01")
    assert [row["date"] for row in rows(older, "dates")] == ["2026-03-01"]
    assert older.context["older_url"] == ""


def test_without_reports_it_says_the_way_to_them(tmp_path: Path) -> None:
    assert "--reports" in page(verdicts.verdicts, reader()).context["sentences"][0]
    (tmp_path / "report").mkdir()
    empty = reader(options={"reports": Reports(tmp_path)})
    assert page(verdicts.verdicts, empty).context["sentences"] == [
        "The directory has no report yet."
    ]


def test_hostile_names(tmp_path: Path) -> None:
    rows_ = [{"cluster": HOSTILE, "broker": HOSTILE, "verdict": HOSTILE}]
    write(tmp_path, "2026-03-01", small("2026-03-01", HOSTILE, groups=rows_))
    who = replace(reader(), options={"reports": Reports(tmp_path)})
    assert "<img" not in shown(VERDICTS, who)
