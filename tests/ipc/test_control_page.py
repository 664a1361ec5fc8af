"""The control page and the bell, between real processes."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from broker.supervisor.control_slots import REMOTING_READY
from ha.control_slots import REPLICA_COUNT
from ipc.bell import Bell, Fence
from ipc.control_page import BEAT, SLEEPS, STARTS, ControlPage, ProcessIndex, claim_slots
from store.control_slots import (
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    QUEUE_MOVES,
)
from tests.support.deadline import wait_until
from tests.support.shared_memory import fresh_page

ROOT = Path(__file__).parents[2]
RINGS = 3_000
BOUND_S = 2.0
"""The longest sleep of the child below: a lost wake-up shows as a wait of this length."""

_SLEEPER = f"""
import sys
from ipc.bell import Bell
from ipc.control_page import *
from store.control_slots import *
page_fd, event_fd = map(int, sys.argv[1:])
page = ControlPage(page_fd)
bell = Bell(page, ProcessIndex.STORE, event_fd)
counters, seen = page.counters, 0
page.counters[STORE_STATE] = StoreState.READY
while seen < {RINGS}:
    bell.announce_sleep()
    if counters[MAX_PHY_OFFSET] != seen:
        bell.announce_awake()
    else:
        bell.wait({BOUND_S * 1000})
    seen = counters[MAX_PHY_OFFSET]
    counters[DISPATCHED_OFFSET] = seen
    page.beat(ProcessIndex.STORE)
"""


def start(code: str, *fds: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, fds)],
        pass_fds=fds,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )


def test_no_slot_is_claimed_twice() -> None:
    """Nor one beyond the counters, where the page's text begins."""
    with pytest.raises(ValueError, match="slot 2 of mine belongs to max_phy_offset"):
        claim_slots("mine", MAX_PHY_OFFSET)
    with pytest.raises(ValueError, match="belongs to"):
        claim_slots("mine", BEAT - 1, 2)
    with pytest.raises(ValueError, match="not on the page"):
        claim_slots("mine", 255, 2)


def test_every_slot_constant_lies_where_its_table_says() -> None:
    """The layout is shared with processes of the same start only, but tools print the numbers."""
    slots = (MIN_PHY_OFFSET, QUEUE_MOVES, REPLICA_COUNT, REMOTING_READY, BEAT, SLEEPS, STARTS)
    assert slots == (8, 14, 17, 48, 24, 32, 40)


def test_a_fresh_page_is_zero_and_holds_64_bits() -> None:
    page = fresh_page()
    assert not any(page.counters)
    page.counters[MAX_PHY_OFFSET] = 2**63 - 1
    assert page.counters[MAX_PHY_OFFSET] == 2**63 - 1
    assert page.counters[MAX_PHY_OFFSET - 1] == page.counters[MAX_PHY_OFFSET + 1] == 0


def test_the_page_outlives_its_descriptor() -> None:
    fd = ControlPage.create()
    first, second = ControlPage(fd), ControlPage(fd)
    os.close(fd)
    first.beat(ProcessIndex.HA)
    first.beat(ProcessIndex.HA)
    assert second.beats(ProcessIndex.HA) == 2
    assert second.beats(ProcessIndex.STORE) == 0


def test_two_processes_share_the_page() -> None:
    fd = ControlPage.create()
    page = ControlPage(fd)
    page.counters[MIN_PHY_OFFSET] = 77
    code = (
        "import sys; from ipc.control_page import *; from store.control_slots import *;"
        "page = ControlPage(int(sys.argv[1]));"
        "page.counters[MAX_PHY_OFFSET] = page.counters[MIN_PHY_OFFSET] + 2**40;"
        "page.beat(ProcessIndex.REMOTING)"
    )
    assert start(code, fd).wait(20) == 0
    assert page.counters[MAX_PHY_OFFSET] == 77 + 2**40
    assert page.beats(ProcessIndex.REMOTING) == 1


# -- the bell ------------------------------------------------------------------------------------


def readable(bell: Bell) -> bool:
    poll = select.poll()
    poll.register(bell, select.POLLIN)
    return bool(poll.poll(0))


@pytest.fixture
def bell() -> Bell:
    return Bell(fresh_page(), ProcessIndex.REMOTING, Bell.create())


def test_only_a_sleeper_is_rung(bell: Bell) -> None:
    bell.ring()
    assert not readable(bell)
    bell.announce_sleep()
    bell.ring()
    bell.ring()
    assert readable(bell)
    bell.announce_awake()
    bell.drain()
    assert not readable(bell)
    bell.ring()
    assert not readable(bell)
    bell.drain()


@pytest.mark.parametrize("for_moves", [True, False])
def test_a_move_wakes_only_who_waits_for_moves(bell: Bell, for_moves: bool) -> None:
    bell.announce_sleep(for_moves=for_moves)
    bell.ring_for_moves()
    assert readable(bell) is for_moves
    bell.ring()
    assert readable(bell)
    bell.announce_awake()
    bell.drain()


def test_each_process_has_its_own_bell() -> None:
    page = fresh_page()
    store = Bell(page, ProcessIndex.STORE, Bell.create())
    remoting = Bell(page, ProcessIndex.REMOTING, Bell.create())
    store.announce_sleep()
    remoting.ring()
    assert not readable(store)
    assert not readable(remoting)


def test_wait_ends_with_the_ring_and_forgets_it(bell: Bell) -> None:
    bell.announce_sleep()
    bell.ring()
    bell.wait(20_000)
    assert not readable(bell)
    assert bell._counters[bell._slot] == 0


def test_wait_ends_with_its_time(bell: Bell) -> None:
    bell.announce_sleep()
    bell.wait(1)
    assert bell._counters[bell._slot] == 0


def test_a_wait_in_another_thread_is_woken(bell: Bell) -> None:
    woken = threading.Event()

    def sleep() -> None:
        bell.announce_sleep()
        bell.wait(20_000)
        woken.set()

    thread = threading.Thread(target=sleep)
    thread.start()
    wait_until(lambda: bell._counters[bell._slot])
    bell.ring()
    assert woken.wait(5)
    thread.join()


def test_the_fence_may_be_used_by_many_threads() -> None:
    fence = Fence()

    def use() -> None:
        for _ in range(500):
            fence()

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_no_wake_up_is_lost_between_two_processes() -> None:
    """Publish, ring, wait for the echo: a lost ring would cost the child's whole sleep."""
    page_fd, event_fd = ControlPage.create(), Bell.create()
    page = ControlPage(page_fd)
    bell = Bell(page, ProcessIndex.STORE, event_fd)
    counters = page.counters
    child = start(_SLEEPER, page_fd, event_fd)
    try:
        wait_until(lambda: counters[12], 20)
        longest = 0.0
        for number in range(1, RINGS + 1):
            begin = time.monotonic()
            counters[MAX_PHY_OFFSET] = number
            bell.ring()
            while counters[9] != number:
                os.sched_yield()
                if time.monotonic() - begin > BOUND_S:
                    break
            longest = max(longest, time.monotonic() - begin)
            for _ in range(number * 37 % 4000):
                pass
        assert longest < BOUND_S * 0.9, f"the longest wake-up took {longest:.3f} s"
        assert child.wait(20) == 0
        assert page.beats(ProcessIndex.STORE) <= 2 * RINGS
    finally:
        child.kill()
        child.wait()
