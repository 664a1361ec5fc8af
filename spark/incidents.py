"""Incidents of each replica: when it was not in sync, for how long, and what began it.

A stage of the pipeline: native Spark SQL over segments (spark/segments.py), runs in the executors.
The rules are in docs/sla_report.md ("Incidents"); it must not know dumps or objectives.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from spark.dump_words import REPLICA
from spark.schema import Day


def incidents(segments: DataFrame, day: Day) -> DataFrame:
    """The rows of table `incidents`, without `dt`; `number` counts from 1 within a replica."""
    in_time = Window.partitionBy(*REPLICA).orderBy("start_ms")
    is_bad = fn.col("quality") == "bad"
    # Segments tile the window, so what lies between two of the others is good: only these few
    # rows have to be sorted.
    runs = (
        segments.where((fn.col("quality") != "good") & (fn.col("end_ms") > fn.col("start_ms")))
        .withColumn("_before", fn.lag("end_ms").over(in_time))
        .withColumn("_begins", (fn.col("start_ms") > fn.col("_before")).cast("int"))
        .withColumn("_run", fn.sum(fn.coalesce("_begins", fn.lit(0))).over(in_time))
    )
    bad_start = fn.when(is_bad, fn.col("start_ms"))
    first = fn.struct("kind", "state", "ha_restarted", "boot_unproved")
    found = (
        runs.groupBy(*REPLICA, "_run")
        .agg(
            fn.min(bad_start).alias("start_ms"),
            fn.max(fn.when(is_bad, fn.col("end_ms"))).alias("end_ms"),
            fn.max("end_ms").alias("_run_end_ms"),
            fn.sum(fn.when(is_bad, fn.col("end_ms") - fn.col("start_ms"))).alias("_bad_ms"),
            fn.min_by(first, bad_start).alias("_first"),
            fn.bool_or(is_bad & fn.coalesce("stuck", fn.lit(False))).alias("_stuck"),
            fn.max(fn.when(is_bad, fn.col("lag_ms"))).alias("max_lag_ms"),
            fn.max(fn.when(is_bad, fn.col("lag_bytes"))).alias("max_lag_bytes"),
        )
        .where(fn.col("start_ms").isNotNull())
    )
    duration_ms = fn.col("end_ms") - fn.col("start_ms")
    return found.withColumns(
        {
            "number": fn.row_number().over(in_time),
            "duration_s": duration_ms / 1000,
            "bad_s": fn.col("_bad_ms") / 1000,
            "unknown_s": (duration_ms - fn.col("_bad_ms")) / 1000,
            "cause": _cause(fn.col("_first"), fn.col("_stuck")),
            # Nobody has seen that it ended: good time never came.
            "open": fn.col("_run_end_ms") == day.w1_ms,
        }
    ).drop("_run", "_run_end_ms", "_bad_ms", "_first", "_stuck")


def _cause(first: Column, stuck: Column) -> Column:
    """What the first bad segment shows. A sample without a row for the replica has state null."""
    return (
        fn.when(first["kind"] == "down", "master_restart")
        .when(first["ha_restarted"], "ha_restart")
        .when(first["boot_unproved"], "master_restart")
        .when(first["state"] == "catching_up", "fell_behind")
        .when(first["state"] == "in_sync", fn.when(stuck, "stalled").otherwise("slow"))
        .otherwise("disconnected")
    )


def incident_sums(incidents: DataFrame) -> DataFrame:
    """Of each replica that had incidents: how many, how many ended, their seconds, begin and
    end of the first one and of the one that is open."""
    ended = ~fn.col("open")
    return incidents.groupBy(*REPLICA).agg(
        fn.count("*").alias("incidents"),
        sum_of_seconds(fn.col("duration_s")).alias("incident_s"),
        fn.max("duration_s").alias("longest_incident_s"),
        fn.count_if(ended).alias("incidents_ended"),
        fn.coalesce(sum_of_seconds(fn.when(ended, fn.col("duration_s"))), fn.lit(0.0)).alias(
            "incident_ended_s"
        ),
        fn.min("start_ms").alias("first_start_ms"),
        fn.min("end_ms").alias("first_end_ms"),
        fn.max(fn.when(~ended, fn.col("start_ms"))).alias("open_start_ms"),
        fn.max(fn.when(~ended, fn.col("end_ms"))).alias("open_end_ms"),
    )


def sum_of_seconds(seconds: Column) -> Column:
    """Aggregate: a sum of seconds with whole ms; the same whatever the order of the rows."""
    return fn.sum(fn.round(seconds * 1000).cast("bigint")) / 1000
