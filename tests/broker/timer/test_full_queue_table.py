"""A due timer whose queue would be a new one while the queue table is full: it waits, alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.timer.delivered_properties import put_off_properties
from store.control_slots import PUT_OFF, PutOffBy
from store.message_properties import PROPERTIES_LIMIT, find_property
from store.queue_room import QueueRoom
from store.timer.timer_log import TimerUnit
from store.timer.timer_queue import TIMER_TOPIC
from tests.store.test_full_queue_table import Rows
from tests.support.timer_delivery import Delivered, TimerDelivery
from tests.support.timer_life import START_MS

SLOT_MS = START_MS + 2_000
MINUTE_MS = 60_000
LATE_MS = 2_100
"""A slot is over, and what it holds goes out."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[TimerDelivery]:
    """Topic T has its queue; there is no room for another."""
    world = TimerDelivery(tmp_path / "store")
    world.put("first", START_MS + 500)
    world.pass_ms(1_000, 50)
    assert world.keys() == ["first"]
    fill(world)
    yield world
    world.close()


def fill(world: TimerDelivery) -> Rows:
    """From now on the table is full."""
    rows = Rows(2)
    rows.seen = {("T", 0), (TIMER_TOPIC, 0)}
    world.life.log._room = QueueRoom(rows)
    return rows


def put_off(world: TimerDelivery) -> int:
    """How often, by the control page."""
    return world.life.counters[PUT_OFF + PutOffBy.TIMER_DELIVERY]


def until(world: TimerDelivery, time_ms: int, step_ms: int) -> None:
    """By the world's clock."""
    world.pass_ms(time_ms - world.clock.now_ms(), step_ms)


def make_room(world: TimerDelivery) -> None:
    """Topics were deleted, and the broker was started again."""
    world.restart()


def test_others_of_its_slot_come_at_their_millisecond(world: TimerDelivery) -> None:
    world.put("lonely", SLOT_MS + 10, topic="New")
    for key, ms in {"a": 20, "b": 500, "c": 1_300}.items():
        world.put(key, SLOT_MS + ms)
    until(world, SLOT_MS, 50)
    until(world, SLOT_MS + 1_400, 1)
    assert world.delivered()[1:] == [
        Delivered("a", SLOT_MS + 20),
        Delivered("b", SLOT_MS + 500),
        Delivered("c", SLOT_MS + 1_300),
    ]


def test_it_is_put_off_longer_each_time_and_comes_once_when_there_is_room(
    world: TimerDelivery, caplog: pytest.LogCaptureFixture
) -> None:
    world.put("lonely", SLOT_MS + 10, topic="New")
    waits_ms = (60_000, 120_000, 240_000, 480_000, 960_000, 960_000)
    due_ms = SLOT_MS + 10
    for number, wait_ms in enumerate(waits_ms):
        until(world, due_ms - 100, 500)
        assert put_off(world) == number
        while put_off(world) == number and world.clock.now_ms() < due_ms + LATE_MS:
            world.pass_ms(20)
        assert put_off(world) == number + 1
        due_ms = (world.clock.now_ms() + wait_ms) // 1_000 * 1_000
    lines = [line for line in caplog.messages if ": queue 0 of topic New" in line]
    assert len(lines) == len(waits_ms)
    assert world.service.read_time_ms > world.clock.now_ms() - 2_000, "nothing holds it up"
    assert world.keys() == ["first"]
    make_room(world)
    until(world, due_ms + LATE_MS, 500)
    assert world.keys() == ["first", "lonely"]
    world.pass_ms(20 * MINUTE_MS, 5_000)
    assert world.keys() == ["first", "lonely"]


@pytest.mark.parametrize("ends", [True, False], ids=["after", "before it is noted"])
@pytest.mark.parametrize("at_ms", [20, 1_500], ids=["open", "closed"])
def test_kills_around_the_moment(world: TimerDelivery, at_ms: int, *, ends: bool) -> None:
    """Killed at every step of being put off and of being due again: never lost; once, unless the
    kill comes between publication and note (docs/timers.md)."""
    more = "" if at_ms < 1_000 else "\x02TIMER_DELAY_SEC\x012"
    world.put("lonely", SLOT_MS + 10, topic="New", more=more)
    world.put("other", SLOT_MS + 30)
    until(world, SLOT_MS - 40, 20)
    for step_ms in (40 + at_ms, 20, 20, 1_000, 60_000, 1_000, 1_000):
        world.clock.advance(step_ms)
        world.life.run()
        world.turn(ends=ends)
        world.restart()
        fill(world)
    world.restart()
    world.pass_ms(40 * MINUTE_MS, 1_000)
    counts = Counter(world.keys())
    assert counts.keys() == {"first", "lonely", "other"}
    if ends:
        assert max(counts.values()) == 1


def test_many_of_them_wait_in_the_log_and_hold_up_nobody(world: TimerDelivery) -> None:
    """In nothing of ours: after they are put off the service holds none of them."""
    for number in range(300):
        world.put(f"lonely{number}", SLOT_MS + 10, topic="New")
    world.put("a", SLOT_MS + 600)
    until(world, SLOT_MS + 550, 50)
    until(world, SLOT_MS + 600, 1)
    assert world.delivered()[1:] == [Delivered("a", SLOT_MS + 600)]
    world.pass_ms(3_000, 50)
    assert put_off(world) == 300
    assert not world.service.busy
    make_room(world)
    world.pass_ms(2 * MINUTE_MS, 1_000)
    assert Counter(world.keys()) == Counter(
        ["first", "a", *(f"lonely{number}" for number in range(300))]
    )


def test_it_waits_for_a_slot_of_the_wheel() -> None:
    unit = TimerUnit(-1, 0, SLOT_MS, 0, 0, 100, 0)
    found = put_off_properties(b"K\x01k\x02TIMER_OUT_MS\x011", unit, SLOT_MS + 1_234, 1_000)
    assert found.split(b"\x02")[0] == b"K\x01k"
    assert find_property(found, b"TIMER_OUT_MS") == b"%d" % (SLOT_MS + MINUTE_MS + 1_000)
    assert found.count(b"TIMER_OUT_MS") == 1
    assert find_property(found, b"TIMER_ROLL_TIMES") == b"1"


def test_properties_at_their_limit(world: TimerDelivery) -> None:
    """The number of rolls finds no room in them: it waits longest from the first time on."""
    text = (
        f"TIMER_OUT_MS\x01{SLOT_MS}\x02REAL_TOPIC\x01New\x02REAL_QID\x010\x02TIMER_DELIVER_MS\x01"
    )
    text += f"{SLOT_MS}\x02UNIQ_KEY\x01full\x02K\x01"
    more = "\x02K\x01" + "k" * (PROPERTIES_LIMIT - len(text))
    world.put("full", SLOT_MS + 10, topic="New", more=more)
    until(world, SLOT_MS + LATE_MS, 50)
    assert put_off(world) == 1
    until(world, SLOT_MS + 15 * MINUTE_MS, 1_000)
    assert put_off(world) == 1
    make_room(world)
    world.pass_ms(20 * MINUTE_MS, 1_000)
    assert world.keys() == ["first", "full"]
