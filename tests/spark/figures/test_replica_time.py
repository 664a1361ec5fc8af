"""The time of a replica: what the counters show, what the lag shows, what nobody knows.

The stories are true to the ms (tests/spark/story.py); expected times are read off them.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from typing import Any

import pytest

from spark.dumps.dump_line import FileLines
from spark.figures.replica_time import Asked, replica_time
from spark.figures.sample_stream import read_samples
from spark.figures.time_pieces import ReplicaTime
from spark.reported_day import Day
from spark.vocabulary import DAY_MS
from tests.spark.dump_lines_builder import DATE, T0, Life, Line
from tests.spark.story import Story

W0 = T0 + 36_000_000
"""10:00."""
LIMIT_MS = 10_000
MINUTE = 60_000


def time_of(
    lines: Iterable[Line], minutes: float = 10, known_ms: int = 0, **asked: Any
) -> ReplicaTime:
    """Of replica b:1 in the minutes after 10:00."""
    day = Day(DATE, W0, W0 + round(minutes * MINUTE))
    by_date: dict[datetime.date, list[bytes]] = {}
    for line in lines:
        date = datetime.datetime.fromtimestamp(line["ts"] / 1000, datetime.UTC).date()
        by_date.setdefault(date, []).append(json.dumps(line).encode())
    files = [FileLines("f", date, texts) for date, texts in by_date.items()]
    samples = read_samples(files, day)
    assert not samples.bad
    return replica_time(samples.masters, Asked("b:1", LIMIT_MS, known_ms, **asked), day)


def sums(found: ReplicaTime) -> dict[str, int]:
    """ms of each quality; the pieces tile the window."""
    ms = dict.fromkeys(("good", "bad", "unknown", "excluded"), 0)
    for piece, behind in zip(found.pieces, [*found.pieces[1:], None], strict=True):
        ms[piece.quality] += piece.length_ms
        assert behind is None or behind.start_ms == piece.end_ms
    ms["extra"] = sum(extra.ms for extra in found.extras)
    return {quality: value for quality, value in ms.items() if value}


def pieces(found: ReplicaTime) -> list[tuple[float, float, str, str | None]]:
    """Begin and end in seconds after 10:00."""
    return [
        ((piece.start_ms - W0) / 1000, (piece.end_ms - W0) / 1000, piece.quality, piece.state)
        for piece in found.pieces
    ]


def quiet() -> Story:
    return Story(W0 - MINUTE).goes("in_sync", W0 - MINUTE)


def test_in_sync_all_the_time() -> None:
    found = time_of(quiet().lines(W0 - 3_000, W0 + 602_000))
    assert pieces(found) == [(0, 600, "good", "in_sync")]


def test_outages_between_samples() -> None:
    """Eleven of 3 s, none of which a sample saw."""
    story = quiet()
    for number in range(11):
        begin_ms = W0 + number * 50_000 + 1_000
        story.goes("disconnected", begin_ms).goes("in_sync", begin_ms + 3_000)
    found = time_of(story.lines(W0 - 5_000, W0 + 605_000))
    assert sums(found) == {"good": 567_000, "bad": 33_000}


def test_disconnected_four_of_every_five_seconds() -> None:
    story = quiet()
    for second in range(0, 600, 5):
        story.goes("disconnected", W0 + second * 1000 + 500)
        story.goes("in_sync", W0 + second * 1000 + 4_500)
    found = time_of(story.lines(W0 - 5_000, W0 + 605_000))
    assert sums(found) == {"good": 120_000, "bad": 480_000}


def test_an_outage_in_each_interval_of_a_minute() -> None:
    story = Story(W0 - MINUTE, Life(start_ms=W0 - MINUTE, interval_ms=MINUTE))
    story.goes("in_sync", W0 - MINUTE)
    for minute in range(30):
        begin_ms = W0 + minute * MINUTE + 5_000
        story.goes("disconnected", begin_ms).goes("in_sync", begin_ms + 50_000)
    found = time_of(story.lines(W0 - MINUTE, W0 + 31 * MINUTE, MINUTE), minutes=30)
    assert sums(found) == {"good": 300_000, "bad": 1_500_000}


def test_counters_prove_a_gap() -> None:
    """860 s without a line, of which 855 s were disconnected."""
    story = quiet().goes("disconnected", W0 + 103_000).goes("in_sync", W0 + 958_000)
    lines = story.lines(W0 - 5_000, W0 + 100_000)
    lines += [story.line(W0 + 960_000, skip=171), *story.lines(W0 + 965_000, W0 + 1_205_000)]
    assert sums(time_of(lines, minutes=20)) == {"good": 345_000, "bad": 855_000}


def test_a_moment_of_trouble_at_a_sample_is_no_more_than_it_was() -> None:
    story = quiet().goes("disconnected", W0 + 99_000).goes("in_sync", W0 + 101_000)
    found = time_of(story.lines(W0 - 5_000, W0 + 605_000))
    assert sums(found) == {"good": 598_000, "bad": 2_000}
    assert [piece[:3] for piece in pieces(found)[1:3]] == [(99, 100, "bad"), (100, 101, "bad")]


def test_states_lie_where_the_samples_saw_them() -> None:
    story = quiet().goes("disconnected", W0 + 11_000).goes("catching_up", W0 + 18_000)
    story.goes("in_sync", W0 + 24_000)
    found = time_of(story.lines(W0 - 5_000, W0 + 605_000))
    assert pieces(found)[:5] == [
        (0, 11, "good", "in_sync"),
        (11, 15, "bad", "disconnected"),
        (15, 18, "bad", "disconnected"),
        (18, 20, "bad", "catching_up"),
        (20, 24, "bad", "catching_up"),
    ]


def test_a_clock_that_is_set_back_hides_no_outage() -> None:
    """Disconnected for 60 s, in which the wall clock was set back by 50 s."""
    story = quiet().goes("disconnected", W0 + 100_000).goes("in_sync", W0 + 160_000)
    lines = story.lines(W0 - 5_000, W0 + 130_000)
    lines += [story.line(ts, shift_ms=-50_000) for ts in range(W0 + 135_000, W0 + 700_000, 5_000)]
    found = sums(time_of(lines))
    assert found["bad"] + found["extra"] == 60_000


def test_counters_that_run_a_little_behind() -> None:
    """They are looked at five times a second: 200 ms of a line may be in the next one."""
    story = quiet().goes("disconnected", W0 + 100_000).goes("in_sync", W0 + 200_000)
    lines = story.lines(W0 - 5_000, W0 + 605_000)
    for number, line in enumerate(lines):
        spent, state = line["replicas"][0]["state_ms"], line["replicas"][0]["state"]
        spent[state] -= number % 3 * 100 if spent[state] else 0
    found = sums(time_of(lines))
    assert abs(found["bad"] + found.get("extra", 0) - 100_000) <= 400
    assert found["good"] >= 499_000


@pytest.mark.parametrize(("proved", "bad"), [(True, 840_000), (False, 0)])
def test_a_master_that_died_before_the_end(proved: bool, bad: int) -> None:
    """Dead from 10:06 on: what the first line after the window proves belongs to the window."""
    story = quiet()
    lines = story.lines(W0 - 5_000, W0 + 360_000)
    assert sums(time_of(lines, minutes=20)) == {"good": 360_000, "unknown": 840_000}
    after = Story(0, story.life.restarted(W0 + 2 * 3_600_000, proved=proved))
    lines.append(after.line(W0 + 2 * 3_600_000 + 1_000))
    found = sums(time_of(lines, minutes=20))
    assert found == {"good": 360_000, ("bad" if bad else "unknown"): 840_000}


def test_replaced_by_a_broker_with_empty_dumps() -> None:
    story = quiet()
    lines = story.lines(W0 - 5_000, W0 + 60_000)
    other = Story(0, Life(start_ms=W0 + 900_000, boot="000000ee" * 2))
    other.goes("in_sync", W0 + 900_000)
    lines += other.lines(W0 + 901_000, W0 + 1_206_000)
    # Of version 1: whether it is the same host nobody tells, nor how long it was down then.
    told = {"good": 360_000, "unknown": 840_000, "extra": DAY_MS}
    assert sums(time_of(lines, minutes=20)) == told


def test_a_restart_is_down_and_what_follows_is_counted() -> None:
    """Stopped at 100 s, started at 110 s; the slave is back 4 s later."""
    story = quiet()
    lines = story.lines(W0 - 5_000, W0 + 100_000)
    after = Story(0, story.life.restarted(W0 + 110_000))
    after.goes("catching_up", W0 + 114_000).goes("in_sync", W0 + 116_000)
    lines += after.lines(W0 + 111_000, W0 + 606_000)
    found = time_of(lines)
    assert pieces(found)[1:6] == [
        (100, 110, "bad", "down"),
        (110, 111, "bad", "disconnected"),
        # No row yet at 111 s: when it came, nobody saw; the counters tell what it was then.
        (111, 114, "unknown", None),
        (114, 116, "bad", "catching_up"),
        (116, 600, "good", "in_sync"),
    ]


def test_lines_that_are_lost_at_the_begin_of_a_boot() -> None:
    """What the counters show is from the boot on."""
    after = Story(W0 + 100_000).goes("disconnected", W0 + 100_000).goes("in_sync", W0 + 190_000)
    lines = [after.line(W0 + 200_000, skip=20), *after.lines(W0 + 205_000, W0 + 605_000)]
    found = sums(time_of(lines))
    assert found == {"unknown": 100_000 + 5_000, "bad": 90_000, "good": 405_000}


LAG: dict[str, tuple[list[int], dict[str, int]]] = {
    # The lag of the lines at 0, 5, 10, … s; then 0 to the end of the minute.
    "low": ([0, 4_000, 5_000, 0], {"good": 60_000}),
    "grew from 7 s to 12 s: 3 s good, 2 s bad": (
        [0, 2_000, 7_000, 12_000, 17_000, 0],
        # Between 17 s and 0 nobody knows when it came down.
        {"good": 48_000, "bad": 7_000, "unknown": 5_000},
    ),
    "may have passed the limit between 7 s and 0": (
        [0, 2_000, 7_000, 0],
        {"good": 58_000, "unknown": 2_000},
    ),
    "came down and grew again": (
        [0, 2_000, 7_000, 10_500, 0],
        # 7 s at 10 s: good up to 13 s; 10.5 s at 15 s: bad from 14.5 s on; then unknown up to 20 s.
        {"good": 53_000, "bad": 500, "unknown": 6_500},
    ),
}


@pytest.mark.parametrize("case", LAG)
def test_lag(case: str) -> None:
    lags, expected = LAG[case]
    story = quiet()
    lines = [story.line(W0 - 5_000)]
    for number in range(14):
        lag_ms = lags[number] if number < len(lags) else 0
        lines.append(story.line(W0 + number * 5_000, lag_ms=lag_ms))
    assert sums(time_of(lines, minutes=1)) == expected


def test_a_limit_below_the_interval_leaves_unknown_what_no_line_saw() -> None:
    """Of version 1: the lag may have passed 10 s between two lines that are 20 s apart."""
    story = Story(W0 - MINUTE, Life(start_ms=W0 - MINUTE, interval_ms=20_000))
    story.goes("in_sync", W0 - MINUTE)
    lines = [
        story.line(W0 + number * 20_000, lag_ms=lag_ms)
        for number, lag_ms in enumerate([0, 9_000, 12_500, 9_000, 0, 0, 0], -1)
    ]
    # At 20 s it is 12.5 s: above 10 s since 2.5 s. From each line on it needs its time to get
    # there; of the 10 s behind the line of 80 s all may have been behind 90 s.
    expected = {"good": 1_000 + 0 + 1_000 + 10_000, "bad": 2_500, "unknown": 75_500}
    assert sums(time_of(lines, minutes=1.5)) == expected


def test_marks_and_counters_prove_what_lines_did_not_see() -> None:
    """Of version 2: 3 s above the limit between two lines that are 20 s apart, and none."""
    life = Life(start_ms=W0 - MINUTE, interval_ms=20_000, marks=True)
    story = Story(W0 - MINUTE, life).goes("in_sync", W0 - MINUTE)
    lines = [story.line(W0 + number * 20_000) for number in range(-1, 6)]
    assert sums(time_of(lines, minutes=1.5)) == {"good": 90_000}
    for line in lines[3:]:  # Of the 20 s before the line of 40 s, 3 s in (10 s, 60 s].
        spent = line["replicas"][0]["lag_time"]
        spent[0], spent[4] = spent[0] - 3_000, 3_000
    lines[3]["replicas"][0]["lag_ms_max"] = 12_000
    assert sums(time_of(lines, minutes=1.5)) == {"good": 87_000, "bad": 3_000}


def test_a_limit_that_the_lines_do_not_count_by_leaves_its_bucket_unknown() -> None:
    life = Life(start_ms=W0 - MINUTE, interval_ms=20_000, marks=True)
    story = Story(W0 - MINUTE, life).goes("in_sync", W0 - MINUTE)
    lines = [story.line(W0 + number * 20_000) for number in range(-1, 6)]
    for line in lines[3:]:
        line["lag_le"] = [5_000, 20_000]
        line["replicas"][0]["lag_time"] = [line["replicas"][0]["lag_time"][0] - 3_000, 3_000, 0]
    for line in lines[:3]:
        line["lag_le"] = [5_000, 20_000]
        line["replicas"][0]["lag_time"] = [line["replicas"][0]["lag_time"][0], 0, 0]
    lines[3]["replicas"][0]["lag_ms_max"] = 12_000
    assert sums(time_of(lines, minutes=1.5)) == {"good": 87_000, "unknown": 3_000}


def test_a_hole_over_midnight_with_an_outage_in_it() -> None:
    """300 s without lines, half of them outside; its counters tell of 184 s somewhere in it."""
    story = Story(W0 - 10 * MINUTE).goes("in_sync", W0 - 10 * MINUTE)
    story.goes("disconnected", W0 - 140_000).goes("in_sync", W0 + 44_000)
    lines = [
        *story.lines(W0 - 160_000, W0 - 150_000),
        story.line(W0 + 150_000, skip=29),
        *story.lines(W0 + 155_000, W0 + 605_000),
    ]
    found = sums(time_of(lines))
    # In 150 s outside there is no room for 34 of the 184 s; nor for the 116 s in sync, which may
    # all have been there.
    assert found["bad"] == 34_000
    assert found["unknown"] >= 116_000


def test_a_lag_that_is_at_least_so_large() -> None:
    story = quiet()
    lines = story.lines(W0 - 5_000, W0 + 20_000)
    lines.append(story.line(W0 + 25_000, lag_ms=5, lag_bytes=7, lag_exact=False))
    lines += story.lines(W0 + 30_000, W0 + 605_000)
    # Nor does anybody know of the 5 s behind it, in which it may have come down.
    assert sums(time_of(lines)) == {"good": 590_000, "unknown": 10_000}


def test_a_line_without_the_row() -> None:
    story = quiet()
    lines = story.lines(W0 - 5_000, W0 + 605_000)
    lines[21]["replicas"] = []
    found = time_of(lines)
    # In the next line it is back, with counters as old as the boot: 5 s are this interval's.
    assert pieces(found)[1:3] == [(95, 100, "bad", "disconnected"), (100, 600, "good", "in_sync")]
    assert sums(found) == {"good": 595_000, "bad": 5_000}


def test_nobody_misses_a_new_replica() -> None:
    story = Story(W0 - MINUTE).goes("catching_up", W0 + 99_000).goes("in_sync", W0 + 121_000)
    lines = story.lines(W0 - 5_000, W0 + 605_000)
    found = time_of(lines, known_ms=W0 + 100_000)
    assert sums(found) == {"excluded": 99_000, "bad": 22_000, "good": 479_000}
    asked = {"known_ms": W0 + 100_000, "copy_since_ms": W0 + 100_000, "copy_ms": 3_600_000}
    found = time_of(lines, **asked)
    assert sums(found) == {"excluded": 99_000 + 22_000, "good": 479_000}
    assert found.copy_since_ms is None


def test_a_first_copy_that_takes_longer_than_its_grace() -> None:
    story = Story(W0 - MINUTE).goes("catching_up", W0 + 1_000)
    asked = {"known_ms": W0 + 5_000, "copy_since_ms": W0 + 5_000}
    lines = story.lines(W0 - 5_000, W0 + 605_000)
    found = time_of(lines, copy_ms=300_000, **asked)
    assert sums(found) == {"bad": 295_000, "excluded": 1_000 + 304_000}
    assert found.copy_since_ms == W0 + 5_000


def test_maintenance_is_taken_out_whatever_it_was() -> None:
    story = quiet().goes("disconnected", W0 + 100_000).goes("in_sync", W0 + 200_000)
    lines = story.lines(W0 - 5_000, W0 + 605_000)
    window = (W0 + 90_000, W0 + 150_000, "new disk")
    found = time_of(lines, maintenance=[window])
    assert sums(found) == {"good": 490_000, "bad": 50_000, "excluded": 60_000}
    assert {piece.reason for piece in found.pieces if piece.quality == "excluded"} == {"new disk"}


def test_two_masters_at_once() -> None:
    """A second one from 60 s on, to which the slave went; the first one goes on without it."""
    first = quiet().goes("disconnected", W0 + 60_000)
    lines = first.lines(W0 - 5_000, W0 + 605_000)
    other = Story(0, Life(start_ms=W0 + 60_000, boot="000000ff" * 2, broker_id=0))
    other.goes("in_sync", W0 + 61_000)
    lines += other.lines(W0 + 62_000, W0 + 302_000)
    found = time_of(lines)
    assert sums(found) == {"good": 60_000, "unknown": 245_000, "bad": 295_000}


def test_counters_of_another_interval_prove_nothing() -> None:
    """A row whose counters rose by an hour in five seconds."""
    story = quiet()
    lines = story.lines(W0 - 5_000, W0 + 605_000)
    for line in lines[40:]:
        line["replicas"][0]["state_ms"]["disconnected"] += 3_600_000
    assert sums(time_of(lines)) == {"good": 595_000, "unknown": 5_000}
