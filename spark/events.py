"""What happened to the brokers on one date: restarts, changed roles and settings, two at once.

A stage of the pipeline: native Spark SQL over samples (spark/samples.py), runs in the executors.
Looks at masters and slaves alike. Must not know figures or objectives.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from spark.dump_words import GROUP
from spark.samples import DUPLICATES, MASTERS, in_window
from spark.schema import Day

_BROKER: Final = (*GROUP, "broker_id")
_FIRST: Final = ("seq", "ts", "config", "role", "prev_boot", "prev_seq")


def events(samples: DataFrame, day: Day) -> DataFrame:
    """The rows of table `events`, without `dt`."""
    found = _of_lives(_lives(samples.where(fn.col("stream") != DUPLICATES)))
    found = found.where(fn.col("ts").between(day.w0_ms, day.w1_ms - 1))
    found = found.unionAll(_within_lives(in_window(samples, day)))
    return found.withColumn("broker_id", fn.col("broker_id").cast("int"))


def _lives(distinct: DataFrame) -> DataFrame:
    """A row for each boot of each broker: its first and last sample, and the boot before."""
    ends = fn.col("life_end_ms").isNotNull()
    # Few rows: others have nothing to tell, and sorting them all by text is slow.
    edges = distinct.where(~fn.col("same_boot") | ends)
    rows = edges.groupBy(*_BROKER, "boot_ts", "boot").agg(
        *(fn.min_by(name, "seq").alias(f"first_{name}") for name in _FIRST),
        *(fn.max_by(name, "seq").alias(f"last_{name}") for name in ("seq", "config", "role")),
        fn.max("life_end_ms").alias("latest_ts"),
        fn.bool_or(fn.col("stream") == MASTERS).alias("is_master"),
    )
    before = fn.struct(*("boot", "last_seq", "last_config", "last_role", "latest_ts", "is_master"))
    in_order = Window.partitionBy(*_BROKER).orderBy("boot_ts", "boot")
    earlier = (
        Window.partitionBy(*GROUP)
        .orderBy("boot_ts", "boot")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    master = fn.when(fn.col("is_master"), fn.struct("latest_ts", "boot", "broker_id"))
    return rows.withColumns(
        {"_p": fn.lag(before).over(in_order), "_other": fn.max(master).over(earlier)}
    )


def _event(condition: Column, kind: Column | str, text: Column) -> Column:
    named = fn.lit(kind) if isinstance(kind, str) else kind
    return fn.when(condition, fn.struct(named.alias("kind"), text.alias("text")))


def _of_lives(lives: DataFrame) -> DataFrame:
    """What a life's beginning tells, at its first sample."""
    kinds = (_restart(), _role(), _other_master(), _config(), _overlap())
    found = fn.explode(fn.array(*kinds)).alias("_event")
    rows = lives.select(*_BROKER, fn.col("first_ts").alias("ts"), found)
    return rows.where(fn.col("_event").isNotNull()).select(*_BROKER, "ts", "_event.*")


def _restart() -> Column:
    p = fn.col("_p")
    is_proved = (
        (fn.col("first_seq") == 1)
        & (fn.col("first_prev_boot") == p["boot"])
        & (fn.col("first_prev_seq") == p["last_seq"])
    )
    begins = p.isNotNull() | (fn.col("first_seq") == 1)
    is_new = p.isNull() & fn.col("first_prev_boot").isNull()
    kind = fn.when(is_proved, "restart").otherwise("unproved_restart")
    text = fn.concat(
        fn.lit("started at "),
        _moment(fn.col("boot_ts")),
        fn.when(is_proved, "; nothing is missing between the two lives")
        .when(p.isNotNull(), "; samples may be missing before it")
        .otherwise("; its life before is not in the dumps"),
    )
    return _event(begins & ~is_new, kind, text)


def _moment(ms: Column) -> Column:
    return fn.date_format(fn.timestamp_millis(ms), "yyyy-MM-dd HH:mm:ss 'UTC'")


def _role() -> Column:
    before, now = fn.col("_p.last_role"), fn.col("first_role")
    return _event(before != now, "role_change", fn.concat(before, fn.lit(" -> "), now))


def _other_master() -> Column:
    """A master's life that does not come from the master before it: what its broker found on its
    disk of an earlier life is another one's, or nothing. A failover looks like that."""
    p = fn.col("_p")
    is_another = ~fn.coalesce(fn.col("first_prev_boot") == p["boot"], fn.lit(False))
    text = fn.concat(
        fn.lit(
            "another broker became master, or one that lost its dumps: it does not follow boot "
        ),
        p["boot"],
        fn.lit(", master until "),
        _moment(p["latest_ts"]),
    )
    return _event(fn.col("is_master") & p["is_master"] & is_another, "role_change", text)


def _config() -> Column:
    before, now = fn.col("_p.last_config"), fn.col("first_config")
    return _event(before != now, "config_change", _config_text(before, now))


def _config_text(old: Column, new: Column) -> Column:
    return fn.concat(fn.lit("settings changed, digest "), old, fn.lit(" -> "), new)


def _overlap() -> Column:
    """A master's life that began while another one of the group still wrote."""
    other = fn.col("_other")
    text = fn.concat(
        fn.lit("began while broker id "),
        other["broker_id"].cast("string"),
        fn.lit(" (boot "),
        other["boot"],
        fn.lit(") wrote as master, until "),
        _moment(other["latest_ts"]),
        fn.lit(": two masters at once, or a clock was set back"),
    )
    is_at_once = fn.col("is_master") & (other["latest_ts"] > fn.col("first_ts"))
    return _event(is_at_once, "overlap", text)


def _within_lives(within: DataFrame) -> DataFrame:
    """Settings that changed and processes that were restarted while the supervisor lived."""
    rows = within.where(
        fn.col("before_config").isNotNull() | fn.col("before_processes").isNotNull()
    )
    names = fn.col("before_processes.name")
    place = fn.array_position(names, fn.col("_now.name")).cast("int") - 1
    before = fn.coalesce(fn.get("before_processes.restarts", place), fn.lit(0))
    count = fn.col("_now.restarts") - before
    times = fn.when(count > 1, fn.concat(fn.lit(" "), count.cast("string"), fn.lit(" times")))
    text = fn.concat(
        fn.lit("process "),
        fn.col("_now.name"),
        fn.lit(" was restarted"),
        fn.coalesce(times, fn.lit("")),
    )
    processes = rows.select(
        *_BROKER, "ts", "before_processes", fn.explode("processes").alias("_now")
    )
    restarted = processes.select(
        *_BROKER, "ts", _event(count > 0, "process_restart", text).alias("_event")
    )
    was, now = fn.col("before_config"), fn.col("config")
    changed = _event(was.isNotNull(), "config_change", _config_text(was, now)).alias("_event")
    found = rows.select(*_BROKER, "ts", changed).unionAll(restarted)
    return found.where(fn.col("_event").isNotNull()).select(*_BROKER, "ts", "_event.*")
