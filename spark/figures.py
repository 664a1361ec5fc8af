"""The figures of one date: of each replica, and of each group.

A stage of the pipeline: native Spark SQL over samples (spark/samples.py) and segments
(spark/segments.py), runs in the executors. Each figure's rule is in docs/sla_report.md; good
minutes and incidents are elsewhere. Must not know objectives' criteria, results or pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from spark.distributions import (
    NANOSECONDS,
    ack_buckets,
    ack_figures,
    bucket_of,
    exact_sum,
    histogram,
    percentiles,
    ranked,
    send_count,
)
from spark.dump_words import GROUP, MASTER_ROLES, REPLICA, STATES, SYNC_RESULTS
from spark.result_tables import METADATA_TYPE, PERCENTILES
from spark.samples import DUPLICATES, MASTERS, counted, in_window
from spark.schema import Day

_MILLION: Final = 1_000_000
_DEFAULT_INTERVAL_MS: Final = 5_000


def replica_figures(samples: DataFrame, segments: DataFrame, day: Day) -> DataFrame:
    """A row for each replica of `segments`: the columns of table replica_days but minutes,
    incidents, budget, burn rates, verdict, late and revision; `objective` is the index."""
    key = list(REPLICA)
    window_s = day.window_ms / 1000
    rows = (
        _sums(segments, window_s)
        .join(_lag_figures(segments, "lag_ms"), key, "left")
        .join(_lag_figures(segments, "lag_bytes"), key, "left")
        .join(_longest_catch_up(segments), key, "left")
        .join(_longest_gap(segments), key, "left")
        .join(_metadata_figures(samples, day), key, "left")
        .join(_stream_figures(samples, day), list(GROUP), "left")
    )
    rows = rows.fillna(0, ["received", "duplicates", "conflicts", "out_of_order"])
    rows = rows.fillna(0.0, ["catch_up_longest_s", "longest_gap_s"])
    interval_ms = fn.coalesce("interval_ms", fn.lit(_DEFAULT_INTERVAL_MS))
    nothing = fn.array().cast(METADATA_TYPE)
    return rows.withColumns(
        {
            "interval_s": interval_ms / 1000,
            "expected": _expected(interval_ms, day),
            "metadata": fn.coalesce("metadata", nothing),
            "input_digest": fn.coalesce("input_digest", fn.lit("")),
        }
    ).drop("interval_ms", "_spoken_ms", "_spoken_millionths")


def _expected(interval_ms: Column, day: Day) -> Column:
    """Samples that should be there: the time that samples speak for by their own interval, the rest
    of the window by the last one."""
    nothing = fn.lit(0)
    rest_ms = day.window_ms - fn.coalesce("_spoken_ms", nothing)
    rest = fn.floor(rest_ms * _MILLION / interval_ms + 0.5)
    return fn.floor((fn.coalesce("_spoken_millionths", nothing) + rest) / _MILLION + 0.5)


def _sums(segments: DataFrame, window_s: float) -> DataFrame:
    """What is a sum over the rows of a replica."""
    length = fn.col("end_ms") - fn.col("start_ms")
    times = {name: fn.col("quality") == name for name in ("good", "bad", "unknown")}
    sums = segments.groupBy(*REPLICA, "objective").agg(
        *(_seconds(fn.when(is_it, length)).alias(f"{name}_s") for name, is_it in times.items()),
        _seconds(fn.when(fn.col("kind") == "down", length)).alias("state_down_s"),
        fn.min(fn.when(times["good"] & (length > 0), fn.col("start_ms"))).alias("first_good_ms"),
        *(_seconds(fn.col(f"state_{name}_ms")).alias(f"state_{name}_s") for name in STATES),
        fn.sum("transferred").alias("transferred_bytes"),
        fn.sum("reconnects").alias("reconnects"),
        fn.sum("rejected_acks").alias("rejected_acks"),
        _seconds(fn.col("catch_up_ms")).alias("catch_up_s"),
        fn.sum("catch_up_bytes").alias("catch_up_bytes"),
    )
    judged = fn.round(fn.col("good_s") + fn.col("bad_s"), 3)
    in_states = sum((fn.col(f"state_{name}_s") for name in STATES), fn.col("state_down_s"))
    speed = fn.col("catch_up_bytes") / _MILLION / fn.col("catch_up_s")
    return sums.withColumns(
        {
            "window_s": fn.lit(window_s),
            "coverage": judged / window_s,
            "availability": fn.when(judged > 0, fn.col("good_s") / judged),
            "state_unknown_s": fn.greatest(window_s - in_states, fn.lit(0.0)),
            "catch_up_mb_s": fn.when(fn.col("catch_up_s") > 0, speed),
        }
    )


def _seconds(ms: Column) -> Column:
    return fn.coalesce(fn.sum(ms), fn.lit(0)).cast("double") / 1000


def _lag_figures(segments: DataFrame, measure: str) -> DataFrame:
    """Percentiles, maximum and histogram of `lag_ms` or `lag_bytes` by time."""
    weight = fn.col("end_ms") - fn.col("start_ms")
    values = segments.select(*REPLICA, fn.col(measure).alias("value"), weight.alias("weight"))
    return _distribution(values, REPLICA, measure, PERCENTILES)


def _distribution(
    values: DataFrame, key: Sequence[str], measure: str, names: Mapping[str, int]
) -> DataFrame:
    """`<measure>_<name>` of `names`, `<measure>_max` and `<measure>_hist` of each key."""
    figures = {f"{measure}_{name}": share for name, share in names.items()}
    # By bucket first: the histogram comes from the same sorted rows as the percentiles.
    buckets = (
        ranked(values, key)
        .groupBy(*key, bucket_of(fn.col("value")).alias("_bucket"))
        .agg(fn.sum("weight").alias("_ms"), *percentiles(figures), fn.max("value").alias("_max"))
    )
    return buckets.groupBy(*key).agg(
        *(fn.min(name).alias(name) for name in figures),
        fn.max("_max").alias(f"{measure}_max"),
        histogram("_bucket", "_ms").alias(f"{measure}_hist"),
    )


def _longest_catch_up(segments: DataFrame) -> DataFrame:
    in_order = Window.partitionBy(*REPLICA).orderBy("boot_ts", "boot", "seq")
    # Both kinds of rows are few: what catches up seldom does.
    rows = segments.where(fn.col("catch_up_begins") | (fn.col("catch_up_ms") > 0))
    runs = rows.withColumn("_run", fn.sum(fn.col("catch_up_begins").cast("int")).over(in_order))
    lengths = runs.groupBy(*REPLICA, "_run").agg(_seconds(fn.col("catch_up_ms")).alias("_s"))
    return lengths.groupBy(*REPLICA).agg(fn.max("_s").alias("catch_up_longest_s"))


def _longest_gap(segments: DataFrame) -> DataFrame:
    in_time = Window.partitionBy(*REPLICA).orderBy("start_ms")
    length = fn.col("end_ms") - fn.col("start_ms")
    gaps = segments.where((fn.col("quality") == "unknown") & (length > 0))
    begins = fn.coalesce(fn.lag("end_ms").over(in_time) < fn.col("start_ms"), fn.lit(False))
    runs = gaps.withColumn("_begins", begins.cast("int"))
    runs = runs.withColumn("_run", fn.sum("_begins").over(in_time))
    lengths = runs.groupBy(*REPLICA, "_run").agg(_seconds(length).alias("_s"))
    return lengths.groupBy(*REPLICA).agg(fn.max("_s").alias("longest_gap_s"))


def _stream_figures(samples: DataFrame, day: Day) -> DataFrame:
    """Of each group: how many samples there are, and how good they are."""
    in_time = fn.col("ts") >= day.w0_ms
    counts_in = (fn.col("stream") == MASTERS) & in_time
    distinct = fn.col("stream") != DUPLICATES
    skew = fn.col("ts") - fn.col("mono")
    # A duplicate is one of the master's stream by its role, too.
    is_master = fn.col("role").isin(*MASTER_ROLES)
    spoken_ms = fn.when(counts_in, _spoken_ms(day))
    # Whole millionths of a sample: their sum does not depend on the order of the rows.
    millionths = fn.floor(spoken_ms * _MILLION / fn.col("interval_ms") + 0.5)
    of_boots = samples.groupBy(*GROUP, "boot_ts", "boot").agg(
        fn.count_if(counts_in).alias("received"),
        fn.count_if(~distinct & is_master & in_time).alias("duplicates"),
        fn.count_if(counts_in & fn.col("conflict")).alias("conflicts"),
        fn.count_if(counts_in & fn.col("out_of_order")).alias("out_of_order"),
        fn.sum(spoken_ms).alias("_spoken_ms"),
        fn.sum(millionths).alias("_spoken_millionths"),
        fn.max(fn.when(counts_in, skew)).alias("_high"),
        fn.min(fn.when(counts_in, skew)).alias("_low"),
        fn.max_by(
            "interval_ms",
            fn.when(counts_in, fn.struct("boot_ts", "boot", "seq")),
        ).alias("_interval"),
        fn.bit_xor(fn.when(distinct, fn.col("text_hash"))).alias("_digest"),
        fn.count_if(distinct).alias("_distinct"),
    )
    digest = fn.concat_ws(
        "-", fn.lpad(fn.lower(fn.hex(fn.bit_xor("_digest"))), 16, "0"), fn.sum("_distinct")
    )
    counts = ("received", "duplicates", "conflicts", "out_of_order")
    sums = (*counts, "_spoken_ms", "_spoken_millionths")
    last = fn.when(fn.col("_interval").isNotNull(), fn.struct("boot_ts", "boot"))
    return of_boots.groupBy(*GROUP).agg(
        *(fn.sum(name).alias(name) for name in sums),
        fn.max(fn.col("_high") - fn.col("_low")).alias("clock_skew_ms"),
        fn.max_by("_interval", last).alias("interval_ms"),
        digest.alias("input_digest"),
    )


def _metadata_figures(samples: DataFrame, day: Day) -> DataFrame:
    """Of each slave that writes dumps itself: how old its metadata was, by kind."""
    key = (*REPLICA, "kind")
    slaves = in_window(samples, day).where(fn.col("stream") >= 0)
    kinds = fn.col("before_metadata.kind")
    before = fn.get(
        "before_metadata", fn.array_position(kinds, fn.col("_now.kind")).cast("int") - 1
    )
    rows = (
        slaves.withColumn("weight", _spoken_ms(day))
        .select("*", fn.explode("metadata").alias("_now"))
        .select(
            *GROUP,
            fn.concat_ws(":", "broker", "broker_id").alias("replica"),
            fn.col("_now.kind").alias("kind"),
            fn.col("_now.age_ms").alias("value"),
            "weight",
            counted(fn.col("_now.failures"), before["failures"]).alias("failures"),
        )
    )
    ages = (
        ranked(rows.select(*key, "value", "weight"), key)
        .groupBy(*key)
        .agg(
            fn.max("value").alias("max_age_ms"),
            *percentiles({"p99_age_ms": PERCENTILES["p99"]}),
            (fn.max("_all") / 1000).alias("covered_s"),
        )
    )
    failures = rows.groupBy(*key).agg(fn.sum("failures").alias("failures"))
    one = fn.struct(
        "kind",
        "max_age_ms",
        "p99_age_ms",
        "failures",
        fn.coalesce("covered_s", fn.lit(0.0)).alias("covered_s"),
    )
    every = failures.join(ages, list(key), "left").groupBy(*REPLICA)
    return every.agg(fn.sort_array(fn.collect_list(one)).alias("metadata"))


def _spoken_ms(day: Day) -> Column:
    """The time for which a sample speaks."""
    rest = fn.when(fn.col("rest_known"), day.w1_ms - fn.col("rest_ms"))
    return fn.col("ts") - fn.col("start_ms") + fn.coalesce(rest, fn.lit(0))


def group_figures(samples: DataFrame, day: Day) -> DataFrame:
    """A row for each group with a master's sample: table group_days but verdict and revision."""
    stream = in_window(samples, day).where(fn.col("stream") == MASTERS)
    stream = stream.withColumn("weight", _spoken_ms(day))
    roles = stream.where(fn.col("rest_ms").isNotNull()).select(*GROUP, "role")
    begins = ~fn.col("same_boot") & (fn.col("follows") | (fn.col("seq") == 1))
    is_first = ~fn.col("follows") & fn.col("prev_boot").isNull()
    # A double would round, and then the sum would depend on the order of the rows.
    bytes_lost = fn.col("unreplicated_bytes").cast("decimal(19,0)") * fn.col("weight")
    sums = stream.groupBy(*GROUP).agg(
        fn.count("*").alias("samples"),
        (fn.sum(bytes_lost).cast("double") / 1000).alias("exposure_byte_s"),
        *(fn.sum(f"sync_{name}").alias(f"sync_{name}") for name in SYNC_RESULTS),
        fn.sum("msgs_in").alias("msgs_in"),
        fn.sum("bytes_in").alias("bytes_in"),
        fn.count_if(begins & ~is_first).alias("restarts"),
    )
    ratio = fn.when(send_count() > 0, fn.col("sync_ok") / send_count())
    key = list(GROUP)
    return (
        sums.withColumn("sync_ok_ratio", ratio)
        .join(roles, key)
        .join(_exposed(stream, "unreplicated_bytes"), key, "left")
        .join(_exposed(stream, "oldest_unreplicated_ms"), key, "left")
        .join(_ack_figures(stream), key, "left")
    )


def _exposed(stream: DataFrame, measure: str) -> DataFrame:
    values = stream.select(*GROUP, fn.col(measure).alias("value"), "weight")
    return _distribution(values, GROUP, measure, {"p99": PERCENTILES["p99"]})


def _ack_figures(stream: DataFrame) -> DataFrame:
    """The summed buckets of ack_latency and their quantiles."""
    ends = stream.select(*GROUP, fn.lit(1).alias("sign"), fn.col("ack_end").alias("ack"))
    bases = stream.select(*GROUP, fn.lit(-1).alias("sign"), fn.col("ack_base").alias("ack"))
    both = ends.unionAll(bases).where(fn.col("ack").isNotNull())
    totals = both.groupBy(*GROUP).agg(
        exact_sum(fn.col("ack.sum") * fn.col("sign"), NANOSECONDS).alias("ack_sum_s")
    )
    signed = fn.transform("ack.counts", lambda count: count * fn.col("sign"))
    buckets = ack_buckets(both, GROUP, fn.col("ack.le"), signed)
    return ack_figures(buckets, GROUP).join(totals, list(GROUP))
