"""Frames of the few rows that the driver has: names, objectives, or none at all.

Called on the driver. `createDataFrame` sends its rows through a Python worker, which costs a small
report more than its samples do; Spark takes these for a constant. Joins and unions with a frame
without rows are left out when a query is planned. Knows nothing of reports.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn


def local_frame(
    spark: SparkSession, columns: Mapping[str, str], rows: Iterable[Sequence[Any]]
) -> DataFrame:
    """`rows` in the order of `columns`: name -> Spark SQL type. Values: None, bool, int, float and
    text; columns of other types are for frames without rows."""
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    one = spark.range(0, 1, 1, 1)
    if not found:
        # No array without elements: then Spark would not see that there is nothing.
        nulls = (fn.lit(None).cast(kind).alias(name) for name, kind in columns.items())
        return one.where(fn.lit(False)).select(*nulls)
    fields = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    return one.select(
        fn.inline(fn.from_json(fn.lit(json.dumps(found)), f"array<struct<{fields}>>"))
    )
