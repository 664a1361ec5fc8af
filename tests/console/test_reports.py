"""mqreport's directory: what its own summary says, what is damaged, and what is served of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from console import reports as console_reports
from console.report_routes import report_routes
from console.reports import Reports
from spark.page.report_page import report_html
from spark.page.summary import summary_json
from tests.spark.demo_report import DATE, demo_report
from tests.spark.told_reports import HOSTILE


def write(root: Path, date: str, summary: bytes | dict[str, Any], page: bytes = b"") -> Path:
    place = root / "report" / f"dt={date}"
    place.mkdir(parents=True)
    content = summary if isinstance(summary, bytes) else json.dumps(summary).encode()
    (place / "summary.json").write_bytes(content)
    if page:
        (place / "report.html").write_bytes(page)
    return place


def small(date: str, verdict: str = "met", **more: Any) -> dict[str, Any]:
    row = {"cluster": "C", "broker": "b", "verdict": verdict}
    return {"version": 1, "date": date, "verdict": verdict, "groups": [row], "replicas": []} | more


@pytest.fixture
def demo(tmp_path: Path) -> Reports:
    data = demo_report()
    write(tmp_path, DATE, summary_json(data), report_html(data))
    return Reports(tmp_path)


def test_a_summary_that_mqreport_made(demo: Reports) -> None:
    assert demo.dates() == ([DATE], "")
    day = demo.day(DATE)
    data = demo_report()
    assert day.verdict == data.verdict
    assert day.groups == {(g["cluster"], g["broker"]): g["verdict"] for g in data.group_days}
    assert len(set(day.groups.values())) > 1
    wanted = {row["replica"]: row["budget_left_s"] for row in data.windows if row["days"] == 30}
    assert {one.replica: one.left_s for one in day.budgets} == wanted
    assert {one.days for one in day.budgets} == {30}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "damaged"),
        (b"[" * 100_000, "damaged"),
        (b'{"version":1}', "damaged"),
        (small("2026-03-01", version=2), "version 2, not 1"),
        (small("2026-03-02"), "is of 2026-03-02"),
        (small("2026-03-01", groups=[5]), "damaged"),
        (small("2026-03-01", windows={"x": "y" * 3_000}), "more than"),
    ],
)
def test_a_strange_summary_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: Any, problem: str
) -> None:
    monkeypatch.setattr(console_reports, "MAX_SUMMARY", 200_000 if problem != "more than" else 999)
    write(tmp_path, "2026-03-01", content)
    assert problem in Reports(tmp_path).day("2026-03-01").problem


def test_dates_are_dates_and_the_directory_may_be_missing(tmp_path: Path) -> None:
    write(tmp_path, "2026-03-01", small("2026-03-01"))
    for name in ("dt=2026-13-01", "dt=x", "_calendar.json", "dt=2026-03-02.tmp"):
        (tmp_path / "report" / name).mkdir()
    (tmp_path / "report" / "dt=2026-03-03").mkdir()
    found = Reports(tmp_path)
    assert found.dates()[0] == ["2026-03-03", "2026-03-01"]
    assert found.day("2026-03-03").problem.startswith("no summary.json")
    none, why = Reports(tmp_path / "nowhere").dates()
    assert (none, why.endswith("No such file or directory")) == ([], True)


def test_a_day_is_read_anew_when_it_changes(tmp_path: Path) -> None:
    place = write(tmp_path, "2026-03-01", small("2026-03-01"))
    found = Reports(tmp_path / "report")
    assert found.day("2026-03-01").verdict == "met"
    assert found.day("2026-03-01") is found.day("2026-03-01")
    (place / "summary.json").write_bytes(json.dumps(small("2026-03-01", "breached")).encode())
    assert found.day("2026-03-01").verdict == "breached"


@pytest.fixture
def browser(demo: Reports) -> TestClient:
    def sentence(_request: Request, text: str, status: int) -> PlainTextResponse:
        return PlainTextResponse(text, status)

    return TestClient(Starlette(routes=report_routes(demo, sentence)))


def test_a_report_is_served_as_it_is_with_its_own_style(browser: TestClient, demo: Reports) -> None:
    answer = browser.get(f"/reports/dt={DATE}/report.html")
    assert answer.content == report_html(demo_report())
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    own = policy.partition("style-src '")[2].partition("'")[0]
    assert f"style-src '{own}'" in answer.text
    summary = browser.get(f"/reports/dt={DATE}/summary.json")
    assert summary.headers["content-type"] == "application/json"
    assert "style-src 'none'" in summary.headers["content-security-policy"]


@pytest.mark.parametrize(
    "name",
    [
        "dt=2026-03-14/../../secret",
        "dt=2026-03-14/%2e%2e/index.html",
        "..%2f..%2fsecret",
        "/etc/passwd",
        "dt=2026-03-14/secret.txt",
        "dt=2026-03-14/report.html%00",
        "dt=2026-03-14/link.html",
        "dt=2026-03-14/replicas.csv",
        "dt=2026-03-15/report.html",
        "dt=2026-03-14",
        "index.html",
        "",
    ],
)
def test_nothing_else_is_served(browser: TestClient, demo: Reports, name: str) -> None:
    """replicas.csv and dt=2026-03-15 are links; index.html is a directory."""
    outside = demo.directory.parent / "secret"
    outside.write_text("secret")
    place = demo.directory / f"dt={DATE}"
    (place / "secret.txt").write_text("secret")
    (place / "replicas.csv").symlink_to(outside)
    (demo.directory / "dt=2026-03-15").symlink_to(place)
    (demo.directory / "index.html").mkdir()
    answer = browser.get(f"/reports/{name}")
    assert answer.status_code == 404
    assert "secret" not in answer.text


def test_a_name_is_matched_to_its_end(demo: Reports) -> None:
    assert demo.file(f"dt={DATE}/report.html") is not None
    assert demo.file(f"dt={DATE}/report.html\n") is None
    os.mkfifo(demo.directory / f"dt={DATE}" / "incidents.csv")
    assert demo.file(f"dt={DATE}/incidents.csv") is None


def test_no_directory_no_route() -> None:
    assert report_routes(None, lambda *_: PlainTextResponse("")) == []


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    rows = [{"cluster": HOSTILE, "broker": HOSTILE, "verdict": "met"}]
    write(tmp_path, DATE, small(DATE, groups=rows))
    (group,) = Reports(tmp_path).day(DATE).groups
    assert group[0].startswith('a"b')
