"""Samples in order: each with what it follows, and the time for which it speaks.

The second stage of the pipeline, native Spark SQL: duplicates fall, every stream is put in order
and each sample learns from its predecessor. The rules are in docs/sla_report.md ("Samples").
Must not know objectives or figures; whoever needs a difference between two lines finds both here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from spark.dump_lines import Lines
from spark.dump_words import GROUP, MASTER_ROLES, REPLICA, SYNC_RESULTS
from spark.schema import PREDECESSOR_MS, Day

MASTERS: Final = -1
"""Stream of all samples with a master's role; a slave's stream is its broker id."""
DUPLICATES: Final = -2
"""Where duplicates are put, for their number."""

_HAIR_MS: Final = 10
"""What the two clocks of a line may be apart, being read one after the other in whole ms."""
_FEW: Final = 100_000
"""Keys that may be sent to every executor: some 10 MB."""
_KEY: Final = (*GROUP, "broker_id", "boot", "seq")
_LIFE: Final = ("boot_ts", "boot", "seq")
_BEFORE: Final = (
    *("boot", "seq", "ts", "mono", "config", "max_offset", "msgs_in", "bytes_in", "sync"),
    *("ack_latency", "processes", "replicas", "metadata", "in_window", "ha_restarts"),
)
_COUNTERS: Final = ("msgs_in", "bytes_in")


def samples(lines: Lines, day: Day) -> DataFrame:
    """Samples of the window and those that may precede them; sorted within (cluster, broker,
    stream), partitioned by (cluster, broker). Not persisted: the caller does that.

    cluster, broker, broker_id, role, boot, boot_ts, seq, prev_boot, prev_seq, ts, mono,
    interval_ms, config, unreplicated_bytes, oldest_unreplicated_ms, replicas, metadata, text_hash:
        as in the line
    stream: MASTERS, a slave's broker id, or DUPLICATES, where the columns below mean nothing
    conflict: lines of this sample differ
    in_window: ts lies in the window; else the sample only precedes others
    follows, same_boot, proved: has a predecessor; of the same boot; of another, nothing missing
    from_zero: the boot began in the window as far as counters go: what it counted is the window's
    before_ts, mono_ms: ts of the predecessor; mono since then (same boot)
    life_end_ms: on the last sample of its boot: the latest ts of the boot; null on others
    out_of_order: its boot had a later ts before
    overtaken: a boot before its own tells of this moment, so that its own segment has no length
    from_ms, down_ms, start_ms: [from_ms, down_ms) is down, [down_ms, start_ms) unknown,
        [start_ms, ts) the sample's segment; start_ms is ts when there is none
    rest_ms, rest_known: the rest of the window begins here (last sample only); it speaks for it
    ha_up, ha_restarted: of process `ha`, null when the line does not list it
    written, msgs_in, bytes_in, sync_*: since the predecessor (docs/sla_report.md, counters)
    before_replicas, before_metadata: of the predecessor (same boot)
    gone_ids: ids of connected rows of the predecessor (same boot) that this sample lacks, where it
        has another row newly connected; else null
    ack_end, ack_base: ack_latency at the last and before the first sample of a run of one boot in
        the window, so that Σ ack_end - Σ ack_base is the sum of differences; base null: 0
    before_config, before_processes, processes: where they differ from the predecessor's (same boot)
    """
    near = fn.col("ts").between(day.w0_ms - PREDECESSOR_MS, day.w1_ms - 1)
    kinds = _kinds(lines.good.where(near))
    return _in_order(_distinct(lines, lines.good.where(near), kinds), day, kinds)


def replica_names(samples: DataFrame, day: Day) -> DataFrame:
    """cluster, broker, replica, since_ms: replicas with a row in a master's sample of the window,
    since the ts of the first one; and slaves with samples of their own there, since w1_ms.

    `renamed` are left out. A name may come twice.
    """
    within = in_window(samples, day)
    masters = within.where(fn.col("stream") == MASTERS)
    # Lists of ids first: there are few different ones.
    lists = masters.groupBy(*GROUP, fn.col("replicas.id").alias("_ids")).agg(
        fn.min("ts").alias("since_ms")
    )
    rows = lists.select(*GROUP, "since_ms", fn.explode("_ids").alias("replica"))
    rows = rows.groupBy(*REPLICA).agg(fn.min("since_ms").alias("since_ms"))
    named = rows.join(renamed(samples, day), list(REPLICA), "left_anti")
    own_name = fn.concat_ws(":", "broker", "broker_id").alias("replica")
    slaves = within.where(fn.col("stream") > 0).select(*GROUP, own_name).distinct()
    return named.select(*REPLICA, "since_ms").unionAll(
        slaves.withColumn("since_ms", fn.lit(day.w1_ms))
    )


def renamed(samples: DataFrame, day: Day) -> DataFrame:
    """cluster, broker, replica: rows under an ip whose connection got its name in the window.

    A connection without a name goes by its ip until the master hears whose it is. Such a row is
    connected in one sample and missing in the next one of the boot, in which another row is newly
    connected. One that has a row again after that is there under its ip, too.
    """
    masters = in_window(samples, day).where(fn.col("stream") == MASTERS)
    place = fn.struct(*_LIFE)
    is_named = fn.startswith("replica", fn.concat("broker", fn.lit(":")))
    gone = masters.select(*GROUP, place.alias("_place"), fn.explode("gone_ids").alias("replica"))
    gone = gone.where(~is_named).groupBy(*REPLICA).agg(fn.max("_place").alias("_renamed"))
    # Few groups have such rows: only their samples are looked at.
    theirs = masters.join(fn.broadcast(gone.select(*GROUP).distinct()), list(GROUP), "left_semi")
    later = theirs.select(*GROUP, place.alias("_place"), fn.explode("replicas.id").alias("replica"))
    returned = later.join(fn.broadcast(gone), list(REPLICA)).where("_place > _renamed")
    return gone.select(*REPLICA).join(returned.select(*REPLICA), list(REPLICA), "left_anti")


def connected_ids(rows: str) -> Column:
    """Of an array of replicas' rows: the ids of those that are connected."""
    # Field by field: the other fields of the rows need not be read.
    names = ("id", "connected")
    pairs = fn.arrays_zip(*(fn.col(f"{rows}.{name}").alias(name) for name in names))
    return fn.filter(pairs, lambda row: row["connected"])["id"]


def in_window(samples: DataFrame, day: Day) -> DataFrame:
    """Distinct samples of the window: no predecessors, no duplicates."""
    return samples.where(
        (fn.col("stream") != DUPLICATES) & fn.col("ts").between(day.w0_ms, day.w1_ms - 1)
    )


@dataclass(frozen=True, slots=True)
class _Kinds:
    """What lines there are; stages that only few dumps need are left out for the others."""

    has_duplicates: bool
    conflicts: int
    """Pairs of lines of one sample that differ, at least one for each such sample."""
    is_in_time: bool
    """In every boot, samples come in the order of their ts."""


def _kinds(near: DataFrame) -> _Kinds:
    in_order = Window.partitionBy(*GROUP, "boot").orderBy("broker_id", "seq")
    names = ("broker_id", "seq", "ts", "text_hash")
    before, now = fn.col("_before"), fn.struct(*names)
    rows = near.select(*GROUP, "boot", *names).withColumn("_before", fn.lag(now).over(in_order))
    is_one_broker = before["broker_id"] == fn.col("broker_id")
    is_again = is_one_broker & (before["seq"] == fn.col("seq"))
    differs = is_again & (before["text_hash"] != fn.col("text_hash"))
    # Two brokers with one boot do not happen; if they did, their samples would be in one order.
    is_late = ~is_one_broker | (before["ts"] > fn.col("ts"))
    (found,) = rows.agg(
        fn.count_if(is_again).alias("again"),
        fn.count_if(differs).alias("conflicts"),
        fn.count_if(is_late).alias("late"),
    ).collect()
    return _Kinds(found["again"] > 0, found["conflicts"], found["late"] == 0)


def _distinct(lines: Lines, near: DataFrame, kinds: _Kinds) -> DataFrame:
    """`stream` and `conflict` of every line: of those that are one sample, one stays a sample."""
    is_again, conflict = fn.lit(False), fn.lit(False)
    if kinds.conflicts:
        kept = lines.smallest_text_hash(_sent(_with_conflict(near), kinds))
        near = near.join(_sent(kept, kinds), list(_KEY), "left")
        conflict = fn.col("kept_hash").isNotNull()
        near = near.withColumn("_passed_over", fn.col("kept_hash") != fn.col("text_hash"))
    if kinds.has_duplicates:  # else the lines need not be sorted once more
        passed_over = ["_passed_over"] if "_passed_over" in near.columns else []
        order = Window.partitionBy(*GROUP).orderBy("broker_id", "boot", "seq", *passed_over)
        key = fn.struct("broker_id", "boot", "seq")
        is_again = fn.coalesce(fn.lag(key).over(order) == key, fn.lit(False))
    stream = (
        fn.when(is_again, DUPLICATES)
        .when(fn.col("role").isin(*MASTER_ROLES), MASTERS)
        .otherwise(fn.col("broker_id"))
    )
    return near.withColumns({"stream": stream.cast("long"), "conflict": conflict})


def _with_conflict(near: DataFrame) -> DataFrame:
    """Keys of samples whose lines differ."""
    hashes = near.groupBy(*_KEY).agg(
        fn.min("text_hash").alias("_low"), fn.max("text_hash").alias("_high")
    )
    return hashes.where(fn.col("_low") != fn.col("_high")).select(*_KEY)


def _sent(keys: DataFrame, kinds: _Kinds) -> DataFrame:
    """To every executor when there are few of them, so that the lines stay where they are."""
    return fn.broadcast(keys) if kinds.conflicts <= _FEW else keys


def _in_order(distinct: DataFrame, day: Day, kinds: _Kinds) -> DataFrame:
    """The columns that a sample has from those around it."""
    stream = Window.partitionBy(*GROUP, "stream").orderBy(*_LIFE)
    earlier = stream.rowsBetween(Window.unboundedPreceding, -1)
    so_far = stream.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    whole = stream.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    place = fn.col("ts") >= day.w0_ms
    ha = fn.array_position("processes.name", fn.lit("ha")).cast("int") - 1
    rows = distinct.withColumns(
        {
            "in_window": place,
            "ha_up": fn.get("processes.up", ha),
            "ha_restarts": fn.get("processes.restarts", ha),
            "from_zero": _is_from_zero(day),
        }
    )
    if not kinds.is_in_time:  # else the predecessor is the one before in time, too
        in_time = Window.partitionBy(*GROUP, "stream", "boot_ts", "boot").orderBy("ts", "seq")
        rows = rows.withColumn("_ts_before", fn.lag("ts").over(in_time))
    rows = rows.withColumns(
        {
            "_p": fn.lag(fn.struct(*_BEFORE)).over(stream),
            "_next": fn.lead(fn.struct("boot", "in_window")).over(stream),
            "_latest": fn.max("ts").over(earlier),
            # The order begins with the boot: the greatest is of the latest boot so far.
            "_boot_latest": fn.max(fn.struct("boot_ts", "boot", "ts")).over(earlier),
            "_end": fn.max("ts").over(whole),
            "_last": fn.max(fn.when(fn.col("in_window"), fn.struct(*_LIFE))).over(whole),
        }
    )
    same_boot = fn.coalesce(fn.col("_p.boot") == fn.col("boot"), fn.lit(False))
    ts_before = fn.when(same_boot, fn.col("_p.ts")) if kinds.is_in_time else fn.col("_ts_before")
    # It only grows from boot to boot: the largest so far is that of this boot.
    boots_before = fn.max(fn.when(~same_boot, fn.col("_latest"))).over(so_far)
    rows = rows.withColumns({"_boots_before": boots_before, "_told": ts_before})
    rows = rows.withColumns(
        {
            "follows": fn.col("_p").isNotNull(),
            "same_boot": same_boot,
            "proved": fn.coalesce(
                ~same_boot
                & (fn.col("seq") == 1)
                & (fn.col("prev_boot") == fn.col("_p.boot"))
                & (fn.col("prev_seq") == fn.col("_p.seq")),
                fn.lit(False),
            ),
            "before_ts": fn.col("_p.ts"),
            "mono_ms": fn.when(same_boot, fn.col("mono") - fn.col("_p.mono")),
            "overtaken": fn.coalesce(fn.col("_boots_before") >= fn.col("ts"), fn.lit(False)),
            "_from": fn.greatest("_boots_before", "_told", fn.lit(day.w0_ms)),
        }
    )
    rows = rows.withColumn("_start", _start())
    return rows.select(*_of_line(), *_of_time(day), *_since_before())


def _is_from_zero(day: Day) -> Column:
    """Whether what the boot counted up to this sample came in the window, as far as is known.

    A line that the import from Prometheus makes of a life whose start nobody knows claims to be
    the first moment of the boot, but has a number that does not fit.
    """
    lines_fit = fn.col("seq") - 2 <= (fn.col("ts") - fn.col("boot_ts")) / fn.col("interval_ms")
    return (fn.col("seq") == 1) | ((fn.col("boot_ts") >= day.w0_ms) & lines_fit)


def _start() -> Column:
    """Where the sample's segment begins; its ts when it has none."""
    interval, age = fn.col("interval_ms"), fn.col("ts") - fn.col("boot_ts")
    next_seq = fn.col("seq") == fn.col("_p.seq") + 1
    covered = (
        fn.when(fn.col("same_boot") & next_seq, fn.least(fn.col("mono_ms"), 3 * interval))
        .when(fn.col("same_boot"), fn.least(fn.col("mono_ms"), interval))
        .when(fn.col("proved"), fn.least(age, 3 * interval))
        .otherwise(fn.least(age, interval))
    )
    begin = fn.greatest(fn.col("ts") - fn.greatest(covered, fn.lit(0)), fn.col("_from"))
    is_hair = fn.col("same_boot") & next_seq & (begin - fn.col("_from") <= _HAIR_MS)
    return fn.least(fn.when(is_hair, fn.col("_from")).otherwise(begin), fn.col("ts"))


def _of_line() -> list[Column]:
    names = (
        *(*GROUP, "stream", "broker_id", "role", *_LIFE, "prev_boot", "prev_seq", "ts", "mono"),
        *("interval_ms", "config", "unreplicated_bytes", "oldest_unreplicated_ms"),
        *("replicas", "metadata", "text_hash", "conflict", "in_window"),
        *("follows", "same_boot", "proved", "from_zero", "before_ts", "mono_ms", "ha_up"),
        "overtaken",
    )
    return [fn.col(name) for name in names]


def _of_time(day: Day) -> list[Column]:
    begin = fn.least("_from", "_start")
    down = fn.greatest(begin, fn.least("boot_ts", "_start"))
    is_last = fn.col("_last") == fn.struct(*_LIFE)
    rest = fn.greatest(fn.col("_end"), fn.lit(day.w0_ms))
    boot_latest = fn.col("_boot_latest")
    is_known = boot_latest["boot"] == fn.col("boot")
    ends = fn.coalesce(fn.col("_next.boot") != fn.col("boot"), fn.lit(True))
    life_end = fn.greatest("ts", fn.when(is_known, boot_latest["ts"]))
    return [
        begin.alias("from_ms"),
        fn.when(fn.col("proved"), down).otherwise(begin).alias("down_ms"),
        fn.col("_start").alias("start_ms"),
        fn.when(is_last & fn.col("in_window"), rest).alias("rest_ms"),
        (day.w1_ms - rest <= fn.col("interval_ms")).alias("rest_known"),
        fn.when(ends, life_end).alias("life_end_ms"),
        fn.coalesce(is_known & (boot_latest["ts"] > fn.col("ts")), fn.lit(False)).alias(
            "out_of_order"
        ),
    ]


def _since_before() -> list[Column]:
    """Differences to the predecessor, and of it what those who come later need."""
    same, p = fn.col("same_boot"), fn.col("_p")
    starts = fn.col("in_window") & ~(same & fn.coalesce(p["in_window"], fn.lit(False)))
    goes_on = (fn.col("_next.boot") == fn.col("boot")) & fn.col("_next.in_window")
    ends = fn.col("in_window") & ~fn.coalesce(goes_on, fn.lit(False))
    ack = fn.col("ack_latency")
    base = fn.when(same, p["ack_latency"]).when(~fn.col("from_zero"), ack)
    restarts = fn.col("processes.restarts")
    moved = same & (
        (restarts != fn.col("_p.processes.restarts"))
        | (fn.size("processes") != fn.size(p["processes"]))
    )
    return [
        (same & (fn.col("ha_restarts") > p["ha_restarts"])).alias("ha_restarted"),
        fn.coalesce(same & (fn.col("max_offset") > p["max_offset"]), fn.lit(False)).alias(
            "written"
        ),
        *(counted(fn.col(name), p[name]).alias(name) for name in _COUNTERS),
        *(
            counted(fn.col("sync")[name], p["sync"][name]).alias(f"sync_{name}")
            for name in SYNC_RESULTS
        ),
        fn.when(same, p["replicas"]).alias("before_replicas"),
        fn.when(same, p["metadata"]).alias("before_metadata"),
        _gone_ids(same).alias("gone_ids"),
        fn.when(starts, base).alias("ack_base"),
        fn.when(ends, ack).alias("ack_end"),
        fn.when(same & (fn.col("config") != p["config"]), p["config"]).alias("before_config"),
        fn.when(moved, p["processes"]).alias("before_processes"),
        fn.when(moved, fn.col("processes")).alias("processes"),
    ]


def _gone_ids(same_boot: Column) -> Column:
    ids, now, before = (
        fn.col("replicas.id"),
        connected_ids("replicas"),
        connected_ids("_p.replicas"),
    )
    is_new = (ids != fn.col("_p.replicas.id")) & (fn.size(fn.array_except(now, before)) > 0)
    gone = fn.array_except(before, ids)
    return fn.when(same_boot & is_new & (fn.size(gone) > 0), gone)


def counted(value: Column, before: Column) -> Column:
    """What a counter counted since the predecessor, never below 0: all of it where the boot began
    in the window, nothing where neither is known. For rows of `samples`; `before` is null where it
    has no predecessor."""
    rise = fn.greatest(value - fn.coalesce(before, fn.lit(0)), fn.lit(0))
    return fn.when(fn.col("same_boot"), rise).when(fn.col("from_zero"), value).otherwise(0)
