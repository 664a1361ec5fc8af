"""ClockSteps: a message waits as long as its delay says, whatever is done to the wall clock."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from broker.schedule.clock_steps import ClockSteps
from tests.support.manual_clock import ManualClock

DELAY_MS = 30_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Queue:
    """A level's queue: when each message was stored, by the wall clock and by a stopwatch."""

    def __init__(self, path: Path | None = None) -> None:
        self.clock = ManualClock()
        self.path = path
        self.due: list[int] = []
        self.stopwatch: list[int] = []
        self.delivered = 0
        self.restart()

    def waiting(self) -> dict[int, range]:
        return {0: range(self.delivered, len(self.due))}

    def turn(self) -> None:
        """The loop's next turn begins."""
        self.turn_ms = self.steps.now_ms()
        self.turn_stopwatch_ms = self.clock.monotonic_ms()

    def store(self) -> None:
        self.due.append(self.turn_ms + DELAY_MS)
        self.stopwatch.append(self.turn_stopwatch_ms)

    def set_clock(self, by_ms: int) -> None:
        self.clock.jump_to(self.clock.now_ms() + by_ms)

    def restart(self) -> None:
        self.steps = ClockSteps(self.clock, self.path)
        self.steps.start(self.waiting)
        self.turn()

    def left_ms(self, offset: int) -> int:
        """By its own clock, as of this turn."""
        return self.steps.due_ms(0, offset, self.due[offset]) - self.turn_ms

    def truth_ms(self, offset: int) -> int:
        """By the stopwatch."""
        return self.stopwatch[offset] + DELAY_MS - self.turn_stopwatch_ms


def test_a_machine_that_slept_has_not_set_its_clock() -> None:
    queue = Queue()
    queue.store()
    queue.clock.sleep(HOUR_MS)
    queue.turn()
    assert queue.left_ms(0) == DELAY_MS - HOUR_MS


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS, DAY_MS, 501, -501])
def test_a_step_concerns_what_was_stored_before_it(by_ms: int) -> None:
    queue = Queue()
    queue.store()
    queue.clock.advance(5_000)
    queue.set_clock(by_ms)
    queue.store()
    queue.turn()
    queue.store()
    queue.clock.advance(100)
    queue.turn()
    queue.store()
    assert [queue.left_ms(n) for n in range(4)] == [24_900, 24_900, 29_900, 30_000]


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS, DAY_MS])
def test_a_clock_that_is_set_for_a_moment(by_ms: int) -> None:
    """mqchaos, seed 29031: ahead for 0.26 s, and whoever looked for steps was asleep."""
    queue = Queue()
    queue.store()
    queue.set_clock(by_ms)
    queue.turn()
    queue.store()
    queue.clock.advance(1)
    queue.set_clock(-by_ms)
    queue.turn()
    queue.store()
    assert [queue.left_ms(n) for n in range(3)] == [29_999, 29_999, 30_000]


def test_small_steps_add_up() -> None:
    queue = Queue()
    queue.store()
    for _ in range(10):
        queue.set_clock(300)
        queue.turn()
    assert abs(queue.left_ms(0) - DELAY_MS) < 500


@pytest.mark.parametrize("keeps", [False, True])
def test_random_days(tmp_path: Path, keeps: bool) -> None:
    for seed in range(3 if keeps else 60):
        queue = Queue(tmp_path / f"{seed}.json" if keeps else None)
        draw = random.Random(seed).random
        for _ in range(200):
            queue.clock.advance(int(draw() * 400))
            if draw() < 0.5:
                queue.turn()
            if draw() < 0.6:
                queue.store()
            if draw() < 0.12:
                queue.set_clock(int((draw() - 0.5) * 2 * 30 * DAY_MS))
            if keeps and draw() < 0.03:
                queue.restart()
        queue.turn()
        for offset in range(len(queue.due)):
            assert queue.left_ms(offset) == queue.truth_ms(offset), (seed, offset)


@pytest.mark.parametrize("readings", range(1, 8))
def test_a_clock_that_is_set_during_a_look(readings: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any of the readings of the wall clock: nothing is due early in this turn or the next
    (mqchaos --soak: everything that waited was delivered at once)."""
    queue = Queue()
    queue.store()
    queue.clock.advance(1_000)
    left = [readings]
    read = queue.clock.now_ms

    def now_ms() -> int:
        found = read()
        left[0] -= 1
        if not left[0]:
            queue.set_clock(HOUR_MS)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(queue.clock, "now_ms", now_ms)
        for _ in range(3):
            queue.turn()
            queue.store()
            assert queue.left_ms(0) == 29_000
    queue.turn()
    assert [queue.left_ms(n) for n in range(4)] == [29_000, 30_000, 30_000, 30_000]


@pytest.mark.parametrize("lost_ms", [249, 400, 10_000])
def test_a_thread_that_lost_its_processor_between_two_readings(lost_ms: int) -> None:
    queue = Queue()
    queue.store()
    read, left = queue.clock.now_ms, [2]

    def now_ms() -> int:
        found = read()
        left[0] -= 1
        if left[0] >= 0:
            queue.clock.advance(lost_ms)
        return found

    queue.clock.now_ms = now_ms  # type: ignore[method-assign]
    queue.turn()
    assert queue.steps._steps == {}
    queue.clock.now_ms = read  # type: ignore[method-assign]
    queue.turn()
    assert queue.left_ms(0) == queue.truth_ms(0)


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS])
def test_a_clock_that_is_set_while_nothing_runs(tmp_path: Path, by_ms: int) -> None:
    queue = Queue(tmp_path / "delay_clock.json")
    queue.store()
    queue.clock.advance(5_000)
    queue.set_clock(by_ms)
    queue.restart()
    queue.store()
    assert [queue.left_ms(n) for n in range(2)] == [25_000, 30_000]
    queue.restart()
    assert [queue.left_ms(n) for n in range(2)] == [25_000, 30_000]


def test_a_broker_that_is_killed_while_the_clock_is_ahead(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "delay_clock.json")
    queue.store()
    queue.set_clock(DAY_MS)
    queue.turn()
    queue.store()
    queue.set_clock(-DAY_MS)
    queue.restart()
    queue.store()
    assert [queue.left_ms(n) for n in range(3)] == [DELAY_MS] * 3


def test_what_was_cut_off_the_log_has_no_steps(tmp_path: Path) -> None:
    """A crash of the machine: queue offsets are given again, to messages stored by another
    clock."""
    path = tmp_path / "delay_clock.json"
    queue = Queue(path)
    for _ in range(3):
        queue.store()
    queue.set_clock(HOUR_MS)
    queue.turn()
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot": "another"}))
    del queue.due[1:], queue.stopwatch[1:]
    queue.restart()
    queue.store()
    assert [queue.left_ms(n) for n in range(2)] == [DELAY_MS, DELAY_MS]
    queue.due.clear()
    queue.restart()
    queue.store()
    assert queue.left_ms(0) == DELAY_MS


def test_after_a_boot_the_wall_clock_is_believed(tmp_path: Path) -> None:
    path = tmp_path / "delay_clock.json"
    queue = Queue(path)
    queue.store()
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot": "another"}))
    queue.clock = ManualClock(queue.clock.now_ms() + 7_000, monotonic_ms=1)
    queue.restart()
    assert queue.left_ms(0) == 23_000


@pytest.mark.parametrize("content", ["", "[]", '{"steps": {}}', '{"steps": {"0": [[1]]}}'])
def test_a_damaged_file_is_not_used(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "delay_clock.json"
    path.write_text(content)
    queue = Queue(path)
    queue.store()
    assert queue.left_ms(0) == DELAY_MS
    assert f"{path}: ignored" in caplog.text


def test_a_slave_forgets(tmp_path: Path) -> None:
    """What another master stored was stored by its clock."""
    path = tmp_path / "delay_clock.json"
    Queue(path)
    assert path.exists()
    slave = ClockSteps(ManualClock(), path)
    slave.forget()
    assert not path.exists()
    assert slave.now_ms() == ManualClock().now_ms()
    ClockSteps(ManualClock()).forget()


def test_steps_of_a_queue_are_bounded() -> None:
    queue = Queue()
    for number in range(200):
        queue.store()
        queue.clock.advance(100)
        queue.set_clock(HOUR_MS * (-1) ** number)
        queue.turn()
    assert len(queue.steps._steps[0]) == 64
    kept = range(140, 200)
    assert [queue.left_ms(n) for n in kept] == [queue.truth_ms(n) for n in kept]
    queue.delivered = 199
    queue.set_clock(HOUR_MS)
    queue.turn()
    assert len(queue.steps._steps[0]) == 1


def test_steps_between_which_nothing_is_stored_are_one() -> None:
    queue = Queue()
    queue.store()
    for _ in range(200):
        queue.set_clock(HOUR_MS)
        queue.turn()
    assert len(queue.steps._steps[0]) == 1
    assert queue.left_ms(0) == DELAY_MS
