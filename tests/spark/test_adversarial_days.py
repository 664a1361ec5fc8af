"""A search for a day that is called met and was not: lists of events, made worse step by step.

Hypothesis chooses the events (what a link did, when a master died, which lines are lost, what was
sent and how it ended) and, where it finds a day that breaks a promise and is met, takes away what
is not needed for that. The truth is that of the events (day_events.py, day_objectives.py).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from hypothesis import event, given, target
from hypothesis import strategies as st

from tests.spark.day_events import (
    CATCHING_UP,
    DISCONNECTED,
    IN_SYNC,
    MIDNIGHT,
    MINUTE,
    Lag,
    Life,
    Link,
    Story,
    total,
    truth,
)
from tests.spark.day_generator import Day, day_of
from tests.spark.day_objectives import CRITERIA, REFUSED, Sends, above, exposure, sent
from tests.spark.test_generated_days import plainly, verdict_of, wrong

W0: Final = MIDNIGHT + 600 * MINUTE
LENGTH: Final = 20 * MINUTE
FAILURES: Final = ("flush_slave_timeout", "slave_not_available", "flush_disk_timeout")

moments = st.integers(-MINUTE, LENGTH + MINUTE)
lengths = st.sampled_from((200, 900, 3_000, 12_000, 45_000))


@st.composite
def links(draw: st.DrawFn, start: int, end: int) -> Link:
    """In sync but for some outages and lags, which do not touch each other."""
    link = Link([(start, DISCONNECTED)], first_connected=start + 400, was_remembered=True)
    link.states += [(start + 400, CATCHING_UP), (start + 700, IN_SYNC)]
    free = start + 1_500
    troubles = draw(st.lists(st.tuples(moments, lengths, st.booleans()), max_size=4))
    for at, length, is_lag in sorted(troubles):
        since = W0 + at
        if since < free or since + 2 * length + 1_000 >= end:
            continue
        if is_lag:
            link.lags.append(Lag(since, since + length, 0, 1.0))
            link.lags.append(Lag(since + length, since + 2 * length, length, -1.0))
        else:
            link.states += [(since, DISCONNECTED), (since + length, CATCHING_UP)]
            link.states.append((since + length + 100, IN_SYNC))
        free = since + 2 * length + 1_000
    return link


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """One or two lives of a master with one slave, sends, lost lines; in a window of 20 minutes.
    Between them the wall clock may be set and the machine rebooted; the slave may be named late."""
    interval = draw(st.sampled_from((5_000, 10_000, 60_000)))
    story = Story(
        seed=0,
        name="b",
        w0=W0,
        w1=W0 + LENGTH,
        interval_ms=interval,
        limit_ms=draw(st.sampled_from((1_000, 5_000, 10_000, 60_000))),
        availability_percent=draw(st.sampled_from((90.0, 99.0, 99.9))),
        min_coverage_percent=draw(st.sampled_from((1.0, 99.0))),
        expects=draw(st.booleans()),
    )
    begin, end = W0 - 2 * interval, W0 + LENGTH + 2 * interval + 777
    cut = draw(st.none() | st.integers(1_500, LENGTH))
    gap = draw(st.sampled_from((400, 20_000, 3 * MINUTE)))
    spans = [(begin, end)]
    if cut is not None and W0 + cut + gap < end:
        spans = [(begin, W0 + cut), (W0 + cut + gap, end)]
    version = draw(st.sampled_from((1, 2)))
    for number, (start, until) in enumerate(spans):
        life = Life(
            start,
            until,
            clean=draw(st.booleans()),
            broker_id=0,
            machine=draw(st.sampled_from((0, 0, 0, number))),
            boot=f"{number + 1:08x}00000000",
            look_phase=draw(st.integers(0, 199)),
            first_look_ms=30,
            version=version,
        )
        life.links["b:1"] = draw(links(start, until))
        life.machine_on = begin - 10 * MINUTE
        story.lives.append(life)
    if len(spans) == 2 and story.lives[0].machine == story.lives[1].machine:
        draw_clock(draw, story)
    draw_name(draw, story)
    story.sends.append(Sends(begin, end, draw(st.sampled_from((50, 1_000))), "ok"))
    for at, length in draw(st.lists(st.tuples(moments, lengths), max_size=2)):
        every = draw(st.sampled_from((20, 200)))
        result = draw(st.sampled_from((*FAILURES, REFUSED)))
        story.sends.append(Sends(W0 + at, W0 + at + length, every, result))
    story.unwritten = [
        (W0 + at, W0 + at + length)
        for at, length in draw(st.lists(st.tuples(moments, lengths), max_size=2))
    ]
    story.asks = set(draw(st.sets(st.sampled_from((*CRITERIA[:3], "sends ok")))))
    story.lag_p99_ms = draw(st.sampled_from((1_000, 5_000, 10_000)))
    story.rpo_bytes = draw(st.sampled_from((20_000, 100_000, 500_000, 4_000_000)))
    story.sends_ok_percent = draw(st.sampled_from((90.0, 99.0, 99.9)))
    story.sync_ok_percent = draw(st.sampled_from((90.0, 99.0, 99.9)))
    return story


def draw_clock(draw: st.DrawFn, story: Story) -> None:
    """Of one machine: rebooted or not, its clock set while the broker is down and set right again
    later, held by a time service or not."""
    before, after = story.lives
    story.tells_machine = draw(st.booleans())
    story.is_held = draw(st.booleans())
    story.keeps_ends = draw(st.booleans())
    if draw(st.booleans()):
        after.machine_on, after.reboots = (before.end + after.start) // 2, 1
    room = after.start - before.end
    ahead = draw(st.sampled_from((0, 0, -room, -room + 900, -MINUTE, MINUTE)))
    back = draw(st.integers(0, LENGTH)) + after.start
    if ahead and back < story.w1 - 2 * story.interval_ms:
        story.clock = [(before.end + 1, ahead), (back, 0)]


def draw_name(draw: st.DrawFn, story: Story) -> None:
    """The slave is new, and goes by its ip for a while."""
    first = story.lives[0].links["b:1"]
    first.was_remembered = draw(st.booleans())
    if not first.was_remembered and draw(st.booleans()):
        story.named_after["b:1"] = draw(st.sampled_from((20_000, 5 * MINUTE, 12 * MINUTE)))


def badness(story: Story) -> float:
    """How much of what the story's promises allow is used up; above 1 one of them is broken."""
    true = truth(story, "b:1", 0)
    found = [true.charged_ms / max(1.0, story.budget_ms + true.tolerance_ms)]
    if "lag p99" in story.asks:
        late_ms = total(above(story, "b:1", story.lag_p99_ms))
        found.append(late_ms / (LENGTH / 100 + true.tolerance_ms))
    if "rpo" in story.asks:
        found.append(exposure(story) / story.rpo_bytes)
    if "sync ok" in story.asks:
        ok, failed = sent(story)
        found.append(failed / max(1.0, (ok + failed) * (100 - story.sync_ok_percent) / 100))
    if "sends ok" in story.asks:
        ok, failed = sent(story, with_refused=True)
        found.append(failed / max(1.0, (ok + failed) * (100 - story.sends_ok_percent) / 100))
    return max(found)


def cases_of(story: Story) -> set[str]:
    """Which of them a story has."""
    found = {"restarted"} if len(story.lives) > 1 else set()
    found |= {"clock set while down"} if story.clock else set()
    found |= {"rebooted"} if any(life.reboots for life in story.lives) else set()
    return found | ({"named late"} if story.named_after else set())


@given(stories())
def test_no_day_is_met_that_was_not(story: Story) -> None:
    """Looks for days that just break a promise: those are the hardest to tell."""
    target(-abs(badness(story) - 1.01), label="close to the edge, beyond it")
    for case in cases_of(story):
        event(case)
    assert_right(day_of(story))


@st.composite
def long_downs(draw: st.DrawFn) -> Story:
    """A broker that was down until after the window's begin, or shortly before it, whose clock was
    set meanwhile and does not show how long; nobody sets it right. Its last lines may be lost, its
    machine rebooted."""
    story = Story(1, "b", W0, W0 + LENGTH, 10_000, 60_000, 99.0, 1.0, expects=True)
    last = W0 - draw(st.sampled_from((1, 10, 125, 185))) * MINUTE
    boot = W0 + draw(st.sampled_from((-MINUTE, 30_000, 4 * MINUTE, 10 * MINUTE)))
    shown = draw(st.sampled_from((W0, W0 + 5_000, last + 1_000, W0 - MINUTE, boot)))
    ahead = min(0, shown - boot) if last < boot else 0
    story.clock = [(last + 1, ahead)] if ahead else []
    spans = [(last - 20 * MINUTE, last), (max(boot, last + 500), story.w1 - ahead + MINUTE)]
    for number, (start, end) in enumerate(spans):
        life = Life(start, end, draw(st.booleans()), 0, 0, f"{number + 1:08x}00000000", 0, 0)
        life.version, life.machine_on = draw(st.sampled_from((1, 2))), spans[0][0] - 10 * MINUTE
        life.links["b:1"] = Link([(start, IN_SYNC)], first_connected=start, was_remembered=True)
        story.lives.append(life)
    if draw(st.booleans()):
        story.lives[1].machine_on, story.lives[1].reboots = spans[1][0] - 1, 1
    story.tells_machine, story.is_held = draw(st.booleans()), draw(st.booleans())
    story.loses_past = draw(st.booleans())
    return story


@given(long_downs())
def test_no_day_is_met_whose_broker_was_down_when_it_began(story: Story) -> None:
    target(min(0, -story.clock_offset(story.w0)) / MINUTE, label="what the clock hides")
    assert_right(day_of(story))


def assert_right(day: Day) -> None:
    """The plain program's report against the truth; all that is wrong, with the events."""
    with tempfile.TemporaryDirectory() as root:
        tables = plainly(day, Path(root))
    problems = wrong(day, tables)
    verdict = verdict_of(day, tables)
    assert not problems, "\n".join([verdict, *problems, *day.story.events()])
