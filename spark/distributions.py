"""What figures are made of: percentiles of values that are weighted by time, histograms of them,
buckets of latencies, sums of which the order of the rows changes nothing.

Frames and columns for the figures of a day (spark/figures.py) and of several (spark/windows.py),
evaluated in the executors. The rules are in docs/sla_report.md; it must not know samples, days or
objectives.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from spark.dump_words import SYNC_RESULTS
from spark.result_tables import HISTOGRAM_BASE

_ACK_QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


NANOSECONDS: Final = 1_000_000_000
MILLISECONDS: Final = 1_000


def exact_sum(values: Column, parts: int) -> Column:
    """Aggregate: a sum of doubles, each rounded to whole parts (so many make 1); the same whatever
    the order of the rows."""
    return fn.sum(fn.floor(values * parts + 0.5).cast("decimal(19,0)")).cast("double") / parts


def ranked(values: DataFrame, key: Sequence[str]) -> DataFrame:
    """Distinct values of each key with `weight`, `_up_to` (the weight of those up to it), `_all`.

    `values`: key, value, weight; what has no value or no weight is left out."""
    known = values.where(fn.col("value").isNotNull() & (fn.col("weight") > 0))
    in_order = Window.partitionBy(*key).orderBy("value")
    whole = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    return (
        known.groupBy(*key, "value")
        .agg(fn.sum("weight").alias("weight"))
        .withColumns(
            {
                "_up_to": fn.sum("weight").over(
                    in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
                ),
                "_all": fn.sum("weight").over(whole),
            }
        )
    )


def percentiles(names: Mapping[str, int]) -> list[Column]:
    """Aggregates over ranked rows: the smallest value up to which lies at least that share
    (thousandths) of the weight. Whole numbers: 0.99 as a double may come out above the share."""
    reached = {name: fn.col("_up_to") * 1000 >= fn.col("_all") * n for name, n in names.items()}
    return [fn.min(fn.when(is_it, fn.col("value"))).alias(name) for name, is_it in reached.items()]


def bucket_of(value: Column) -> Column:
    """The bucket of a value in a histogram."""
    bucket = 1 + fn.floor(fn.log(value) / fn.log(fn.lit(HISTOGRAM_BASE))).cast("int")
    return fn.when(value < 1, 0).otherwise(bucket)


def _bucket_end(bucket: Column, largest: Column) -> Column:
    """The value that a bucket stands for: its upper end, never above the largest."""
    end = fn.when(bucket == 0, fn.lit(0.0)).otherwise(fn.pow(fn.lit(HISTOGRAM_BASE), bucket))
    return fn.when(bucket.isNotNull(), fn.least(end, largest.cast("double")))


def histogram(bucket: str, weight: str) -> Column:
    """Aggregate: a map of buckets, each of which comes once, to their weights."""
    return fn.map_from_entries(fn.sort_array(fn.collect_list(fn.struct(bucket, weight))))


def merged_histograms(
    rows: DataFrame, key: Sequence[str], measures: Sequence[str], names: Mapping[str, int]
) -> DataFrame:
    """Of each key and measure: `<measure>_max`, `<measure>_<name>` of `names`, `<measure>_hist`.

    `rows`: key, `<measure>_max`, `<measure>_hist`. A percentile is the upper end of a bucket of the
    histograms added up; null when a row that has a largest value lacks its histogram.
    """
    stored = fn.array(
        *(
            fn.struct(fn.lit(measure).alias("_measure"), fn.col(f"{measure}_hist").alias("_hist"))
            for measure in measures
        )
    )
    every = rows.select(*key, fn.inline(stored)).select(
        *key, "_measure", fn.explode("_hist").alias("value", "weight")
    )
    by_measure = (
        ranked(every, (*key, "_measure"))
        .groupBy(*key, "_measure")
        .agg(*percentiles(names), histogram("value", "weight").alias("hist"))
    )
    found = by_measure.groupBy(*key).agg(
        *(
            _of_measure(measure, column).alias(f"_{measure}_{column}")
            for measure in measures
            for column in (*names, "hist")
        )
    )
    largest = rows.groupBy(*key).agg(
        *(fn.max(f"{measure}_max").alias(f"{measure}_max") for measure in measures),
        *(
            fn.bool_or(
                fn.col(f"{measure}_max").isNotNull() & fn.col(f"{measure}_hist").isNull()
            ).alias(f"_{measure}_lacks")
            for measure in measures
        ),
    )
    joined = largest.join(found, list(key), "left")
    figures = {
        f"{measure}_{name}": fn.when(
            ~fn.col(f"_{measure}_lacks"),
            _bucket_end(fn.col(f"_{measure}_{name}"), fn.col(f"{measure}_max")),
        )
        for measure in measures
        for name in names
    }
    histograms = {f"{measure}_hist": fn.col(f"_{measure}_hist") for measure in measures}
    joined = joined.withColumns(figures | histograms)
    return joined.drop(*(name for name in joined.columns if name.startswith("_")))


def _of_measure(measure: str, column: str) -> Column:
    """Aggregate: the column in the one row of this measure."""
    is_it = fn.col("_measure") == measure
    return fn.first(fn.when(is_it, fn.col(column)), ignorenulls=True)


def send_count() -> Column:
    """All sends that had to wait, whatever became of them."""
    counts = [fn.col(f"sync_{result}") for result in SYNC_RESULTS]
    return functools.reduce(operator.add, counts)


def ack_figures(buckets: DataFrame, key: Sequence[str]) -> DataFrame:
    """`ack_le`, `ack_counts` and quantiles of each key.

    `buckets`: key, le (upper bound, infinite for the last one), count; equal bounds are added up.
    """
    in_order = Window.partitionBy(*key).orderBy("le")
    whole = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    rows = (
        buckets.groupBy(*key, "le")
        .agg(fn.sum("count").alias("count"))
        .withColumns(
            {
                "_lower": fn.coalesce(fn.lag("le").over(in_order), fn.lit(0.0)),
                "_up_to": fn.sum("count").over(in_order),
                "_all": fn.sum("count").over(whole),
            }
        )
    )
    finite = fn.col("le") < float("inf")
    return rows.groupBy(*key).agg(
        *(_ack_quantile(share).alias(f"ack_{name}_s") for name, share in _ACK_QUANTILES.items()),
        fn.sort_array(fn.collect_list(fn.when(finite, fn.col("le")))).alias("ack_le"),
        fn.sort_array(fn.collect_list(fn.struct("le", "count")))["count"].alias("ack_counts"),
    )


def ack_buckets(rows: DataFrame, key: Sequence[str], le: Column, counts: Column) -> DataFrame:
    """Key, le, count: a row for each bucket of each of `rows`."""
    bounds = fn.concat(le, fn.array(fn.lit(float("inf"))))
    pairs = fn.arrays_zip(bounds.alias("le"), counts.alias("count"))
    return rows.where(le.isNotNull()).select(*key, fn.inline(pairs))


def _ack_quantile(share: float) -> Column:
    """Linear within the first bucket that reaches the rank; the last bucket's lower bound."""
    rank = fn.col("_all") * share
    inside = (rank - (fn.col("_up_to") - fn.col("count"))) / fn.col("count")
    value = fn.when(
        fn.col("le") < float("inf"),
        fn.col("_lower") + (fn.col("le") - fn.col("_lower")) * inside,
    ).otherwise(fn.col("_lower"))
    reached = (fn.col("count") > 0) & (fn.col("_up_to") >= rank)
    return fn.min_by(value, fn.when(reached, fn.col("le")))
