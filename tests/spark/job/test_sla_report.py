"""The pipeline from small dumps to stored tables and files: reruns, revisions, missing data."""

from __future__ import annotations

import csv
import datetime
import functools
import gzip
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from spark.config.objectives import Objective, ReplicaName, ReplicaPattern, SlaConfig
from spark.figures.report_data import ReportData
from spark.job import sla_report
from spark.job.results import StagedDay
from spark.job.sla_report import STAGES, ReportRequest, groups_to_revise, run
from spark.job.table_schema import schema_of
from spark.reported_day import Day, InputError
from tests.spark.dump_lines_builder import (
    DATE,
    T0,
    Life,
    Line,
    every,
    replica,
    write_dump,
    write_file,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
YESTERDAY = DATE - datetime.timedelta(days=1)
HOUR_MS = 3_600_000
TEN_MINUTES = Day(DATE, T0 + HOUR_MS, T0 + HOUR_MS + 600_000)
"""Enough for every figure, and quick."""
DAILY = ("replica_days", "group_days", "incidents", "events", "minutes", "hours", "bad_lines")


class Stages:
    """Remembers what the pipeline says it does."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def stage(self, name: str, number: int, count: int) -> None:
        """See spark.job.sla_report.BeginStage."""
        self.seen.append((name, number, count))


def report(
    spark: SparkSession,
    root: Path,
    *,
    day: Day = TEN_MINUTES,
    dumps: Sequence[str] | None = None,
    stages: Stages | None = None,
    **sla: Any,
) -> ReportData:
    config = SlaConfig(**({"objectives": (Objective("default"),)} | sla))
    paths = [str(root / "dumps")] if dumps is None else list(dumps)
    request = ReportRequest(day, paths, str(root / "out"), config)
    return run(spark, request, (stages or Stages()).stage)


def tables(spark: SparkSession, root: Path, date: datetime.date = DATE) -> dict[str, list[str]]:
    """Rows of the daily tables as they lie in Parquet, as text; in one query."""
    found: dict[str, list[str]] = {name: [] for name in DAILY}
    frames = []
    for name in DAILY:
        path = root / "out/parquet" / name / f"dt={date}"
        if path.exists():
            rows = spark.read.schema(schema_of(name, with_date=False)).parquet(str(path))
            frames.append(rows.select(fn.lit(name), fn.to_json(fn.struct("*"))))
    every = functools.reduce(DataFrame.union, frames).collect() if frames else []
    for name, row in every:
        found[name].append(row)
    return {name: sorted(rows) for name, rows in found.items()}


def a_life(day: Day = TEN_MINUTES, **fields: Any) -> Life:
    return Life(start_ms=day.w0_ms - 60_000, **fields)


def steady(day: Day = TEN_MINUTES, life: Life | None = None) -> list[Line]:
    """Ten good minutes: a line every 5 s from 5 s before the window to its end."""
    life = life or a_life(day)
    return [life.line(ts) for ts in every(day.w0_ms - 5_000, day.w1_ms)]


def with_outage(day: Day = TEN_MINUTES, life: Life | None = None) -> list[Line]:
    """The replica is gone in the samples of the window's seconds 65 to 85: bad for 25 s."""
    life = life or a_life(day)
    lines = []
    for ts in every(day.w0_ms - 5_000, day.w1_ms):
        away = day.w0_ms + 65_000 <= ts <= day.w0_ms + 85_000
        state, lag_ms = ("disconnected", 30_000) if away else ("in_sync", 3)
        row = replica(f"{life.broker}:1", state, lag_ms=lag_ms)
        lines.append(life.line(ts, replicas=[row]))
    return lines


@dataclass(frozen=True)
class Made:
    """The report of `with_outage`: whoever changes something copies `root` first."""

    root: Path
    data: ReportData
    stages: Stages


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    root, stages = tmp_path_factory.mktemp("made"), Stages()
    write_dump(root / "dumps", with_outage())
    return Made(root, report(spark, root, stages=stages), stages)


def test_from_dumps_to_tables_and_files(made: Made) -> None:
    data, stages = made.data, made.stages
    assert stages.seen == [(name, i, len(STAGES)) for i, name in enumerate(STAGES, 1)]
    (row,) = data.replica_days
    assert (row["good_s"], row["bad_s"], row["unknown_s"]) == (575, 25, 0)
    assert (row["coverage"], row["received"], row["expected"]) == (1.0, 120, 120)
    assert (row["minutes_good"], row["minutes_bad"], row["minutes_unknown"]) == (9, 1, 0)
    assert (row["incidents"], row["mttr_s"], row["mtbf_s"]) == (1, 25, 575)
    assert (row["budget_s"], row["budget_left_s"]) == (0.6, pytest.approx(-24.4))
    assert row["burn_1h"] == pytest.approx(25 / 3.6)
    assert (row["verdict"], data.verdict, data.exit_code) == ("breached", "breached", 1)
    assert row["reasons"] == ["availability 95.833 % < 99.9 %: 25 s bad of 0.6 s allowed"]
    assert (row["revision"], row["late"]) == (1, 0)
    (incident,) = data.incidents
    assert (incident["start_ms"], incident["cause"]) == (TEN_MINUTES.w0_ms + 60_000, "disconnected")
    assert [len(data.minutes), len(data.hours), len(data.days)] == [10, 1, 1]
    assert sum(data.replica_days[0]["lag_ms_hist"].values()) == 600_000
    (group,) = data.group_days
    assert (group["verdict"], group["revision"], group["samples"]) == ("breached", 1, 120)
    directory = made.root / "out/report" / f"dt={DATE}"
    names = ["incidents.csv", "replicas.csv", "report.html", "summary.json"]
    assert sorted(p.name for p in directory.iterdir() if p.name[0] != ".") == names
    assert json.loads((directory / "summary.json").read_text())["verdict"] == "breached"
    assert b"breached" in (directory / "report.html").read_bytes()


def test_late_samples_revise_and_copies_of_lines_do_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = steady()
    first, late = lines[:60], lines[60:]
    write_dump(tmp_path / "dumps", first)
    assert report(spark, tmp_path).verdict == "insufficient data"
    write_dump(tmp_path / "late", late)
    both = [str(tmp_path / "dumps"), str(tmp_path / "late")]
    data = report(spark, tmp_path, dumps=both)
    (row,) = data.replica_days
    assert (row["verdict"], row["revision"]) == ("met", 2)
    assert row["late"] == row["received"] - 59
    assert (data.revision, data.group_days[0]["revision"]) == (2, 2)
    revised = tables(spark, tmp_path)
    copy = shutil.copytree(both[0], tmp_path / "copy")
    report(spark, tmp_path, dumps=[*reversed(both), str(copy)])
    again = tables(spark, tmp_path)
    duplicates = again.pop("replica_days"), revised.pop("replica_days")
    assert duplicates[0] != duplicates[1]
    assert again == revised


@pytest.mark.long
def test_d_then_the_day_before_then_d_again(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    """Equal runs give equal rows, whatever was reported between them."""
    shutil.copytree(made.root, tmp_path, dirs_exist_ok=True)
    before = Day(YESTERDAY, TEN_MINUTES.w0_ms - 86_400_000, TEN_MINUTES.w1_ms - 86_400_000)
    write_dump(tmp_path / "dumps", steady(before))
    today = tables(spark, tmp_path)
    report(spark, tmp_path, day=before)
    yesterday = tables(spark, tmp_path, YESTERDAY)
    assert tables(spark, tmp_path) == today
    data = report(spark, tmp_path)
    assert tables(spark, tmp_path) == today
    assert tables(spark, tmp_path, YESTERDAY) == yesterday
    week = next(row for row in data.windows if row["days"] == 7)
    assert (week["days_with_data"], week["bad_s"]) == (2, 25)
    assert week["good_s"] == 575 + 600


def test_the_first_lines_of_a_date_tell_how_the_day_before_ended(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Down since 23:40, proved by a start at 00:20: 20 minutes are yesterday's, known today."""
    out, dumps = str(tmp_path / "out"), tmp_path / "dumps"
    life = Life(start_ms=T0 - 86_400_000 - 600_000, interval_ms=600_000, marks=True)
    lines = [life.line(ts) for ts in every(T0 - 86_400_000, T0 - 1_200_000, 600_000)]
    after = life.restarted(T0 + 1_200_000)
    write_dump(dumps, lines)
    (row,) = report(spark, tmp_path, day=Day.whole(YESTERDAY)).replica_days
    assert (row["bad_s"], row["unknown_s"]) == (0, 1_200)
    write_dump(dumps, [after.line(ts) for ts in every(T0 + 1_800_000, T0 + 7_200_000, 600_000)])
    data = report(spark, tmp_path, day=Day.whole(DATE))
    assert data.replica_days[0]["bad_s"] == 1_200
    assert groups_to_revise(spark, out, data) == ["c/b"]
    (row,) = report(spark, tmp_path, day=Day.whole(YESTERDAY)).replica_days
    assert (row["bad_s"], row["unknown_s"], row["revision"]) == (1_200, 0, 2)
    assert groups_to_revise(spark, out, data) == []


def test_missing_data_is_unknown_and_nobody_is_forgotten(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "dumps").mkdir()
    nothing = report(spark, tmp_path)
    assert (nothing.verdict, nothing.exit_code, nothing.replica_days) == (
        "insufficient data",
        2,
        [],
    )
    # Expected ones are there without any dump; so are those of the days before.
    before = Day(YESTERDAY, TEN_MINUTES.w0_ms - 86_400_000, TEN_MINUTES.w1_ms - 86_400_000)
    write_dump(tmp_path / "dumps", steady(before))
    report(spark, tmp_path, day=before)
    expect = (ReplicaName("c", "x", "x:1"),)
    data = report(spark, tmp_path, expect=expect)
    assert [row["replica"] for row in data.replica_days] == ["b:1", "x:1"]
    for row in data.replica_days:
        assert (row["unknown_s"], row["coverage"], row["availability"]) == (600, 0, None)
        assert (row["verdict"], row["received"]) == ("insufficient data", 0)
        assert (row["minutes_unknown"], row["incidents"], row["mtbf_s"]) == (10, 0, None)
        assert row["revision"] == 2  # this date had a report without them
    assert [(row["broker"], row["samples"]) for row in data.group_days] == [("b", 0), ("x", 0)]
    # Retired ones are not expected any more; the partition of what is empty now is gone.
    gone = report(spark, tmp_path, retired=(ReplicaPattern("c", "*", "b:?|x:?"),))
    assert (gone.replica_days, gone.verdict) == ([], "insufficient data")
    assert not (tmp_path / "out/parquet/replica_days" / f"dt={DATE}").exists()
    assert (tmp_path / "out/parquet/replica_days" / f"dt={YESTERDAY}").exists()


@pytest.mark.long
def test_nobody_goes_from_a_result_because_its_dumps_went(
    spark: SparkSession, tmp_path: Path
) -> None:
    other = Life(start_ms=TEN_MINUTES.w0_ms - 60_000, broker="b2")
    write_dump(tmp_path / "dumps", steady())
    write_dump(tmp_path / "lost", with_outage(life=other))
    both = [str(tmp_path / "dumps"), str(tmp_path / "lost")]
    assert report(spark, tmp_path, dumps=both).verdict == "breached"
    for _ in range(2):
        data = report(spark, tmp_path)
        rows = {row["replica"]: row for row in data.replica_days}
        found = {name: (row["verdict"], row["revision"]) for name, row in rows.items()}
        assert found == {"b:1": ("met", 1), "b2:1": ("insufficient data", 2)}
        assert (rows["b2:1"]["unknown_s"], data.verdict) == (600, "insufficient data")


def test_a_group_that_nobody_else_tells_of(spark: SparkSession, tmp_path: Path) -> None:
    """A slave whose master has no dumps, and a master whose slaves never came: the day is not
    `met`. A master that waits for no slave may have none."""
    slave = a_life(broker="b2", broker_id=1, role="SLAVE")
    alone = a_life(broker="b4", fields={"replicas": []})
    write_dump(tmp_path / "dumps", steady() + steady(life=alone))
    assert report(spark, tmp_path).verdict == "met"
    write_dump(tmp_path / "dumps", steady(life=slave))
    data = report(spark, tmp_path)
    (row,) = (row for row in data.replica_days if row["broker"] == "b2")
    assert (row["replica"], row["unknown_s"]) == ("b2:1", 600)
    assert (row["verdict"], data.verdict) == ("insufficient data", "insufficient data")
    waiting = a_life(broker="b3", role="SYNC_MASTER", fields={"replicas": []})
    write_dump(tmp_path / "dumps", steady(life=waiting))
    data = report(spark, tmp_path, retired=(ReplicaPattern(broker="b2"),))
    assert [row["verdict"] for row in data.replica_days] == ["met"]
    assert (data.verdict, data.exit_code) == ("insufficient data", 2)


def test_retired_replicas_are_gone_also_while_they_have_rows(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    shutil.copytree(made.root, tmp_path, dirs_exist_ok=True)
    data = report(spark, tmp_path, retired=(ReplicaPattern("c", "b", "b:1"),))
    assert (data.replica_days, data.verdict) == ([], "insufficient data")


def test_bad_lines_are_kept_aside_and_objectives_by_pattern(
    spark: SparkSession, tmp_path: Path
) -> None:
    (path,) = {p.parent for p in write_dump(tmp_path / "dumps", with_outage())}
    (path / "0100-0-torn.jsonl").write_text('{"v":1,"ts":\nnonsense\n')
    strict, lax = Objective("strict", broker="other"), Objective("lax", availability_percent=50)
    data = report(spark, tmp_path, objectives=(strict, lax))
    assert sum(row["lines"] for row in data.bad_lines) == 2
    assert [row["name"] for row in data.objectives] == ["lax"]
    assert data.verdict == "met"


@pytest.mark.parametrize("is_new", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_run_that_dies_while_its_result_is_put_in_place_is_done_again(
    spark: SparkSession,
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_new: bool,
) -> None:
    """Between the tables and the files, or right before the tables: what lies there is of one run
    or of two, but no summary.json calls it whole: --catch-up makes it again (test_catch_up.py)."""
    shutil.copytree(made.root, tmp_path, dirs_exist_ok=True)
    directory = tmp_path / "out/report" / f"dt={DATE}"
    old = tables(spark, tmp_path)
    write_dump(tmp_path / "dumps", steady(life=a_life(cluster="other")))

    def dying(*_arguments: object, **_named: object) -> None:
        raise KeyboardInterrupt("the power went")

    with monkeypatch.context() as patch:
        if is_new:
            patch.setattr(sla_report, "report_data", dying)
        else:
            patch.setattr(StagedDay, "commit", dying)
        with pytest.raises(KeyboardInterrupt):
            report(spark, tmp_path)
    assert (tables(spark, tmp_path) != old) == is_new
    page = (directory / "report.html").read_bytes()
    assert page == (made.root / "out/report" / f"dt={DATE}" / "report.html").read_bytes()
    assert not (directory / "summary.json").exists()

    data = report(spark, tmp_path)
    assert len(data.replica_days) == 2
    assert len(json.loads((directory / "summary.json").read_text())["replicas"]) == 2
    assert (directory / "report.html").read_bytes() != page


def test_nobody_is_forgotten_until_retired(spark: SparkSession, tmp_path: Path) -> None:
    """However long a replica's broker is dead, and however long nobody reported."""
    date = DATE - datetime.timedelta(days=60)
    begin = Day.whole(date).w0_ms + HOUR_MS
    then = Day(date, begin, begin + 600_000)
    write_dump(tmp_path / "dumps", steady(then))
    report(spark, tmp_path, day=then)
    (row,) = report(spark, tmp_path).replica_days
    assert (row["replica"], row["verdict"]) == ("b:1", "insufficient data")
    # ... nor by the reports that followed: they remember what they were told.
    shutil.rmtree(tmp_path / "out/parquet/replica_days" / f"dt={date}")
    after = DATE + datetime.timedelta(days=8)
    w0_ms = Day.whole(after).w0_ms
    (row,) = report(spark, tmp_path, day=Day(after, w0_ms, w0_ms + 600_000)).replica_days
    assert row["replica"] == "b:1"


def test_dumps_that_are_not_there_leave_the_old_result(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    shutil.copytree(made.root, tmp_path, dirs_exist_ok=True)
    before = tables(spark, tmp_path)
    assert all(before[name] for name in ("replica_days", "group_days", "minutes"))
    with pytest.raises(InputError, match="nowhere"):
        report(spark, tmp_path, dumps=[f"{tmp_path}/nowhere"])
    assert tables(spark, tmp_path) == before


HOSTILE = [
    *("<script>alert(1)</script>", "=cmd|' /C calc'!A0", "a\rb\r2026-03-10,c,b,met", "\n=x"),
    *(
        "../../../../escaped",
        "/escaped",
        "n\x00ul\x1b[31m",
        "\u202eevil\u2067",
        "%s%n%2e%2e%2f",
        "",
    ),
    *("x" * 4_096, '{{7*7}}"\\', "\uff1d1", "dt=2026-03-09", "\u2028a,b;c", "*"),
]


def test_whatever_names_say_each_replica_has_its_row_and_nothing_lies_elsewhere(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One group for each name of cluster, broker and replica; and a file that is left out."""
    keys = set()
    for number, name in enumerate(HOSTILE):
        for key in ((name, f"{number}c", "r"), ("c", name, "r"), ("c", f"{number}r", name)):
            cluster, broker, of_replica = key
            life = a_life(cluster=cluster, broker=broker, boot=f"{len(keys) + 1:08x}" * 2)
            lines = [
                life.line(ts, replicas=[replica(of_replica)])
                for ts in every(TEN_MINUTES.w0_ms - 5_000, TEN_MINUTES.w1_ms)
            ]
            write_file(tmp_path / "dumps" / f"dt={DATE}" / f"{len(keys)}.jsonl", lines)
            keys.add(key)
    before = {path.name for path in tmp_path.iterdir()} | {"out"}
    whole = report(spark, tmp_path)
    assert (whole.verdict, whole.exit_code) == ("met", 0)
    bomb = tmp_path / "dumps" / f"dt={DATE}" / "bomb.jsonl.gz"
    bomb.write_bytes(gzip.compress(b"\0" * 40_000_000))
    data = report(spark, tmp_path)
    assert (data.verdict, data.exit_code) == ("insufficient data", 2)
    assert {row["verdict"] for row in data.clusters} == {"insufficient data"}
    assert {(row["cluster"], row["broker"], row["replica"]) for row in data.replica_days} == keys
    place = tmp_path / "out" / "report" / f"dt={DATE}"
    with (place / "replicas.csv").open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert len(rows) == len(keys)
    assert {len(row) for row in rows} == {len(header)}
    assert not any(cell.startswith(("=", "\n", "\r", "\uff1d")) for row in rows for cell in row)
    page = (place / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "bomb.jsonl.gz" in page
    assert {path.name for path in tmp_path.iterdir()} == before
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("parquet", "report", "evidence", "index.html"),
    }
    (link,) = sorted((tmp_path / "out" / "evidence").glob("000002_*.json"))
    problems = json.loads(link.read_bytes())["inputs"]["problems"]
    assert any("bomb.jsonl.gz: is left out: " in text for text in problems)


def test_later_windows_remember_a_file_that_was_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The replica has all that the windows ask of it on both dates; until the first is whole."""
    second = Day.whole(DATE)
    first = Day.whole(DATE - datetime.timedelta(days=1))
    write_dump(tmp_path / "dumps", steady(Day(DATE, second.w0_ms, second.w0_ms + 600_000)))
    bomb = tmp_path / "dumps" / f"dt={first.date}" / "bomb.jsonl.gz"
    bomb.parent.mkdir(parents=True, exist_ok=True)
    bomb.write_bytes(gzip.compress(b"\0" * 40_000_000))
    lax = (Objective("default", availability_percent=0.1, min_coverage_percent=0.0),)

    def verdicts() -> list[str]:
        data = report(spark, tmp_path, day=second, objectives=lax, windows=(2,))
        of_two = [row["verdict"] for row in data.clusters if row["days"] == 2]
        return [data.judged_windows[0].verdict, *of_two, *data.past_left_out]

    report(spark, tmp_path, day=first, objectives=lax, windows=(2,))
    assert verdicts() == ["insufficient data", "insufficient data", str(first.date)]
    bomb.write_bytes(b"")
    report(spark, tmp_path, day=first, objectives=lax, windows=(2,))
    assert verdicts() == ["met", "met"]


def test_a_month_that_is_breached_decides_the_exit_code(
    spark: SparkSession, tmp_path: Path
) -> None:
    """25 s bad of ten minutes, and of the 0.1 % of the month of which the rest is unknown."""
    write_dump(tmp_path / "dumps", with_outage())
    found = {}
    for percent in (99.9, 99.9999):
        objective = Objective("default", availability_percent=percent)
        others = {"calendars": ("month",), "timezone": "Europe/Berlin", "exit_policy": "window"}
        data = report(spark, tmp_path, objectives=(objective,), windows=(90,), **others)
        (_, month) = data.judged_windows
        found[percent] = (month.name.text, month.is_final, month.verdict)
        (cluster,) = (row for row in data.clusters if row["days"] == 1)
        assert [one["verdict"] for one in cluster["calendar"]] == [month.verdict]
    assert found == {
        99.9: ("2026-03", False, "insufficient data"),
        99.9999: ("2026-03", False, "breached"),
    }
    assert data.exit_code == 1
