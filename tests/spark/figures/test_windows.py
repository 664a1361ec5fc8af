"""Several days from stored days: sums, missing days, merged histograms, incidents over midnight,
budget and forecast; groups and clusters."""

from __future__ import annotations

import datetime
import math
import random
from typing import Any

import pytest

from spark.config.objectives import Objective
from spark.figures.result_tables import TABLES
from spark.figures.windows import clusters, group_windows, replica_windows
from spark.vocabulary import IS_MASTER
from tests.spark.dump_lines_builder import DATE

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
        "incident_s": 0.0,
        "longest_incident_s": 0.0,
        "dt": str(DATE - datetime.timedelta(days=back)),
    }
    return row | figures


def computed(
    rows: list[Stored], lengths: tuple[int, ...] = (7, 30), **objective: float
) -> dict[tuple[str, int], dict[str, Any]]:
    asked = Objective("default", **objective)
    nothing = dict.fromkeys(TABLES["replica_days"])
    by_replica: dict[str, list[Stored]] = {}
    for row in rows:
        by_replica.setdefault(row["replica"], []).append(nothing | row)
    found = [
        row
        for days in by_replica.values()
        if any(day["dt"] == str(DATE) for day in days)
        for row in replica_windows(days, asked, str(DATE), lengths)
    ]
    assert all(TABLES["windows"].keys() == row.keys() for row in found)
    return {(row["replica"], row["days"]): row for row in found}


def test_sums_over_days_that_are_all_there() -> None:
    rows = [stored(back) for back in range(31)]
    rows[0] |= {"bad_s": 40.0, "good_s": DAY_S - 40, "incidents": 2}
    rows[0] |= {"incidents_ended": 1, "incident_ended_s": 10.0}
    rows[6] |= {"bad_s": 60.0, "good_s": DAY_S - 60, "incidents": 1}
    rows[6] |= {"incidents_ended": 1, "incident_ended_s": 70.0}
    rows[29] |= {"bad_s": 100.0, "good_s": DAY_S - 100, "incidents": 1}
    rows[29] |= {"incidents_ended": 1, "incident_ended_s": 100.0}
    rows[30] |= {"bad_s": 5_000.0, "good_s": DAY_S - 5_000, "incidents": 9}  # too old
    found = computed(rows)
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


def test_missing_days_are_unknown() -> None:
    rows = [stored(0), stored(3, unknown_s=DAY_S), stored(5, unknown_s=DAY_S / 2)]
    week = computed(rows)["b:1", 7]
    assert (week["good_s"], week["unknown_s"]) == (1.5 * DAY_S, 5.5 * DAY_S)
    assert week["coverage"] == pytest.approx(1.5 / 7)
    assert (week["days_with_data"], week["verdict"]) == (2, "insufficient data")
    assert week["availability"] == 1.0


def test_a_replica_of_which_nothing_is_known() -> None:
    week = computed([stored(0, unknown_s=DAY_S)])["b:1", 7]
    figures = ("availability", "mttr_s", "mtbf_s", "lag_ms_p50", "lag_bytes_p99", "lag_ms_max")
    assert [week[name] for name in figures] == [None] * 6
    assert (week["days_with_data"], week["coverage"], week["incidents"]) == (0, 0.0, 0)
    assert week["verdict"] == "insufficient data"


def test_only_replicas_that_d_has() -> None:
    found = computed([stored(0), stored(1), stored(1, "gone"), stored(-1, "next")])
    assert found.keys() == {("b:1", 7), ("b:1", 30)}


def test_the_budget_is_breached_whatever_is_missing() -> None:
    rows = [stored(0, bad_s=605.0), stored(0, "b:2", bad_s=604.8)]
    found = computed(rows)
    assert found["b:1", 7]["verdict"] == "breached"
    assert found["b:1", 7]["budget_left_s"] == pytest.approx(-0.2)
    assert found["b:2", 7]["verdict"] == "insufficient data"  # all of it used, and days missing
    assert found["b:1", 30]["verdict"] == "insufficient data"


def test_a_part_of_a_day_has_a_part_of_the_budget() -> None:
    rows = [stored(back) for back in range(1, 7)]
    rows.append(stored(0, window_s=3_600.0, good_s=3_600.0))
    week = computed(rows)["b:1", 7]
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


def test_percentiles_of_merged_histograms_are_at_most_2_percent_too_high() -> None:
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
    week = computed(rows)["b:1", 7]
    for lag in ("lag_ms", "lag_bytes"):
        for name, permille in (("p50", 500), ("p99", 990), ("p999", 999)):
            truth = exact(values, permille)
            assert truth <= week[f"{lag}_{name}"] <= truth * 1.02 + 1e-6
        assert week[f"{lag}_max"] == max(value for value, _ in values)


def test_percentiles_at_an_exact_share_and_never_above_the_largest() -> None:
    today = stored(0, lag_ms_hist={0: 990, bucket(100): 9, bucket(5_000): 1}, lag_ms_max=5_000)
    other = stored(0, "b:2", lag_ms_hist={bucket(5_000): 7}, lag_ms_max=5_000)
    nothing = stored(0, "b:3", lag_ms_hist={}, lag_ms_max=None)
    found = computed([today, other, nothing])
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
def test_forecast(bad_by_day: dict[int, float], forecast: str | None) -> None:
    found = computed([stored(n, bad_s=bad_by_day.get(n, 0.0)) for n in range(30)])
    assert found["b:1", 30]["forecast"] == forecast
    assert found["b:1", 7]["forecast"] is None


def test_the_forecast_takes_the_rate_of_the_days_that_are_known() -> None:
    # 100 s in two known days: 50 s a day, 2492 s left.
    found = computed([stored(0, bad_s=100.0), stored(2), stored(4, unknown_s=DAY_S)])
    assert found["b:1", 30]["forecast"] == str(DATE + datetime.timedelta(days=49))


HOUR_MS = 3_600_000
MIDNIGHT_MS = 1_773_100_800_000
"""At which D begins."""


def with_incident(back: int, first_h: float, last_h: float, **figures: Any) -> Stored:
    """A day with one incident between two of its hours; at 0 it is carried, at 24 it is open."""
    begin = MIDNIGHT_MS - back * 24 * HOUR_MS
    start, end = (round(begin + hour * HOUR_MS) for hour in (first_h, last_h))
    length_s = (end - start) / 1000
    row = stored(back, bad_s=length_s, incidents=1, incident_s=length_s, **figures)
    row["longest_incident_s"] = length_s
    if first_h == 0:
        row |= {"carried_start_ms": start, "carried_end_ms": end}
    if last_h == 24:
        return row | {"open_start_ms": start, "open_end_ms": end}
    return row | {"incidents_ended": 1, "incident_ended_s": length_s}


def silent(back: int) -> Stored:
    return stored(back, unknown_s=DAY_S)


def led(back: int) -> Stored:
    return stored(back, good_s=0.0, exclusions=[{"reason": IS_MASTER, "seconds": DAY_S}])


# incidents, ended, seconds of all, of those that ended, of the longest
OVER_MIDNIGHT: dict[str, tuple[list[Stored], tuple[float, ...]]] = {
    "from 23:00 to 01:00": (
        [with_incident(1, 23, 24), with_incident(0, 0, 1)],
        (1, 1, 7_200, 7_200, 7_200),
    ),
    "two that do not touch midnight": (
        [with_incident(1, 22, 23), with_incident(0, 1, 2)],
        (2, 2, 7_200, 7_200, 3_600),
    ),
    "it ended at midnight": ([with_incident(1, 23, 24), stored(0)], (1, 1, 3_600, 3_600, 3_600)),
    "it ended at midnight, and another came": (
        [with_incident(1, 23, 24), with_incident(0, 1, 2)],
        (2, 2, 7_200, 7_200, 3_600),
    ),
    "over a whole day": (
        [with_incident(2, 23, 24), with_incident(1, 0, 24), with_incident(0, 0, 1)],
        (1, 1, 26 * 3_600, 26 * 3_600, 26 * 3_600),
    ),
    "still open": (
        [with_incident(1, 23, 24), with_incident(0, 0, 24)],
        (1, 0, 25 * 3_600, 0, 25 * 3_600),
    ),
    "over a day of which nothing is known": (
        [with_incident(2, 23, 24), silent(1), with_incident(0, 0, 1)],
        (1, 1, 26 * 3_600, 26 * 3_600, 26 * 3_600),
    ),
    "over a day as the master": (
        [with_incident(2, 23, 24), led(1), with_incident(0, 0, 1)],
        (2, 2, 7_200, 7_200, 3_600),
    ),
    "over a day without result": (
        [with_incident(2, 23, 24), with_incident(0, 0, 1)],
        (1, 1, 26 * 3_600, 26 * 3_600, 26 * 3_600),
    ),
    "nothing is known since": (
        [with_incident(1, 23, 24), silent(0)],
        (1, 0, 3_600, 0, 3_600),
    ),
    "begun before the window": ([stored(1), with_incident(0, 0, 1)], (1, 1, 3_600, 3_600, 3_600)),
}


def test_incidents_over_midnight() -> None:
    rows = [row | {"replica": case} for case, (days, _) in OVER_MIDNIGHT.items() for row in days]
    found = computed(rows)
    names = ("incidents", "incidents_ended", "incident_s", "incident_ended_s", "longest_incident_s")
    for case, (_, expected) in OVER_MIDNIGHT.items():
        week = found[case, 7]
        assert tuple(week[name] for name in names) == expected, case
        assert week["mttr_s"] == (expected[3] / expected[1] if expected[1] else None), case
        assert week["bad_s"] <= expected[2], case


def kind(name: str, max_age_ms: int, failures: int, covered_s: float) -> dict[str, Any]:
    return {
        "kind": name,
        "max_age_ms": max_age_ms,
        "p99_age_ms": 1,
        "failures": failures,
        "covered_s": covered_s,
    }


def test_whatever_can_be_added_up() -> None:
    """Two stored days and five missing ones."""
    topics = kind("topics", 5_000, 1, 80_000.0)
    one = stored(
        0,
        expected=17_280,
        received=17_280,
        minutes_good=1_400,
        minutes_bad=30,
        minutes_unknown=10,
        minutes_written=100,
        minutes_written_good=90,
        duplicates=3,
        late=2,
        state_in_sync_s=80_000.0,
        state_down_s=400.0,
        state_unknown_s=6_000.0,
        burn_1h=2.0,
        burn_3d=0.5,
        transferred_bytes=7,
        catch_up_s=10.0,
        catch_up_longest_s=6.0,
        catch_up_bytes=20_000_000,
        longest_gap_s=100.0,
        clock_skew_ms=3,
        metadata=[kind("offsets", 1, 0, 1.0), topics],
    )
    other = stored(
        2,
        expected=10,
        minutes_good=1_439,
        minutes_bad=1,
        minutes_unknown=0,
        clock_skew_ms=9,
        state_in_sync_s=86_399.5,
        state_unknown_s=0.5,
        burn_1h=1.5,
        transferred_bytes=1,
        catch_up_s=0.0,
        longest_gap_s=4.0,
        metadata=[kind("topics", 7_000, 5, 86_400.0)],
    )
    week = computed([one, other])["b:1", 7]
    expected = {
        "window_s": 7 * DAY_S,
        "expected": 17_290,
        "received": 17_280,
        "duplicates": 3,
        "late": 2,
        "longest_gap_s": DAY_S,
        "clock_skew_ms": 9,
        "state_in_sync_s": 166_399.5,
        "state_down_s": 400.0,
        "state_unknown_s": 7 * DAY_S - 166_799.5,
        "minutes_good": 2_839,
        "minutes_bad": 31,
        "minutes_unknown": 7 * 1_440 - 2_870,
        "minutes_written": 100,
        "minutes_written_good": 90,
        "transferred_bytes": 8,
        "catch_up_s": 10.0,
        "catch_up_longest_s": 6.0,
        "catch_up_mb_s": 2.0,
        "burn_1h": 2.0,
        "burn_3d": 0.5,
        "burn_6h": None,
    }
    assert {name: week[name] for name in expected} == expected
    assert week["metadata"] == [
        {"kind": "offsets", "max_age_ms": 1, "failures": 0, "covered_s": 1.0},
        {"kind": "topics", "max_age_ms": 7_000, "failures": 6, "covered_s": 166_400.0},
    ]


def test_gaps_of_days_that_are_all_there() -> None:
    rows = [stored(back, longest_gap_s=float(back)) for back in range(30)]
    found = computed(rows)
    assert [found["b:1", days]["longest_gap_s"] for days in (7, 30)] == [6.0, 29.0]


def test_the_forecast_is_that_of_the_longest_window() -> None:
    found = computed([stored(n, bad_s=10.0) for n in range(14)], lengths=(2, 14))
    # Of 1209.6 s are 1069.6 left, at 10 s a day.
    told = {days: row["forecast"] for (_, days), row in found.items()}
    assert told == {2: None, 14: "2026-06-24"}


def test_no_forecast_from_a_few_known_minutes() -> None:
    """16 known minutes of which 1 s was bad say nothing of the next month."""
    few = stored(0, unknown_s=DAY_S - 960, bad_s=1.0)
    assert computed([few])["b:1", 30]["forecast"] is None
    assert computed([few, stored(1)])["b:1", 30]["forecast"] is not None


def test_unknown_time_has_to_fit_into_the_budget() -> None:
    """Of 30 days 2,592 s may be bad; 99 % of them known leave 25,920 s."""
    month = [stored(back, unknown_s=0.0) for back in range(30)]
    assert computed(month)["b:1", 30]["verdict"] == "met"
    month[3] = stored(3, unknown_s=2_592.0)
    assert computed(month)["b:1", 30]["verdict"] == "met"
    month[4] = stored(4, bad_s=0.001)
    found = computed(month)["b:1", 30]
    assert (found["verdict"], found["coverage"] > 0.99) == ("insufficient data", True)


def test_excluded_time_is_in_no_budget() -> None:
    half = DAY_S / 2
    rows = [stored(back) for back in range(1, 7)]
    rows.append(stored(0, excluded_s=half, good_s=half))
    week = computed(rows)["b:1", 7]
    assert (week["excluded_s"], week["unknown_s"], week["coverage"]) == (half, 0.0, 1.0)
    assert week["budget_s"] == pytest.approx(6.5 * 86.4)
    assert week["verdict"] == "met"


def group(back: int, broker: str = "b", **figures: Any) -> Stored:
    dt = str(DATE - datetime.timedelta(days=back))
    return {"cluster": "c", "broker": broker, "samples": 0, "verdict": "met", "dt": dt} | figures


SENDS = {"sync_ok": 90, "sync_flush_slave_timeout": 10}
SENDS |= {"sync_slave_not_available": 0, "sync_flush_disk_timeout": 0}


def of_group(back: int, broker: str = "b", **figures: Any) -> Stored:
    exposed = {"unreplicated_bytes_max": 100, "unreplicated_bytes_hist": {0: 990, 233: 10}}
    counts = {"samples": 10, "msgs_in": 5, "bytes_in": 50, "restarts": 1}
    acks = {"ack_le": [0.001, 0.01], "ack_counts": [90, 9, 1], "ack_sum_s": 0.1}
    known = exposed | counts | acks | SENDS | {"exposure_byte_s": 0.1}
    return group(back, broker, **(known | figures))


@pytest.fixture(scope="module")
def groups() -> dict[tuple[str, str, int], dict[str, Any]]:
    """Of group b three days, of `quiet` one without a sample, of `old` one without histogram; and
    the clusters that they are, as broker `*`."""
    nothing = dict.fromkeys(TABLES["group_days"])
    rows = [
        of_group(0),
        *(of_group(back, unreplicated_bytes_hist={0: 1_000}, ack_sum_s=0.2) for back in (1, 2)),
        group(0, "quiet"),
        of_group(0, "old", unreplicated_bytes_hist=None),
        of_group(0, "lone", cluster="w", role="SYNC_MASTER"),
        of_group(0, "full", cluster="w", role="SYNC_MASTER"),
    ]
    days = [nothing | row for row in rows]
    keys = [("c", "b", "b:1", "met"), ("c", "b", "b:2", "breached"), ("c", "old", "old:1", "met")]
    keys.append(("w", "full", "full:1", "met"))
    replicas = [
        dict.fromkeys(TABLES["replica_days"])
        | stored(0, replica, cluster=cluster, broker=broker, verdict=verdict)
        | {"lag_ms_max": 5, "lag_ms_hist": {0: 97, 82: 3}, "minutes_good": 30, "minutes_bad": 10}
        for cluster, broker, replica, verdict in keys
    ]
    several = [
        row | {"days": length, "verdict": "met", "window_s": length * DAY_S, "lag_ms_max": 5.0}
        for row in replicas
        for length in (7, 30)
    ]
    of_groups: list[dict[str, Any]] = []
    for key in dict.fromkeys((row["cluster"], row["broker"]) for row in days):
        own = [row for row in days if (row["cluster"], row["broker"]) == key]
        theirs = [row for row in several if (row["cluster"], row["broker"]) == key]
        of_groups += group_windows(own, theirs, str(DATE), (7, 30))
    assert all(TABLES["group_windows"].keys() == row.keys() for row in of_groups)
    today = [row for row in days if row["dt"] == str(DATE)]
    found = clusters(replicas, several, today, of_groups)
    assert all(TABLES["clusters"].keys() <= row.keys() for row in found)
    every = [*of_groups, *(row | {"broker": "*"} for row in found)]
    return {(row["cluster"], row["broker"], row["days"]): row for row in every}


Rows = dict[tuple[str, str, int], dict[str, Any]]


def test_groups_that_d_has(groups: Rows) -> None:
    names = {broker for cluster, broker, _ in groups if cluster == "c"}
    assert names == {"b", "quiet", "old", "*"}


def test_a_group_over_days(groups: Rows) -> None:
    row = groups["c", "b", 7]
    expected = {
        "days_with_data": 3,
        "samples": 30,
        "msgs_in": 15,
        "bytes_in": 150,
        "restarts": 3,
        "sync_ok": 270,
        "sync_flush_slave_timeout": 30,
        "sync_ok_ratio": 0.9,
        "exposure_byte_s": 0.3,
        "ack_sum_s": 0.5,
        "ack_le": [0.001, 0.01],
        "ack_counts": [270, 27, 3],
        "unreplicated_bytes_max": 100,
    }
    # Of 3,000 ms are 10 above 0: 99 % have nothing unreplicated.
    assert row["unreplicated_bytes_p99"] == 0.0
    assert row["ack_p50_s"] == pytest.approx(0.001 * 150 / 270)
    assert row["ack_p99_s"] == pytest.approx(0.001 + 0.009 * 27 / 27)
    assert {name: row[name] for name in expected} == expected


def test_the_verdict_of_a_group_is_the_worst_of_its_windows(groups: Rows) -> None:
    found = [groups["c", broker, 7]["verdict"] for broker in ("b", "quiet")]
    assert found == ["met", "insufficient data"]


def test_a_group_of_which_nothing_is_known(groups: Rows) -> None:
    row = groups["c", "quiet", 30]
    assert (row.pop("samples"), row.pop("days_with_data"), row.pop("days")) == (0, 0, 30)
    told = {name for name, value in row.items() if value is not None}
    assert told == {"cluster", "broker", "verdict"}


def test_a_day_of_an_earlier_version_has_no_percentile_of_what_was_at_risk(groups: Rows) -> None:
    row = groups["c", "old", 7]
    assert (row["unreplicated_bytes_max"], row["unreplicated_bytes_p99"]) == (100, None)


def test_clusters(groups: Rows) -> None:
    day, week = groups["c", "*", 1], groups["c", "*", 7]
    expected = {
        "verdict": "breached",
        "groups": 3,
        "replicas": 3,
        "replicas_met": 2,
        "replicas_breached": 1,
        "replicas_insufficient": 0,
        "window_s": 3 * DAY_S,
        "good_s": 3 * DAY_S,
        "coverage": 1.0,
        "availability": 1.0,
        "minutes_good": 90,
        "minutes_good_ratio": 0.75,
        "lag_ms_p50": 0.0,
        "lag_ms_max": 5.0,
        "incidents": 0,
        "samples": 20,
        "sync_ok": 180,
        "sync_ok_ratio": 0.9,
        "ack_counts": [180, 18, 2],
        "unreplicated_bytes_max": 100,
        "exposure_byte_s": 0.2,
        "mttr_s": None,
    }
    assert {name: day[name] for name in expected} == expected
    # 3 % of each have 1.02 ** 82 = 5.07 ms, which is more than the largest.
    assert [day[f"lag_ms_{name}"] for name in ("p95", "p99")] == [0.0, 5.0]
    assert (week["verdict"], week["replicas_met"], week["samples"]) == ("met", 3, 40)
    assert week["coverage"] == pytest.approx(1 / 7)


def test_a_cluster_with_a_master_that_waits_for_nobody(groups: Rows) -> None:
    """The other group's replica met its objective: the cluster did not."""
    row = groups["w", "*", 1]
    assert (row["groups"], row["replicas"], row["replicas_met"]) == (2, 1, 1)
    assert row["verdict"] == groups["w", "*", 30]["verdict"] == "insufficient data"


def test_results_of_an_earlier_version_lack_columns() -> None:
    """They are read as nulls, and windows count what is there."""
    yesterday = stored(1, bad_s=10.0, incidents=1, incidents_ended=1, incident_ended_s=10.0)
    for name in ("incident_s", "longest_incident_s"):
        del yesterday[name]
    week = computed([yesterday, with_incident(0, 0, 1)])["b:1", 7]
    assert (week["incidents"], week["bad_s"], week["mttr_s"]) == (2, 3_610.0, 1_805.0)
    assert week["excluded_s"] == 0.0


def begun(rows: list[Stored], date: str, days: int = 30) -> dict[str, Any]:
    nothing = dict.fromkeys(TABLES["replica_days"])
    every = [nothing | row for row in rows]
    asked = Objective("default")
    (row,) = replica_windows(every, asked, str(DATE), (days,), date)
    return row


def test_a_new_installation_is_judged_over_the_days_that_it_has() -> None:
    """Installed at 15:00 two days before D: no day is claimed that nobody watched."""
    dates = [str(DATE - datetime.timedelta(days=back)) for back in range(31)]
    rows = [stored(0), stored(1), stored(2, unknown_s=54_000.0, leading_unknown_s=54_000.0)]
    row = begun(rows, dates[2])
    assert (row["days"], row["days_with_data"], row["begun"]) == (30, 3, dates[2])
    assert row["window_s"] == 3 * DAY_S - 54_000
    assert (row["unknown_s"], row["coverage"], row["minutes_unknown"]) == (0, 1.0, 0)
    assert (row["budget_s"], row["verdict"]) == (205.2, "met")
    # Whatever was unknown after its first line is unknown, and so is a day without a result.
    rows[1] = stored(1, unknown_s=3_600.0)
    assert begun(rows, dates[2])["verdict"] == "insufficient data"
    assert begun([rows[0], rows[2]], dates[2])["unknown_s"] == DAY_S
    # What is bad has the budget of these days, not of 30.
    rows[1] = stored(1, bad_s=206.0)
    assert (begun(rows, dates[2])["verdict"], begun(rows, dates[2])["forecast"]) == (
        "breached",
        "exhausted",
    )
    # A first date of which nothing at all is known has no first line.
    rows = [stored(0), stored(1, unknown_s=DAY_S, leading_unknown_s=DAY_S)]
    row = begun(rows, dates[1])
    assert (row["window_s"], row["verdict"]) == (2 * DAY_S, "insufficient data")


def test_a_window_that_has_all_its_days_says_nothing_of_a_beginning() -> None:
    dates = [str(DATE - datetime.timedelta(days=back)) for back in range(31)]
    rows = [stored(back) for back in range(30)]
    assert begun(rows, dates[29])["begun"] is None
    # An older result than the window's first day: days that are missing are unknown.
    assert begun(rows[:3], dates[30])["unknown_s"] == 27 * DAY_S
    rows[29] |= {"unknown_s": 60.0, "good_s": DAY_S - 60, "leading_unknown_s": 60.0}
    assert (begun(rows, dates[29])["begun"], begun(rows, dates[29])["verdict"]) == (
        dates[29],
        "met",
    )
