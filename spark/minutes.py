"""Each replica's UTC minutes: good, bad and unknown time, lag and traffic; hours and burn rates.

A stage of the pipeline: native Spark SQL over segments (spark/segments.py) and stored minutes,
runs in the executors. The rules are in docs/sla_report.md; it must not know dumps or paths.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from spark.distributions import percentiles, ranked
from spark.dump_words import HOUR_MS, MINUTE_MS, REPLICA
from spark.result_tables import PERCENTILES, SPANS_S
from spark.schema import Day


def minutes(segments: DataFrame) -> DataFrame:
    """The rows of table `minutes`, without `dt`: every minute of the window of every replica."""
    # The minute of a sample itself may be another than those of the time it speaks for.
    told_in = fn.when((fn.col("kind") == "sample") & ~fn.col("in_head"), _floor(fn.col("ts")))
    first = fn.least(_floor(fn.col("start_ms")), told_in)
    last_ms = fn.greatest(fn.col("end_ms") - 1, fn.col("start_ms"))
    last = fn.greatest(_floor(last_ms), told_in)
    part_ms = fn.least("end_ms", fn.col("minute") + MINUTE_MS) - fn.greatest("start_ms", "minute")
    rows = (
        segments.withColumn("_told_in", told_in)
        .withColumn("minute", fn.explode(fn.sequence(first, last, fn.lit(MINUTE_MS))))
        .withColumn("_ms", fn.greatest(part_ms, fn.lit(0)))
    )
    is_told = fn.coalesce(fn.col("_told_in") == fn.col("minute"), fn.lit(False))
    takes_time = fn.col("_ms") > 0
    return rows.groupBy(*REPLICA, "minute").agg(
        *(
            fn.sum(fn.when(fn.col("quality") == quality, fn.col("_ms")).otherwise(0)).alias(
                f"{quality}_ms"
            )
            for quality in ("good", "bad", "unknown")
        ),
        fn.max(fn.when(takes_time, fn.col("lag_ms"))).alias("lag_ms_max"),
        fn.sum(fn.when(is_told, fn.coalesce("msgs_in", fn.lit(0))).otherwise(0)).alias("msgs_in"),
        fn.bool_or(is_told & fn.coalesce("written", fn.lit(False))).alias("written"),
    )


def _floor(ms: Column) -> Column:
    return ms - ms % MINUTE_MS


def minute_counts(minutes: DataFrame) -> DataFrame:
    """Of each replica: good, bad, unknown minutes, and those with writes."""
    known_half = fn.col("good_ms") * 2 >= fn.col("good_ms") + fn.col("bad_ms") + fn.col(
        "unknown_ms"
    )
    is_bad = fn.col("bad_ms") > 0
    is_good = ~is_bad & known_half
    return minutes.groupBy(*REPLICA).agg(
        fn.count_if(is_good).alias("minutes_good"),
        fn.count_if(is_bad).alias("minutes_bad"),
        fn.count_if(~is_bad & ~known_half).alias("minutes_unknown"),
        fn.count_if("written").alias("minutes_written"),
        fn.count_if(fn.col("written") & is_good).alias("minutes_written_good"),
    )


def hours(minutes: DataFrame, segments: DataFrame) -> DataFrame:
    """The rows of table `hours`, without `dt`: times are sums of D's `minutes`, the lag is the
    largest, and by time that of 99 % of the hour."""
    hour = fn.col("minute") - fn.col("minute") % HOUR_MS
    times = (
        fn.sum(f"{quality}_ms").alias(f"{quality}_ms") for quality in ("good", "bad", "unknown")
    )
    rows = minutes.groupBy(*REPLICA, hour.alias("hour")).agg(
        *times, fn.max("lag_ms_max").alias("lag_ms_max")
    )
    key = [*REPLICA, "hour"]
    of_lags = ranked(_lags_by_hour(segments), key)
    lags = of_lags.groupBy(*key).agg(*percentiles({"lag_ms_p99": PERCENTILES["p99"]}))
    return rows.join(lags, key, "left")


def _lags_by_hour(segments: DataFrame) -> DataFrame:
    """cluster, broker, replica, hour, value (lag, ms), weight (ms)."""
    known = segments.where(fn.col("lag_ms").isNotNull() & (fn.col("end_ms") > fn.col("start_ms")))
    first, last = (ms - ms % HOUR_MS for ms in (fn.col("start_ms"), fn.col("end_ms") - 1))
    hour = fn.explode(fn.sequence(first, last, fn.lit(HOUR_MS))).alias("hour")
    parts = known.select(*REPLICA, "start_ms", "end_ms", fn.col("lag_ms").alias("value"), hour)
    begin, end = fn.greatest("start_ms", "hour"), fn.least("end_ms", fn.col("hour") + HOUR_MS)
    return parts.select(*REPLICA, "hour", "value", (end - begin).alias("weight"))


def largest_bad_ms(minutes: DataFrame, before: DataFrame, day: Day) -> DataFrame:
    """Of each replica of D: `bad_ms_1h` and so on, the most bad time of any such span.

    `minutes`: D's; `before`: stored minutes of the days before (three are enough). A span ends
    with a minute of D.
    """
    first = day.w0_ms - day.w0_ms % MINUTE_MS
    # The largest sum is that of a span that ends with a bad minute, or with D's first one.
    today = minutes.where((fn.col("bad_ms") > 0) | (fn.col("minute") == first))
    earlier = before.where((fn.col("bad_ms") > 0) & (fn.col("minute") < first))
    rows = today.select(*REPLICA, "minute", "bad_ms").unionAll(
        earlier.select(*REPLICA, "minute", "bad_ms")
    )
    # Differences of running sums: a frame that slides would be summed anew for every row.
    in_time = f"PARTITION BY {', '.join(REPLICA)} ORDER BY minute RANGE BETWEEN UNBOUNDED PRECEDING"
    sums = rows.withColumn("_all", fn.expr(f"sum(bad_ms) OVER ({in_time} AND CURRENT ROW)"))
    for name, span_s in SPANS_S.items():
        left_out = f"sum(bad_ms) OVER ({in_time} AND {span_s * 1000} PRECEDING)"
        sums = sums.withColumn(f"_{name}", fn.expr(f"_all - coalesce({left_out}, 0)"))
    return (
        sums.where(fn.col("minute") >= first)
        .groupBy(*REPLICA)
        .agg(*(fn.max(f"_{name}").alias(f"bad_ms_{name}") for name in SPANS_S))
    )


def burn_rates(availability_percent: Column) -> dict[str, Column]:
    """`burn_1h` and so on from `bad_ms_1h` and so on; null where the objective leaves no budget."""
    allowed = (fn.lit(100.0) - availability_percent) / 100
    return {
        f"burn_{name}": fn.when(allowed > 0, fn.col(f"bad_ms_{name}") / (allowed * span_s * 1000))
        for name, span_s in SPANS_S.items()
    }
