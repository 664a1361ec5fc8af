"""The evidence that the report's job writes: proved by `verify`, the same again, revisions stay."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.command.arguments import parse_arguments
from spark.command.command_line import main
from spark.job.sla_report import ReportRequest, run
from spark.reported_day import Day
from tests.spark.dump_lines_builder import T0
from tests.spark.evidence.chained_dumps import (
    DAY_MS,
    dates,
    files_of,
    read_lines,
    three_days,
    write_lines,
)
from tests.spark.evidence.test_verify import make_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
DAYS = tuple(dates())


def report(spark: SparkSession, root: Path, date: datetime.date) -> None:
    given = ["--dumps", str(root / "dumps"), "--out", str(root / "out")]
    given += ["--sla", str(root / "sla.yaml"), "--exclusions", str(root / "exclusions.jsonl")]
    options = parse_arguments(given, {})
    request = ReportRequest(Day.whole(date), options.dumps, options.out, options.sla)
    run(spark, request, lambda *_: None)


def links(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "out/evidence").glob("*.json"))}


def exclude(root: Path, *arguments: str, now_ms: int) -> None:
    given = ["exclude", *arguments, "--file", str(root / "exclusions.jsonl")]
    given += ["--who", "Ann", "--ticket", "OPS-7"]
    assert main(given, lambda: now_ms) == 0


def test_from_dumps_to_a_proof(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three_days(tmp_path / "dumps")
    (tmp_path / "sla.yaml").write_text("windows: [7, 30]\n")
    begin = datetime.datetime.fromtimestamp((T0 + DAY_MS) / 1000, datetime.UTC).isoformat()
    times = ["--from", begin, "--to", begin.replace("T00", "T02")]
    exclude(tmp_path, "add", *times, "--why", "seen by B", "--annotation", now_ms=T0)
    make_key(tmp_path, "key")
    for date in DAYS[:2]:
        report(spark, tmp_path, date)
    key, public = str(tmp_path / "key.pem"), str(tmp_path / "key.pub")
    out, dumps = str(tmp_path / "out"), str(tmp_path / "dumps")
    verify = ["verify", out, "--dumps", dumps, "--public-key", public, "--all"]
    assert main(["sign", out, "--key", key], lambda: 0) == 0
    assert main(verify, lambda: 0) == 0, capsys.readouterr()

    # The same input: the same bytes.
    first = links(tmp_path)
    assert [name[:6] for name in first] == ["000001", "000002"]
    for date in DAYS[:2]:
        report(spark, tmp_path, date)
    assert links(tmp_path) == first
    assert main(verify, lambda: 0) == 0

    # An exclusion after the event: another outcome, one more link, the old one stays.
    exclude(tmp_path, "add", *times, "--why", "storage moved", now_ms=T0 + 2 * DAY_MS)
    report(spark, tmp_path, DAYS[1])
    found = links(tmp_path)
    assert list(found.values())[:2] == list(first.values())
    last = json.loads(list(found.values())[2])
    assert (last["number"], last["replaces"], last["date"]) == (3, 2, str(DAYS[1]))
    page = (tmp_path / f"out/report/dt={DAYS[1]}/report.html").read_text()
    for text in ("storage moved", "OPS-7", "Ann", "after the event", "before the event"):
        assert text in page
    summary = json.loads((tmp_path / f"out/report/dt={DAYS[1]}/summary.json").read_text())
    assert [(row["kind"], row["after_the_event"]) for row in summary["remarks"]] == [
        ("annotation", False),
        ("exclusion", True),
    ]
    report(spark, tmp_path, DAYS[2])
    summary = json.loads((tmp_path / f"out/report/dt={DAYS[2]}/summary.json").read_text())
    assert [(row["number"], row["ticket"]) for row in summary["past_remarks"]] == [(2, "OPS-7")]
    assert main(["sign", out, "--key", key], lambda: 0) == 0
    assert main(verify, lambda: 0) == 0, capsys.readouterr()
    page_path = tmp_path / f"out/report/dt={DAYS[0]}/report.html"
    page_path.write_text(page_path.read_text().replace("2026", "2027", 1))
    assert main(verify, lambda: 0) == 1


def test_a_broken_chain_is_in_the_evidence(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who edits dumps before the report and signs it afterwards has signed that they were."""
    three_days(tmp_path / "dumps")
    (tmp_path / "sla.yaml").write_text("windows: [7, 30]\n")
    (tmp_path / "exclusions.jsonl").write_bytes(b"")
    path = files_of(tmp_path / "dumps", 0)[3]
    lines = read_lines(path)
    write_lines(path, [*lines[:2], *lines[3:]])
    report(spark, tmp_path, DAYS[0])
    (link,) = links(tmp_path).values()
    (problem,) = json.loads(link)["inputs"]["problems"]
    assert problem.startswith("c/b:0 boot 0000000100000001 line 21: missing")
    assert main(["verify", str(tmp_path / "out")], lambda: 0) == 1
    assert "when it was reported" in capsys.readouterr().out
