"""Time of each replica, cut at the samples that speak for it.

`segments()` turns the stream of samples (spark/samples.py) into rows of time for each replica:
good, bad or unknown by its objective. Figures, minutes and incidents are sums over these rows.
Native Spark SQL, runs in the executors. Must not know how the figures are shown.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from spark.dump_words import GROUP, REPLICA, STATES
from spark.samples import MASTERS, connected_ids, counted, in_window
from spark.schema import Day
from spark.sla_config import Objective, pattern_regex

_COUNTERS: Final = ("transferred", "reconnects", "rejected_acks")
_WANTED: Final = ("replica", "objective", "limit_ms", "since_ms", "other_from_ms", "other_to_ms")


def segments(
    samples: DataFrame, replicas: DataFrame, objectives: Sequence[Objective], day: Day
) -> DataFrame:
    """Every ms of the window of every replica exactly once, in rows.

    `samples`: of spark/samples.py. `replicas`: cluster, broker, replica, since_ms (before that a
    replica without a row is not missed; the smallest of several counts); those whose group has no
    sample get one row, unknown. `objectives`: the first that matches counts; the last should match
    all.

    | column | |
    |---|---|
    | cluster, broker, replica | text |
    | objective | int: index into `objectives` |
    | start_ms, end_ms | long, epoch ms, within the window |
    | kind | 'sample', 'down', 'unknown' |
    | quality | 'good', 'bad', 'unknown' |
    | state | 'in_sync', 'catching_up', 'disconnected'; null unless a sample tells of it |
    | lag_ms, lag_bytes, ack_offset | long; null unless a sample has them |
    | boot, boot_ts, seq, ts | of the sample, or of the one after 'down' and 'unknown' |
    | in_head | true: the rest of the window behind the last sample, for which that one speaks |
    | stuck | same ack_offset as in the predecessor (same boot), lag_bytes > 0 in both |
    | ha_restarted | process `ha` not up, or restarted since the predecessor (same boot) |
    | boot_unproved | first sample of a boot that does not prove that nothing is missing |
    | written | max_offset rose since the predecessor (same boot) |
    | msgs_in, transferred | long: differences to the predecessor (docs/sla_report.md, counters) |

    A row of kind 'sample' may have length 0 (end_ms = start_ms: covered by others already): its
    differences still count, at `ts`; whoever looks at time alone leaves such rows out. Rows with
    in_head, 'down' and 'unknown' have length > 0, differences of 0 and `written` false.
    Beside these what the figures need: state_{in_sync,catching_up,disconnected}_ms, reconnects,
    rejected_acks, catch_up_ms, catch_up_bytes, catch_up_begins.
    Order of rows in time: start_ms, end_ms.
    """
    stream = in_window(samples, day).where(fn.col("stream") == MASTERS)
    wanted = _with_objectives(replicas, objectives)
    told = wanted.join(_elsewhere(stream), list(REPLICA), "left")
    per_group = told.groupBy(*GROUP).agg(fn.collect_list(fn.struct(*_WANTED)).alias("_wanted"))
    pieces = _pieces(stream, day).join(fn.broadcast(per_group), list(GROUP))
    pieces = pieces.withColumns(
        {"_ids": fn.col("replicas.id"), "_before_ids": fn.col("before_replicas.id")}
    )
    rows = pieces.select("*", fn.inline("_wanted")).drop("_wanted")
    rows = rows.withColumns(
        {
            "_row": fn.when(fn.col("kind") == "sample", _row_of("replicas", "_ids")),
            "_q": fn.when(_is_told(), _row_of("before_replicas", "_before_ids")),
        }
    )
    rows = rows.withColumn("_unseen", fn.col("_row").isNull() & (_is_early() | _is_elsewhere()))
    rows = rows.select(*REPLICA, "objective", *_of_time(), *_of_row(), *_since_before(day))
    silent = wanted.join(fn.broadcast(stream.select(*GROUP).distinct()), list(GROUP), "left_anti")
    return rows.unionByName(_unknown_all_day(silent, day), allowMissingColumns=True)


def _with_objectives(replicas: DataFrame, objectives: Sequence[Objective]) -> DataFrame:
    """cluster, broker, replica, since_ms, objective, limit_ms: the first objective whose patterns
    match."""
    matches = [is_named_by(item.patterns) for item in objectives]
    index = fn.coalesce(*(fn.when(match, i) for i, match in enumerate(matches)))
    limits = fn.array(*(fn.lit(item.lag_seconds * 1000) for item in objectives))
    found = replicas.groupBy(*REPLICA).agg(fn.min("since_ms").alias("since_ms"))
    found = found.withColumn("objective", index.cast("int"))
    return found.withColumn("limit_ms", fn.get(limits, fn.col("objective")))


def _elsewhere(stream: DataFrame) -> DataFrame:
    """cluster, broker, replica, other_from_ms, other_to_ms: while one master told of the group,
    another one was there, too, and had the replica."""
    others = stream.where("overtaken").select(
        *GROUP, "ts", fn.explode(connected_ids("replicas")).alias("replica")
    )
    return others.groupBy(*REPLICA).agg(
        fn.min("ts").alias("other_from_ms"), fn.max("ts").alias("other_to_ms")
    )


def is_named_by(patterns: tuple[str, str, str]) -> Column:
    """Whether a row's cluster, broker and replica match the patterns of sla.yaml."""
    named = zip(REPLICA, patterns, strict=True)
    return functools.reduce(
        operator.and_, (fn.col(name).rlike(pattern_regex(pattern)) for name, pattern in named)
    )


def _pieces(stream: DataFrame, day: Day) -> DataFrame:
    """The pieces of time of every sample: kind, in_head, begin_ms, end_ms, and its columns."""
    begin, down, start = fn.col("from_ms"), fn.col("down_ms"), fn.col("start_ms")
    rest, known = fn.col("rest_ms"), fn.col("rest_known")
    own = _piece("sample", start, fn.col("ts"))
    others = [
        _piece("down", begin, down),
        _piece("unknown", down, start),
        own,
        _piece("sample", fn.when(known, rest), fn.lit(day.w1_ms), in_head=True),
        _piece("unknown", fn.when(~known, rest), fn.lit(day.w1_ms)),
    ]
    is_all = (begin == start) & rest.isNull()
    rows = stream.withColumn(
        "_piece", fn.explode(fn.when(is_all, fn.array(own)).otherwise(fn.array(*others)))
    )
    rows = rows.drop("start_ms").select("*", "_piece.*")
    return rows.where(_is_told() | (fn.col("end_ms") > fn.col("start_ms")))


def _piece(kind: str, start: Column, end: Column, *, in_head: bool = False) -> Column:
    return fn.struct(
        fn.lit(kind).alias("kind"),
        fn.lit(in_head).alias("in_head"),
        start.alias("start_ms"),
        end.alias("end_ms"),
    )


def _is_told() -> Column:
    """Rows that carry the differences of their sample."""
    return (fn.col("kind") == "sample") & ~fn.col("in_head")


def _row_of(rows: str, ids: str) -> Column:
    """The first row of this replica; null without."""
    return fn.get(rows, fn.array_position(ids, fn.col("replica")).cast("int") - 1)


def _is_early() -> Column:
    """Time before the replica was there, as far as anybody knows."""
    return (fn.col("kind") != "unknown") & (fn.col("end_ms") <= fn.col("since_ms"))


def _is_elsewhere() -> Column:
    """A sample's time in which another master had the replica."""
    is_then = (fn.col("start_ms") < fn.col("other_to_ms")) & (
        fn.col("ts") >= fn.col("other_from_ms")
    )
    return fn.coalesce((fn.col("kind") == "sample") & is_then, fn.lit(False))


def _of_time() -> list[Column]:
    return [
        fn.col(name)
        for name in ("start_ms", "end_ms", "kind", "in_head", "boot", "boot_ts", "seq", "ts")
    ]


def _state() -> Column:
    known = fn.coalesce(fn.col("_row.state"), fn.lit("disconnected"))
    return fn.when((fn.col("kind") == "sample") & ~fn.col("_unseen"), known)


def _quality() -> Column:
    row = fn.col("_row")
    is_elsewhere = _is_elsewhere() & (row["state"] == "disconnected")
    is_good = (row["state"] == "in_sync") & (row["lag_ms"] <= fn.col("limit_ms"))
    # The lag may be any above the one that is told.
    is_vague = is_good & ~row["lag_exact"] & (row["lag_bytes"] > 0)
    return (
        fn.when((fn.col("kind") == "unknown") | fn.col("_unseen"), "unknown")
        .when(is_elsewhere | is_vague, "unknown")
        .when(is_good, "good")
        .otherwise("bad")
    )


def _of_row() -> list[Column]:
    is_restart = ~fn.col("same_boot") & ~fn.col("proved") & fn.col("follows")
    is_first = ~fn.col("same_boot") & ~fn.col("proved") & (fn.col("seq") == 1)
    is_sample = fn.col("kind") == "sample"
    ha_restarted = fn.coalesce(~fn.col("ha_up"), fn.lit(False)) | fn.coalesce(
        fn.col("ha_restarted"), fn.lit(False)
    )
    return [
        _quality().alias("quality"),
        _state().alias("state"),
        *(fn.col(f"_row.{name}").alias(name) for name in ("lag_ms", "lag_bytes", "ack_offset")),
        (is_sample & ha_restarted).alias("ha_restarted"),
        (is_sample & (is_restart | is_first)).alias("boot_unproved"),
    ]


def _since_before(day: Day) -> list[Column]:
    """Differences to the predecessor; 0 and false where the row does not carry them."""
    told, row, before = _is_told(), fn.col("_row"), fn.col("_q")
    same_ack = before["ack_offset"] == row["ack_offset"]
    stuck = same_ack & (row["lag_bytes"] > 0) & (before["lag_bytes"] > 0)
    catching_up = fn.coalesce(told & (row["state"] == "catching_up"), fn.lit(False))
    goes_on = fn.coalesce(catching_up & (before["state"] == "catching_up"), fn.lit(False))
    rise = fn.greatest(row["ack_offset"] - before["ack_offset"], fn.lit(0))
    counters = [
        fn.when(told & row.isNotNull(), counted(row[name], before[name])).otherwise(0).alias(name)
        for name in _COUNTERS
    ]
    return [
        fn.coalesce(told & stuck, fn.lit(False)).alias("stuck"),
        (told & fn.col("written")).alias("written"),
        fn.when(told, fn.col("msgs_in")).otherwise(0).alias("msgs_in"),
        *counters,
        *(_state_ms(name, day).alias(f"state_{name}_ms") for name in STATES),
        fn.when(goes_on, fn.col("mono_ms")).otherwise(0).alias("catch_up_ms"),
        fn.when(goes_on, rise).otherwise(0).alias("catch_up_bytes"),
        (catching_up & ~goes_on).alias("catch_up_begins"),
    ]


def _state_ms(name: str, day: Day) -> Column:
    """Time in a state: by its counter, else the length of a sample's segment under its state."""
    length = fn.col("end_ms") - fn.col("start_ms")
    by_length = fn.when(_state() == name, length).otherwise(0)
    rise = fn.col("_row.state_ms")[name] - fn.col("_q.state_ms")[name]
    inside = fn.least(fn.col("ts") - day.w0_ms, fn.col("mono_ms"))
    over_w0 = (fn.col("before_ts") < day.w0_ms) & (fn.col("mono_ms") > 0)
    # Whole ms: a sum of them does not depend on the order of the rows.
    share = fn.floor(rise * (inside / fn.col("mono_ms")) + 0.5)
    both = _is_told() & fn.col("_row").isNotNull() & fn.col("_q").isNotNull()
    return fn.when(both, fn.when(over_w0, share).otherwise(rise)).otherwise(by_length)


def _unknown_all_day(silent: DataFrame, day: Day) -> DataFrame:
    """One row for each replica whose group has no sample."""
    nothing = {name: fn.lit(0) for name in ("msgs_in", *_COUNTERS, "catch_up_ms", "catch_up_bytes")}
    no = {name: fn.lit(False) for name in _FLAGS}
    states = {f"state_{name}_ms": fn.lit(0) for name in STATES}
    times = {"start_ms": fn.lit(day.w0_ms), "end_ms": fn.lit(day.w1_ms)}
    kinds = {"kind": fn.lit("unknown"), "quality": fn.lit("unknown")}
    return silent.select(*REPLICA, "objective").withColumns(
        {**times, **kinds, **no, **nothing, **states}
    )


_FLAGS: Final = ("in_head", "stuck", "ha_restarted", "boot_unproved", "written", "catch_up_begins")
