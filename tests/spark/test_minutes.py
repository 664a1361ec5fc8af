"""Minutes, hours, good minutes; burn rates across midnight with stored minutes."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from spark.dump_words import HOUR_MS, MINUTE_MS
from spark.minutes import burn_rates, hours, largest_bad_ms, minute_counts, minutes
from spark.result_tables import TABLES
from spark.schema import Day
from tests.spark.dump_lines_builder import DATE, T0
from tests.spark.segment_rows_builder import Timeline, frame, rows_frame

pytestmark = pytest.mark.slow
DAY = Day.whole(DATE)


def rows_of(spark: SparkSession, *timelines: Timeline) -> list[dict[str, Any]]:
    rows = minutes(frame(spark, *timelines)).orderBy("replica", "minute").collect()
    return [row.asDict() for row in rows]


def times(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["good_ms"], row["bad_ms"], row["unknown_ms"]


def test_a_segment_is_cut_at_the_minutes(spark: SparkSession) -> None:
    timeline = Timeline().good(58, lag_ms=10).bad(4, lag_ms=20_000).unknown(118)
    first, second, third = rows_of(spark, timeline)
    assert [row["minute"] for row in (first, second, third)] == [
        T0,
        T0 + MINUTE_MS,
        T0 + 2 * MINUTE_MS,
    ]
    assert times(first) == (58_000, 2_000, 0)
    assert times(second) == (0, 2_000, 58_000)
    assert times(third) == (0, 0, 60_000)
    assert [row["lag_ms_max"] for row in (first, second, third)] == [20_000, 20_000, None]


def test_what_a_sample_counted_belongs_to_the_minute_of_the_sample(spark: SparkSession) -> None:
    timeline = Timeline().good(57, msgs_in=5, written=True)
    timeline.good(5, msgs_in=7)  # speaks for 3 s of the first minute, ts in the 2nd
    timeline.good(58, msgs_in=1, written=True)  # ts is the third minute's first ms
    timeline.good(0, msgs_in=2)  # takes no time, counts nevertheless
    timeline.good(60, in_head=True)
    first, second, third = rows_of(spark, timeline)
    assert [row["msgs_in"] for row in (first, second, third)] == [5, 7, 3]
    assert [row["written"] for row in (first, second, third)] == [True, False, True]
    assert times(third) == (60_000, 0, 0)


def test_good_minutes(spark: SparkSession) -> None:
    timeline = Timeline()
    timeline.good(60, written=True, ts=T0 + 59_000)  # good, written
    timeline.good(30).unknown(30)  # known for half of it: good
    timeline.good(29).unknown(31)  # less: unknown
    timeline.good(59).bad(1, written=True, ts=T0 + 239_000)  # bad, written
    timeline.unknown(59).bad(1)  # bad, whatever else is not known
    timeline.unknown(60)
    timeline.unknown(4).good(6)  # the window ends after 10 s of this one
    (row,) = minute_counts(minutes(frame(spark, timeline))).collect()
    assert (row.minutes_good, row.minutes_bad, row.minutes_unknown) == (3, 2, 2)
    assert (row.minutes_written, row.minutes_written_good) == (2, 1)


def test_hours_are_sums_the_largest_lag_and_that_of_99_percent(spark: SparkSession) -> None:
    # Of the hour 3,000 s with lag 0, 564 s (15.7 %) with 7 ms, 36 s (1 %) with 30 s: 99 % of the
    # time ends with the 7 ms. The segment with 30 s reaches into the second hour.
    timeline = Timeline().good(3_000).good(564, lag_ms=7)
    timeline.bad(636, lag_ms=30_000).unknown(6_600)
    parts = frame(spark, timeline)
    rows = hours(minutes(parts), parts).orderBy("hour").collect()
    assert [row.hour for row in rows] == [T0, T0 + HOUR_MS, T0 + 2 * HOUR_MS]
    assert [times(row.asDict()) for row in rows] == [
        (3_564_000, 36_000, 0),
        (0, 600_000, 3_000_000),
        (0, 0, 3_600_000),
    ]
    assert [row.lag_ms_max for row in rows] == [30_000, 30_000, None]
    assert [row.lag_ms_p99 for row in rows] == [7, 30_000, None]


def burns(spark: SparkSession, today: dict[int, int], before: dict[int, int]) -> dict[str, float]:
    """Burn rates at 99.9 %; bad ms by the minutes' distance from midnight of D."""
    today = {0: 0} | today

    def stored(bad_ms: dict[int, int]) -> Any:
        key = {"cluster": "c", "broker": "b", "replica": "b:1"}
        rows = [
            key | {"minute": T0 + minute * MINUTE_MS, "bad_ms": ms, "good_ms": MINUTE_MS - ms}
            for minute, ms in bad_ms.items()
        ]
        return rows_frame(spark, rows, TABLES["minutes"])

    sums = largest_bad_ms(stored(today), stored(before), DAY)
    (row,) = sums.withColumns(burn_rates(fn.lit(99.9))).collect()
    return {name: row[f"burn_{name}"] for name in ("1h", "6h", "24h", "3d")}


def test_burn_rates_of_one_bad_minute(spark: SparkSession) -> None:
    # 36 s of 3.6 s that an hour may have, 21.6 s that 6 hours may have, ...
    rates = burns(spark, {600: 36_000, 601: 0}, {})
    assert rates == pytest.approx({"1h": 10, "6h": 36 / 21.6, "24h": 36 / 86.4, "3d": 36 / 259.2})


def test_a_span_is_exactly_as_long_as_it_says(spark: SparkSession) -> None:
    # Minutes 100 and 159 lie within one hour, 100 and 160 do not.
    assert burns(spark, {100: 36_000, 159: 36_000}, {})["1h"] == pytest.approx(20)
    assert burns(spark, {100: 36_000, 160: 36_000}, {})["1h"] == pytest.approx(10)


def test_spans_reach_back_over_midnight(spark: SparkSession) -> None:
    three_days = 3 * 1440
    before = {
        -30: 36_000,  # within an hour of D's minute 10
        -three_days + 1: 1_000,  # in the span of 3 days that ends with D's first minute
        -three_days: 50_000,  # not in any
    }
    rates = burns(spark, {10: 36_000}, before)
    assert rates == pytest.approx(
        {"1h": 72 / 3.6, "6h": 72 / 21.6, "24h": 72 / 86.4, "3d": 72 / 259.2}
    )


def test_a_good_day_still_shows_what_the_days_before_burnt(spark: SparkSession) -> None:
    three_days = 3 * 1440
    rates = burns(spark, {}, {-30: 36_000, -three_days + 1: 1_000})
    assert rates == pytest.approx(
        {"1h": 36 / 3.6, "6h": 36 / 21.6, "24h": 36 / 86.4, "3d": 37 / 259.2}
    )
    assert burns(spark, {}, {}) == {"1h": 0, "6h": 0, "24h": 0, "3d": 0}


def test_stored_minutes_of_d_itself_do_not_count_twice(spark: SparkSession) -> None:
    assert burns(spark, {5: 36_000}, {5: 36_000})["1h"] == pytest.approx(10)


def test_an_objective_without_budget_has_no_burn_rate(spark: SparkSession) -> None:
    one = spark.range(1).select(
        *(fn.lit(1).alias(f"bad_ms_{s}") for s in ("1h", "6h", "24h", "3d"))
    )
    (row,) = one.select(*(c.alias(n) for n, c in burn_rates(fn.lit(100.0)).items())).collect()
    assert list(row) == [None] * 4
