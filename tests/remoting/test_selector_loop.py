"""SelectorLoop: timers, calls from other threads, end of turn, sleep hooks, the end."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from remoting.selector_loop import EVENT_READ, EVENT_WRITE, SelectorLoop

ROOT = Path(__file__).parents[2]
DEADLINE_S = 5.0


@pytest.fixture
def loop() -> Iterator[SelectorLoop]:
    loop = SelectorLoop("test-loop")
    yield loop
    loop.stop()
    loop.close()


def on_loop(loop: SelectorLoop) -> None:
    """Returns when the loop has turned once more."""
    done = threading.Event()
    loop.call_soon_threadsafe(done.set)
    assert done.wait(DEADLINE_S)


def test_calls_from_other_threads_run_once_in_order_on_the_loops_thread(
    loop: SelectorLoop,
) -> None:
    loop.start()
    seen: list[tuple[int, int]] = []
    threads: set[str] = set()

    def caller(number: int) -> None:
        for n in range(200):

            def note(n: int = n) -> None:
                seen.append((number, n))
                threads.add(threading.current_thread().name)

            loop.call_soon_threadsafe(note)

    callers = [threading.Thread(target=caller, args=(number,)) for number in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    on_loop(loop)
    assert len(seen) == 800
    for number in range(4):
        assert [n for who, n in seen if who == number] == list(range(200))
    assert threads == {"test-loop"}


def test_calls_made_before_the_start_run(loop: SelectorLoop) -> None:
    done = threading.Event()
    loop.call_soon_threadsafe(done.set)
    assert loop.in_loop_thread()
    loop.start()
    assert done.wait(DEADLINE_S)
    assert not loop.in_loop_thread()


def test_a_call_made_in_a_call_runs_in_the_next_turn(loop: SelectorLoop) -> None:
    seen: list[str] = []
    done = threading.Event()

    def first() -> None:
        loop.call_soon_threadsafe(lambda: (seen.append("second"), done.set()))  # type: ignore[arg-type, func-returns-value]
        seen.append("first")

    loop.add_turn_end(lambda: seen.append("end") if seen and seen[-1] != "end" else None)
    loop.start()
    loop.call_soon_threadsafe(first)
    assert done.wait(DEADLINE_S)
    on_loop(loop)
    assert seen[:3] == ["first", "end", "second"]


def test_timers_run_in_the_order_of_their_times(loop: SelectorLoop) -> None:
    seen: list[str] = []
    done = threading.Event()

    def set_up() -> None:
        loop.call_later(30, lambda: (seen.append("late"), done.set()))  # type: ignore[arg-type, func-returns-value]
        loop.call_later(5, lambda: seen.append("early"))
        loop.call_later(5, lambda: seen.append("early too"))
        loop.call_later(0, lambda: seen.append("at once"))
        handle = loop.call_later(1, lambda: seen.append("cancelled"))
        handle.cancel()

    loop.call_soon_threadsafe(set_up)
    loop.start()
    assert done.wait(DEADLINE_S)
    assert seen == ["at once", "early", "early too", "late"]


def test_a_timer_does_not_run_before_its_time(loop: SelectorLoop) -> None:
    times: list[int] = []
    done = threading.Event()

    def set_up() -> None:
        start = loop.now_ms
        loop.call_later(25, lambda: (times.append(loop.now_ms - start), done.set()))  # type: ignore[arg-type, func-returns-value]

    loop.call_soon_threadsafe(set_up)
    loop.start()
    assert done.wait(DEADLINE_S)
    assert times[0] >= 25


def test_call_every_goes_on(loop: SelectorLoop) -> None:
    seen: list[int] = []
    done = threading.Event()

    def tick() -> None:
        seen.append(1)
        if len(seen) == 5:
            done.set()

    loop.call_soon_threadsafe(lambda: loop.call_every(2, tick))
    loop.start()
    assert done.wait(DEADLINE_S)


def test_call_every_runs_once_a_period(loop: SelectorLoop) -> None:
    """A timer that came early ran hundreds of times within the millisecond that was left."""
    periods: list[int] = []
    done = threading.Event()

    def tick() -> None:
        periods.append(time.monotonic_ns() // 1_000_000 // 20)
        if len(periods) == 20:
            done.set()

    loop.call_soon_threadsafe(lambda: loop.call_every(20, tick))
    loop.start()
    assert done.wait(DEADLINE_S)
    assert len(set(periods)) == len(periods)


@pytest.mark.parametrize("period_ms", [1, 5, 20, 100, 500, 1_000])
def test_timers_at_multiples_wake_the_loop_together(loop: SelectorLoop, period_ms: int) -> None:
    """Whenever they were asked for: what is due at the same ms runs in the same turn."""
    before_ms = time.monotonic_ns() // 1_000_000
    loop.call_at_multiple(period_ms, lambda: None)
    loop.call_every(period_ms, lambda: None)
    loop.ticks(period_ms, lambda: False).begin()
    after_ms = time.monotonic_ns() // 1_000_000
    times_ms = [due_ms for due_ms, _number, _handle in loop._timers]
    assert len(times_ms) == 3
    for due_ms in times_ms:
        assert due_ms % period_ms == 0
        assert before_ms < due_ms <= after_ms + period_ms


def test_ticks_run_only_while_there_is_something_to_do(loop: SelectorLoop) -> None:
    left = 3
    runs: list[int] = []
    turns: list[int] = []
    ends = [threading.Event(), threading.Event()]

    def tick() -> bool:
        nonlocal left
        left -= 1
        runs.append(left)
        if not left:
            ends[len(runs) // 4].set()
        return left > 0

    def begin() -> None:
        nonlocal left
        left = left or 2
        ticks.begin()
        ticks.begin()

    ticks = loop.ticks(5, tick)
    loop.add_turn_end(lambda: turns.append(1))
    loop.call_soon_threadsafe(begin)
    loop.start()
    assert ends[0].wait(DEADLINE_S)
    assert runs == [2, 1, 0]
    on_loop(loop)
    assert not loop._timers, "nothing wakes the loop"
    loop.call_soon_threadsafe(begin)
    assert ends[1].wait(DEADLINE_S)
    assert runs == [2, 1, 0, 1, 0]


def next_watches(loop: SelectorLoop) -> list[int]:
    """When watches are due, in ms, without those that were put off."""
    return [due for due, _, handle in loop._timers if not handle.cancelled]


def test_a_watch_comes_seldom_while_nothing_happens(loop: SelectorLoop) -> None:
    looks_again = True
    looked: list[str] = []

    def look() -> bool:
        looked.append("watch")
        return looks_again

    loop.watches.add(look)
    loop.watches.call_once(lambda: looked.append("once"))
    [due_ms] = next_watches(loop)
    assert due_ms % 100 == 0
    loop._timers.clear()
    loop.watches._look()
    assert looked == ["watch", "once"]
    assert not loop.watches.is_quiet, "it asked for the next one"
    loop._timers.clear()
    looks_again = False
    loop.watches._look()
    assert looked == ["watch", "once", "watch"]
    [due_ms] = next_watches(loop)
    assert due_ms % 1_000 == 0
    assert loop.watches.is_quiet


def test_a_turn_with_an_event_brings_the_watch_nearer(loop: SelectorLoop) -> None:
    loop.watches.add(lambda: False)
    loop._timers.clear()
    loop.watches._look()
    loop.call_soon_threadsafe(lambda: None)
    loop.wake()
    loop._turn()
    before_ms = time.monotonic_ns() // 1_000_000
    [due_ms] = next_watches(loop)
    assert due_ms % 100 == 0
    assert due_ms <= before_ms + 100
    assert not loop.watches.is_quiet


def test_a_turn_of_a_timer_alone_leaves_the_watch_where_it_is(loop: SelectorLoop) -> None:
    loop.watches.add(lambda: False)
    loop._timers.clear()
    loop.watches._look()
    before = next_watches(loop)
    loop.call_later(0, lambda: None)
    loop._turn()
    assert loop.watches.is_quiet
    assert next_watches(loop) == before


def test_a_timer_that_cancels_another_of_the_same_time(loop: SelectorLoop) -> None:
    seen: list[str] = []

    def set_up() -> None:
        loop.call_later(1, lambda: second.cancel())
        second = loop.call_later(1, lambda: seen.append("second"))
        loop.call_later(2, lambda: seen.append("third"))

    done = threading.Event()
    loop.call_soon_threadsafe(lambda: (set_up(), loop.call_later(10, done.set)))  # type: ignore[arg-type, func-returns-value]
    loop.start()
    assert done.wait(DEADLINE_S)
    assert seen == ["third"]


def test_sockets_are_watched_until_they_are_unregistered(loop: SelectorLoop) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    events: list[int] = []
    got = threading.Condition()

    def ready(mask: int) -> None:
        with got:
            events.append(mask)
            if mask & EVENT_READ:
                ours.recv(100)
            got.notify_all()

    loop.register(ours, EVENT_READ, ready)
    loop.start()
    theirs.send(b"x")
    with got:
        assert got.wait_for(lambda: events == [EVENT_READ], DEADLINE_S)
    loop.call_soon_threadsafe(lambda: loop.modify(ours, EVENT_READ | EVENT_WRITE, ready))
    with got:
        assert got.wait_for(lambda: EVENT_WRITE in events, DEADLINE_S)
    loop.call_soon_threadsafe(lambda: loop.unregister(ours))
    on_loop(loop)
    count = len(events)
    theirs.send(b"y")
    on_loop(loop)
    on_loop(loop)
    assert len(events) == count
    ours.close()
    theirs.close()


def test_stop_runs_what_was_asked_before_and_the_end_of_the_turn(loop: SelectorLoop) -> None:
    seen: list[str] = []
    loop.add_turn_end(lambda: seen.append("end"))
    loop.start()
    on_loop(loop)

    def stop_within() -> None:
        loop.stop()
        loop.call_soon_threadsafe(lambda: seen.append("asked before"))

    loop.call_soon_threadsafe(stop_within)
    loop.stop()
    assert seen[-2:] == ["asked before", "end"]


def test_stop_before_the_start_ends_the_run_at_once(loop: SelectorLoop) -> None:
    loop.stop()
    loop.run()


def test_stop_and_wake_after_close_are_harmless() -> None:
    loop = SelectorLoop("closed")
    loop.start()
    loop.stop()
    loop.close()
    loop.wake()
    loop.call_soon_threadsafe(lambda: None)
    loop.stop()
    loop.close()


def test_close_gives_the_descriptors_back() -> None:
    gc.collect()  # what other tests left open would be closed in the middle of the count
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        loop = SelectorLoop("short")
        loop.start()
        loop.stop()
        loop.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_an_exception_ends_the_loop() -> None:
    """A half-done turn is repaired by a restart of the process."""
    loop = SelectorLoop("failing")

    def fail() -> None:
        raise ValueError("on purpose")

    loop.call_soon_threadsafe(fail)
    with pytest.raises(ValueError, match="on purpose"):
        loop.run()
    loop.close()


class Hooks:
    """SleepHooks that count; `work` is how often there is work at once."""

    def __init__(self, loop: SelectorLoop, limit: float | None) -> None:
        self.loop, self.limit = loop, limit
        self.order: list[str] = []

    def waits_for_peer(self) -> bool:
        return False

    def peer_has_answered(self) -> bool:
        return False

    def before_sleep(self) -> float | None:
        self.order.append("before")
        if len(self.order) > 20:
            self.loop._stopping = True
        return self.limit

    def after_sleep(self) -> None:
        self.order.append("after")


@pytest.mark.parametrize("limit", [0, 0.001])
def test_sleep_hooks_bracket_every_wait_and_may_shorten_it(
    loop: SelectorLoop, limit: float
) -> None:
    hooks = Hooks(loop, limit)
    loop.set_sleep_hooks(hooks)
    thread = threading.Thread(target=loop.run)
    thread.start()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert hooks.order == ["before", "after"] * (len(hooks.order) // 2)


@pytest.mark.interpreted
def test_on_the_standard_selectors_too() -> None:
    """Loop and connection again in a process that runs without selectors2."""
    if os.environ.get("ROCKETMQ_TEST_NESTED"):
        pytest.skip("this is the nested run")
    environment = {
        **os.environ,
        "ROCKETMQ_TEST_NESTED": "1",
        "ROCKETMQ_SELECTORS": "standard",
    }
    script = (
        "import sys, pytest; from remoting import selector_seam as s; "
        "assert s.SELECTORS_NAME == 'selectors', s.SELECTORS_NAME; "
        "sys.exit(pytest.main(sys.argv[1:]))"
    )
    tests = ["tests/remoting/test_selector_loop.py", "tests/remoting/test_connection.py"]
    done = subprocess.run(
        [sys.executable, "-c", script, *tests],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_loop_that_spins_takes_the_next_event_without_sleeping() -> None:
    """The second byte is there while the loop looks once more: only the first wait is a sleep.
    The spin is long, so that a busy machine cannot end it before."""
    loop = SelectorLoop("spinning", spin_us=5_000_000)
    near, far = socket.socketpair()
    sleeps: list[int] = []
    taken: list[int] = []

    class CountSleeps:
        def before_sleep(self) -> float | None:
            sleeps.append(len(taken))
            return None

        def after_sleep(self) -> None:
            return

        def waits_for_peer(self) -> bool:
            return False

        def peer_has_answered(self) -> bool:
            raise AssertionError("nobody waits")

    def take(_events: int) -> None:
        taken.append(near.recv(1)[0])
        if len(taken) < 3:
            far.send(bytes((len(taken),)))
        else:
            loop.stop(0)

    loop.set_sleep_hooks(CountSleeps())
    loop.register(near, EVENT_READ, take)
    far.send(b"\0")
    loop.run()
    assert taken == [0, 1, 2]
    assert sleeps == [0]
    loop.close()
    near.close()
    far.close()


def test_a_loop_whose_peer_answers_stops_looking_at_once() -> None:
    """Without the answer it would look for an hour."""
    loop = SelectorLoop("waiting", spin_us=3_600_000_000)
    near, far = socket.socketpair()
    looks: list[int] = []

    class Peer:
        def before_sleep(self) -> float | None:
            return None

        def after_sleep(self) -> None:
            if looks:
                loop.stop(0)

        def waits_for_peer(self) -> bool:
            return True

        def peer_has_answered(self) -> bool:
            looks.append(len(looks))
            if len(looks) == 3:
                loop.wake()
            return len(looks) >= 3

    loop.set_sleep_hooks(Peer())
    loop.register(near, EVENT_READ, lambda _events: near.recv(1))
    far.send(b"x")
    loop.run()
    assert looks == [0, 1, 2]
    loop.close()
    near.close()
    far.close()


@pytest.mark.interpreted
def test_a_loop_that_looked_in_vain_sleeps_until_looking_pays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look takes 10 us here; the sleeps take 50 us, 1 ms, 50 us, 1 ms."""
    loop = SelectorLoop("patient", spin_us=30)
    now_ns = 1
    looks: list[int] = []
    sleeps = iter([50_000, 1_000_000, 50_000, 1_000_000])
    ready = SimpleNamespace(data=lambda _events: None)

    def select(timeout: float) -> list[object]:
        nonlocal now_ns
        if not timeout:
            looks[-1] += 1
            now_ns += 10_000
            return []
        now_ns += next(sleeps)
        return [(ready, EVENT_READ)]

    real = loop._selector
    monkeypatch.setattr("remoting.selector_loop.time", SimpleNamespace(monotonic_ns=lambda: now_ns))
    monkeypatch.setattr(loop, "_selector", SimpleNamespace(select=select))
    for _ in range(4):
        looks.append(0)
        loop._turn()
    assert looks == [0, 3, 0, 3]
    monkeypatch.setattr(loop, "_selector", real)
    loop.close()


def test_an_answer_of_the_peer_is_taken_up_without_a_sleep() -> None:
    loop = SelectorLoop("answered", spin_us=3_600_000_000)
    near, far = socket.socketpair()
    sleeps: list[int] = []
    turns: list[int] = []

    class Peer:
        def before_sleep(self) -> float | None:
            sleeps.append(len(turns))
            return None

        def after_sleep(self) -> None:
            turns.append(len(turns))
            if len(turns) == 3:
                loop.stop(0)

        def waits_for_peer(self) -> bool:
            return True

        def peer_has_answered(self) -> bool:
            return True

    loop.set_sleep_hooks(Peer())
    loop.register(near, EVENT_READ, lambda _events: near.recv(1))
    far.send(b"x")
    loop.run()
    assert (turns, sleeps) == ([0, 1, 2], [0])
    loop.close()
    near.close()
    far.close()


@pytest.mark.interpreted
def test_a_loop_that_polled_for_its_peer_in_vain_leaves_polls_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A poll takes 65 us here, of 130; from the seventh turn on the peer answers at once."""
    loop = SelectorLoop("waiting", spin_us=30)
    now_ns = 1
    looks: list[int] = []
    ready = SimpleNamespace(data=lambda _events: None)

    class Peer:
        def before_sleep(self) -> float | None:
            return None

        def after_sleep(self) -> None:
            return

        def waits_for_peer(self) -> bool:
            return True

        def peer_has_answered(self) -> bool:
            return len(looks) > 6

    def select(timeout: float) -> list[object]:
        nonlocal now_ns
        if timeout:
            return [(ready, EVENT_READ)]
        looks[-1] += 1
        now_ns += 65_000
        return []

    real = loop._selector
    monkeypatch.setattr("remoting.selector_loop.time", SimpleNamespace(monotonic_ns=lambda: now_ns))
    monkeypatch.setattr(loop, "_selector", SimpleNamespace(select=select))
    loop.set_sleep_hooks(Peer())
    loop._was_busy = True
    for _ in range(12):
        looks.append(0)
        loop._turn()
    # In vain, one left out, in vain, two left out; in vain would be next, but there is the answer.
    assert looks == [2, 0, 2, 0, 0, 2, 0, 0, 0, 0, 1, 1]
    monkeypatch.setattr(loop, "_selector", real)
    loop.close()
