"""The demo's sentences are the program's: the README's picture shows what it can say."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from spark import wording
from spark.dump_lines import read_lines
from spark.dump_words import SYNC_RESULTS
from spark.events import events
from spark.result_tables import TABLES
from spark.samples import samples
from spark.schema import Day
from spark.verdicts import duration, judged
from tests.spark.demo_report import CLUSTER, DAY_MS, W0_MS, demo_objective, demo_report
from tests.spark.dump_lines_builder import Life, Line, processes, write_dump, write_file
from tests.spark.segment_rows_builder import rows_frame

pytestmark = pytest.mark.slow

DAY = Day(datetime.date(2026, 3, 14), W0_MS, W0_MS + DAY_MS)
OF_OBJECTIVE = {
    **dict.fromkeys(("availability_percent", "min_coverage_percent"), "double"),
    **dict.fromkeys(("lag_p99_seconds", "sync_ok_percent", "metadata_age_seconds"), "double"),
    "rpo_bytes": "bigint",
    "metadata_required": "boolean",
}
OF_GROUP = (
    *("samples", "unreplicated_bytes_max", "sync_ok_ratio"),
    *(f"sync_{name}" for name in SYNC_RESULTS),
)
OF_DAY = (
    *("broker", "replica", "window_s", "bad_s", "unknown_s", "coverage", "availability"),
    *("lag_ms_p99", "budget_s", "metadata"),
)


def test_verdicts_and_reasons(spark: SparkSession) -> None:
    demo = demo_report()
    groups: dict[str, Mapping[str, Any]] = {row["broker"]: row for row in demo.group_days}
    columns = {name: TABLES["replica_days"][name] for name in OF_DAY}
    columns |= {name: TABLES["group_days"][name] for name in OF_GROUP} | OF_OBJECTIVE
    # Without an objective for it the age of the metadata is not looked at.
    objective = {**demo_objective(), "metadata_required": False, "metadata": None}
    rows = []
    for row in demo.replica_days:
        fields = {**groups[row["broker"]], **row, **objective}
        rows.append({name: fields[name] for name in columns})
    found = {row.replica: row for row in judged(rows_frame(spark, rows, columns)).collect()}
    for row in demo.replica_days:
        said = found[row["replica"]]
        assert (row["verdict"], row["reasons"]) == (said.verdict, said.reasons)


def at(clock: str) -> int:
    moment = datetime.datetime.fromisoformat(f"2026-03-14T{clock}+00:00")
    return int(moment.timestamp() * 1000)


def broker_a() -> list[Line]:
    """Restarted with another setting."""
    life = Life(cluster=CLUSTER, broker="broker-a", start_ms=W0_MS - 3_600_000, seq=7)
    lines = life.lines(at("18:02:20"), 3, config="90c1be22a4f7")
    after = life.restarted(at("18:02:45"))
    return lines + after.lines(at("18:02:50"), 2, config="17d3550be1aa")


def broker_b() -> list[Line]:
    life = Life(cluster=CLUSTER, broker="broker-b", start_ms=W0_MS - 3_600_000, seq=7)
    return life.lines(at("03:20:05"), 1) + life.lines(
        at("03:20:10"), 1, processes=processes(ha_restarts=1)
    )


def test_events_and_bad_lines(spark: SparkSession, tmp_path: Path) -> None:
    demo = demo_report()
    (bad,) = demo.bad_lines
    write_dump(tmp_path, [*broker_a(), *broker_b()])
    write_file(tmp_path / bad["example_file"].removeprefix("/dumps/"), [bad["example_text"]])
    lines = read_lines(spark, [str(tmp_path)], DAY)
    try:
        (row,) = lines.bad.collect()
        assert (row.reason, row.text) == (bad["reason"], bad["example_text"])
        assert row.file == bad["example_file"].replace("/dumps", str(tmp_path))
        rows = events(samples(lines, DAY), DAY).collect()
    finally:
        lines.release()
    found = sorted(tuple(row[name] for name in TABLES["events"]) for row in rows)
    assert found == sorted(tuple(row[name] for name in TABLES["events"]) for row in demo.events)


LENGTHS = (0.0, 0.5, 59.9, 59.96, 61.0, 600.0, 3599.7, 11_100.0, 31_680.0, 86_400.0, 187_200.0)


def test_a_reason_writes_times_as_the_page_does(spark: SparkSession) -> None:
    columns = [duration(fn.lit(seconds)).alias(str(i)) for i, seconds in enumerate(LENGTHS)]
    (row,) = spark.range(1).select(*columns, duration(fn.lit(None).cast("double"))).collect()
    assert [*row] == [*(wording.duration(s).replace("\u00a0", " ") for s in LENGTHS), None]
