"""broker.slave.timer_take_back: which read time of a slave a returning master believes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from broker.out.broker_outer_api import BrokerAnswerError, TimerCheckPointAnswer
from broker.slave.timer_take_back import TimerTakeBack
from remoting.errors import RemotingTimeoutError
from store.timer.timer_checkpoint import TimerCheckpoint
from store.timer.timer_slots import TIMER_TAKEN_BACK_MS
from tests.support.shared_memory import close_page, fresh_page

BEGAN_MS, NOW_MS, END = 990_000, 1_000_000, 7
SLAVE = "10.0.0.2:10911"


class World:
    def __init__(self) -> None:
        self.page = fresh_page()
        self.answer: bytes | Exception = b""
        self.asked: list[str] = []
        self.end = END
        """Of the timers, now."""
        at_start = SimpleNamespace(end=lambda *_queue: END, began_ms=BEGAN_MS)
        self.take_back = TimerTakeBack(
            self,
            self.page.counters,
            lambda: self.end,
            at_start,  # type: ignore[arg-type]
            lambda: NOW_MS,
        )

    def get_timer_check_point(self, broker: str, timeout_ms: int) -> TimerCheckPointAnswer:
        assert timeout_ms == 3_000
        self.asked.append(broker)
        if isinstance(self.answer, Exception):
            raise self.answer
        return TimerCheckPointAnswer(self.answer, 0)

    def ask(self, slave: str = SLAVE) -> int:
        self.take_back.take(slave, self.take_back.fetch(slave))
        return self.page.counters[TIMER_TAKEN_BACK_MS]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    close_page(world.page)


def said(read_ms: int, entered: int = END, master: int = 0) -> bytes:
    return TimerCheckpoint(
        last_read_time_ms=read_ms,
        last_timer_queue_offset=entered,
        master_timer_queue_offset=master,
    ).encode()


def test_the_largest_read_time_counts(world: World) -> None:
    world.answer = said(500)
    assert world.ask() == 500
    world.answer = said(400)
    assert world.ask() == 500
    world.answer = said(NOW_MS)
    assert world.ask() == NOW_MS
    assert set(world.asked) == {"10.0.0.2:10909"}, "the VIP port"


def test_of_a_slave_that_lacked_a_timer_nothing_is_taken(world: World) -> None:
    """It would never be delivered: its time has passed there."""
    world.answer = said(500, END - 1, END)
    assert world.ask() == 0


def test_of_a_slave_whose_clock_is_ahead_what_is_due_here_is_taken(world: World) -> None:
    """It has delivered all that was due by its own clock; nothing of that comes twice."""
    world.answer = said(NOW_MS + 5_000)
    assert world.ask() == NOW_MS
    world.answer = said(-1)
    assert world.ask() == NOW_MS


@pytest.mark.parametrize("entered", [END, END + 1, END + 3], ids=["lacks", "has one", "is ahead"])
def test_what_producers_send_to_this_life_is_not_passed_over(world: World, entered: int) -> None:
    """They are due after its start, and the slave has not delivered them: it may not even hold
    them, though its own log, of which this master lost the tail, is as long."""
    world.end = END + 2
    world.answer = said(BEGAN_MS + 1_500, entered)
    assert world.ask() == BEGAN_MS
    world.answer = said(BEGAN_MS - 1_500, entered)
    assert world.ask() == BEGAN_MS


@pytest.mark.parametrize(
    "answer",
    [b"", b"short", BrokerAnswerError("The checkpoint is null"), RemotingTimeoutError("a", "no")],
)
def test_without_a_check_point_there_is_nothing_to_take(
    world: World, answer: bytes | Exception
) -> None:
    world.answer = answer
    assert world.ask() == 0


def test_a_slave_without_a_vip_port(world: World) -> None:
    assert (world.ask("10.0.0.2:2"), world.asked) == (0, [])
