"""7 and 30 days from stored days: sums, missing days, merged histograms, budget and forecast."""

from __future__ import annotations

import datetime
import math
import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.result_tables import TABLES
from spark.windows import windows
from tests.spark.dump_lines_builder import DATE
from tests.spark.segment_rows_builder import rows_frame

pytestmark = pytest.mark.slow
DAY_S = 86_400.0
Stored = dict[str, Any]


def stored(back: int, replica: str = "b:1", **figures: Any) -> Stored:
    """A row of replica_days, `back` days before D: a good day unless told otherwise."""
    bad_s, unknown_s = figures.get("bad_s", 0.0), figures.get("unknown_s", 0.0)
    row = {
        "cluster": "c",
        "broker": "b",
        "replica": replica,
        "objective": "default",
        "window_s": DAY_S,
        "good_s": DAY_S - bad_s - unknown_s,
        "bad_s": 0.0,
        "unknown_s": 0.0,
        "incidents": 0,
        "incidents_ended": 0,
        "incident_ended_s": 0.0,
        "dt": str(DATE - datetime.timedelta(days=back)),
    }
    return row | figures


def computed(
    spark: SparkSession, rows: list[Stored], **objective: float
) -> dict[tuple[str, int], dict[str, Any]]:
    days = rows_frame(spark, rows, TABLES["replica_days"] | {"dt": "string"})
    values = {"name": "default", "availability_percent": 99.9, "min_coverage_percent": 99.0}
    columns = dict(zip(values, ("string", "double", "double"), strict=True))
    objectives = rows_frame(spark, [values | objective], columns)
    found = windows(days, objectives, str(DATE)).collect()
    return {(row.replica, row.days): row.asDict() for row in found}


def test_sums_over_days_that_are_all_there(spark: SparkSession) -> None:
    rows = [stored(back) for back in range(31)]
    rows[0] |= {"bad_s": 40.0, "good_s": DAY_S - 40, "incidents": 2}
    rows[0] |= {"incidents_ended": 1, "incident_ended_s": 10.0}
    rows[6] |= {"bad_s": 60.0, "good_s": DAY_S - 60, "incidents": 1}
    rows[6] |= {"incidents_ended": 1, "incident_ended_s": 70.0}
    rows[29] |= {"bad_s": 100.0, "good_s": DAY_S - 100, "incidents": 1}
    rows[29] |= {"incidents_ended": 1, "incident_ended_s": 100.0}
    rows[30] |= {"bad_s": 5_000.0, "good_s": DAY_S - 5_000, "incidents": 9}  # too old
    found = computed(spark, rows)
    week, month = found["b:1", 7], found["b:1", 30]
    assert (week["good_s"], week["bad_s"], week["unknown_s"]) == (7 * DAY_S - 100, 100, 0)
    assert (week["days_with_data"], week["coverage"]) == (7, 1.0)
    assert week["availability"] == pytest.approx(1 - 100 / (7 * DAY_S))
    assert (week["incidents"], week["mttr_s"]) == (3, 40.0)
    assert week["mtbf_s"] == pytest.approx((7 * DAY_S - 100) / 3)
    assert (week["budget_s"], week["budget_left_s"]) == (604.8, pytest.approx(504.8))
    assert week["budget_used_ratio"] == pytest.approx(100 / 604.8)
    assert (week["verdict"], week["forecast"]) == ("met", None)
    assert (month["bad_s"], month["days_with_data"], month["incidents"]) == (200, 30, 4)
    assert (month["budget_s"], month["mttr_s"]) == (2592.0, 60.0)


def test_missing_days_are_unknown(spark: SparkSession) -> None:
    rows = [stored(0), stored(3, unknown_s=DAY_S), stored(5, unknown_s=DAY_S / 2)]
    week = computed(spark, rows)["b:1", 7]
    assert (week["good_s"], week["unknown_s"]) == (1.5 * DAY_S, 5.5 * DAY_S)
    assert week["coverage"] == pytest.approx(1.5 / 7)
    assert (week["days_with_data"], week["verdict"]) == (2, "insufficient data")
    assert week["availability"] == 1.0


def test_a_replica_of_which_nothing_is_known(spark: SparkSession) -> None:
    week = computed(spark, [stored(0, unknown_s=DAY_S)])["b:1", 7]
    figures = ("availability", "mttr_s", "mtbf_s", "lag_ms_p50", "lag_bytes_p99", "lag_ms_max")
    assert [week[name] for name in figures] == [None] * 6
    assert (week["days_with_data"], week["coverage"], week["incidents"]) == (0, 0.0, 0)
    assert week["verdict"] == "insufficient data"


def test_only_replicas_that_d_has(spark: SparkSession) -> None:
    found = computed(spark, [stored(0), stored(1), stored(1, "gone"), stored(-1, "next")])
    assert found.keys() == {("b:1", 7), ("b:1", 30)}


def test_the_budget_is_breached_whatever_is_missing(spark: SparkSession) -> None:
    rows = [stored(0, bad_s=605.0), stored(0, "b:2", bad_s=604.8)]
    found = computed(spark, rows)
    assert found["b:1", 7]["verdict"] == "breached"
    assert found["b:1", 7]["budget_left_s"] == pytest.approx(-0.2)
    assert found["b:2", 7]["verdict"] == "insufficient data"  # all of it used, and days missing
    assert found["b:1", 30]["verdict"] == "insufficient data"


def test_a_part_of_a_day_has_a_part_of_the_budget(spark: SparkSession) -> None:
    rows = [stored(back) for back in range(1, 7)]
    rows.append(stored(0, window_s=3_600.0, good_s=3_600.0))
    week = computed(spark, rows)["b:1", 7]
    assert week["coverage"] == 1.0
    assert week["budget_s"] == pytest.approx((6 * DAY_S + 3_600) * 0.001)


def bucket(value: int) -> int:
    return 0 if value == 0 else 1 + math.floor(math.log(value) / math.log(1.02))


def exact(values: list[tuple[int, int]], permille: int) -> int:
    """The smallest value that with all smaller ones makes up that share of the time."""
    total, so_far = sum(ms for _, ms in values), 0
    for value, ms in sorted(values):
        so_far += ms
        if so_far * 1000 >= permille * total:
            return value
    raise AssertionError


def test_percentiles_of_merged_histograms_are_at_most_2_percent_too_high(
    spark: SparkSession,
) -> None:
    chance = random.Random(4)
    rows, values = [], []
    for back in range(7):
        row = stored(back)
        days = [(int(chance.lognormvariate(5, 3)), chance.randrange(1, 5_000)) for _ in range(400)]
        for lag in ("lag_ms", "lag_bytes"):
            histogram: dict[int, int] = {}
            for value, ms in days:
                histogram[bucket(value)] = histogram.get(bucket(value), 0) + ms
            row |= {f"{lag}_hist": histogram, f"{lag}_max": max(value for value, _ in days)}
        rows.append(row)
        values += days
    week = computed(spark, rows)["b:1", 7]
    for lag in ("lag_ms", "lag_bytes"):
        for name, permille in (("p50", 500), ("p99", 990), ("p999", 999)):
            truth = exact(values, permille)
            assert truth <= week[f"{lag}_{name}"] <= truth * 1.02 + 1e-6
        assert week[f"{lag}_max"] == max(value for value, _ in values)


def test_percentiles_at_an_exact_share_and_never_above_the_largest(spark: SparkSession) -> None:
    today = stored(0, lag_ms_hist={0: 990, bucket(100): 9, bucket(5_000): 1}, lag_ms_max=5_000)
    other = stored(0, "b:2", lag_ms_hist={bucket(5_000): 7}, lag_ms_max=5_000)
    nothing = stored(0, "b:3", lag_ms_hist={}, lag_ms_max=None)
    found = computed(spark, [today, other, nothing])
    first, second = found["b:1", 7], found["b:2", 30]
    assert (first["lag_ms_p50"], first["lag_ms_p99"]) == (0.0, 0.0)
    assert first["lag_ms_p999"] == pytest.approx(1.02 ** bucket(100))
    assert (second["lag_ms_p50"], second["lag_ms_max"]) == (5_000.0, 5_000.0)
    assert found["b:3", 7]["lag_ms_p50"] is None


@pytest.mark.parametrize(
    ("bad_by_day", "forecast"),
    [
        ({}, None),
        ({20: 1_000.0}, None),  # nothing within 7 days
        ({0: 3_000.0}, "exhausted"),
        ({29: 2_592.0}, "exhausted"),  # just used up
        # 2592 - 700 = 1892 s left at 100 s a day: 18 whole days.
        (dict.fromkeys(range(7), 100.0), "2026-03-28"),
        ({3: 2_500.0}, "2026-03-10"),  # 92 s left at 357 s a day
        ({0: 0.001}, None),  # in 18 million days: no calendar has them
    ],
)
def test_forecast(spark: SparkSession, bad_by_day: dict[int, float], forecast: str | None) -> None:
    found = computed(spark, [stored(n, bad_s=bad_by_day.get(n, 0.0)) for n in range(30)])
    assert found["b:1", 30]["forecast"] == forecast
    assert found["b:1", 7]["forecast"] is None


def test_the_forecast_takes_the_rate_of_the_days_that_are_known(spark: SparkSession) -> None:
    # 100 s in two known days: 50 s a day, 2492 s left.
    found = computed(spark, [stored(0, bad_s=100.0), stored(2), stored(4, unknown_s=DAY_S)])
    assert found["b:1", 30]["forecast"] == str(DATE + datetime.timedelta(days=49))
