"""Incidents: every cause, where they begin and end, unknown time inside, the window's edges."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.incidents import incident_sums, incidents
from spark.schema import Day
from tests.spark.dump_lines_builder import DATE, T0
from tests.spark.segment_rows_builder import Timeline, frame

pytestmark = pytest.mark.slow
MINUTE = Day(DATE, T0, T0 + 60_000)


def found(spark: SparkSession, *timelines: Timeline, day: Day = MINUTE) -> list[dict[str, Any]]:
    rows = incidents(frame(spark, *timelines), day).orderBy("replica", "number").collect()
    return [row.asDict() for row in rows]


def test_every_cause_is_what_the_first_bad_segment_shows(spark: SparkSession) -> None:
    gone = {"state": "disconnected", "lag_ms": None, "lag_bytes": None}
    behind = {"state": "catching_up"}
    cases = {
        "down": (Timeline("down").good(5).down(5).bad(5, **gone), "master_restart"),
        "ha": (Timeline("ha").good(5).bad(5, ha_restarted=True, **gone), "ha_restart"),
        "boot": (Timeline("boot").bad(5, boot_unproved=True, **behind), "master_restart"),
        "ha at boot": (
            Timeline("ha at boot").bad(5, ha_restarted=True, boot_unproved=True),
            "ha_restart",
        ),
        "gone": (Timeline("gone").good(5).bad(5, **gone).bad(5, **behind), "disconnected"),
        "no row": (Timeline("no row").bad(5, state=None, lag_ms=None), "disconnected"),
        "behind": (Timeline("behind").good(5).bad(5, **behind).down(5), "fell_behind"),
        "stuck": (Timeline("stuck").good(5).bad(5).bad(5, stuck=True), "stalled"),
        "stuck before": (Timeline("stuck before").good(5, stuck=True).bad(5).good(5), "slow"),
        "slow": (Timeline("slow").good(5).bad(5).bad(5), "slow"),
    }
    rows = found(spark, *(timeline for timeline, _ in cases.values()))
    assert {row["replica"]: row["cause"] for row in rows} == {
        name: cause for name, (_, cause) in cases.items()
    }
    assert [row["number"] for row in rows] == [1] * len(cases)


def test_bad_segments_in_a_row_are_one_incident_and_good_time_ends_it(spark: SparkSession) -> None:
    timeline = Timeline().good(10).bad(5).bad(5, lag_ms=30_000, lag_bytes=9).good(5).bad(2.5)
    first, second = found(spark, timeline.good(32.5))
    assert first == {
        "cluster": "c",
        "broker": "b",
        "replica": "b:1",
        "number": 1,
        "start_ms": T0 + 10_000,
        "end_ms": T0 + 20_000,
        "duration_s": 10.0,
        "bad_s": 10.0,
        "unknown_s": 0.0,
        "cause": "slow",
        "open": False,
        "max_lag_ms": 30_000,
        "max_lag_bytes": 500,
    }
    assert (second["number"], second["start_ms"], second["duration_s"]) == (2, T0 + 25_000, 2.5)


def test_unknown_time_inside_is_told_and_does_not_end_an_incident(spark: SparkSession) -> None:
    timeline = Timeline().good(5).bad(5).unknown(20).bad(5).unknown(5).good(20)
    (incident,) = found(spark, timeline)
    assert (incident["start_ms"], incident["end_ms"]) == (T0 + 5_000, T0 + 35_000)
    assert (incident["duration_s"], incident["bad_s"], incident["unknown_s"]) == (30, 10, 20)
    assert not incident["open"]


def test_unknown_time_alone_is_no_incident(spark: SparkSession) -> None:
    assert found(spark, Timeline().good(5).unknown(50).good(5), Timeline("b:2").unknown(60)) == []


def test_at_the_edges_of_the_window(spark: SparkSession) -> None:
    timeline = Timeline().bad(5, state="disconnected", lag_ms=None, lag_bytes=None)
    timeline.good(50).unknown(2).down(3)
    first, last = found(spark, timeline)
    assert (first["start_ms"], first["open"], first["max_lag_ms"]) == (T0, False, None)
    assert (last["start_ms"], last["end_ms"], last["open"]) == (T0 + 57_000, T0 + 60_000, True)


def test_one_that_nobody_saw_end_is_open(spark: SparkSession) -> None:
    """It ends with its last bad moment, but does not count as ended."""
    (incident,) = found(spark, Timeline().good(30).bad(10).unknown(20))
    assert (incident["end_ms"], incident["open"]) == (T0 + 40_000, True)
    assert (incident["duration_s"], incident["unknown_s"]) == (10.0, 0.0)


def test_a_sample_that_takes_no_time_neither_ends_nor_begins_one(spark: SparkSession) -> None:
    timeline = Timeline().good(5).bad(5).good(0).bad(5).good(20).bad(0).good(25)
    (incident,) = found(spark, timeline)
    assert incident["duration_s"] == 10


def test_sums_of_a_replica(spark: SparkSession) -> None:
    timelines = (
        Timeline("two").bad(5).good(5).bad(15).good(35),
        Timeline("open").good(30).bad(10).good(5).bad(15),
        Timeline("all").bad(60),
        Timeline("none").good(60),
    )
    rows = incident_sums(incidents(frame(spark, *timelines), MINUTE)).collect()
    assert {row.replica: row.asDict() for row in rows} == {
        name: {"cluster": "c", "broker": "b", "replica": name}
        | {"incidents": count, "incident_s": all_s, "longest_incident_s": longest_s}
        | {"incidents_ended": ended, "incident_ended_s": ended_s}
        | {"first_start_ms": T0 + first[0], "first_end_ms": T0 + first[1]}
        | {"open_start_ms": last and T0 + last[0], "open_end_ms": last and T0 + last[1]}
        for name, count, all_s, longest_s, ended, ended_s, first, last in (
            ("two", 2, 20.0, 15.0, 2, 20.0, (0, 5_000), None),
            ("open", 2, 25.0, 15.0, 1, 10.0, (30_000, 40_000), (45_000, 60_000)),
            ("all", 1, 60.0, 60.0, 0, 0.0, (0, 60_000), (0, 60_000)),
        )
    }
