"""Days whose clocks were set while something else went on, too, each by its events: no verdict is
better than they were.

Each is judged by the plain program and by the product's own functions, which agree.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.day_events import DISCONNECTED, IN_SYNC, MINUTE, Story
from tests.spark.day_generator import day_of
from tests.spark.day_objectives import REFUSED, Sends
from tests.spark.plain_verdicts import BREACHED, INSUFFICIENT
from tests.spark.test_met_and_was_not import (
    SWITCHED,
    W0,
    W1,
    connected,
    judged,
    judged_day,
    life,
    story_of,
    switched,
)


@pytest.mark.parametrize("machine_version", [1, 2])
def test_hidden_down_time_of_a_slave_without_its_name(tmp_path: Path, machine_version: int) -> None:
    """The broker was down for 18 minutes of the hour, which its clock does not show, and its slave
    went by its ip until then: it did not "not exist yet"."""
    away = W0 - 180 * MINUTE, W0 + 18 * MINUTE
    first = connected(life(W0 - 200 * MINUTE, away[0]), was_remembered=False)
    second = connected(
        life(away[1], W1 + 20 * MINUTE, version=machine_version), was_remembered=False
    )
    story = story_of(first, second)
    story.named_after["b:1"] = 30 * MINUTE
    story.clock = [(away[0] + 1, -18 * MINUTE + 1)]
    row = judged(story, tmp_path)
    assert row["verdict"] == INSUFFICIENT
    assert row["unknown_s"] > 17 * 60


def three_lives(ahead: int, *, is_set_right_between: bool) -> Story:
    """Orderly restarts; the second life refuses all sends, and its clock is wrong."""
    begin, end = W0 + 20 * MINUTE, W0 + 30 * MINUTE
    lives = [life(W0 - MINUTE, begin), life(begin + 1_000, end), life(end + 1_000, W1 + MINUTE)]
    for one in lives:
        connected(one).clean = True
    lives[2].clean = False
    story = story_of(*lives, expects=True)
    story.availability_percent = story.min_coverage_percent = 1.0
    story.asks, story.keeps_ends = {"sends ok"}, False
    story.sends = [
        Sends(W0 - MINUTE, begin, 50, "ok"),
        Sends(begin + 2_000, end - 1_000, 20, REFUSED),
        Sends(end + 2_000, W1 + MINUTE, 50, "ok"),
    ]
    right = end + (500 if is_set_right_between else 5 * MINUTE)
    story.clock = [(begin + 500, ahead), (right, 0)]
    return story


@pytest.mark.parametrize("is_set_right_between", [True, False])
@pytest.mark.parametrize("ahead", [50 * MINUTE, -60 * MINUTE])
def test_sends_of_a_life_that_its_clock_takes_out_of_the_window(
    tmp_path: Path, ahead: int, is_set_right_between: bool
) -> None:
    """Behind it, or before it: what it refused is in no line of the window."""
    assert (
        judged(three_lives(ahead, is_set_right_between=is_set_right_between), tmp_path)["verdict"]
        == INSUFFICIENT
    )


def test_sends_of_a_last_life_that_its_clock_shows_behind_the_window(tmp_path: Path) -> None:
    """Its clock is ahead as long as it lives; it is killed before the window ends."""
    story = three_lives(50 * MINUTE, is_set_right_between=True)
    del story.lives[2]
    story.clock[1] = W1 - MINUTE, 0
    assert judged(story, tmp_path)["verdict"] == INSUFFICIENT


def test_a_master_between_two_others_of_which_no_line_is_left(tmp_path: Path) -> None:
    """It was promoted when the first one had stopped, refused all for five minutes, and its host
    was lost with its dumps."""
    story = switched(asks="sends ok")
    story.availability_percent = story.min_coverage_percent = 1.0
    promoted = SWITCHED + 3_000
    lost = connected(life(promoted, promoted + 5 * MINUTE, machine=1))
    last = connected(life(lost.end + 3_000, W1 + MINUTE, machine=2))
    last.links["b:1"].states = [(last.start, IN_SYNC)]
    story.lives[1:] = [lost, last]
    story.seed = 2  # no other line is lost
    story.was_slave_until = {1: SWITCHED + 1_000, 2: lost.end + 1_000}
    story.sends = [
        Sends(W0 - MINUTE, lost.start, 50, "ok"),
        Sends(lost.start, lost.end, 20, REFUSED),
        Sends(last.start, W1 + MINUTE, 50, "ok"),
    ]
    day = day_of(story)
    for file in day.files:
        file.lines = [text for text in file.lines if f'"boot":"{lost.boot}"' not in text]
    assert judged_day(day, tmp_path)["verdict"] == INSUFFICIENT


def test_a_broker_that_was_started_just_before_the_window(tmp_path: Path) -> None:
    """Its one line before it knows no slave yet, which was there before and comes back after five
    minutes."""
    begin, back = W0 - 2_000, W0 + 5 * MINUTE
    second = connected(life(begin, W1 + MINUTE), was_remembered=False)
    second.links["b:1"].states = [(begin, DISCONNECTED), (back, IN_SYNC)]
    second.links["b:1"].first_connected = back
    row = judged(story_of(connected(life(W0 - 30 * MINUTE, W0 - 4_000)), second), tmp_path)
    assert row["verdict"] == BREACHED
    assert row["bad_s"] + row["unknown_s"] == pytest.approx(300, abs=1)
    assert row["excluded_s"] == 0
