"""What is proved from both sides, each row of it from a story whose events a person can read.

Lines are written from the events of a story; what is expected is counted from these events.
"""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from spark.dumps.dump_line import FileLines
from spark.figures.age_bounds import age_bounds
from spark.figures.exposure_bounds import ExposureBounds, exposure_bounds
from spark.figures.lag_marks import lag_bounds
from spark.figures.sample_stream import GroupSamples, read_samples
from spark.figures.send_bounds import SendBounds, send_bounds
from spark.figures.two_masters import Ancestry, joined, overlaps, told
from spark.reported_day import Day
from spark.vocabulary import DAY_MS
from tests.spark.dump_lines_builder import (
    DATE,
    T0,
    Life,
    Line,
    exposure,
    replica,
    sync,
)

W0 = T0 + 36_000_000
MINUTE = 60_000
DAY = Day(DATE, W0, W0 + 10 * MINUTE)


def read(lines: Iterable[Line]) -> GroupSamples:
    """The samples of some lines."""
    by_date: dict[datetime.date, list[bytes]] = {}
    for line in lines:
        date = datetime.datetime.fromtimestamp(line["ts"] / 1000, datetime.UTC).date()
        by_date.setdefault(date, []).append(json.dumps(line).encode())
    found = read_samples([FileLines("f", *one) for one in by_date.items()], DAY)
    assert not found.bad
    return found


def master(**life: Any) -> Life:
    return Life(**({"start_ms": W0 - MINUTE, "broker_id": 0} | life))


def every(life: Life, first_s: float, last_s: float, **fields: Any) -> list[Line]:
    """Lines every 5 s, in seconds of the window's begin."""
    return [
        life.line(W0 + ms, **fields)
        for ms in range(round(first_s * 1000), round(last_s * 1000) + 1, 5_000)
    ]


# -- two masters at once -----------------------------------------------------------------------


def doubt(lines: Iterable[Line]) -> list[tuple[float, float]]:
    samples = read(lines)
    found = overlaps(samples, Ancestry(samples), DAY)
    return [((start - W0) / 1000, (end - W0) / 1000) for start, end in joined(found)]


def other(start_s: float, **life: Any) -> Life:
    return master(**({"start_ms": W0 + round(start_s * 1000), "boot": "ab" * 8} | life))


@pytest.mark.parametrize("seed", range(3))
def test_two_masters_with_lines_in_any_order(seed: int) -> None:
    lines = every(master(), -5, 605) + every(other(100), 100, 300)
    random.Random(seed).shuffle(lines)
    assert doubt(lines) == [(100, 300)]


def test_two_data_centres_with_the_same_names() -> None:
    """Both run all day, and before it."""
    one, two = master(), other(-120)
    assert doubt(every(one, -5, 605) + every(two, -3, 607)) == [(0, 600)]
    found = read(every(one, 610, 610))
    assert told(overlaps(found, Ancestry(found), DAY)) is None


def test_restarts_and_failovers_are_no_two_masters() -> None:
    first = master()
    lines = every(first, -5, 100)
    again = first.restarted(W0 + 110_000)
    lines += every(again, 110, 200)
    # Its clock was set back by a minute before it booted again: the boots follow each other.
    set_back = again.restarted(W0 + 150_000)
    lines += every(set_back, 150, 300)
    # Another machine, whose clock is 900 ms behind.
    lines += every(other(299.1), 299.1, 605)
    assert doubt(lines) == []


def test_a_copied_disk_is_another_master() -> None:
    """It names a line of the one that goes on writing."""
    first = master()
    lines = every(first, -5, 100)
    copied = first.restarted(W0 + 110_000, boot="cd" * 8)
    lines += every(first, 105, 605) + every(copied, 110, 200)
    assert doubt(lines) == [(110, 200)]


# -- sends -------------------------------------------------------------------------------------


def sent(lines: Iterable[Line]) -> tuple[tuple[int, int], tuple[int, int]]:
    """(least, most) of those that succeeded and of those that failed."""
    samples = read(lines)
    found: SendBounds = send_bounds(samples.masters, Ancestry(samples), DAY)
    return (found.ok_least, found.ok_most), (found.failed_least, found.failed_most)


def test_sends_across_the_edges_may_belong_to_either_day() -> None:
    """Ten a line; the first and the last line that matter lie across an edge."""
    life = master()
    lines = [life.line(W0 - 3_000 + 5_000 * n, sync=sync(8 * n, 2 * n)) for n in range(122)]
    assert sent(lines) == ((8 * 119, 8 * 121), (2 * 119, 2 * 121))


@pytest.mark.parametrize(("records", "lost"), [(0, 0), (50, 0), (0, 2), (50, 2)])
def test_sends_after_the_last_line_of_a_killed_broker(records: int, lost: int) -> None:
    """The log grew by that many of the smallest records between its last line and the next boot;
    lost lines change nothing of it."""
    first = master()
    lines = every(first, -5, 100, sync=sync(100), max_offset=5_000)
    lines = lines[: len(lines) - lost]
    after = first.restarted(W0 + 110_000)
    lines += every(after, 110, 605, max_offset=5_000 + 91 * records + 90)
    assert sent(lines) == ((0, records), (0, records))


def test_a_crash_loop_in_which_every_send_failed() -> None:
    """Each boot writes its first line and dies before the second; 20 sends of 1,000 bytes each."""
    life, lines, end = master(), [], 1_000
    lines += every(life, -5, 100, sync=sync(1_000), max_offset=end)
    for number in range(10):
        life = life.restarted(W0 + 110_000 + number * 10_000)
        lines.append(life.line(life.start_ms, max_offset=end))
        end += 20_000
    life = life.restarted(W0 + 300_000)
    lines += every(life, 300, 605, max_offset=end)
    failed = sent(lines)[1]
    assert failed[0] == 0
    assert failed[1] >= 200  # what was true
    assert failed[1] <= 10 * 20_000 / 91


def test_an_orderly_stop_leaves_nothing_unknown() -> None:
    first = master()
    lines = every(first, -5, 100, sync=sync(7))
    lines.append(first.line(W0 + 103_000, sync=sync(9, 1), final=True))
    lines += every(first.restarted(W0 + 110_000), 110, 605, sync=sync(5))
    (ok_least, ok_most), failed = sent(lines)
    assert (ok_most - ok_least, failed) == (0, (1, 1))


def test_sends_of_a_failover_are_not_known() -> None:
    """A second of a busy broker may hold a million."""
    lines = every(master(marks=True), -5, 100)
    lines += [line | {"host": "10.0.0.2:1"} for line in every(other(110, marks=True), 110, 605)]
    assert sent(lines)[1] == (0, 10_000_000)


def test_sends_before_a_life_of_which_nobody_knows_whose_it_is() -> None:
    """Lines of version 1 have no host: its clock may have been set while it was down, for a day at
    most."""
    lines = every(master(), -5, 100) + every(other(110), 110, 605)
    assert sent(lines)[1] == (0, 10_000_000 + DAY_MS * 1_000)


# -- data at risk --------------------------------------------------------------------------------


def exposed(lines: Iterable[Line]) -> ExposureBounds:
    samples = read(lines)
    return exposure_bounds(samples.masters, Ancestry(samples), DAY)


def row(ack_offset: int, **fields: Any) -> list[dict[str, Any]]:
    return [replica(ack_offset=ack_offset, **fields)]


def test_what_was_at_risk_between_two_lines() -> None:
    """40 MB for a moment that no sample saw; they were written before the next line."""
    life = master(marks=True)
    lines = every(life, -5, 605, max_offset=50_000_000, replicas=row(50_000_000))
    lines[40]["exposure"] = exposure(39_000_000, 40_000_000)
    for line in lines[:40]:
        line["max_offset"], line["replicas"][0]["ack_offset"] = 1_000, 1_000
    found = exposed(lines)
    assert (found.at_least, found.at_most) == (39_000_000, 40_000_000)
    assert found.unbounded_ms == 0
    # Of version 1 nobody knows; the log says that it was 50 MB at most.
    for line in lines:
        line["v"] = 1
    found = exposed(lines)
    assert (found.at_least, found.at_most) == (0, 49_999_000)
    assert found.unmarked == 120


@pytest.mark.parametrize(("bucket", "at_most"), [(0, 1_000_000), (1, 9_000_000)])
def test_counters_bound_what_lost_lines_held(bucket: int, at_most: int) -> None:
    """Two million a line; of the two lines that are lost one had a mark in this bucket."""
    life = master(marks=True)
    lines = [
        life.line(
            W0 + 5_000 * n,
            max_offset=3_000_000 * (n + 2),
            replicas=row(3_000_000 * (n + 2)),
        )
        for n in range(-1, 122)
    ]
    for line in lines[42:]:
        line["exposure"]["counts"][bucket] += 1
        line["exposure"]["counts"][0] -= bucket
    del lines[40:42]
    assert exposed(lines).at_most == at_most


def test_down_time_adds_nothing_to_what_was_at_risk() -> None:
    first = master(marks=True)
    lines = every(first, -5, 100, max_offset=9_000, replicas=row(8_000), unreplicated_bytes=1_000)
    after = first.restarted(W0 + 300_000)
    lines += every(after, 300, 605, max_offset=9_500, replicas=row(9_500))
    found = exposed(lines)
    # 500 bytes were written after the last line, or none of them was acknowledged.
    assert (found.at_least, found.at_most, found.unbounded_ms) == (1_000, 1_500, 0)


def test_a_promoted_master_counts_from_where_the_replica_stood() -> None:
    """19.3 MB of log; the replica stood at 18.2 MB when it reported after 9 minutes."""
    promoted = other(0, marks=True)
    lines = every(promoted, 0, 540, max_offset=19_300_000, unreplicated_bytes=19_300_000)
    for line in lines:
        line["replicas"] = []
    known = row(19_300_000, transferred=1_100_000)
    lines += every(promoted, 545, 605, max_offset=19_300_000, replicas=known)
    found = exposed(lines)
    assert (found.at_least, found.at_most) == (0, 1_100_000)


def test_of_a_hole_between_two_machines_nothing_is_known() -> None:
    lines = every(master(marks=True), -5, 100) + every(other(110, marks=True), 110, 605)
    assert exposed(lines).unbounded_ms == 10_000


# -- the lag -----------------------------------------------------------------------------------


def late(lines: Iterable[Line], limit_ms: int) -> tuple[int, int]:
    """(above, unknown) ms."""
    found = lag_bounds(read(lines).masters, "b:1", limit_ms, [], DAY)
    return found.above_ms, found.unknown_ms


def test_a_lag_between_samples_that_are_a_minute_apart() -> None:
    """Of version 1 a lag of 10 s is out of sight for 50 s of each minute; of version 2 it is
    counted."""
    for marks, unknown_ms in ((False, 500_000), (True, 0)):
        life = master(interval_ms=MINUTE, marks=marks)
        lines = [life.line(W0 + n * MINUTE) for n in range(-1, 11)]
        assert late(lines, 10_000) == (0, unknown_ms)


def test_a_lag_that_only_its_counters_saw() -> None:
    life = master(marks=True)
    lines = every(life, -5, 605)
    lines[20]["replicas"][0]["lag_ms_max"] = 7_000
    for line in lines[20:]:
        line["replicas"][0]["lag_time"][0] -= 2_000
        line["replicas"][0]["lag_time"][3] += 2_000  # (5 s, 10 s]
    assert late(lines, 5_000) == (2_000, 0)
    assert late(lines, 10_000) == (0, 0)
    # 7 s is no bound: the 2 s may have been above it or not. Nor did any sample see them.
    lines[20]["replicas"][0]["lag_ms_max"] = 9_000
    above_ms, unknown_ms = late(lines, 7_000)
    assert (above_ms, unknown_ms) == (0, 0)  # A lag of 0 takes 7 s to get there: 5 s are too few.
    assert late(lines, 3_000) == (2_000, 0)


# -- metadata ----------------------------------------------------------------------------------


def slave(**life: Any) -> Life:
    return Life(**({"start_ms": W0 - MINUTE, "broker_id": 1, "role": "SLAVE"} | life))


def test_ages_of_version_1_are_bounded_by_the_successes_that_they_tell() -> None:
    """Successes 1 s before each line; between 200 s and 240 s there is none: 44 s at the worst."""
    life = slave()
    lines = []
    for ms in range(-5_000, 606_000, 5_000):
        age_ms = ms - 199_000 if 200_000 <= ms < 240_000 else 1_000
        kinds = [{"kind": "topics", "age_ms": age_ms, "failures": 0}]
        lines.append(life.line(W0 + ms, metadata=kinds))
    samples = read(lines)
    found = age_bounds(samples.slaves[1], "topics", Ancestry(samples), DAY)
    # Seen was an age of 36 s; the next success was 40 s after the last one, or before.
    assert (found.at_least_ms, found.at_most_ms) == (36_000, 40_000)
    assert found.unbounded_ms == 0


def test_the_largest_age_is_counted_in_the_line() -> None:
    life = slave(marks=True)
    kinds = [{"kind": "topics", "age_ms": 1_000, "failures": 0, "age_ms_max": 6_000}]
    lines = every(life, -5, 605, metadata=kinds)
    # An upper bound: of several successes between two lines the time from the first to the last.
    lines[50] = lines[50] | {"metadata": [kinds[0] | {"age_ms_max": 61_000}]}
    samples = read(lines)
    found = age_bounds(samples.slaves[1], "topics", Ancestry(samples), DAY)
    assert (found.at_least_ms, found.at_most_ms, found.unbounded_ms) == (1_000, 61_000, 0)
