"""Every criterion: breached, met, not judged, and what happens to figures that are null."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from spark.result_tables import METADATA_TYPE
from spark.verdicts import budget_s, judged, worst, worst_of
from tests.spark.segment_rows_builder import rows_frame

B, I, M = "breached", "insufficient data", "met"  # noqa: E741 - as in the table below
COLUMNS = {
    "case": "int",
    "availability_percent": "double",
    "min_coverage_percent": "double",
    "lag_p99_seconds": "double",
    "sync_ok_percent": "double",
    "rpo_bytes": "bigint",
    "metadata_age_seconds": "double",
    "metadata_required": "boolean",
    "window_s": "double",
    "bad_s": "double",
    "unknown_s": "double",
    "coverage": "double",
    "availability": "double",
    "lag_ms_p99": "bigint",
    "metadata": METADATA_TYPE,
    "samples": "bigint",
    "unreplicated_bytes_max": "bigint",
    "sync_ok_ratio": "double",
    "sync_ok": "bigint",
    "sync_flush_slave_timeout": "bigint",
    "sync_slave_not_available": "bigint",
    "sync_flush_disk_timeout": "bigint",
}
GOOD: dict[str, Any] = {
    "availability_percent": 99.9,
    "min_coverage_percent": 99.0,
    "metadata_required": False,
    "window_s": 86_400.0,
    "bad_s": 0.0,
    "unknown_s": 0.0,
    "coverage": 1.0,
    "availability": 1.0,
    "samples": 17_280,
}
LITTLE = {"coverage": 0.5, "unknown_s": 43_200.0}
NOTHING = {"coverage": 0.0, "unknown_s": 86_400.0, "availability": None, "samples": None}
THOUSAND = {"sync_flush_slave_timeout": 1, "sync_slave_not_available": 0}
THOUSAND |= {"sync_flush_disk_timeout": 0, "sync_ok": 999}


def kind(max_age_ms: int | None, covered_s: float = 86_400.0) -> tuple[Any, ...]:
    return ("topics", max_age_ms, max_age_ms, 0, covered_s)


CASES: list[tuple[dict[str, Any], str, list[str]]] = [
    ({}, M, ["availability 100 %, objective 99.9 %: 0 s bad of 86.4 s allowed"]),
    (
        {"bad_s": 86.4, "availability": 0.999},
        M,
        ["availability 99.9 %, objective 99.9 %: 86.4 s bad of 86.4 s allowed"],
    ),
    (
        {"bad_s": 86.401, "availability": 0.99899999},
        B,
        ["availability 99.899 % < 99.9 %: 86.401 s bad of 86.4 s allowed"],
    ),
    (LITTLE, I, ["coverage 50 % < 99 %: 12 h unknown"]),
    ({"coverage": 0.99, "unknown_s": 864.0}, M, ["availability 100 %"]),
    ({"coverage": 0.98999, "unknown_s": 864.9}, I, ["coverage 98.999 % < 99 %"]),
    (
        LITTLE | {"bad_s": 100.0, "availability": 0.99768},
        B,
        ["availability 99.768 % < 99.9 %: 100 s bad of 86.4 s allowed"],
    ),
    (NOTHING, I, ["coverage 0 % < 99 %: 1 d unknown"]),
    (dict.fromkeys(GOOD), I, ["coverage 0 % < unknown %: unknown unknown"]),
    # lag p99
    ({"lag_p99_seconds": 2.0, "lag_ms_p99": 2_000}, M, ["availability", "lag p99 2 s, objective"]),
    ({"lag_p99_seconds": 2.0, "lag_ms_p99": 2_001}, B, ["lag p99 2.001 s > 2 s"]),
    (LITTLE | {"lag_p99_seconds": 2.0, "lag_ms_p99": 0}, I, ["coverage 50 %"]),
    # A share of the little that is known proves nothing.
    (LITTLE | {"lag_p99_seconds": 2.0, "lag_ms_p99": 2_001}, I, ["coverage 50 %"]),
    (
        {"coverage": 0.0007, "unknown_s": 86_340.0, "lag_p99_seconds": 2.0, "lag_ms_p99": 20_000},
        I,
        ["coverage 0.07 %"],
    ),
    ({"lag_p99_seconds": 2.0}, I, ["lag p99 not known, objective 2 s"]),
    # sync ok
    (THOUSAND | {"sync_ok_percent": 99.9, "sync_ok_ratio": 0.999}, M, ["availability", "sync ok"]),
    (
        THOUSAND | {"sync_ok_percent": 99.95, "sync_ok_ratio": 0.999},
        B,
        ["sync ok 99.9 % < 99.95 %: 1 of 1000 sends failed"],
    ),
    ({"sync_ok_percent": 99.9}, M, ["availability"]),  # nobody sent synchronously
    (LITTLE | {"sync_ok_percent": 99.9}, I, ["coverage"]),
    (
        NOTHING | {"sync_ok_percent": 99.9},
        I,
        ["coverage 0 %", "sync ok not known, objective 99.9 %"],
    ),
    (LITTLE | THOUSAND | {"sync_ok_percent": 99.9, "sync_ok_ratio": 0.999}, I, ["coverage"]),
    (LITTLE | THOUSAND | {"sync_ok_percent": 99.95, "sync_ok_ratio": 0.999}, I, ["coverage"]),
    # RPO
    ({"rpo_bytes": 100, "unreplicated_bytes_max": 100}, M, ["availability", "unreplicated"]),
    (
        {"rpo_bytes": 100, "unreplicated_bytes_max": 101},
        B,
        ["unreplicated at worst 101 bytes > 100 bytes"],
    ),
    ({"rpo_bytes": 0, "unreplicated_bytes_max": 0}, M, ["availability", "unreplicated at worst 0"]),
    ({"rpo_bytes": 100}, I, ["unreplicated bytes not known, objective 100 bytes"]),
    (LITTLE | {"rpo_bytes": 100, "unreplicated_bytes_max": 1}, I, ["coverage"]),
    # One moment above the limit is proof enough.
    (LITTLE | {"rpo_bytes": 0, "unreplicated_bytes_max": 1}, B, ["unreplicated", "coverage"]),
    # metadata age
    (
        {"metadata_age_seconds": 60.0, "metadata": [kind(60_000), kind(5)]},
        M,
        ["availability", "metadata age 60 s, objective 60 s"],
    ),
    (
        {"metadata_age_seconds": 60.0, "metadata": [kind(5), kind(60_001)]},
        B,
        ["metadata age 60.001 s > 60 s"],
    ),
    ({"metadata_age_seconds": 60.0}, M, ["availability"]),  # no dump of the slave, none asked for
    ({"metadata_age_seconds": 60.0, "metadata": []}, M, ["availability"]),
    (
        {"metadata_age_seconds": 60.0, "metadata_required": True},
        I,
        ["metadata age not known for the whole day, objective 60 s"],
    ),
    ({"metadata_age_seconds": 60.0, "metadata_required": True, "metadata": []}, I, ["metadata"]),
    ({"metadata_required": True}, M, ["availability"]),  # the criterion is not set
    ({"metadata_age_seconds": 60.0, "metadata": [kind(5), kind(None)]}, I, ["metadata age not"]),
    ({"metadata_age_seconds": 60.0, "metadata": [kind(70_000), kind(None)]}, B, ["metadata age"]),
    ({"metadata_age_seconds": 60.0, "metadata": [kind(5, 43_200.0)]}, I, ["metadata age not"]),
    (LITTLE | {"metadata_age_seconds": 60.0, "metadata": [kind(5)]}, I, ["coverage"]),
    # the worst counts, breaches are told first
    (
        LITTLE | {"rpo_bytes": 1, "unreplicated_bytes_max": 2, "lag_p99_seconds": 1.0},
        B,
        ["unreplicated", "coverage", "lag p99 not known"],
    ),
]


@pytest.mark.slow
def test_every_criterion(spark: SparkSession) -> None:
    rows = [GOOD | fields | {"case": case} for case, (fields, _, _) in enumerate(CASES)]
    frame = rows_frame(spark, rows, COLUMNS)
    budget = budget_s(fn.col("availability_percent"), fn.col("window_s"))
    found = {row.case: row for row in judged(frame.withColumn("budget_s", budget)).collect()}
    for case, (fields, verdict, reasons) in enumerate(CASES):
        row = found[case]
        assert row.verdict == verdict, fields
        assert len(row.reasons) == len(reasons), (fields, row.reasons)
        for text, begin in zip(row.reasons, reasons, strict=True):
            assert text.startswith(begin), fields


@pytest.mark.slow
def test_the_worst_verdict_of_a_group(spark: SparkSession) -> None:
    groups: dict[str, list[str | None]] = {"all": [M, I, B], "gap": [M, I], "met": [M, M]}
    groups["no"] = [None]
    rows = [{"group": name, "verdict": verdict} for name in groups for verdict in groups[name]]
    frame = rows_frame(spark, rows, {"group": "string", "verdict": "string"})
    found = frame.groupBy("group").agg(worst(fn.col("verdict")).alias("verdict")).collect()
    worsts = {row["group"]: row["verdict"] for row in found}
    assert worsts == {"all": B, "gap": I, "met": M, "no": I}


@pytest.mark.parametrize(
    ("verdicts", "verdict"), [([M, I, B], B), ([M, I], I), ([M, M], M), ([], I)]
)
def test_the_worst_of_collected_verdicts(verdicts: list[str], verdict: str) -> None:
    assert worst_of(verdicts) == verdict


@pytest.mark.slow
def test_a_budget_is_not_a_fraction_of_a_millisecond_off(spark: SparkSession) -> None:
    percents = (99.9, 99.99, 99.95, 99.0, 97.5)
    columns = [budget_s(fn.lit(percent), fn.lit(86_400.0)) for percent in percents]
    (row,) = spark.range(1).select(*columns).collect()
    assert list(row) == [86.4, 8.64, 43.2, 864.0, 2160.0]
