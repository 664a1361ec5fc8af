"""TimerMessageStore in controller mode: the role changes while its files are open.

The truth is the list of timers that the test has put, and what a master before has delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.control_slots import MAX_PHY_OFFSET
from store.timer.timer_metrics import load_timer_metrics
from store.timer.timer_slots import (
    TIMER_COMMIT_QUEUE_OFFSET,
    TIMER_MASTER_QUEUE_OFFSET,
    TIMER_OPENED,
    TIMER_START_TIME_MS,
    TIMER_WRITE_TIME_MS,
)
from tests.support.shared_memory import fresh_page
from tests.support.timer_life import START_MS, TimerLife

S = 1_000


class OrderedRole:
    """A RoleNow whose order the test gives; `answers` come first, one for each question."""

    may_lead = is_controlled = True

    def __init__(self) -> None:
        self.follows = True
        self.answers: list[bool] = []
        self.page = fresh_page()

    def is_slave(self) -> bool:
        return self.answers.pop(0) if self.answers else self.follows

    def readable_end(self) -> int:
        return self.page.counters[MAX_PHY_OFFSET]

    def begin(self, stored_confirm: int, low: int, dispatched: int) -> int:
        raise NotImplementedError

    def confirm_offset(self) -> int | None:
        return None


@pytest.fixture
def role() -> OrderedRole:
    return OrderedRole()


@pytest.fixture
def life(tmp_path: Path, role: OrderedRole) -> Iterator[TimerLife]:
    life = TimerLife(tmp_path / "store", page=role.page, role=role)
    yield life
    life.stop()


def test_a_leader_begins_where_the_last_one_was(life: TimerLife, role: OrderedRole) -> None:
    """The last master has entered two of four, and delivered those before 10 s. We lead at 20 s:
    what was due in between is late, not lost, in whichever of the two it was."""
    life.put(*(START_MS + at * S for at in (5, 12, 15, 40)))
    life.counters[TIMER_MASTER_QUEUE_OFFSET] = 2
    life.deliver(START_MS + 10 * S)
    life.run()
    assert not life.counters[TIMER_OPENED]
    life.clock.advance(20 * S)
    life.run()
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS + 20 * S
    role.follows = False
    life.run()
    assert life.counters[TIMER_OPENED]
    assert life.counters[TIMER_COMMIT_QUEUE_OFFSET] == 4
    assert life.counters[TIMER_START_TIME_MS] == START_MS + 10 * S
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS + 20 * S, "all was entered before"
    assert life.offsets(START_MS + 10 * S) == {
        START_MS + 12 * S: [1],
        START_MS + 15 * S: [2],
        START_MS + 40 * S: [3],
    }


def waiting(life: TimerLife) -> int:
    """How many timers of T wait, by timermetrics."""
    life.timers.flush()
    return load_timer_metrics(life.config.timer_metrics_path).topics["T"].count


@pytest.mark.parametrize("is_seen_following", [True, False])
def test_a_master_whose_clock_was_a_day_ahead_for_a_while(
    life: TimerLife, role: OrderedRole, is_seen_following: bool
) -> None:
    """Its read time went a day ahead and came back. Who leads then delivers nothing before its
    time, and what waits is counted."""
    day = 86_400 * S
    life.put(*(START_MS + at * S for at in (5, 40, 3_600)))
    life.counters[TIMER_MASTER_QUEUE_OFFSET] = 3
    life.deliver(START_MS + 1 * S)
    life.run()
    life.deliver(START_MS + day)
    life.run()
    assert waiting(life) == 0
    life.clock.advance(20 * S)
    life.deliver(START_MS + 10 * S)
    if is_seen_following:
        life.run()
    role.follows = False
    life.run()
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS + 20 * S
    assert life.counters[TIMER_START_TIME_MS] == START_MS + 10 * S
    assert waiting(life) == 2


def test_a_leader_enters_what_it_had_not_as_a_follower_again(
    life: TimerLife, role: OrderedRole
) -> None:
    """The last master had entered all, this broker nothing yet: what was delivered stays out."""
    life.run()
    life.put(START_MS + 1 * S, START_MS + 12 * S, START_MS + 40 * S)
    life.run()
    life.clock.advance(20 * S)
    life.deliver(START_MS + 10 * S)
    life.counters[TIMER_MASTER_QUEUE_OFFSET] = 3
    role.follows = False
    life.run()
    assert life.offsets(START_MS + 10 * S) == {
        START_MS + 12 * S: [1],
        START_MS + 40 * S: [2],
    }


def test_a_follower_adds_to_what_is_over_and_lets_nobody_read(
    life: TimerLife, role: OrderedRole
) -> None:
    role.follows = False
    life.put(START_MS + 30 * S)
    life.run()
    assert life.counters[TIMER_OPENED]
    role.follows = True
    life.clock.advance(5 * S)
    life.put(START_MS + 7 * S)
    life.counters[TIMER_MASTER_QUEUE_OFFSET] = 2
    life.clock.advance(20 * S)
    life.run()
    assert not life.counters[TIMER_OPENED]
    assert life.offsets() == {START_MS + 7 * S: [1], START_MS + 30 * S: [0]}


@pytest.mark.parametrize("answers", [[True, False], [True, False, False]])
def test_an_order_that_is_gone_again_changes_nothing(
    life: TimerLife, role: OrderedRole, answers: list[bool]
) -> None:
    """To follow, and to lead before it was looked at twice: a delivery may have begun by then, so
    that no slot which is over is touched."""
    role.follows = False
    life.put(START_MS + 30 * S)
    life.run()
    life.clock.advance(10 * S)
    life.run()
    write_ms = life.counters[TIMER_WRITE_TIME_MS]
    role.answers = list(answers)
    life.put(START_MS + 5 * S)
    life.timers.run_once()
    assert life.counters[TIMER_OPENED]
    late = [at for at, numbers in life.offsets().items() if 1 in numbers]
    assert late
    assert late[0] >= write_ms


def test_leads_at_once_after_a_start(tmp_path: Path, role: OrderedRole) -> None:
    role.follows = False
    life = TimerLife(tmp_path / "store", page=role.page, role=role)
    life.put(START_MS + 5 * S)
    life.run()
    assert life.counters[TIMER_OPENED]
    assert life.offsets() == {START_MS + 5 * S: [0]}
    life.stop()
