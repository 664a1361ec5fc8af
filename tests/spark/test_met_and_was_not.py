"""Days that were called met and were not, each by its events: the first wrong ones of their kind.

Each is judged by the plain program and by the product's own functions, which agree.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark.both_ways import core_tables_of, differences, plain_tables
from tests.spark.day_events import (
    CATCHING_UP,
    DATE,
    DISCONNECTED,
    IN_SYNC,
    MIDNIGHT,
    MINUTE,
    Life,
    Link,
    Story,
    truth,
)
from tests.spark.day_generator import Day, day_of
from tests.spark.day_objectives import REFUSED, Copies, Sends
from tests.spark.plain_samples import Json, Window
from tests.spark.plain_verdicts import BREACHED, INSUFFICIENT, MET, Exclusion
from tests.spark.test_generated_days import question_of, wrong

W0 = MIDNIGHT + 600 * MINUTE
W1 = W0 + 60 * MINUTE


def story_of(*lives: Life, expects: bool = False, interval_ms: int = 9_000) -> Story:
    """An hour, of which 99 % are promised: 36 s may be bad. With few lines a case is cheap."""
    return Story(1, "b", W0, W1, interval_ms, 10_000, 99.0, 1.0, expects, lives=list(lives))


def life(start: int, end: int, **fields: int) -> Life:
    """A life of a broker on one machine, which was switched on long before."""
    found = Life(
        start, end, False, 0, 0, f"{start // 1000 % 2**32:08x}00000000", 100, 30, version=2
    )
    found.machine_on = W0 - 600 * MINUTE
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def connected(one: Life, *outages: tuple[int, int], was_remembered: bool = True) -> Life:
    """Its slave is in sync from the begin on, but for these."""
    states = [(one.start, DISCONNECTED), (one.start + 300, CATCHING_UP), (one.start + 500, IN_SYNC)]
    for start, end in outages:
        states += [(start, DISCONNECTED), (end, CATCHING_UP), (end + 100, IN_SYNC)]
    one.links["b:1"] = Link(states, first_connected=one.start + 300, was_remembered=was_remembered)
    return one


def judged(story: Story, root: Path, edit: Callable[[Json], None] | None = None) -> Json:
    """The row of b:1, by both programs; nothing in it is better than the truth. `edit`: what else
    happened to each line."""
    day = day_of(story)
    for file in day.files if edit else ():
        file.lines[:] = (_edited(text, edit) for text in file.lines)
    return judged_day(day, root)


def _edited(text: str, edit: Callable[[Json], None]) -> str:
    line = json.loads(text)
    edit(line)
    return json.dumps(line)


def judged_day(day: Day, root: Path) -> Json:
    """The same of a day whose files somebody changed."""
    story = day.story
    day.write(root)
    question = question_of([day], root, Window(DATE, story.w0, story.w1))
    plain, core = plain_tables(question), core_tables_of(question)
    assert not differences(core, plain)
    assert not wrong(day, core), "\n".join(wrong(day, core))
    return next(row for row in core["replica_days"] if row["replica"] == "b:1")


OUTAGE = (W0 + 5 * MINUTE, W0 + 8 * MINUTE)


def test_an_outage_before_it_was_named(tmp_path: Path) -> None:
    """Three minutes of the ten in which it went by its ip it was gone: they did not "not exist"."""
    story = story_of(connected(life(W0 - MINUTE, W1 + MINUTE), OUTAGE, was_remembered=False))
    story.named_after["b:1"] = 11 * MINUTE
    row = judged(story, tmp_path)
    assert row["bad_s"] == pytest.approx(180, abs=1)
    assert row["excluded_s"] == 0
    assert truth(story, "b:1", 0).bad_ms == 180_100


def test_an_outage_in_a_life_that_never_heard_its_name(tmp_path: Path) -> None:
    """Whether the slave of the life before is this one nobody can tell."""
    first = connected(life(W0 - MINUTE, W0 + 20 * MINUTE), OUTAGE, was_remembered=False)
    second = connected(life(W0 + 20 * MINUTE + 1_000, W1 + MINUTE))
    story = story_of(first, second)
    story.named_after["b:1"] = 60 * MINUTE
    row = judged(story, tmp_path)
    assert row["verdict"] == INSUFFICIENT
    assert row["unknown_s"] > 1_200
    assert row["excluded_s"] == 0


def test_it_is_no_outage_to_go_by_an_ip(tmp_path: Path) -> None:
    story = story_of(connected(life(W0 - MINUTE, W1 + MINUTE), was_remembered=False), expects=True)
    story.named_after["b:1"] = 11 * MINUTE
    assert judged(story, tmp_path)["verdict"] == MET


DOWN = W0 + 20 * MINUTE, W0 + 25 * MINUTE


def down(ahead: int, **fields: int) -> Story:
    """Five minutes down, in which the clock is set, and rightly again ten minutes later."""
    story = story_of(
        connected(life(W0 - MINUTE, DOWN[0])),
        connected(life(DOWN[1], W1 + MINUTE, **fields)),
        expects=True,
        interval_ms=9_000 if ahead else 5_000,
    )
    if ahead:
        story.clock = [(DOWN[0] + 1_000, ahead), (DOWN[1] + 10 * MINUTE, 0)]
    return story


def test_a_clock_that_is_set_back_does_not_hide_down_time(tmp_path: Path) -> None:
    row = judged(down(-298_000), tmp_path)
    assert row["verdict"] == INSUFFICIENT
    assert row["bad_s"] < 36
    assert row["bad_s"] + row["unknown_s"] > 300


def test_a_clock_that_is_set_forward_makes_no_down_time(tmp_path: Path) -> None:
    story = down(20 * MINUTE)
    story.availability_percent = 80.0
    row = judged(story, tmp_path)
    assert row["bad_s"] < 36
    assert row["verdict"] == INSUFFICIENT


def test_down_time_over_a_clock_that_nobody_set(tmp_path: Path) -> None:
    row = judged(down(0), tmp_path)
    assert row["state_down_s"] == pytest.approx(300, abs=5.1)
    assert row["unknown_s"] < 1


ALL = ("*", "*", "*")
TWO_MINUTES = [(ALL, DOWN[0] - MINUTE, DOWN[0] + MINUTE, "new disks")]
NESTED = [(ALL, DOWN[0] - n * 5_000, DOWN[0] + n * 5_000, f"no. {n}") for n in range(1, 13)]


@pytest.mark.parametrize("exclusions", [TWO_MINUTES, TWO_MINUTES * 9, NESTED])
def test_maintenance_excludes_no_more_than_it_lasts(
    exclusions: list[Exclusion], tmp_path: Path
) -> None:
    """Two minutes are announced, once or time and again; down for five, of which the clock shows
    one second."""
    story = down(-299_000)
    story.clock.pop()
    story.lives[1].end += 6 * MINUTE
    day = day_of(story)
    day.write(tmp_path)
    question = question_of([day], tmp_path, Window(DATE, story.w0, story.w1))
    question = dataclasses.replace(question, exclusions=exclusions)
    plain, core = plain_tables(question), core_tables_of(question)
    assert not differences(core, plain)
    row = next(row for row in core["replica_days"] if row["replica"] == "b:1")
    assert row["excluded_s"] == 120
    assert row["unknown_s"] == pytest.approx(300 - 120, abs=6)
    assert row["verdict"] == INSUFFICIENT


REBOOTED = {"machine_on": DOWN[0] + MINUTE, "reboots": 1}


def test_a_reboot_is_proved_by_a_clock_that_is_held(tmp_path: Path) -> None:
    story = down(0, **REBOOTED)
    story.is_held = True
    row = judged(story, tmp_path)
    assert row["state_down_s"] == pytest.approx(300, abs=5.1)
    assert row["unknown_s"] < 1


@pytest.mark.parametrize("tells", [True, False])
def test_a_reboot_hides_how_long_it_took(tmp_path: Path, tells: bool) -> None:
    story = down(-298_000, **REBOOTED)
    story.tells_machine = tells
    row = judged(story, tmp_path)
    assert row["verdict"] == INSUFFICIENT
    assert row["good_s"] == 0


def test_a_clock_that_is_set_back_behind_the_begin_of_the_life_before(tmp_path: Path) -> None:
    """The life that follows stands before the one that it names."""
    spans = [(-1, 20), (20.01, 25), (30, 90)]
    lives = [
        connected(life(W0 + round(a * MINUTE), W0 + b * MINUTE, look_phase=0, first_look_ms=0))
        for a, b in spans
    ]
    for one in lives:
        one.links["b:1"].states = [(one.start, IN_SYNC)]
    story = story_of(*lives, expects=True, interval_ms=5_000)
    story.clock = [(W0 + 26 * MINUTE, -12 * MINUTE)]
    row = judged(story, tmp_path)
    assert row["verdict"] == INSUFFICIENT
    # Of the minutes that the clock showed twice the lines prove that they were good.
    assert row["unknown_s"] == pytest.approx(300, abs=10)


@pytest.mark.parametrize("names_past", [True, False])
def test_another_host_is_master_between_two_lives(tmp_path: Path, names_past: bool) -> None:
    """It tells of one minute of the six in which the first host's broker was down."""
    other = connected(life(W0 + 20 * MINUTE + 500, W0 + 21 * MINUTE))
    other.machine = 1
    story = story_of(
        connected(life(W0 - MINUTE, W0 + 20 * MINUTE)),
        other,
        connected(life(W0 + 26 * MINUTE, W1 + 30 * MINUTE)),
        expects=True,
        interval_ms=5_000,
    )
    story.clock = [(W0 + 22 * MINUTE, -5 * MINUTE + 2_000)]

    def forget_past(line: Json) -> None:
        if not names_past:
            line["prev_boot"] = line["prev_seq"] = None

    row = judged(story, tmp_path, forget_past)
    assert row["verdict"] == INSUFFICIENT
    assert row["bad_s"] + row["unknown_s"] > 290


def test_an_uptime_that_falls_proves_nothing(tmp_path: Path) -> None:
    """A machine that was put back to an earlier state of it, and its clock with it."""
    story = down(0)
    story.clock = [(DOWN[0] + 1_000, -299_000)]

    def fall(line: Json) -> None:
        if line["seq"] and line["uptime"] > DOWN[1] - W0 + 600 * MINUTE - MINUTE:
            line["uptime"] -= 120 * MINUTE

    row = judged(story, tmp_path, fall)
    assert row["verdict"] == INSUFFICIENT
    assert row["good_s"] == 0


def test_the_lines_before_an_upgrade_prove_the_time_by_their_monotonic_clock(
    tmp_path: Path,
) -> None:
    def is_older(line: Json) -> None:
        if line["uptime"] < DOWN[0] - W0 + 600 * MINUTE + MINUTE:
            del line["machine_boot"], line["uptime"], line["clock_error_ms"]

    row = judged(down(0), tmp_path, is_older)
    assert row["state_down_s"] == pytest.approx(300, abs=5.1)
    assert row["unknown_s"] < 1


def test_a_machine_that_sleeps_and_whose_clock_stood_still(tmp_path: Path) -> None:
    """A quarter of an hour that neither the wall clock nor the monotonic one shows."""

    def sleep(line: Json) -> None:
        if line["ts"] > W0 + 20 * MINUTE:
            line["uptime"] += 15 * MINUTE

    row = judged(story_of(connected(life(W0 - MINUTE, W1 + MINUTE)), expects=True), tmp_path, sleep)
    assert row["verdict"] == INSUFFICIENT
    assert row["unknown_s"] == pytest.approx(900, abs=1)


def test_a_machine_that_sleeps_and_whose_clock_goes_on(tmp_path: Path) -> None:
    """Counted once: the wall clock has room for all of it."""

    def sleep(line: Json) -> None:
        if line["uptime"] > 620 * MINUTE:
            line["uptime"] += 15 * MINUTE
            line["ts"] += 15 * MINUTE

    row = judged(story_of(connected(life(W0 - MINUTE, W1 + MINUTE)), expects=True), tmp_path, sleep)
    assert row["unknown_s"] == pytest.approx(900, abs=1)


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize(("asleep_ms", "verdict"), [(60_000, MET), (15 * MINUTE, INSUFFICIENT)])
@pytest.mark.parametrize("has_marks", [True, False])
def test_metadata_of_a_slave_whose_machine_sleeps(
    tmp_path: Path, has_marks: bool, asleep_ms: int, verdict: str, goes_on: bool
) -> None:
    """Copied every half minute; its age is told by a clock that stood still meanwhile. Two minutes
    are allowed: a minute's sleep and half a minute before it are not too much."""
    story = story_of(connected(life(W0 - MINUTE, W1 + MINUTE)), expects=True)
    story.asks, story.metadata_age_ms = {"metadata age"}, 120_000
    lives = [(W0 - 10 * MINUTE, W1 + 2 * MINUTE)]
    story.copies = Copies(1, lives, [*range(W0 - 9 * MINUTE, W1 + 2 * MINUTE, 30_000)])

    def sleep(line: Json) -> None:
        if line["role"] != "SLAVE":
            return
        if not has_marks:
            del line["metadata"][0]["age_ms_max"]
        if line["ts"] > W0 + 20 * MINUTE:
            line["uptime"] += asleep_ms
            line["ts"] += asleep_ms * goes_on

    row = judged(story, tmp_path, sleep)
    assert row["verdict"] == verdict, row["reasons"]


def down_before(
    last: int, boot: int, shown: int, *, midnight: bool = False, **fields: int
) -> Story:
    """Down from long before the window until minutes after its begin; the clock was set, and shows
    the boot within the budget behind the window's begin, or behind the last line. All three in ms
    of the window's begin."""
    story = story_of(
        connected(life(W0 + last - 30 * MINUTE, W0 + last)),
        connected(life(W0 + boot, W1 + boot - shown + MINUTE, **fields)),
        expects=True,
    )
    story.clock = [(W0 + last + 1, shown - boot)]
    if midnight:
        _move(story, MIDNIGHT - W0)
    return story


def _move(story: Story, by_ms: int) -> None:
    story.w0, story.w1 = story.w0 + by_ms, story.w1 + by_ms
    story.clock = [(since + by_ms, ahead) for since, ahead in story.clock]
    for one in story.lives:
        one.start, one.end, one.machine_on = one.start + by_ms, one.end + by_ms, one.machine_on
        one.machine_on += by_ms
        for link in one.links.values():
            link.states = [(since + by_ms, state) for since, state in link.states]
            assert link.first_connected is not None
            link.first_connected += by_ms


LONG = 185 * MINUTE
TEN = 10 * MINUTE


@pytest.mark.parametrize("midnight", [True, False])
@pytest.mark.parametrize(
    "fields", [{}, {"version": 1}, {"reboots": 1}], ids=["proved", "old", "rebooted"]
)
def test_it_was_down_for_longer_than_lines_are_read(
    tmp_path: Path, midnight: bool, fields: dict[str, int]
) -> None:
    """For three hours before the window, and ten minutes of it, of which its clock shows none."""
    if "reboots" in fields:
        fields = fields | {"machine_on": W0}
    story = down_before(-LONG, TEN, 500, midnight=midnight, **fields)
    row = judged(story, tmp_path)
    assert row["verdict"] == INSUFFICIENT
    assert row["unknown_s"] > 595


def test_its_life_before_is_in_no_dump(tmp_path: Path) -> None:
    """The broker names it: so it was there, and how long it was down nobody tells."""
    day = day_of(down_before(-LONG, TEN, 500))
    first = min(line["boot_ts"] for line in day.lines)
    for file in day.files:
        file.lines[:] = [text for text in file.lines if json.loads(text)["boot_ts"] > first]
    assert judged_day(day, tmp_path)["verdict"] == INSUFFICIENT


def test_a_first_installation_hides_nothing(tmp_path: Path) -> None:
    story = story_of(connected(life(W0 + 500, W1 + MINUTE)), expects=True)
    assert judged(story, tmp_path)["verdict"] == MET


@pytest.mark.parametrize("last", [-LONG, -TEN])
def test_a_clock_that_shows_the_boot_before_the_window(tmp_path: Path, last: int) -> None:
    """Of the ten minutes of the window its clock shows nothing, then or later: they are in the
    hour before, by that clock."""
    story = down_before(last, TEN, last + 2_000, look_phase=0, first_look_ms=0)
    story.lives[1].links["b:1"].states = [(story.lives[1].start, IN_SYNC)]
    row = judged(story, tmp_path)
    assert row["verdict"] == INSUFFICIENT
    assert row["unknown_s"] > 595


def test_a_host_that_is_rebooted_before_the_window(tmp_path: Path) -> None:
    """A time service holds its clock: it is covered."""
    story = down_before(-LONG, 0, 0, machine_on=W0 - LONG + MINUTE, reboots=1)
    story.clock, story.is_held = [], True
    second = story.lives[1]
    second.start = W0 - LONG + 2 * MINUTE
    second.links["b:1"].states[0] = second.start, IN_SYNC
    assert judged(story, tmp_path)["verdict"] == MET


@pytest.mark.parametrize("are_lost", [False, True])
def test_a_promoted_slave_whose_clock_was_set_while_it_was_down(
    tmp_path: Path, are_lost: bool
) -> None:
    """It was down for twenty minutes, of which its own clock shows two seconds; also where the
    lines of its new life are lost up to the end of the window."""
    story = story_of(
        connected(life(W0 - 60 * MINUTE, W0 + 20 * MINUTE)),
        connected(life(W0 + 40 * MINUTE, W1 + 40 * MINUTE)),
        expects=True,
    )
    story.lives[1].machine, story.lives[1].reboots = 1, 0
    story.clock = [(W0 + 20 * MINUTE + 1, -20 * MINUTE + 2_000)]
    story.was_slave_until = {1: W0 + 20 * MINUTE}
    day = day_of(story)
    for file in day.files if are_lost else ():
        lines = [json.loads(text) for text in file.lines]
        boot = story.lives[1].boot
        file.lines[:] = [
            json.dumps(line) for line in lines if line["boot"] != boot or line["ts"] >= W1
        ]
    row = judged_day(day, tmp_path)
    assert row["verdict"] == INSUFFICIENT


KILLED = W0 + 20 * MINUTE + 3_777


def killed(
    *failures: Sends, keeps_ends: bool = True, asks: str = "sync ok", **fields: int
) -> Story:
    """A master that is killed between two lines and comes back a second later; 72,000 sends, of
    which 72 may fail."""
    story = story_of(
        connected(life(W0 - MINUTE, KILLED)),
        connected(life(KILLED + 1_000, W1 + MINUTE, **fields)),
        expects=True,
    )
    story.asks = {asks}
    story.sends = [Sends(W0 - MINUTE, W1 + MINUTE, 50, "ok"), *failures]
    story.keeps_ends = keeps_ends
    return story


def test_what_a_killed_master_had_counted(tmp_path: Path) -> None:
    """Its next life tells: nothing is unknown of its last seconds."""
    assert judged(killed(), tmp_path)["verdict"] == MET


def test_what_a_killed_master_had_counted_and_nobody_tells(tmp_path: Path) -> None:
    assert judged(killed(keeps_ends=False), tmp_path)["verdict"] == INSUFFICIENT


def test_counters_do_not_outlive_the_machine(tmp_path: Path) -> None:
    story = killed(machine_on=KILLED + 500, reboots=1)
    story.is_held = True
    assert judged(story, tmp_path)["verdict"] == INSUFFICIENT


@pytest.mark.parametrize(("every_ms", "verdict"), [(20, BREACHED), (50, MET)])
def test_sends_that_failed_behind_the_last_line(
    tmp_path: Path, every_ms: int, verdict: str
) -> None:
    """In the last two seconds, behind the last line: 100 are too many, 40 are not."""
    last = Sends(KILLED - 2_000, KILLED, every_ms, "flush_slave_timeout")
    assert judged(killed(last), tmp_path)["verdict"] == verdict


SWITCHED = W0 + 20 * MINUTE


def switched(*failures: Sends, asks: str = "sync ok", clean: bool = True) -> Story:
    """The master stops, the slave of another host is promoted three seconds later, and the old one
    comes back as its slave in another minute; 3,600,000 sends."""
    first = connected(life(W0 - MINUTE, SWITCHED))
    first.clean = clean
    second = connected(life(SWITCHED + 3_000, W1 + MINUTE))
    # What the slave has that is there at once is all that was written before.
    second.links["b:1"].states = [(second.start, IN_SYNC)]
    second.machine = 1
    story = story_of(first, second, expects=True)
    story.asks, story.keeps_ends = {asks}, True
    story.sends = [Sends(W0 - MINUTE, W1 + MINUTE, 50, "ok"), *failures]
    story.was_slave_until = {1: SWITCHED + 1_000}
    story.returns = {0: SWITCHED + MINUTE}
    return story


@pytest.mark.parametrize("asks", ["sync ok", "sends ok", "rpo"])
def test_an_orderly_switch_to_another_host(tmp_path: Path, asks: str) -> None:
    """The last line counts all, and the broker names it when it is back: nothing is unknown."""
    assert judged(switched(asks=asks), tmp_path)["verdict"] == MET


@pytest.mark.parametrize("every_ms", [20, 50])
@pytest.mark.parametrize("clean", [True, False])
def test_a_switch_and_sends_that_failed(tmp_path: Path, clean: bool, every_ms: int) -> None:
    """The last ones of the old master, of which the next line that counts them tells: 100 are too
    many, 40 are not."""
    last = Sends(SWITCHED - 2_000, SWITCHED, every_ms, "flush_slave_timeout")
    verdict = judged(switched(last, clean=clean), tmp_path)["verdict"]
    assert verdict == (BREACHED if every_ms == 20 else MET)


def test_data_at_risk_when_a_master_is_killed_and_another_host_promoted(tmp_path: Path) -> None:
    """What it wrote behind its last line nobody knows: not even its next life."""
    assert judged(switched(asks="rpo", clean=False), tmp_path)["verdict"] == INSUFFICIENT


@pytest.mark.parametrize("asks", ["sync ok", "rpo"])
@pytest.mark.parametrize("lost", ["old master", "slave"])
def test_a_switch_of_which_lines_are_lost(tmp_path: Path, asks: str, lost: str) -> None:
    """The old master may have lived once more; the new one have been one before."""
    story = switched(asks=asks)
    if lost == "old master":
        story.returns = {}
    day = day_of(story)
    for file in day.files:
        some = map(json.loads, file.lines)
        file.lines = [json.dumps(line) for line in some if lost != "slave" or is_left(line)]
    assert judged_day(day, tmp_path)["verdict"] == INSUFFICIENT


def is_left(line: Json) -> bool:
    return line["role"] != "SLAVE" or line["ts"] > SWITCHED + 10_000


def test_a_switch_whose_old_master_comes_back_behind_the_window(tmp_path: Path) -> None:
    """By the first line of its next life, also of the next day."""
    story = switched()
    story.returns = {0: W1 + 150 * MINUTE}
    assert judged(story, tmp_path)["verdict"] == MET


@pytest.mark.parametrize(("every_ms", "verdict"), [(20, BREACHED), (50, MET)])
@pytest.mark.parametrize("story_of_sends", [killed, switched])
def test_sends_that_were_refused_behind_the_last_line(
    tmp_path: Path, story_of_sends: Callable[..., Story], every_ms: int, verdict: str
) -> None:
    """They store nothing, so that no log bounds them: only what the next life tells counts."""
    end = KILLED if story_of_sends is killed else SWITCHED
    last = Sends(end - 2_000, end, every_ms, REFUSED)
    assert judged(story_of_sends(last, asks="sends ok"), tmp_path)["verdict"] == verdict


def test_refused_sends_of_which_nobody_tells(tmp_path: Path) -> None:
    story = killed(asks="sends ok", keeps_ends=False)
    assert judged(story, tmp_path)["verdict"] == INSUFFICIENT


def test_an_end_with_lower_counters_than_the_last_line_proves_nothing(tmp_path: Path) -> None:
    day = day_of(killed())
    for file in day.files:
        file.lines = [
            text.replace('"uncounted_ms":64,"sync":{"ok":2', '"uncounted_ms":64,"sync":{"ok":1')
            for text in file.lines
        ]
    assert judged_day(day, tmp_path)["verdict"] == INSUFFICIENT


def test_an_end_of_another_life_proves_nothing(tmp_path: Path) -> None:
    day = day_of(killed())
    for file in day.files:
        file.lines = [
            text.replace('"ended":{"boot":"', '"ended":{"boot":"f') for text in file.lines
        ]
    assert judged_day(day, tmp_path)["verdict"] == INSUFFICIENT
