"""One date computed by the Spark program and by the plain one, and the two compared.

The tables of both are lists of dictionaries with the columns of the Parquet results.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark.config.exclusions import Exclusion
from spark.config.objectives import ConsumerLag, Objective, ReplicaName, ReplicaPattern, SlaConfig
from spark.job.sla_report import ReportRequest, run
from spark.reported_day import Day
from tests.spark.core_tables import core_tables
from tests.spark.plain_report import plain_report
from tests.spark.plain_samples import Json, Tables, Window
from tests.spark.plain_verdicts import PlainObjective, PlainQuestion

KEYS = {
    "replica_days": ("cluster", "broker", "replica"),
    "group_days": ("cluster", "broker"),
    "windows": ("cluster", "broker", "replica", "days"),
    "group_windows": ("cluster", "broker", "days"),
    "clusters": ("cluster", "days"),
    "incidents": ("cluster", "broker", "replica", "number"),
    "minutes": ("cluster", "broker", "replica", "minute"),
    "hours": ("cluster", "broker", "replica", "hour"),
    "events": ("cluster", "broker", "ts", "broker_id", "kind", "text"),
    "elections": ("cluster", "broker", "epoch"),
    "consumer_lag": ("cluster", "broker", "consumer_group", "topic"),
    "reports": ("w0_ms",),
    "bad_lines": ("file", "text"),
}
NOT_PLAIN = ("events", "reports")
"""Tables that the plain program does not make: texts, and a summary of others."""
ONLY_SPARK = {
    "replica_days": {"dt", "late", "first_received", "reasons", "revision", "input_digest"},
    "group_days": {"dt", "revision", "two_masters"},
    "windows": {"dt", "late"},
    "group_windows": {"dt"},
    # Calendar periods: tests/spark/figures/test_cluster_calendar.py has their truth.
    "clusters": {"dt", "calendar"},
    "incidents": {"dt"},
    "elections": {"dt"},
    "consumer_lag": {"dt", "reasons"},
    "minutes": {"dt"},
    "hours": {"dt"},
    "bad_lines": {"dt", "reason"},
}
"""Columns that the plain program does not have."""


class Question(PlainQuestion):
    """What is asked of both programs."""

    def on(self, window: Window) -> Question:
        """The same for another date."""
        return dataclasses.replace(self, window=window)


class QuietProgress:
    """Tells nobody how far the report is."""

    def stage(self, name: str, number: int, count: int) -> None:
        """The stage `number` begins."""


def _sla(question: Question) -> SlaConfig:
    return SlaConfig(
        tuple(map(_objective, question.objectives)),
        tuple(ReplicaName(*key) for key in question.expect),
        tuple(ReplicaPattern(*key) for key in question.retired),
        question.lengths,
        exclusions=tuple(
            Exclusion(patterns, reason, once_ms=(from_ms, to_ms))
            for patterns, from_ms, to_ms, reason in question.exclusions
        ),
    )


def _objective(plain: PlainObjective) -> Objective:
    promises = plain.consumer_lag and tuple(
        ConsumerLag(**dataclasses.asdict(each)) for each in plain.consumer_lag
    )
    return Objective(**dataclasses.asdict(plain) | {"consumer_lag": promises})


def _day(question: Question) -> Day:
    return Day(question.window.date, question.window.w0, question.window.w1)


def core_tables_of(question: Question, history: Sequence[Tables] = ()) -> Tables:
    """The tables about groups by the product's own functions, without Spark."""
    return core_tables(question.dumps, _day(question), _sla(question), history)


def spark_tables(spark: SparkSession, question: Question, out: Path) -> Tables:
    """Runs the Spark program into `out` and reads what it wrote for the date."""
    window = question.window
    dumps = [str(path) for path in question.dumps]
    request = ReportRequest(_day(question), dumps, str(out), _sla(question))
    run(spark, request, QuietProgress().stage)
    return read_tables(spark, out, window.date)


def read_tables(spark: SparkSession, out: Path, date: datetime.date) -> Tables:
    """The final tables of a date, as they lie in Parquet."""
    return {name: read_table(spark, out, name, date) for name in KEYS}


def read_table(spark: SparkSession, out: Path, name: str, date: datetime.date) -> list[Json]:
    """One of them; empty where the date has no rows."""
    partition = out / "parquet" / name / f"dt={date}"
    if not any(partition.glob("*.parquet")):
        return []
    rows = [row.asDict(recursive=True) for row in spark.read.parquet(str(partition)).collect()]
    return sorted(rows, key=lambda row: [row[column] for column in KEYS[name]])


def plain_tables(question: Question, history: list[Tables] | None = None) -> Tables:
    """The same by the plain program: needs no Spark, and gives `history` for further dates."""
    return plain_report(question, history)


def differences(spark: Tables, plain: Tables) -> list[str]:
    """Every value that differs, one line each: empty when all is equal."""
    found: list[str] = []
    for table, key_columns in KEYS.items():
        if table in NOT_PLAIN:
            continue
        ours, theirs = (_by_key(tables[table], key_columns, table) for tables in (spark, plain))
        found += [f"{table} {key}: only in Spark's" for key in ours.keys() - theirs.keys()]
        found += [f"{table} {key}: only in the plain one" for key in theirs.keys() - ours.keys()]
        for key in sorted(ours.keys() & theirs.keys()):
            found += [f"{table} {key} {text}" for text in _unequal(table, ours[key], theirs[key])]
    return found


def _by_key(rows: Iterable[Json], columns: Sequence[str], table: str) -> dict[Any, Json]:
    if table == "bad_lines":
        rows = [row | {"file": str(row["file"]).rpartition("/")[2]} for row in rows]
        return {(row["file"], row["text"][:1000]): row for row in rows}
    found = {tuple(row[column] for column in columns): row for row in rows}
    assert len(found) == len(list(rows)), f"a key comes twice in {table}"
    return found


def _unequal(table: str, spark: Json, plain: Json) -> list[str]:
    only_spark, only_plain = spark.keys() - plain.keys(), plain.keys() - spark.keys()
    only_spark -= ONLY_SPARK[table]
    if table == "group_days" and not plain["samples"]:
        # The plain program says nothing else of a group without samples.
        found = [f"{name} is {spark[name]!r}" for name in only_spark if spark[name] is not None]
    else:
        found = [f"column {name} only in Spark's" for name in only_spark]
    found += [f"column {name} only in the plain one" for name in only_plain]
    if table == "bad_lines":
        return found
    for name in sorted(spark.keys() & plain.keys()):
        if not same(spark[name], plain[name]):
            found.append(f"{name}: Spark {spark[name]!r}, plain {plain[name]!r}")
    return found


def same(one: Any, other: Any) -> bool:
    """Equal; floats within 1e-9 of their size (and of 1 us, where sums of floats end near 0)."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) or isinstance(other, float):
        if one is None or other is None:
            return one is other
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)
    return bool(one == other)
