"""The last 7 and 30 days (or as sla.yaml says) of each replica and group of D, and D's clusters.

A stage of the pipeline: native Spark SQL over stored days, never over samples, runs in the
executors; the tables are small. Sums are sums of the days' sums, percentiles come from the days'
histograms. Days without a stored result are unknown time. Knows docs/sla_report.md ("Several
days"), no dump and no path.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from spark.distributions import (
    MILLISECONDS,
    NANOSECONDS,
    ack_buckets,
    ack_figures,
    exact_sum,
    merged_histograms,
    send_count,
)
from spark.dump_words import DAY_MS, GROUP, MINUTE_MS, REPLICA, SYNC_RESULTS
from spark.incidents import sum_of_seconds
from spark.report_data import BREACHED, INSUFFICIENT, MET
from spark.result_tables import (
    PERCENTILES,
    SPANS_S,
    STATES,
    WINDOW_METADATA_FIGURES,
    WINDOW_METADATA_TYPE,
)
from spark.verdicts import (
    availability_verdict,
    budget_columns,
    budget_s,
    waiting_groups,
    worst,
    worst_of,
)

DAY_S: Final = DAY_MS // 1000
_DAY_MINUTES: Final = DAY_MS // MINUTE_MS
_RATE_DAYS: Final = 7
"""The forecast takes the bad time of so many days."""
_LAST_DATE: Final = datetime.date(9999, 12, 31)
_LAGS: Final = ("lag_ms", "lag_bytes")
_EXPOSED: Final = ("unreplicated_bytes", "oldest_unreplicated_ms")
_KNOWN_STATES: Final = tuple(f"state_{name}_s" for name in STATES if name != "unknown")
_SYNC: Final = tuple(f"sync_{name}" for name in SYNC_RESULTS)
_COUNTERS: Final = ("transferred_bytes", "reconnects", "rejected_acks")
_GROUP_SUMS: Final = ("samples", *_SYNC, "msgs_in", "bytes_in", "restarts")
_EXPOSED_MAX: Final = tuple(f"{name}_max" for name in _EXPOSED)
_REPLICA_SECONDS: Final = (
    *("window_s", "good_s", "bad_s", "unknown_s", "incident_s", "incident_ended_s"),
    *(f"state_{name}_s" for name in STATES),
)
_REPLICA_COUNTS: Final = (
    *("minutes_good", "minutes_bad", "minutes_unknown", "minutes_written"),
    *("minutes_written_good", "incidents", "incidents_ended", *_COUNTERS),
)
_OF_REPLICAS: Final = (
    *("cluster", "verdict", *_REPLICA_SECONDS, *_REPLICA_COUNTS, "longest_incident_s"),
    *(f"{lag}_{figure}" for lag in _LAGS for figure in ("max", "hist")),
)
_OF_GROUPS: Final = (
    *("cluster", *_GROUP_SUMS, *_EXPOSED_MAX),
    *("exposure_byte_s", "ack_le", "ack_counts", "ack_sum_s"),
)
"""What clusters look at."""


def windows(days: DataFrame, objectives: DataFrame, date: str, lengths: Sequence[int]) -> DataFrame:
    """One row for each replica that D has and each length in days.

    `days`: rows of replica_days of D and of the days before it that the longest reaches (others
    are left out), with `dt`; `objectives`: `name`, `availability_percent`, `min_coverage_percent`.
    """
    today = days.where(fn.col("dt") == date).select(
        *REPLICA,
        "objective",
        fn.col("window_s").alias("_window_s"),
        _sum_of("minutes_good", "minutes_bad", "minutes_unknown").alias("_minutes"),
    )
    spans = _spans(days.drop("objective"), today, REPLICA, date, lengths)
    key = [*REPLICA, "days"]
    rows = (
        today.join(_sums(spans), list(REPLICA))
        .join(objectives.withColumnRenamed("name", "objective"), "objective", "left")
        .join(merged_histograms(spans, key, _LAGS, PERCENTILES), key)
        .join(_metadata(spans), key, "left")
    )
    # D itself may be a part of a day; whatever is not stored of the days before is unknown.
    length_s = (fn.col("days") - 1) * DAY_S + fn.col("_window_s")
    minutes = (fn.col("days") - 1) * _DAY_MINUTES + fn.col("_minutes")
    rows = rows.withColumns(
        {
            "window_s": length_s,
            "minutes_unknown": minutes - _sum_of("minutes_good", "minutes_bad"),
            "metadata": fn.coalesce("metadata", fn.array().cast(WINDOW_METADATA_TYPE)),
        }
    )
    return _with_figures(rows, date, max(lengths))


def _spans(
    days: DataFrame, today: DataFrame, key: Sequence[str], date: str, lengths: Sequence[int]
) -> DataFrame:
    """The rows of those that `today` has, once for each length that reaches back to them."""
    back = fn.date_diff(fn.lit(date).cast("date"), fn.col("dt").cast("date"))
    return (
        days.withColumn("_back", back)
        .join(today.select(*key), list(key), "left_semi")
        .withColumn("days", fn.explode(fn.array(*(fn.lit(length) for length in lengths))))
        .where((fn.col("_back") >= 0) & (fn.col("_back") < fn.col("days")))
    )


def _sum_of(*names: str) -> Column:
    total = fn.col(names[0])
    for name in names[1:]:
        total = total + fn.col(name)
    return total


def _sums(spans: DataFrame) -> DataFrame:
    is_known = (fn.col("good_s") + fn.col("bad_s")) > 0
    is_recent = fn.col("_back") < _RATE_DAYS
    added = ("expected", "received", "duplicates", "conflicts", "late", "out_of_order")
    minutes = ("minutes_good", "minutes_bad", "minutes_written", "minutes_written_good")
    seconds = ("good_s", "bad_s", *_KNOWN_STATES, "catch_up_s")
    largest = ("clock_skew_ms", "catch_up_longest_s", *(f"burn_{name}" for name in SPANS_S))
    # A day without a result is a gap as long as itself; gaps are not joined over midnight.
    missing = fn.when(fn.count("*") < fn.col("days"), fn.lit(float(DAY_S)))
    gap = fn.greatest(fn.max("longest_gap_s"), missing)
    found = spans.groupBy(*REPLICA, "days").agg(
        fn.count_if(is_known).cast("int").alias("days_with_data"),
        fn.count_if(is_known & is_recent).alias("_known_of_rate"),
        sum_of_seconds(fn.when(is_recent, fn.col("bad_s"))).alias("_bad_of_rate"),
        *(sum_of_seconds(fn.coalesce(name, fn.lit(0.0))).alias(name) for name in seconds),
        *(fn.sum(name).alias(name) for name in (*added, *minutes, *_COUNTERS, "catch_up_bytes")),
        *(fn.max(name).alias(name) for name in largest),
        gap.alias("longest_gap_s"),
        _incidents().alias("_incidents"),
    )
    told = ((f"_incidents.{alias}", name) for alias, name in _INCIDENT_MS.items())
    return found.withColumns(
        {
            "incidents": fn.col("_incidents.incidents"),
            "incidents_ended": fn.col("_incidents.ended"),
            **{name: fn.col(source) / 1000 for source, name in told},
        }
    )


_INCIDENT_MS: Final = {
    "ended_ms": "incident_ended_s",
    "all_ms": "incident_s",
    "longest_ms": "longest_incident_s",
}


def _incidents() -> Column:
    """Aggregate: incidents of the days, one that goes on over midnight counted once."""
    day = fn.struct(
        "dt",
        fn.coalesce("good_s", fn.lit(0.0)).alias("good_s"),
        *(fn.coalesce(n, fn.lit(0)).alias(n) for n in ("incidents", "incidents_ended")),
        *(_whole_ms(name).alias(alias) for alias, name in _INCIDENT_MS.items()),
        *("carried_start_ms", "carried_end_ms", "open_start_ms", "open_end_ms"),
    )
    zero, never = fn.lit(0).cast("bigint"), fn.lit(None).cast("bigint")
    nothing = fn.struct(
        *(zero.alias(name) for name in ("incidents", "ended", *_INCIDENT_MS)),
        *(never.alias(name) for name in ("start_ms", "end_ms")),
    )
    return fn.aggregate(fn.array_sort(fn.collect_list(day)), nothing, _with_day)


def _whole_ms(seconds: str) -> Column:
    return fn.coalesce(fn.round(fn.col(seconds) * 1000).cast("bigint"), fn.lit(0))


def _with_day(before: Column, day: Column) -> Column:
    """Incidents up to a day and those of the day; `start_ms`, `end_ms` of the one that is open."""
    is_open = before["start_ms"].isNotNull()
    joins = is_open & day["carried_start_ms"].isNotNull()
    is_silent = (day["good_s"] == 0) & (day["incidents"] == 0)
    # Good time came before the next incident: what was open ended where its bad time ended.
    settles = is_open & ~joins & ~is_silent
    goes_on = joins & fn.coalesce(day["open_start_ms"] == day["carried_start_ms"], fn.lit(False))
    joined_ms = day["carried_end_ms"] - before["start_ms"]
    carried_ms = day["carried_end_ms"] - day["carried_start_ms"]
    zero = fn.lit(0).cast("bigint")

    def only(condition: Column, value: Column) -> Column:
        return fn.when(condition, value).otherwise(zero)

    return fn.struct(
        (before["incidents"] + day["incidents"] - only(joins, zero + 1)).alias("incidents"),
        (before["ended"] + day["incidents_ended"] + only(settles, zero + 1)).alias("ended"),
        (
            before["ended_ms"]
            + day["ended_ms"]
            + only(settles, before["end_ms"] - before["start_ms"])
            + only(joins & ~goes_on, joined_ms - carried_ms)
        ).alias("ended_ms"),
        (
            before["all_ms"]
            + day["all_ms"]
            + only(joins, day["carried_start_ms"] - before["end_ms"])
        ).alias("all_ms"),
        fn.greatest(before["longest_ms"], day["longest_ms"], only(joins, joined_ms)).alias(
            "longest_ms"
        ),
        fn.when(is_silent | goes_on, before["start_ms"])
        .otherwise(day["open_start_ms"])
        .alias("start_ms"),
        fn.when(is_silent, before["end_ms"]).otherwise(day["open_end_ms"]).alias("end_ms"),
    )


def _metadata(spans: DataFrame) -> DataFrame:
    """How old each kind of metadata was at worst; a p99 has no histogram to come from."""
    kinds = spans.select(*REPLICA, "days", fn.inline("metadata")).groupBy(*REPLICA, "days", "kind")
    figures = kinds.agg(
        fn.max("max_age_ms").alias("max_age_ms"),
        fn.sum("failures").alias("failures"),
        sum_of_seconds(fn.col("covered_s")).alias("covered_s"),
    )
    one = fn.struct(*WINDOW_METADATA_FIGURES)
    every = figures.groupBy(*REPLICA, "days")
    return every.agg(fn.sort_array(fn.collect_list(one)).alias("metadata"))


def _with_figures(rows: DataFrame, date: str, longest: int) -> DataFrame:
    length_s, bad_s = fn.col("window_s"), fn.col("bad_s")
    budget = budget_s(fn.col("availability_percent"), length_s)
    limit = fn.col("min_coverage_percent")
    rows = _with_shares(rows).withColumns(budget_columns(budget, bad_s))
    speed = fn.col("catch_up_bytes") / 1_000_000 / fn.col("catch_up_s")
    in_states = fn.round(_sum_of(*_KNOWN_STATES), 3)
    return rows.withColumns(
        {
            "unknown_s": fn.greatest(length_s - _judged_s(), fn.lit(0.0)),
            "state_unknown_s": fn.greatest(length_s - in_states, fn.lit(0.0)),
            "catch_up_mb_s": fn.when(fn.col("catch_up_s") > 0, speed),
            "verdict": availability_verdict(bad_s, budget, fn.col("coverage"), limit),
            "forecast": fn.when(fn.col("days") == longest, _forecast(date)),
        }
    )


def _judged_s() -> Column:
    return fn.round(fn.col("good_s") + fn.col("bad_s"), 3)


def _with_shares(rows: DataFrame) -> DataFrame:
    """What is a part of the sums, or a mean: of a replica's window, and of a cluster."""
    good, judged = fn.col("good_s"), _judged_s()
    ended, count = fn.col("incidents_ended"), fn.col("incidents")
    return rows.withColumns(
        {
            "coverage": fn.when(fn.col("window_s") > 0, judged / fn.col("window_s")),
            "availability": fn.when(judged > 0, good / judged),
            "mttr_s": fn.when(ended > 0, fn.col("incident_ended_s") / ended),
            "mtbf_s": fn.when(count > 0, good / count),
        }
    )


def _forecast(date: str) -> Column:
    """When the budget is used up if the last 7 days go on: null, `exhausted`, a date."""
    last_days = (_LAST_DATE - datetime.date.fromisoformat(date)).days
    left, known = fn.col("budget_left_s"), fn.col("_known_of_rate")
    rate = fn.when(known > 0, fn.col("_bad_of_rate") / known)
    days = fn.when(rate > 0, fn.floor(left / rate))
    end = fn.date_add(fn.lit(date).cast("date"), days.cast("int")).cast("string")
    is_used_up = (left <= 0) & (fn.col("bad_s") > 0)
    return fn.when(is_used_up, fn.lit("exhausted")).otherwise(fn.when(days <= last_days, end))


def group_windows(
    days: DataFrame, of_replicas: DataFrame, date: str, lengths: Sequence[int]
) -> DataFrame:
    """One row for each group that D has and each length in days.

    `days`: rows of group_days as for `windows`; `of_replicas`: what `windows` gave."""
    today = days.where(fn.col("dt") == date)
    spans = _spans(days.drop("verdict"), today, GROUP, date, lengths)
    key = [*GROUP, "days"]
    verdicts = of_replicas.groupBy(*key).agg(worst(fn.col("verdict")).alias("verdict"))
    with_data = fn.count_if(fn.col("samples") > 0).cast("int").alias("days_with_data")
    rows = (
        spans.groupBy(*key)
        .agg(with_data, *_group_sums())
        .join(merged_histograms(spans, key, _EXPOSED, {"p99": PERCENTILES["p99"]}), key)
        .join(_acks(spans, key), key, "left")
        .join(verdicts, key, "left")
    )
    return _with_send_ratio(rows).fillna(worst_of([]), ["verdict"])


def _group_sums() -> list[Column]:
    return [
        *(fn.sum(name).alias(name) for name in _GROUP_SUMS),
        exact_sum(fn.col("exposure_byte_s"), MILLISECONDS).alias("exposure_byte_s"),
        exact_sum(fn.col("ack_sum_s"), NANOSECONDS).alias("ack_sum_s"),
    ]


def _acks(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    buckets = ack_buckets(rows, key, fn.col("ack_le"), fn.col("ack_counts"))
    return ack_figures(buckets, key)


def _with_send_ratio(rows: DataFrame) -> DataFrame:
    ratio = fn.when(send_count() > 0, fn.col("sync_ok") / send_count())
    return rows.withColumn("sync_ok_ratio", ratio)


def clusters(
    replicas: DataFrame, of_replicas: DataFrame, groups: DataFrame, of_groups: DataFrame
) -> DataFrame:
    """One row for each cluster and number of days, 1 among them.

    `replicas` and `groups`: D's rows of replica_days and group_days; `of_replicas` and `of_groups`:
    what `windows` and `group_windows` gave."""
    key = ["cluster", "days"]
    every = _with_day_itself(replicas, of_replicas, _OF_REPLICAS)
    members = _with_day_itself(groups, of_groups, _OF_GROUPS)
    sums = _replica_sums(every)
    rows = (
        members.groupBy(*key)
        .agg(
            fn.count("*").alias("groups"),
            *_group_sums(),
            *(fn.max(name).alias(name) for name in _EXPOSED_MAX),
        )
        .join(_acks(members, key), key, "left")
        .join(sums, key, "left")
        .join(merged_histograms(every, key, _LAGS, PERCENTILES), key, "left")
        .join(_waiting(groups, replicas), "cluster", "left")
    )
    # A group may have no replica at all.
    rows = rows.fillna(0, [name for name in sums.columns if name not in {*key, "verdict"}])
    is_short = (fn.col("verdict") == MET) & fn.coalesce("_waits", fn.lit(False))
    verdict = fn.when(is_short, INSUFFICIENT).otherwise(fn.col("verdict"))
    rows = rows.withColumn("verdict", verdict).fillna(worst_of([]), ["verdict"])
    good, bad = fn.col("minutes_good"), fn.col("minutes_bad")
    ratio = fn.when(good + bad > 0, good / (good + bad))
    return _with_send_ratio(_with_shares(rows)).withColumn("minutes_good_ratio", ratio)


def _waiting(groups: DataFrame, replicas: DataFrame) -> DataFrame:
    """Clusters with a group that is not `met` whatever its replicas are: it has none."""
    clusters = waiting_groups(groups, replicas).select("cluster").distinct()
    return clusters.withColumn("_waits", fn.lit(True))


def _with_day_itself(day: DataFrame, several: DataFrame, columns: Sequence[str]) -> DataFrame:
    of_day = day.select(fn.lit(1).alias("days"), *columns)
    return of_day.unionByName(several.select("days", *columns))


def _replica_sums(replicas: DataFrame) -> DataFrame:
    verdict = fn.col("verdict")
    kinds = {"met": MET, "breached": BREACHED, "insufficient": INSUFFICIENT}
    return replicas.groupBy("cluster", "days").agg(
        fn.count("*").alias("replicas"),
        *(fn.count_if(verdict == word).alias(f"replicas_{name}") for name, word in kinds.items()),
        worst(verdict).alias("verdict"),
        *(sum_of_seconds(fn.col(name)).alias(name) for name in _REPLICA_SECONDS),
        *(fn.sum(name).alias(name) for name in _REPLICA_COUNTS),
        fn.max("longest_incident_s").alias("longest_incident_s"),
    )
