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
from ipc.bell import Bell, Fence

from broker.supervisor.control_slots import REMOTING_READY
from ha.control_slots import REPLICA_COUNT
from ipc.control_page import BEAT, PAGE_SIZE, SLEEPS, STARTS, ControlPage, ProcessIndex
from store.control_slots import (
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    QUEUE_MOVES,
    REFUSAL_VERSION,
    RUNNING_FLAGS,
)
from tests.support.deadline import wait_until
from tests.support.shared_memory import fresh_page

ROOT = Path(__file__).parents[2]
RINGS = 3_000
BOUND_S = 2.0
"""The longest sleep of the child below: a lost wake-up shows as a wait of this length."""

_SLEEPER = f"""
import sys
from ipc.control_page import *
page_fd, event_fd = map(int, sys.argv[1:])
page = ControlPage(page_fd)
bell = Bell(page, ProcessIndex.STORE, event_fd)
counters, seen = page.counters, 0
page.counters[STORE_STATE] = StoreState.READY
while seen < {RINGS}:
    bell.lie_down()
    if counters[MAX_PHY_OFFSET] != seen:
        bell.get_up()
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


def test_no_slot_is_used_twice() -> None:
    single = [*range(1, 5), *range(MIN_PHY_OFFSET, QUEUE_MOVES + 1), REPLICA_COUNT, REMOTING_READY]
    arrays = [base + p for base in (BEAT, SLEEPS, STARTS) for p in ProcessIndex]
    assert len({*single, *arrays}) == len(single) + len(arrays)
    assert max(arrays + single) < PAGE_SIZE // 8


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
        "import sys; from ipc.control_page import *; page = ControlPage(int(sys.argv[1]));"
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
    bell.lie_down()
    bell.ring()
    bell.ring()
    assert readable(bell)
    bell.get_up()
    bell.drain()
    assert not readable(bell)
    bell.ring()
    assert not readable(bell)
    bell.drain()


@pytest.mark.parametrize("for_moves", [True, False])
def test_a_move_wakes_only_who_waits_for_moves(bell: Bell, for_moves: bool) -> None:
    bell.lie_down(for_moves=for_moves)
    bell.ring_for_moves()
    assert readable(bell) is for_moves
    bell.ring()
    assert readable(bell)
    bell.get_up()
    bell.drain()


def test_each_process_has_its_own_bell() -> None:
    page = fresh_page()
    store = Bell(page, ProcessIndex.STORE, Bell.create())
    remoting = Bell(page, ProcessIndex.REMOTING, Bell.create())
    store.lie_down()
    remoting.ring()
    assert not readable(store)
    assert not readable(remoting)


def test_wait_ends_with_the_ring_and_forgets_it(bell: Bell) -> None:
    bell.lie_down()
    bell.ring()
    bell.wait(20_000)
    assert not readable(bell)
    assert bell._counters[bell._slot] == 0


def test_wait_ends_with_its_time(bell: Bell) -> None:
    bell.lie_down()
    bell.wait(1)
    assert bell._counters[bell._slot] == 0


def test_a_wait_in_another_thread_is_woken(bell: Bell) -> None:
    woken = threading.Event()

    def sleep() -> None:
        bell.lie_down()
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


# -- why writing is refused --------------------------------------------------------------------


def test_the_reason_of_a_refusal_is_read_by_other_processes() -> None:
    page = fresh_page()
    assert page.refusal() == ""
    page.refuse_writes(16, "/s/1: no room für 8 bytes")
    assert page.refusal() == "/s/1: no room für 8 bytes"
    assert page.counters[RUNNING_FLAGS] == 16
    page.refuse_writes(0, "")
    assert page.refusal() == ""


def test_a_reason_is_cut_to_the_page() -> None:
    page = fresh_page()
    page.refuse_writes(16, "ü" * PAGE_SIZE)
    assert page.refusal() == "ü" * ((PAGE_SIZE - 2050) // 2)


def test_a_writer_that_was_killed_while_it_wrote() -> None:
    """Half a reason is not shown; its successor's is."""
    page = fresh_page()
    page.refuse_writes(16, "no room")
    page.counters[REFUSAL_VERSION] += 1
    assert page.refusal() == "see store.log"
    page.refuse_writes(16, "still none")
    assert page.refusal() == "still none"


def test_a_reason_is_never_read_torn() -> None:
    page, texts = fresh_page(), ("a" * 2000, "b" * 2000)
    end = threading.Event()

    def write() -> None:
        while not end.is_set():
            for text in texts:
                page.refuse_writes(16, text)

    writer = threading.Thread(target=write)
    page.refuse_writes(16, texts[0])
    writer.start()
    try:
        seen = {page.refusal() for _ in range(20_000)}
    finally:
        end.set()
        writer.join()
    assert seen <= {*texts, "see store.log"}
