"""ipc.scheduled_executor: when tasks run, that failures are survived, how it stops."""

from __future__ import annotations

import threading

import pytest

from ipc.clock import SystemClock
from ipc.scheduled_executor import ScheduledExecutor
from tests.broker.broker_fakes import FakeClock

DEADLINE_S = 10


def test_first_delay_and_period() -> None:
    clock = FakeClock()
    executor = ScheduledExecutor(clock)
    runs: list[int] = []
    executor.schedule("t", lambda: runs.append(clock.monotonic), first_delay_ms=10, period_ms=100)
    assert executor.run_due() == 0
    clock.advance(10)
    assert executor.run_due() == 1
    clock.advance(99)
    assert executor.run_due() == 0
    clock.advance(1)
    assert executor.run_due() == 1
    assert runs == [5_010, 5_110]


def test_a_late_task_does_not_catch_up() -> None:
    clock = FakeClock()
    executor = ScheduledExecutor(clock)
    runs: list[int] = []
    executor.schedule("t", lambda: runs.append(clock.monotonic), first_delay_ms=0, period_ms=100)
    clock.advance(1_050)
    assert executor.run_due() == 1
    clock.advance(50)
    assert executor.run_due() == 1, "back on the grid"
    assert runs == [6_050, 6_100]


def test_a_failing_task_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    executor = ScheduledExecutor(clock)

    def fail() -> None:
        raise RuntimeError("boom")

    task = executor.schedule("bad", fail, first_delay_ms=0, period_ms=10)
    for _ in range(3):
        executor.run_due()
        clock.advance(10)
    assert (task.runs, task.failures) == (3, 3)
    assert "task bad failed" in caplog.text
    assert "boom" in caplog.text


def test_submit_runs_once_and_in_order() -> None:
    executor = ScheduledExecutor(FakeClock())
    runs: list[str] = []
    executor.submit("a", lambda: runs.append("a"))
    executor.submit("b", lambda: runs.append("b"))
    assert executor.run_due() == 2
    assert executor.run_due() == 0
    assert runs == ["a", "b"]


def test_cancel() -> None:
    clock = FakeClock()
    executor = ScheduledExecutor(clock)
    runs: list[int] = []
    task = executor.schedule("t", lambda: runs.append(1), first_delay_ms=0, period_ms=10)
    executor.run_due()
    task.cancel()
    clock.advance(10)
    assert executor.run_due() == 0
    assert runs == [1]


def test_a_period_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="task t"):
        ScheduledExecutor(FakeClock()).schedule("t", print, first_delay_ms=0, period_ms=0)


def test_a_slow_task_does_not_hold_up_the_others() -> None:
    executor = ScheduledExecutor(SystemClock(), threads=2)
    slow_runs, fast_runs = threading.Event(), threading.Event()
    release = threading.Event()
    beside_itself: list[int] = []
    inside = 0

    def slow() -> None:
        nonlocal inside
        inside += 1
        beside_itself.append(inside)
        slow_runs.set()
        release.wait(DEADLINE_S)
        inside -= 1

    executor.schedule("slow", slow, first_delay_ms=0, period_ms=1)
    executor.start()
    try:
        assert slow_runs.wait(DEADLINE_S)
        executor.submit("fast", fast_runs.set)
        assert fast_runs.wait(DEADLINE_S)
    finally:
        release.set()
        assert executor.shutdown(DEADLINE_S * 1000) == []
    assert set(beside_itself) == {1}


def test_a_task_scheduled_for_sooner_wakes_a_sleeper() -> None:
    executor = ScheduledExecutor(SystemClock(), threads=1)
    executor.schedule("far", print, first_delay_ms=3_600_000, period_ms=None)
    executor.start()
    done = threading.Event()
    executor.submit("now", done.set)
    assert done.wait(DEADLINE_S)
    assert executor.shutdown(DEADLINE_S * 1000) == []
    executor.submit("after the stop", done.clear)
    assert executor.run_due() == 0


def test_a_task_that_hangs_is_named() -> None:
    executor = ScheduledExecutor(SystemClock(), threads=1, name="Sched")
    started, release = threading.Event(), threading.Event()

    def hang() -> None:
        started.set()
        release.wait(DEADLINE_S)

    executor.submit("hang", hang)
    executor.start()
    assert started.wait(DEADLINE_S)
    assert executor.shutdown(1) == ["Sched-0"]
    release.set()
