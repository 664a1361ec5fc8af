"""ha.replica_verifier: asked in the background, answers kept for a while, questions bounded."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from ha.replica_verifier import MAX_QUESTIONS, REMEMBERED_MS, Answer, ReplicaVerifier
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock


class _World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.holds: bool | None = True
        self.asked: list[tuple[str, int]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.verifier = ReplicaVerifier(self._verify, self.clock)

    def _verify(self, ip: str, offset: int) -> bool | None:
        self.asked.append((ip, offset))
        assert self.may_answer.wait(10)
        return self.holds

    def answer(self, offset: int = 100) -> Answer:
        """Asks, and asks again when the thread has done it."""
        self.verifier.find_out("10.0.0.1", offset)
        wait_until(lambda: not self.verifier._questions)
        return self.verifier.find_out("10.0.0.1", offset)


@pytest.fixture
def world() -> Iterator[_World]:
    world = _World()
    world.verifier.start()
    yield world
    world.may_answer.set()
    assert world.verifier.shutdown()
    assert world.verifier.failure is None


@pytest.mark.parametrize(("holds", "answer"), [(True, Answer.SAME), (False, Answer.OTHER)])
def test_an_answer_is_believed_for_a_minute(world: _World, holds: bool, answer: Answer) -> None:
    world.holds = holds
    assert world.answer() is answer
    world.clock.advance(REMEMBERED_MS - 1)
    assert world.answer() is answer
    assert world.asked == [("10.0.0.1", 100)]
    world.clock.advance(1)
    assert world.verifier.find_out("10.0.0.1", 100) is Answer.PENDING
    wait_until(lambda: len(world.asked) == 2)


def test_who_could_not_be_asked_is_asked_again_at_each_try(
    world: _World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ha.replica_verifier")
    world.holds = None
    assert world.answer() is Answer.UNKNOWN
    wait_until(lambda: len(world.asked) == 2)
    world.holds = True
    wait_until(lambda: world.answer() is Answer.SAME)
    assert "slave at 10.0.0.1: could not be asked what it holds up to 100" in caplog.text
    wait_until(lambda: "slave at 10.0.0.1: holds our records up to 100" in caplog.text)


def test_an_answer_is_one_offset_s(world: _World) -> None:
    assert world.answer(100) is Answer.SAME
    world.holds = False
    assert world.answer(200) is Answer.OTHER
    assert world.answer(100) is Answer.SAME


def test_nobody_waits_and_questions_are_bounded(world: _World) -> None:
    world.may_answer.clear()
    for _ in range(3):
        for offset in range(MAX_QUESTIONS + 10):
            assert world.verifier.find_out("10.0.0.1", offset) is Answer.PENDING
    assert len(world.verifier._questions) == MAX_QUESTIONS
    world.may_answer.set()
    wait_until(lambda: not world.verifier._questions)
    assert world.asked == [("10.0.0.1", offset) for offset in range(MAX_QUESTIONS)]
    assert world.answer(MAX_QUESTIONS) is Answer.SAME, "it comes back, and there is room"


def test_a_stop_does_not_wait_for_an_answer(
    world: _World, caplog: pytest.LogCaptureFixture
) -> None:
    world.may_answer.clear()
    world.verifier.find_out("10.0.0.1", 100)
    world.verifier.find_out("10.0.0.1", 200)
    wait_until(lambda: world.asked)
    world.verifier.request_stop()
    with caplog.at_level(logging.INFO):
        assert not world.verifier.shutdown(10)
    assert [record.levelname for record in caplog.records] == ["INFO"]
    world.may_answer.set()
    assert world.verifier.shutdown()
    assert world.asked == [("10.0.0.1", 100)], "nothing is asked after the stop"
