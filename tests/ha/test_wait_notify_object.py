"""WaitNotifyObject: the flag on the page, and that nobody sleeps through a ring."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ipc.bell import Bell

from ha.wait_notify_object import Waiter, WaitNotifyObject
from ipc.control_page import SLEEPS, ControlPage, ProcessIndex
from remoting.selector_seam import new_selector
from store.control_slots import MAX_PHY_OFFSET

ROUNDS = 4000
WAITERS = 4
SEEN = 300
"""Slots SEEN + n of the page, which nobody uses: how far waiter n has come."""
FLAG = SLEEPS + ProcessIndex.HA


class _Room:
    def __init__(self) -> None:
        self.page_fd = ControlPage.create()
        self.page = ControlPage(self.page_fd)
        self.bell = Bell(self.page, ProcessIndex.HA, Bell.create())
        self.shared = WaitNotifyObject(self.bell)

    @property
    def flag(self) -> int:
        return self.page.counters[FLAG]


class _Sleeper:
    def __init__(self, room: _Room) -> None:
        self.waiter: Waiter = room.shared.new_waiter()
        self.selector = new_selector()
        self.waiter.register(self.selector)

    def sleep(self, timeout_s: float = 0.0) -> bool:
        """True when something woke it."""
        events = self.selector.select(timeout_s)
        self.waiter.get_up(events)
        return bool(events)

    def close(self) -> None:
        self.selector.close()
        self.waiter.close()


@pytest.fixture
def room() -> Iterator[_Room]:
    room = _Room()
    yield room
    os.close(room.bell.event_fd)
    os.close(room.page_fd)


def test_the_flag_is_up_while_anybody_sleeps(room: _Room) -> None:
    first, second = _Sleeper(room), _Sleeper(room)
    assert room.flag == 0
    first.waiter.lie_down()
    second.waiter.lie_down()
    assert room.flag == 1
    first.sleep()
    assert room.flag == 1
    second.sleep()
    assert room.flag == 0
    second.waiter.lie_down()
    second.close()
    assert room.flag == 0
    first.close()


def test_who_empties_the_bell_wakes_those_who_did_not_see_it(room: _Room) -> None:
    """The late one stands for a thread that is on its way out of its selector."""
    first, late = _Sleeper(room), _Sleeper(room)
    first.waiter.lie_down()
    late.waiter.lie_down()
    room.bell.ring()
    assert first.sleep()
    first.waiter.lie_down()  # empties the bell
    assert not first.sleep()
    assert late.sleep()
    late.waiter.lie_down()
    assert not late.sleep()  # its own eventfd is empty again, too
    first.close()
    late.close()


def test_a_ring_before_the_sleep_ends_it(room: _Room) -> None:
    sleeper, other = _Sleeper(room), _Sleeper(room)
    other.waiter.lie_down()
    room.bell.ring()
    sleeper.waiter.lie_down()
    assert sleeper.sleep()
    sleeper.close()
    assert other.sleep()
    other.close()


def test_a_wake_ends_one_sleep_without_the_bell(room: _Room) -> None:
    """Else it would end each of them, at once, until the waiter lies down again: at full load."""
    waiter, other = room.shared.new_waiter(), _Sleeper(room)
    idle, blocked = new_selector(), new_selector()
    waiter.register(idle)
    waiter.register(blocked, bell=False)
    waiter.lie_down()
    room.bell.ring()
    events = idle.select(0)
    other.waiter.lie_down()
    assert other.sleep()
    other.waiter.lie_down()  # empties the bell and wakes all that still count as asleep
    waiter.get_up(events)
    waiter.note(blocked.select(0))
    assert blocked.select(0) == []
    waiter.lie_down()
    assert idle.select(0) == []
    idle.close()
    blocked.close()
    waiter.close()
    other.close()


def test_wake_ends_one_sleep_of_one_waiter(room: _Room) -> None:
    sleeper, other = _Sleeper(room), _Sleeper(room)
    sleeper.waiter.wake()
    sleeper.waiter.lie_down()
    other.waiter.lie_down()
    assert sleeper.sleep()
    assert not other.sleep()
    sleeper.waiter.lie_down()
    assert not sleeper.sleep()
    sleeper.close()
    sleeper.waiter.wake()  # nothing: it is closed
    sleeper.close()
    other.close()


_APPENDER = """
import random, sys, time
from ipc.control_page import MAX_PHY_OFFSET, Bell, ControlPage, ProcessIndex
page_fd, bell_fd, seen, waiters, rounds = map(int, sys.argv[1:])
page = ControlPage(page_fd)
bell = Bell(page, ProcessIndex.HA, bell_fd)
counters = page.counters
for number in range(1, rounds + 1):
    counters[MAX_PHY_OFFSET] = number
    bell.ring()
    while any(counters[seen + n] < number for n in range(waiters)):
        time.sleep(0)
    if number % 4 == 0:  # let them fall asleep at different distances
        time.sleep(random.random() * 100e-6)
"""


def test_no_ring_of_another_process_is_lost_on_four_waiters(room: _Room) -> None:
    """The appender goes on only when all have seen its last number: a waiter that missed a ring
    sleeps until its time is over, which is counted."""
    overslept: list[int] = []

    def follow(index: int) -> None:
        sleeper, counters, seen = _Sleeper(room), room.page.counters, 0
        while seen < ROUNDS and not overslept:
            if counters[MAX_PHY_OFFSET] == seen:
                sleeper.waiter.lie_down()
                if counters[MAX_PHY_OFFSET] != seen:
                    sleeper.waiter.get_up(())
                elif not sleeper.sleep(5.0) and counters[MAX_PHY_OFFSET] != seen:
                    overslept.append(index)
            seen = counters[SEEN + index] = counters[MAX_PHY_OFFSET]
        sleeper.close()

    threads = [threading.Thread(target=follow, args=(index,)) for index in range(WAITERS)]
    for thread in threads:
        thread.start()
    fds = (room.page_fd, room.bell.event_fd)
    arguments = [str(number) for number in (*fds, SEEN, WAITERS, ROUNDS)]
    appender = subprocess.Popen(
        [sys.executable, "-c", _APPENDER, *arguments],
        pass_fds=fds,
        cwd=Path(__file__).resolve().parents[2],
    )
    for thread in threads:
        thread.join(60)
    alive = [thread.name for thread in threads if thread.is_alive()]
    if alive or overslept:
        appender.kill()
    appender.wait(10)
    assert not alive
    assert not overslept
    assert room.flag == 0
