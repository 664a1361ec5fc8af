"""Days of which whole lives are in no line, or the lines in which a broker would have told its end,
each by its events: no verdict is better than they were, and none is worse than what is proved.

Each is judged by the plain program and by the product's own functions, which agree.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.both_ways import core_tables_of, differences, plain_tables
from tests.spark.day_events import CATCHING_UP, DATE, IN_SYNC, MINUTE, Life, Story, truth
from tests.spark.day_generator import Day, unharmed
from tests.spark.day_objectives import REFUSED, Copies, Sends
from tests.spark.plain_samples import Json, Window
from tests.spark.plain_verdicts import INSUFFICIENT, MET
from tests.spark.test_generated_days import question_of
from tests.spark.test_met_and_was_not import W0, W1, connected, judged_day, life, story_of

DOWN_MS = 15 * MINUTE


def keep(day: Day, is_left: Callable[[Json], bool]) -> Day:
    """The day whose other lines are lost."""
    for file in day.files:
        file.lines = [text for text in file.lines if is_left(json.loads(text))]
    return day


def came_back_as_a_slave(past: Life, *, is_lost: bool, **fields: int) -> Story:
    """A quarter of an hour of the window nobody was there. The broker's clock was set back just
    before that; it came back as a slave, by its clock before the window, and was promoted in the
    window's first moment. b:1 was in sync from then on. `fields`: of the master's life."""
    promoted = W0 + DOWN_MS
    master = connected(life(promoted, W1 + DOWN_MS, look_phase=0, first_look_ms=0, **fields))
    master.links["b:1"].states = [(promoted, IN_SYNC)]
    story = story_of(past, master, expects=True)
    story.clock = [(past.end + 1, -DOWN_MS + 1)]
    story.was_slave_until = {0: promoted - 100}
    story.tells_machine, story.loses_past = False, is_lost
    return story


@pytest.mark.parametrize(("version", "is_lost"), [(2, True), (1, True), (1, False), (2, False)])
def test_a_slave_whose_clock_was_set_back_and_that_is_promoted(
    tmp_path: Path, version: int, is_lost: bool
) -> None:
    """How long it was down nobody tells, neither the slave's life nor that of the master."""
    past = connected(life(W0 - 20 * MINUTE, W0 - MINUTE, version=version))
    story = came_back_as_a_slave(past, is_lost=is_lost)
    assert truth(story, "b:1", 0).bad_ms > story.budget_ms
    row = judged_day(unharmed(story), tmp_path)
    assert row["verdict"] == INSUFFICIENT
    assert row["unknown_s"] * 1000 > DOWN_MS - 2_000


def test_a_slave_of_a_number_that_another_one_had_before(tmp_path: Path) -> None:
    """Its past as a master is in the lines, of a version that proves nothing; and that of another
    slave of its number stands between, which does not tell of the master's time."""
    end = W0 - MINUTE
    past = connected(life(end - 20 * MINUTE, end, version=1, broker_id=2))
    story = came_back_as_a_slave(past, is_lost=False, broker_id=2)
    story.copies = Copies(2, [(end - 30 * MINUTE, end - 10 * MINUTE)], [end - 20 * MINUTE])
    assert judged_day(unharmed(story), tmp_path)["verdict"] == INSUFFICIENT


def test_a_slave_whose_host_is_rebooted_when_it_is_promoted(tmp_path: Path) -> None:
    """Its clock was right until then, and was set back when it was off."""
    past = connected(life(W0 - 60 * MINUTE, W0 - 10 * MINUTE, version=1))
    on = W0 + DOWN_MS - MINUTE
    story = came_back_as_a_slave(past, is_lost=False, machine_on=on, reboots=1)
    story.was_slave_until = {0: W0 - MINUTE}
    story.clock = [(W0 - 30_000, -DOWN_MS + 1)]
    day = unharmed(story)
    assert {line["role"] for line in day.lines} == {"ASYNC_MASTER", "SLAVE"}
    assert judged_day(day, tmp_path)["verdict"] == INSUFFICIENT


def test_a_slave_of_a_right_clock_that_is_promoted(tmp_path: Path) -> None:
    """Another broker was the master until then, and a time service holds the clock: of the slave's
    past nothing is in doubt, though the life before it is in no line."""
    past = connected(life(W0 - 60 * MINUTE, W0 - 40 * MINUTE))
    first = connected(life(W0 - 30 * MINUTE, W0 + 10 * MINUTE, machine=1))
    last = connected(life(W0 + 10 * MINUTE + 2_000, W1 + MINUTE))
    last.links["b:1"].states = [(last.start, IN_SYNC)]
    story = story_of(past, first, last, expects=True)
    story.was_slave_until = {0: last.start - 100}
    story.is_held = True
    day = keep(unharmed(story), lambda line: line["boot"] != past.boot)
    assert judged_day(day, tmp_path)["verdict"] == MET


def test_a_slave_without_its_name_that_was_away_when_the_line_was_written(tmp_path: Path) -> None:
    """A new master knows it by its ip alone, and it is away for two seconds of each nine, in which
    every line is written: it was not away all the time."""
    first = connected(life(W0 - MINUTE, W0 + 20 * MINUTE))
    begin = W0 + 20 * MINUTE + 300
    aways = [(begin + k * 9_000 - 1_000, begin + k * 9_000 + 1_000) for k in range(1, 270)]
    second = connected(life(begin, W1 + MINUTE, machine=1), *aways, was_remembered=False)
    story = story_of(first, second, expects=True)
    story.named_after["b:1"] = 90 * MINUTE
    story.availability_percent = 50.0
    assert truth(story, "b:1", 0).bad_ms < story.budget_ms
    row = judged_day(unharmed(story), tmp_path)
    assert row["verdict"] == INSUFFICIENT
    assert row["bad_s"] < 40 * MINUTE / 1000 / 4


# -- sends -----------------------------------------------------------------------------------


def two_brokers(*steps: tuple[int, int], was_slave: bool) -> Story:
    """The first one refuses all for ten minutes and stops after twenty; the second one's clock is
    wrong when it begins. `steps`: of the clock."""
    first = connected(life(W0 - MINUTE, W0 + 20 * MINUTE))
    first.clean = True
    second = connected(life(W0 + 20 * MINUTE + 20_000, W1 + MINUTE))
    second.machine, second.broker_id = 1, 2
    second.links["b:1"].states = [(second.start, IN_SYNC)]
    story = story_of(first, second, expects=True)
    story.availability_percent = story.min_coverage_percent = 1.0
    story.asks = {"sends ok"}
    story.clock = list(steps)
    story.was_slave_until = {1: second.start - 500} if was_slave else {}
    story.sends = [
        Sends(W0 + 5 * MINUTE, W0 + 15 * MINUTE, 10, REFUSED),
        Sends(second.start, W1 + MINUTE, 50, "ok"),
    ]
    return story


BACK_ONLY = (W0 + 3 * MINUTE, -87 * MINUTE), (W0 + 40 * MINUTE, 0)
BACK_AND_FORTH = (*BACK_ONLY[:1], (W0 + 21 * MINUTE, 105 * MINUTE), *BACK_ONLY[1:])


@pytest.mark.parametrize("steps", [BACK_ONLY, BACK_AND_FORTH], ids=["back", "back and forth"])
@pytest.mark.parametrize("was_slave", [True, False])
def test_sends_of_a_master_of_which_nothing_is_left(
    tmp_path: Path, steps: tuple[tuple[int, int], ...], was_slave: bool
) -> None:
    """By its clock the second one was the master before the window already. That it names a life
    which nobody has shows that somebody may have been there before; and where it names none, that
    it has written too few lines for so long a time."""
    day = unharmed(two_brokers(*steps, was_slave=was_slave))
    second = day.story.lives[1]
    keep(day, lambda line: line["boot"] == second.boot and line["ts"] >= W0)
    row = judged_day(day, tmp_path)
    assert row["verdict"] == INSUFFICIENT
    assert any("of 23760 sends" in reason for reason in row["reasons"])


def test_sends_of_a_first_life_whose_clock_was_wrong_nearly_to_its_end(tmp_path: Path) -> None:
    """An installation of which only the last line is in the window, by its clock; what it refused
    before was in it, too, as the clocks of its lines tell when they are compared."""
    first = connected(life(W0 + 10 * MINUTE, W0 + 40 * MINUTE), was_remembered=False)
    second = connected(life(W0 + 40 * MINUTE + 1_000, W1 + MINUTE))
    first.clean = True
    story = story_of(first, second)
    story.asks, story.availability_percent, story.min_coverage_percent = {"sends ok"}, 1.0, 1.0
    story.clock = [(W0 + 9 * MINUTE, -90 * MINUTE), (first.end - 5_000, 0)]
    story.sends = [
        Sends(first.start, first.end - MINUTE, 20, REFUSED),
        Sends(first.end - MINUTE, W1 + MINUTE, 50, "ok"),
    ]
    assert judged_day(unharmed(story), tmp_path)["verdict"] != MET


def two_at_once(*sends: Sends) -> Day:
    """The lines of the first one are lost but for its first two minutes, and it lives for twenty; a
    second one begins half a minute after it and stays."""
    first, second = connected(life(W0 - MINUTE, W0 + 20 * MINUTE)), life(W0 - 30_000, W1)
    second.machine, second.boot = 99, f"{second.boot[:8]}ffffffff"
    story = story_of(first, expects=True)
    story.w1 = W0 + 20 * MINUTE
    second.end = story.w1 + MINUTE
    story.rivals, story.sends = [second], list(sends)
    story.asks = {"sends ok"}
    story.availability_percent = story.min_coverage_percent = 1.0
    story.sends_ok_percent = 90.0
    last_ms = W0 + 2 * MINUTE
    return keep(unharmed(story), lambda line: line["boot"] != first.boot or line["ts"] < last_ms)


def test_what_one_of_two_masters_answered_behind_its_last_line(tmp_path: Path) -> None:
    """In the first two minutes all are refused, 10,000 a second; of all twenty minutes 91.5 % were
    good, and the lines of the other one say nothing of them."""
    refused = [Sends(W0, W0 + 2 * MINUTE, 1, REFUSED)] * 10
    day = two_at_once(*refused, *[Sends(W0 + 2 * MINUTE, W0 + 20 * MINUTE, 1, "ok")] * 12)
    assert judged_day(day, tmp_path)["verdict"] == INSUFFICIENT


def test_data_at_risk_in_a_life_that_its_clock_takes_out_of_the_window(tmp_path: Path) -> None:
    """Its host was rebooted with a clock that is an hour ahead; the slave is away for ten minutes
    of it. What the log had grown by at its first line bounds nothing of that."""
    begin, end = W0 + 20 * MINUTE, W0 + 40 * MINUTE
    boots = {"machine_on": begin + 500, "reboots": 1}
    first = connected(life(W0 - MINUTE, begin))
    second = connected(life(begin + 1_000, end, **boots), (W0 + 25 * MINUTE, W0 + 35 * MINUTE))
    third = connected(life(end + 1_000, W1 + MINUTE, **boots))
    first.clean = second.clean = True
    story = story_of(first, second, third, expects=True)
    story.asks, story.availability_percent, story.min_coverage_percent = {"rpo"}, 1.0, 1.0
    story.clock = [(begin + 1, 60 * MINUTE), (W0 + 45 * MINUTE, 0)]
    assert judged_day(unharmed(story), tmp_path)["verdict"] != MET


# -- lines behind the window alone -----------------------------------------------------------


def behind_the_window(line: Json) -> bool:
    """Whether it is none of the window's."""
    return not W0 <= line["ts"] < W1


def test_metadata_of_a_slave_whose_lines_are_lost_up_to_the_end(tmp_path: Path) -> None:
    """It was there, as the line behind the window shows, and how old its copy was nobody knows."""
    story = story_of(connected(life(W0 - MINUTE, W1 + MINUTE)), expects=True)
    story.asks, story.metadata_age_ms = {"metadata age"}, 30_000
    story.copies = Copies(1, [(W0 - 4_000, W1 + MINUTE)], [*range(W0 - 3_000, W1, 20 * MINUTE)])
    day = keep(unharmed(story), lambda line: line["role"] != "SLAVE" or line["ts"] >= W1)
    row = judged_day(day, tmp_path)
    assert story.copies.most(W0, W1) == 20 * MINUTE
    assert row["verdict"] == INSUFFICIENT
    assert [kind["kind"] for kind in row["metadata"]] == ["topics"]


def test_nothing_is_told_of_a_group_by_a_line_behind_the_window_alone(tmp_path: Path) -> None:
    """What was at risk in the seconds of the window that it counts is no hour's."""
    day = unharmed(story_of(connected(life(W0 - MINUTE, W1 + MINUTE)), expects=True))
    keep(day, behind_the_window).write(tmp_path)
    question = question_of([day], tmp_path, Window(DATE, W0, W1))
    plain, core = plain_tables(question), core_tables_of(question)
    assert not differences(core, plain)
    (group,) = core["group_days"]
    assert group["unreplicated_bytes_max"] is None
    assert group["exposure_byte_s"] is None


def test_a_clock_set_forward_over_the_end_beside_a_second_master(tmp_path: Path) -> None:
    """The first one is down for three minutes in which its clock and that of the other one are set
    forward by three quarters of an hour: how much time its clock shows between its own two lines
    counts, not since a line of the other one."""
    down = W0 + 14 * MINUTE, W0 + 17 * MINUTE
    first = connected(life(W0 - MINUTE, down[0]))
    second = connected(life(down[1], W1 + MINUTE))
    rival = life(W0 - 3 * MINUTE, W1 + MINUTE, machine=99)
    story = story_of(first, second, expects=True)
    story.rivals = [rival]
    story.clock = [(down[0] + 20_000, 45 * MINUTE), (down[1] + 5 * MINUTE, 0)]
    story.sends = [Sends(W0 - MINUTE, W1 + MINUTE, 50, "ok")]
    assert judged_day(unharmed(story), tmp_path)["verdict"] != MET


# -- what a reader of the files knows ----------------------------------------------------------


def test_nobody_hears_of_a_replica_from_files_that_are_not_read(tmp_path: Path) -> None:
    """Those of two days before: it seems to be new, and its copy in the window to be its first."""
    past = connected(life(W0 - 50 * 60 * MINUTE, W0 - 49 * 60 * MINUTE))
    second = connected(life(W0 - MINUTE, W1 + MINUTE), was_remembered=False)
    copied = W0 + 20 * MINUTE
    second.links["b:1"].first_connected = W0 + 5 * MINUTE
    second.links["b:1"].states[1:] = [(W0 + 5 * MINUTE, CATCHING_UP), (copied, IN_SYNC)]
    story = story_of(past, second, interval_ms=30_000)
    day = unharmed(story)
    assert day.known_from("b:1") > W0
    row = judged_day(day, tmp_path)
    assert row["excluded_s"] == pytest.approx(20 * 60, abs=1)
    assert row["verdict"] == MET
