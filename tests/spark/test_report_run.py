"""One run of the command, without Spark: its line on stdout, the lock, words for Spark's errors."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from spark.report_data import ReportData
from spark.report_run import RunError, _locked, verdict_line


@dataclasses.dataclass
class Data:
    """The part of ReportData that the line needs."""

    verdict: str
    replica_days: list[dict[str, Any]]
    date: str = "2026-03-10"
    revision: int = 1


def day(replica: str, verdict: str, bad_s: float = 0.0, *reasons: str) -> dict[str, Any]:
    key = {"cluster": "c", "broker": "b", "replica": replica}
    return key | {"verdict": verdict, "bad_s": bad_s, "unknown_s": 0.0, "reasons": list(reasons)}


def line(data: Data) -> str:
    return verdict_line(data, "/o/report.html")  # type: ignore[arg-type]


def test_the_line_says_verdict_reason_and_page() -> None:
    days = [
        day("b:1", "met"),
        day("b:2", "breached", 5, "availability low", "sync ok low"),
        day("b:3", "insufficient data", 0, "coverage low"),
    ]
    assert line(Data("breached", days)) == (
        "2026-03-10 breached: c/b/b:2: availability low, sync ok low; page: /o/report.html"
    )


def test_the_worst_come_first_and_the_rest_is_counted() -> None:
    days = [day(f"b:{n}", "breached", n, "low") for n in range(1, 6)]
    assert line(Data("breached", days)) == (
        "2026-03-10 breached: c/b/b:5: low; c/b/b:4: low; c/b/b:3: low; and 2 more replicas;"
        " page: /o/report.html"
    )


def test_a_revised_date_and_one_that_is_met() -> None:
    assert line(Data("met", [day("b:1", "met"), day("b:2", "met")], revision=2)) == (
        "2026-03-10 met (revision 2): 2 replicas; page: /o/report.html"
    )


def test_a_date_without_replicas() -> None:
    assert line(Data("insufficient data", [])) == (
        "2026-03-10 insufficient data: no dump and no earlier result names a replica;"
        " page: /o/report.html"
    )


def test_report_data_fits() -> None:
    data = ReportData("2026-03-10", 0, 1000, "insufficient data")
    assert verdict_line(data, "p").startswith("2026-03-10 insufficient data: no dump")


def test_one_run_at_a_time(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    with (
        _locked(out),
        pytest.raises(RunError, match="another mqreport is writing to it"),
        _locked(out),
    ):
        raise AssertionError("unreachable")
    with _locked(out), _locked(None):
        pass


def test_an_out_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file: cannot be written: "), _locked(tmp_path / "file"):
        raise AssertionError("unreachable")
