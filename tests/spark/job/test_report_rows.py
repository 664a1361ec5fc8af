"""Which rows of the tables a report takes: of the plotted replicas, and the first ones."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.figures.report_data import MAX_PLOTTED
from spark.job.report_rows import first_rows, in_order, is_one_of, of_some

EVERY = [("c", f"b{number}", f"b{number}:{slave}") for number in range(20) for slave in (1, 2)]
NAMES = ("cluster", "broker", "replica")


@pytest.mark.parametrize("count", [1, MAX_PLOTTED])
def test_rows_of_some_replicas(spark: SparkSession, count: int) -> None:
    """Of each the cluster, the broker and the replica have to be the same."""
    wanted = EVERY[-count:]
    rows = [*EVERY, *(("other", broker, replica) for _, broker, replica in wanted)]
    frame = spark.createDataFrame(rows, "cluster string, broker string, replica string")
    assert [tuple(row) for row in frame.where(is_one_of(wanted)).collect()] == wanted
    computed = [dict(zip(NAMES, row, strict=True)) for row in rows]
    assert [tuple(row.values()) for row in of_some(computed, set(wanted))] == wanted


def test_of_too_many_rows_the_worst_are_taken() -> None:
    """In a total order: whatever order they come in, the same ones."""
    values = [("a", 5, 1.0), ("b", 5, 1.0), ("c", 1, 9.0), ("a", 4, 1.0), ("d", 9, 0.5)]
    columns = ("replica", "start_ms", "bad_s")
    rows: list[dict[str, Any]] = [dict(zip(columns, row, strict=True)) for row in values]
    expected = [rows[0], rows[3], rows[2]]
    for order in itertools.permutations(rows):
        worst = first_rows(order, "-bad_s", "start_ms", "replica", count=3)
        assert sorted(worst, key=rows.index) == sorted(expected, key=rows.index)


def test_rows_are_in_one_order_with_unknown_values_first() -> None:
    rows = [{"broker": "b", "ts": ts} for ts in (2, None, 1)]
    assert [row["ts"] for row in in_order(rows)] == [None, 1, 2]
    assert in_order([]) == []
