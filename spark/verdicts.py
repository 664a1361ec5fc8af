"""Whether a replica met its objective: each criterion's verdict, the worst of them, and why.

A stage of the pipeline: columns over rows of replica_days that were joined with their objective
and with their group's figures, evaluated in the executors. The rules are in docs/sla_report.md
("Service level"): what is not known is never `met`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from spark.distributions import send_count
from spark.dump_words import GROUP, SYNC_MASTER
from spark.local_frames import local_frame
from spark.report_data import BREACHED, INSUFFICIENT, MET
from spark.sla_config import Objective

_OBJECTIVE_TYPES: Final = {
    "objective_index": "int",
    "name": "string",
    "availability_percent": "double",
    "lag_seconds": "double",
    "min_coverage_percent": "double",
    "lag_p99_seconds": "double",
    "sync_ok_percent": "double",
    "rpo_bytes": "bigint",
    "metadata_age_seconds": "double",
    "metadata_required": "boolean",
}


@dataclass(frozen=True)
class _Criterion:
    """`verdict` is null where it is not judged; `breach` says by what it is breached, `told` how it
    was met, `gap` what is not known."""

    verdict: Column
    breach: Column
    gap: Column
    told: Column


def objectives_frame(spark: SparkSession, objectives: Sequence[Objective]) -> DataFrame:
    """Objectives as rows, `objective_index` counts from 0; null: that criterion is not set."""
    rows = [
        tuple(
            index if name == "objective_index" else _typed(getattr(objective, name), kind)
            for name, kind in _OBJECTIVE_TYPES.items()
        )
        for index, objective in enumerate(objectives)
    ]
    return local_frame(spark, _OBJECTIVE_TYPES, rows)


def _typed(value: object, kind: str) -> object:
    """Spark takes no 10 for 10.0."""
    return float(value) if kind == "double" and isinstance(value, int) else value


def judged(rows: DataFrame) -> DataFrame:
    """Adds `verdict` and `reasons`: texts on what is breached, then on what is not known; for
    `met` on how each criterion was met.

    `rows` have the columns of replica_days, those of `objectives_frame`, and of the group
    `samples`, `unreplicated_bytes_max`, `sync_ok_ratio` and the four counters of sends (all null
    without a group).
    """
    criteria = (_availability(), _lag_p99(), _sync_ok(), _rpo(), _metadata_age())
    verdicts = fn.array(*(criterion.verdict for criterion in criteria))
    breaches = _texts((c.breach, c.verdict == BREACHED) for c in criteria)
    gaps = _texts((c.gap, c.verdict == INSUFFICIENT) for c in criteria)
    told = _texts((c.told, c.verdict == MET) for c in criteria)
    why = fn.concat(breaches, gaps)
    return rows.withColumns(
        {
            "verdict": fn.when(fn.array_contains(verdicts, BREACHED), BREACHED)
            .when(fn.array_contains(verdicts, INSUFFICIENT), INSUFFICIENT)
            .otherwise(MET),
            "reasons": fn.array_distinct(fn.when(fn.size(why) > 0, why).otherwise(told)),
        }
    )


def worst(verdict: Column) -> Column:
    """Aggregate: the worst of the verdicts of a group; `insufficient data` of none."""
    return (
        fn.when(fn.bool_or(verdict == BREACHED), BREACHED)
        .when(fn.bool_and(verdict == MET), MET)
        .otherwise(INSUFFICIENT)
    )


def worst_of(verdicts: Iterable[str]) -> str:
    """The same of a date's collected verdicts."""
    found = set(verdicts)
    if BREACHED in found:
        return BREACHED
    return MET if found == {MET} else INSUFFICIENT


def waiting_groups(groups: DataFrame, replicas: DataFrame) -> DataFrame:
    """The groups of a date whose master waits for slaves and has none: nothing could be met."""
    waiting = groups.where(fn.col("role") == SYNC_MASTER)
    return waiting.join(replicas.select(*GROUP), list(GROUP), "left_anti")


def budget_s(availability_percent: Column, length_s: Column) -> Column:
    """Seconds that may be bad; whole ms, so that 0.1 % of a day is 86.4 s and nothing else."""
    return fn.round((fn.lit(100.0) - availability_percent) * length_s / 100, 3)


def budget_columns(budget: Column, bad_s: Column) -> dict[str, Column]:
    """What a budget of seconds became, of a day or of several."""
    return {
        "budget_s": budget,
        "budget_left_s": budget - bad_s,
        "budget_used_ratio": fn.when(budget > 0, bad_s / budget),
    }


def availability_verdict(
    bad_s: Column, budget: Column, coverage: Column, min_coverage_percent: Column
) -> Column:
    """Of a day or of several."""
    return _verdict(bad_s > budget, fn.lit(True), _is_covered(coverage, min_coverage_percent))


def _verdict(is_breached: Column, is_known: Column, is_covered: Column) -> Column:
    # A null condition counts as false: `met` takes evidence.
    return fn.when(is_breached, BREACHED).when(is_known & is_covered, MET).otherwise(INSUFFICIENT)


def _is_covered(coverage: Column, min_coverage_percent: Column) -> Column:
    return fn.round(coverage * 100, 9) >= min_coverage_percent


def _covered() -> Column:
    return _is_covered(fn.col("coverage"), fn.col("min_coverage_percent"))


def _coverage_gap() -> Column:
    return _sentence(
        "coverage %s %% < %s %%: %s unknown",
        _floored(fn.coalesce("coverage", fn.lit(0.0)) * 100),
        _plain(fn.col("min_coverage_percent")),
        duration(fn.coalesce("unknown_s", fn.col("window_s"))),
    )


def _availability() -> _Criterion:
    bad, budget = fn.col("bad_s"), fn.col("budget_s")
    seconds = (_plain(bad), _plain(budget))
    known = (_floored(fn.col("availability") * 100), _plain(fn.col("availability_percent")))
    return _Criterion(
        availability_verdict(bad, budget, fn.col("coverage"), fn.col("min_coverage_percent")),
        _sentence("availability %s %% < %s %%: %s s bad of %s s allowed", *known, *seconds),
        _coverage_gap(),
        _sentence(
            "availability %s %%, objective %s %%: %s s bad of %s s allowed", *known, *seconds
        ),
    )


def _lag_p99() -> _Criterion:
    figure, limit = fn.col("lag_ms_p99") / 1000, fn.col("lag_p99_seconds")
    texts = (_plain(figure), _plain(limit))
    # A share of what is known proves nothing when next to nothing is known.
    above = (figure > limit) & _covered()
    return _Criterion(
        fn.when(limit.isNotNull(), _verdict(above, figure.isNotNull(), _covered())),
        _sentence("lag p99 %s s > %s s", *texts),
        fn.when(figure.isNotNull(), _coverage_gap()).otherwise(
            _sentence("lag p99 not known, objective %s s", _plain(limit))
        ),
        _sentence("lag p99 %s s, objective %s s", *texts),
    )


def _sync_ok() -> _Criterion:
    ratio, limit = fn.col("sync_ok_ratio"), fn.col("sync_ok_percent")
    # Without a ratio either nobody sent synchronously, or nothing is known of the group.
    is_judged = limit.isNotNull() & ~(ratio.isNull() & (fn.coalesce("samples", fn.lit(0)) > 0))
    sends = send_count()
    texts = (_floored(ratio * 100), _plain(limit), _whole(sends - fn.col("sync_ok")), _whole(sends))
    below = (fn.round(ratio * 100, 9) < limit) & _covered()
    return _Criterion(
        fn.when(is_judged, _verdict(below, ratio.isNotNull(), _covered())),
        _sentence("sync ok %s %% < %s %%: %s of %s sends failed", *texts),
        fn.when(ratio.isNotNull(), _coverage_gap()).otherwise(
            _sentence("sync ok not known, objective %s %%", _plain(limit))
        ),
        _sentence("sync ok %s %%, objective %s %%: %s of %s sends failed", *texts),
    )


def _rpo() -> _Criterion:
    figure, limit = fn.col("unreplicated_bytes_max"), fn.col("rpo_bytes")
    texts = (_whole(figure), _whole(limit))
    return _Criterion(
        fn.when(limit.isNotNull(), _verdict(figure > limit, figure.isNotNull(), _covered())),
        _sentence("unreplicated at worst %s bytes > %s bytes", *texts),
        fn.when(figure.isNotNull(), _coverage_gap()).otherwise(
            _sentence("unreplicated bytes not known, objective %s bytes", _whole(limit))
        ),
        _sentence("unreplicated at worst %s bytes, objective %s bytes", *texts),
    )


def _metadata_age() -> _Criterion:
    """Of the slave's own samples, which may cover another part of the day than the master's."""
    limit = fn.col("metadata_age_seconds")
    is_given = fn.coalesce(fn.size("metadata"), fn.lit(0)) > 0
    is_judged = limit.isNotNull() & (is_given | fn.col("metadata_required"))
    too_old = fn.exists("metadata", lambda kind: kind["max_age_ms"] > limit * 1000)
    all_known = is_given & fn.forall(
        "metadata",
        lambda kind: (
            kind["max_age_ms"].isNotNull()
            & _is_covered(kind["covered_s"] / fn.col("window_s"), fn.col("min_coverage_percent"))
        ),
    )
    oldest = _plain(fn.array_max(fn.transform("metadata", lambda kind: kind["max_age_ms"])) / 1000)
    return _Criterion(
        fn.when(is_judged, _verdict(too_old, all_known, _covered())),
        _sentence("metadata age %s s > %s s", oldest, _plain(limit)),
        fn.when(all_known, _coverage_gap()).otherwise(
            _sentence("metadata age not known for the whole day, objective %s s", _plain(limit))
        ),
        _sentence("metadata age %s s, objective %s s", oldest, _plain(limit)),
    )


def _texts(candidates: Iterable[tuple[Column, Column]]) -> Column:
    """Those texts whose condition holds."""
    return fn.array_compact(fn.array(*(fn.when(condition, text) for text, condition in candidates)))


def _sentence(pattern: str, *texts: Column) -> Column:
    return fn.format_string(pattern, *(fn.coalesce(text, fn.lit("unknown")) for text in texts))


def _plain(number: Column) -> Column:
    """A number with at most three decimals and no trailing zeros."""
    text = fn.format_string("%.3f", number.cast("double"))
    return fn.when(number.isNotNull(), fn.regexp_replace(text, r"\.?0+$", ""))


def duration(seconds: Column) -> Column:
    """As spark/wording.py writes it, with plain blanks: `12 s`, `4 min 10 s`, `3 h 05 min`."""
    whole = fn.round(seconds).cast("bigint")
    return (
        fn.when(seconds < 59.95, fn.concat(_plain(seconds), fn.lit(" s")))
        .when(whole < 3600, _two_units(whole, 60, "min", 1, "s"))
        .when(whole < 86_400, _two_units(whole, 3600, "h", 60, "min"))
        .when(whole.isNotNull(), _two_units(whole, 86_400, "d", 3600, "h"))
    )


def _two_units(whole: Column, large_s: int, large: str, small_s: int, small: str) -> Column:
    rest = fn.floor(whole % large_s / small_s)
    text = fn.format_string(f"%d {large} %02d {small}", fn.floor(whole / large_s), rest)
    return fn.regexp_replace(text, f" 00 {small}$", "")


def _floored(percent: Column) -> Column:
    """Per cent, cut and not rounded: 99.8999 of 99.9 must not read 99.9."""
    return _plain(fn.floor(fn.round(percent * 1000, 6)) / 1000)


def _whole(number: Column) -> Column:
    return number.cast("bigint").cast("string")
