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


class Queue:
    """A level's queue: when each message was stored, by the wall clock and by a stopwatch."""

    def __init__(self, path: Path | None = None) -> None:
        self.clock = ManualClock()
        self.path = path
        self.due: list[int] = []
        self.stopwatch: list[int] = []
        self.steps = ClockSteps(self.clock, path)
        self.steps.start({0: 0})

    @property
    def ends(self) -> dict[int, int]:
        return {0: len(self.due)}

    def store(self) -> None:
        self.due.append(self.clock.now_ms() + DELAY_MS)
        self.stopwatch.append(self.clock.monotonic_ms())

    def set_clock(self, by_ms: int) -> None:
        self.clock.jump_to(self.clock.now_ms() + by_ms)

    def look(self, turn_ms: int | None = None) -> None:
        if self.steps.is_due:
            self.steps.look(self.ends, self.clock.now_ms() if turn_ms is None else turn_ms)

    def restart(self) -> None:
        self.steps = ClockSteps(self.clock, self.path)
        self.steps.start(self.ends)

    def left_ms(self, offset: int) -> int:
        """By its own clock."""
        due_ms = self.steps.due_ms(0, offset, self.due[offset], DELAY_MS)
        return due_ms - self.clock.now_ms()

    def truth_ms(self, offset: int) -> int:
        """By the stopwatch."""
        return self.stopwatch[offset] + DELAY_MS - self.clock.monotonic_ms()


def test_a_machine_that_slept_has_not_set_its_clock() -> None:
    queue = Queue()
    queue.store()
    queue.clock.sleep(HOUR_MS)
    queue.look()
    assert queue.left_ms(0) == DELAY_MS - HOUR_MS


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS, 24 * HOUR_MS, 501, -501])
def test_a_step_concerns_what_was_stored_before_it(by_ms: int) -> None:
    queue = Queue()
    queue.store()
    queue.clock.advance(5_000)
    queue.look()
    queue.set_clock(by_ms)
    queue.store()
    queue.clock.advance(100)
    queue.look()
    queue.store()
    assert [queue.left_ms(n) for n in range(3)] == [24_900, 29_900, 30_000]


def test_random_days() -> None:
    for seed in range(60):
        queue = Queue()
        draw = random.Random(seed).random
        for _ in range(200):
            queue.clock.advance(int(draw() * 400))
            if draw() < 0.6:
                queue.store()
            if draw() < 0.08:
                queue.set_clock(int((draw() - 0.5) * 2 * 30 * 24 * HOUR_MS))
                if draw() < 0.5:
                    queue.store()
            queue.look()
        for offset in range(len(queue.due)):
            assert queue.left_ms(offset) == queue.truth_ms(offset), (seed, offset)


def test_a_turn_that_began_before_the_step_ends_by_its_own_clock() -> None:
    queue = Queue()
    queue.store()
    queue.clock.advance(1_000)
    turn_ms = queue.clock.now_ms()
    queue.set_clock(HOUR_MS)
    queue.steps.look(queue.ends, turn_ms)
    assert queue.steps.due_ms(0, 0, queue.due[0], DELAY_MS) - turn_ms == 29_000


@pytest.mark.parametrize("readings", range(1, 8))
def test_a_clock_that_is_set_during_a_look(readings: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any of the readings of the wall clock: nothing is due early in this turn or the next
    (mqchaos --soak: everything that waited was delivered at once)."""
    queue = Queue()
    queue.store()
    queue.clock.advance(1_000)
    turn_ms = queue.clock.now_ms()
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
        queue.look(turn_ms)
    assert queue.steps.due_ms(0, 0, queue.due[0], DELAY_MS) - turn_ms == 29_000
    queue.look()
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
    assert f"{path}: not used" in caplog.text


def test_a_slave_forgets(tmp_path: Path) -> None:
    """What another master stored was stored by its clock."""
    path = tmp_path / "delay_clock.json"
    Queue(path)
    assert path.exists()
    ClockSteps(ManualClock(), path).forget()
    assert not path.exists()
    ClockSteps(ManualClock()).forget()


def test_steps_of_a_queue_are_bounded() -> None:
    queue = Queue()
    queue.store()
    for number in range(200):
        queue.clock.advance(100)
        queue.set_clock(HOUR_MS * (-1) ** number)
        queue.look()
    assert len(queue.steps._steps[0]) == 64
