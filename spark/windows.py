"""The last 7 and 30 days of each replica of D: from the stored days, never from samples.

A stage of the pipeline, on the driver; small tables only. Sums are sums of the days' sums, lag
percentiles come from the days' histograms. Days without a stored result are unknown time. Knows
docs/sla_report.md ("Service level"), no dump and no path.
"""

from __future__ import annotations

import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from spark.incidents import sum_of_seconds
from spark.schema import REPLICA
from spark.verdicts import availability_verdict, budget_s

WINDOW_DAYS: Final = (7, 30)
DAY_S: Final = 86_400
_PERMILLES: Final = {"p50": 500, "p99": 990, "p999": 999}
_LAST_DATE: Final = datetime.date(9999, 12, 31)


def windows(days: DataFrame, objectives: DataFrame, date: str) -> DataFrame:
    """One row for each replica that D has and each of 7 and 30 days.

    `days`: rows of replica_days of D and of the 29 days before it (others are left out), with
    `dt`; `objectives`: `name`, `availability_percent`, `min_coverage_percent`.
    """
    today = days.where(fn.col("dt") == date).select(
        *REPLICA, "objective", fn.col("window_s").alias("_w")
    )
    back = fn.date_diff(fn.lit(date).cast("date"), fn.col("dt").cast("date"))
    spans = (
        days.drop("objective")
        .withColumn("_back", back)
        .join(today.drop("objective", "_w"), list(REPLICA), "left_semi")
        .withColumn("days", fn.explode(fn.array(*(fn.lit(n) for n in WINDOW_DAYS))))
        .where((fn.col("_back") >= 0) & (fn.col("_back") < fn.col("days")))
    )
    lags = _lag_percentiles(spans)
    rows = (
        today.join(_sums(spans), list(REPLICA))
        .join(objectives.withColumnRenamed("name", "objective"), "objective", "left")
        .join(lags, [*REPLICA, "days"], "left")
    )
    # D itself may be a part of a day; whatever is not stored of the days before is unknown.
    rows = rows.withColumn("_length_s", (fn.col("days") - 1) * DAY_S + fn.col("_w"))
    return _with_figures(rows, date)


def _sums(spans: DataFrame) -> DataFrame:
    known = (fn.col("good_s") + fn.col("bad_s")) > 0
    return spans.groupBy(*REPLICA, "days").agg(
        fn.count_if(known).cast("int").alias("days_with_data"),
        fn.count_if(known & (fn.col("_back") < 7)).alias("_known_of_7"),
        sum_of_seconds(fn.col("good_s")).alias("good_s"),
        sum_of_seconds(fn.col("bad_s")).alias("bad_s"),
        sum_of_seconds(fn.when(fn.col("_back") < 7, fn.col("bad_s"))).alias("_bad_of_7"),
        fn.max("lag_ms_max").alias("lag_ms_max"),
        fn.max("lag_bytes_max").alias("lag_bytes_max"),
        fn.sum("incidents").alias("incidents"),
        fn.sum("incidents_ended").alias("_ended"),
        sum_of_seconds(fn.col("incident_ended_s")).alias("_ended_s"),
    )


def _with_figures(rows: DataFrame, date: str) -> DataFrame:
    known = fn.round(fn.col("good_s") + fn.col("bad_s"), 3)
    budget = budget_s(fn.col("availability_percent"), fn.col("_length_s"))
    rows = rows.withColumns(
        {
            "unknown_s": fn.greatest(fn.col("_length_s") - known, fn.lit(0.0)),
            "coverage": known / fn.col("_length_s"),
            "availability": fn.when(known > 0, fn.col("good_s") / known),
            "mttr_s": fn.when(fn.col("_ended") > 0, fn.col("_ended_s") / fn.col("_ended")),
            "mtbf_s": fn.when(fn.col("incidents") > 0, fn.col("good_s") / fn.col("incidents")),
            "budget_s": budget,
            "budget_left_s": budget - fn.col("bad_s"),
            "budget_used_ratio": fn.when(budget > 0, fn.col("bad_s") / budget),
            "verdict": availability_verdict(
                fn.col("bad_s"), budget, known / fn.col("_length_s"), fn.col("min_coverage_percent")
            ),
        }
    )
    figures = {
        f"{lag}_{name}": _bucket_end(fn.col(f"_{lag}_{name}"), fn.col(f"{lag}_max"))
        for lag in ("lag_ms", "lag_bytes")
        for name in _PERMILLES
    }
    maxima = {f"{lag}_max": fn.col(f"{lag}_max").cast("double") for lag in ("lag_ms", "lag_bytes")}
    return rows.withColumns({**figures, **maxima, "forecast": _forecast(date)})


def _forecast(date: str) -> Column:
    """When the budget of 30 days is used up if the last 7 days go on: null, `exhausted`, a date."""
    last_days = (_LAST_DATE - datetime.date.fromisoformat(date)).days
    left = fn.col("budget_left_s")
    rate = fn.when(fn.col("_known_of_7") > 0, fn.col("_bad_of_7") / fn.col("_known_of_7"))
    days = fn.when(rate > 0, fn.floor(left / rate))
    end = fn.date_add(fn.lit(date).cast("date"), days.cast("int")).cast("string")
    return fn.when(
        fn.col("days") == 30,
        fn.when((left <= 0) & (fn.col("bad_s") > 0), fn.lit("exhausted")).otherwise(
            fn.when(days <= last_days, end)
        ),
    )


def _lag_percentiles(spans: DataFrame) -> DataFrame:
    """`_lag_ms_p50` and so on: buckets of the merged histograms; null without lag."""
    parts = []
    for lag in ("lag_ms", "lag_bytes"):
        parts.append(
            spans.select(
                *REPLICA,
                "days",
                fn.lit(lag).alias("_lag"),
                fn.explode(f"{lag}_hist").alias("_bucket", "_ms"),
            )
        )
    merged = (
        parts[0]
        .unionAll(parts[1])
        .groupBy(*REPLICA, "days", "_lag", "_bucket")
        .agg(fn.sum("_ms").alias("_ms"))
    )
    of_replica = ", ".join((*REPLICA, "days", "_lag"))
    ranked = merged.withColumns(
        {
            "_up_to": fn.expr(f"sum(_ms) OVER (PARTITION BY {of_replica} ORDER BY _bucket)"),
            "_all": fn.expr(f"sum(_ms) OVER (PARTITION BY {of_replica})"),
        }
    ).where("_all > 0")
    figures = []
    for lag in ("lag_ms", "lag_bytes"):
        for name, permille in _PERMILLES.items():
            # Whole numbers: 0.99 of them as a double may come out above the exact share.
            reached = (fn.col("_lag") == lag) & (
                fn.col("_up_to") * 1000 >= fn.col("_all") * permille
            )
            figures.append(fn.min(fn.when(reached, fn.col("_bucket"))).alias(f"_{lag}_{name}"))
    return ranked.groupBy(*REPLICA, "days").agg(*figures)


def _bucket_end(bucket: Column, largest: Column) -> Column:
    """The value that a histogram's bucket stands for: its upper end, never above the largest."""
    end = fn.when(bucket == 0, fn.lit(0.0)).otherwise(fn.pow(fn.lit(1.02), bucket))
    return fn.when(bucket.isNotNull(), fn.least(end, largest.cast("double")))
