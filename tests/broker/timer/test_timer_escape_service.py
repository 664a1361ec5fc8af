"""broker.timer.timer_escape_service: what of a slave's wheel goes elsewhere, and its read time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.append.send_properties import find_property
from broker.out.escape_bridge import EscapeError
from broker.timer.timer_escape_service import TimerEscapeParts, TimerEscapeService
from broker.timer.timer_records import TimerRecords
from store.message import Message
from store.timer.timer_log import TimerLogReader
from store.timer.timer_slots import (
    TIMER_COMMIT_QUEUE_OFFSET,
    TIMER_READ_TIME_MS,
    TIMER_TAKEN_BACK_MS,
)
from store.timer.timer_wheel import TimerWheelReader
from tests.broker.broker_fakes import OtherBrokers
from tests.support.timer_life import START_MS, TimerLife

REVIVE = "rmq_sys_REVIVE_LOG_C"
SLOT_MS = START_MS - START_MS % 1_000


class Pops:
    """PopEscape; `waiting` holds the read time back."""

    topic = REVIVE

    def __init__(self) -> None:
        self.taken: list[tuple[str, int, int, int]] = []
        self.settled: list[int] = []
        self.waiting: int | None = None

    def take(self, message: Message, slot_ms: int) -> None:
        self.taken.append((message.topic, message.queue_id, message.store_timestamp, slot_ms))

    def settle(self, read_ms: int) -> None:
        self.settled.append(read_ms)

    def waits_from(self) -> int | None:
        return self.waiting

    def forget(self) -> None:
        self.taken.clear()


class World:
    """A slave's store, and other brokers."""

    def __init__(self, root: Path, **settings: int) -> None:
        self.life = TimerLife(root, is_slave=True, **settings)
        self.counters = self.life.counters
        self.counters[TIMER_READ_TIME_MS] = SLOT_MS
        self.is_acting = True
        self.others = OtherBrokers()
        self.pops = Pops()
        config = self.life.config
        self.service = TimerEscapeService(
            lambda: self.is_acting,
            TimerEscapeParts(
                wheel=TimerWheelReader(config.timer_wheel_path, config.timer_precision_ms),
                units=TimerLogReader(config.timer_log_path, config.mapped_file_size_timer_log),
                records=TimerRecords(self.life.reader, config.timer_precision_ms),
                table=self.life.table,
                counters=self.counters,
                bridge=self.others,  # type: ignore[arg-type]
                pops=self.pops,
            ),
        )
        self.service.wait_for_running = lambda _ms: True  # type: ignore[method-assign, assignment]
        self.life.run()

    def timer(self, key: str, in_ms: int, more: str = "") -> None:
        self.life.put(SLOT_MS + in_ms, more=f"\x02UNIQ_KEY\x01{key}\x02TIMER_DELAY_SEC\x019{more}")

    def act(self, ms: int = 0) -> None:
        """Time passes; the store enters what it may, and the service takes a step."""
        self.life.clock.advance(ms)
        self.service.step()
        self.life.run()
        self.service.step()

    def keys(self) -> list[str | None]:
        return [find_property(message.properties, "UNIQ_KEY") for message in self.others.taken]

    @property
    def read_ms(self) -> int:
        return self.counters[TIMER_READ_TIME_MS]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    try:
        yield world
    finally:
        world.life.stop()


def test_what_is_due_goes_elsewhere_slot_by_slot(world: World) -> None:
    for key, in_ms in (("b", 2_000), ("a", 1_000), ("c", 2_000), ("later", 60_000)):
        world.timer(key, in_ms)
    world.act(3_100)
    assert world.keys() == ["a", "b", "c"]
    (first, *_) = world.others.taken
    assert first.topic == "T"
    assert find_property(first.properties, "TIMER_DELAY_SEC") is None, "no second delay"
    assert find_property(first.properties, "WAIT") == "false"
    assert world.read_ms == world.counters[TIMER_TAKEN_BACK_MS] >= SLOT_MS + 3_000
    world.act(100)
    assert world.keys() == ["a", "b", "c"], "once"
    world.act(60_000)
    assert world.keys()[3:] == ["later"]


def test_everything_that_was_replicated_is_entered_first(world: World) -> None:
    """A slave enters what its master had entered; what came behind would be passed over."""
    world.timer("a", 1_000)
    assert world.counters[TIMER_COMMIT_QUEUE_OFFSET] == 0
    world.life.clock.advance(5_000)
    world.service.step()
    assert (world.keys(), world.read_ms) == ([], SLOT_MS)
    world.act()
    assert world.keys() == ["a"]


def test_only_while_it_acts(world: World) -> None:
    world.timer("a", 1_000)
    world.is_acting = False
    world.act(5_000)
    assert (world.keys(), world.read_ms) == ([], SLOT_MS)


def test_a_slot_waits_while_nobody_takes_its_next_message(world: World) -> None:
    for key in ("a", "b", "c"):
        world.timer(key, 1_000)
    world.timer("next", 2_000)
    world.others.errors = [None, EscapeError("nobody"), EscapeError("nobody")]
    world.act(5_000)
    assert (world.keys(), world.read_ms) == (["a"], SLOT_MS), "the slot is not passed"
    world.act()
    assert world.keys() == ["a", "b", "c", "next"]
    assert world.read_ms > SLOT_MS + 2_000


def test_a_slave_that_ceases_to_act_says_what_is_done_only(world: World) -> None:
    world.timer("a", 1_000)
    world.timer("b", 2_000)
    world.timer("c", 2_000)
    world.others.errors = [None, None, EscapeError("the master is back")]
    world.act(5_000)
    assert world.keys() == ["a", "b"]
    world.is_acting = False
    world.act()
    assert world.read_ms == SLOT_MS + 2_000


def test_a_recalled_timer_is_not_delivered(world: World) -> None:
    world.timer("a", 1_000)
    world.timer("b", 1_000)
    world.timer("", 1_000, "\x02TIMER_DEL_UNIQKEY\x01T+a")
    world.act(5_000)
    assert world.keys() == ["b"]


def test_check_points_go_to_pop_and_hold_the_read_time_back(world: World) -> None:
    world.life.put(SLOT_MS + 1_000, topic=REVIVE, more="\x02TAGS\x01ck")
    world.timer("a", 2_000)
    world.pops.waiting = SLOT_MS + 1_000
    world.act(5_000)
    due_ms = SLOT_MS + 1_000
    assert world.pops.taken == [(REVIVE, 0, due_ms, due_ms)]
    assert world.pops.settled[-1] >= SLOT_MS + 5_000
    assert (world.keys(), world.read_ms) == (["a"], due_ms)
    world.pops.waiting = None
    world.act()
    assert world.read_ms >= SLOT_MS + 5_000


def test_what_lies_too_far_ahead_waits_elsewhere(tmp_path: Path) -> None:
    world = World(tmp_path, timer_roll_window_slot=10)
    try:
        world.timer("far", 60_000)
        world.act(20_000)
        ((message),) = world.others.taken
        assert find_property(message.properties, "TIMER_DELIVER_MS") == str(SLOT_MS + 60_001)
        for name in ("TIMER_OUT_MS", "TIMER_DELAY_SEC"):
            assert find_property(message.properties, name) is None
    finally:
        world.life.stop()


def test_a_record_that_is_lost_here_waits_for_the_master(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.timer("a", 1_000)
    monkeypatch.setattr(world.life.reader, "record_at", lambda _phy_offset: None)
    world.act(5_000)
    assert (world.keys(), world.read_ms) == ([], SLOT_MS)


def test_a_clock_that_was_ahead_while_it_acted_makes_it_pass_over_nothing(world: World) -> None:
    """What comes after the clock was set right lies in slots that it believed to be over."""
    world.timer("a", 2_000)
    world.act(3_600_000)
    assert world.keys() == ["a"]
    world.is_acting = False
    world.life.clock.jump_to(SLOT_MS + 10_000)
    world.act()
    world.act()
    assert world.read_ms <= SLOT_MS + 10_000
    assert world.counters[TIMER_TAKEN_BACK_MS] == world.read_ms
    world.timer("b", 20_000)
    world.act()
    world.is_acting = True
    world.act(30_000)
    world.act(5_000)
    assert world.keys() == ["a", "b"]
