"""Rows of the driver as frames: every value as it was, and nothing left where there is none."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark.local_frames import local_frame
from spark.result_tables import TABLES, ddl

COLUMNS = {"a": "string", "b": "double", "c": "int", "d": "bigint", "e": "boolean", "f": "string"}
ROWS = [
    ('x"é\\\n\u2028\t{}', 1.1e300, -(2**31), 2**63 - 1, True, ""),
    ("null", 0.1 + 0.2, 2**31 - 1, -(2**63), False, None),
    ("x", 10.0, None, 2**53 + 1, None, "😀"),
    (None, None, 0, None, None, None),
]


def test_values_are_those_that_were_given(spark: SparkSession) -> None:
    frame = local_frame(spark, COLUMNS, ROWS)
    assert frame.dtypes == list(COLUMNS.items())
    assert [tuple(row) for row in frame.collect()] == ROWS


@pytest.mark.parametrize("table", TABLES)
def test_a_frame_without_rows_has_its_columns(spark: SparkSession, table: str) -> None:
    frame = local_frame(spark, TABLES[table] | {"dt": "string"}, [])
    assert frame.schema == spark.createDataFrame([], ddl(table)).schema
    assert frame.collect() == []


def test_a_join_with_nothing_costs_nothing(spark: SparkSession) -> None:
    rows = spark.range(3)
    joined = rows.join(local_frame(spark, {"id": "bigint", "name": "string"}, []), "id", "left")
    assert sorted(map(tuple, joined.collect())) == [(0, None), (1, None), (2, None)]
    plan = joined._jdf.queryExecution().optimizedPlan().toString()  # type: ignore[operator]
    assert "Join" not in plan


def test_a_row_with_too_few_values_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="shorter"):
        local_frame(spark, COLUMNS, [("x",)])
