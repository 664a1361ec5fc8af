"""Collects from the stored results what one report shows: the final tables, as Python values.

The last stage of the pipeline, on the driver. Whatever has a row for each minute or hour is asked
for the plotted replicas only. Computes nothing that is not a count of rows.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from spark.dump_words import REPLICA
from spark.report_data import ReplicaKey, ReportData, Row, key_of, plotted_keys
from spark.result_tables import TABLES
from spark.results import Results
from spark.schema import Day
from spark.sla_config import SlaConfig
from spark.verdicts import worst_of

_HISTOGRAMS: Final = ("lag_ms_hist", "lag_bytes_hist")
_HISTORY_DAYS: Final = 30

_MOST_ROWS: Final = 100_000
"""Of incidents and of events: more than anybody reads, and what the driver can hold."""


def report_data(results: Results, day: Day, sla: SlaConfig) -> ReportData:
    """The report of a date whose tables are in place."""
    date = str(day.date)
    stored = results.read("replica_days", [date])
    plain = _rows(_without_histograms(stored))
    is_plotted = is_one_of(plotted_keys(plain))
    replica_days = _with_histograms(plain, stored.where(is_plotted))
    incidents, events = (results.read(table, [date]) for table in ("incidents", "events"))
    dates = dates_until(day.date, _HISTORY_DAYS)
    days = results.read("replica_days", dates).select(
        *REPLICA, "dt", "good_s", "bad_s", "unknown_s"
    )
    used = {row["objective"] for row in replica_days}
    return ReportData(
        date=date,
        w0_ms=day.w0_ms,
        w1_ms=day.w1_ms,
        verdict=worst_of(row.verdict for row in results.read("reports", [date]).collect()),
        replica_days=replica_days,
        group_days=_rows(_without_histograms(results.read("group_days", [date]))),
        windows=_rows(_without_histograms(results.read("windows", [date]))),
        group_windows=_rows(results.read("group_windows", [date])),
        clusters=_rows(results.read("clusters", [date])),
        incidents=_rows(first_rows(incidents, fn.desc("bad_s"), "start_ms", *REPLICA)),
        events=_rows(first_rows(events, "ts", *TABLES["events"])),
        bad_lines=_rows(_by_reason(results.read("bad_lines", [date]))),
        minutes=_rows(results.read("minutes", [date]).where(is_plotted)),
        hours=_rows(results.read("hours", dates).where(is_plotted)),
        days=_rows(days.where(is_plotted)),
        objectives=[asdict(item) for item in sla.objectives if item.name in used],
        window_days=sla.windows,
        totals={"incidents": incidents.count(), "events": events.count()},
        exit_on=sla.exit_policy,
    )


def dates_until(date: datetime.date, count: int) -> list[str]:
    """The `count` dates that end with `date`."""
    return [str(date - datetime.timedelta(days=back)) for back in range(count)]


def _rows(frame: DataFrame) -> list[Row]:
    """Collected, in an order that does not depend on how Spark computed them."""
    rows: list[Row] = [row.asDict(recursive=True) for row in frame.collect()]
    order = [name for name in _ORDER if name in frame.columns]
    return sorted(rows, key=lambda row: [_sortable(row[name]) for name in order])


_ORDER: Final = (
    *("cluster", "broker", "replica", "days", "dt", "number", "minute", "hour", "ts"),
    *("broker_id", "kind", "reason", "text"),
)


def _sortable(value: Any) -> tuple[bool, Any]:
    return (value is not None, value if value is not None else 0)


def is_one_of(keys: Sequence[ReplicaKey]) -> Column:
    """Whether a row is about one of these few; a join would be a job more for every table."""
    names = (fn.struct(*map(fn.lit, key)) for key in keys)
    return fn.struct(*REPLICA).isin(*names) if keys else fn.lit(False)


def _without_histograms(frame: DataFrame) -> DataFrame:
    return frame.drop(*(name for name in frame.columns if name.endswith("_hist")))


def _with_histograms(rows: Iterable[Row], frame: DataFrame) -> list[Row]:
    """The rows, with the histograms of those that the frame has."""
    found = {key_of(row): row for row in _rows(frame.select(*REPLICA, *_HISTOGRAMS))}
    return [{**row, **found.get(key_of(row), {})} for row in rows]


def first_rows(frame: DataFrame, *order: Column | str, count: int = _MOST_ROWS) -> DataFrame:
    """So many rows in a total order: always the same ones."""
    return frame.orderBy(*order).limit(count)


def _by_reason(bad_lines: DataFrame) -> DataFrame:
    """How many lines of how many files, with one example each."""
    example = fn.min(fn.struct("file", "text")).alias("example")
    counted = bad_lines.groupBy("reason").agg(
        fn.count("*").alias("lines"), fn.count_distinct("file").alias("files"), example
    )
    return counted.select(
        "reason",
        "lines",
        "files",
        fn.col("example.file").alias("example_file"),
        fn.col("example.text").alias("example_text"),
    )
