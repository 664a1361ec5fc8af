"""ha.known_members: who is a member while name servers say nothing of it; over restarts."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from ha.known_members import CONFIRM_MS, FILE_NAME, MAX_AGE_MS, SAVE_EVERY_MS, KnownMembers
from tests.support.manual_clock import ManualClock

ONE = {1: "10.0.0.1"}
BOTH = {1: "10.0.0.1", 2: "10.0.0.2"}


class World:
    """One broker's members, over its lives."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE_NAME
        self.clock = ManualClock()
        self.start()

    def start(self, name: str = "b") -> dict[int, str]:
        """A new life; whom it knows from the start on."""
        self.known = KnownMembers(self.path, name, self.clock)
        return dict(self.known.load().ips)

    def answer(self, answer: dict[int, str] | None) -> dict[int, str]:
        """The members after it."""
        members = self.known.update(answer)
        self.expelled = members.expelled
        self.known.save()
        return dict(members.ips)

    def answers_for(self, ms: int, answer: dict[int, str] | None) -> dict[int, str]:
        """One now, and one every 30 s until then."""
        found = self.answer(answer)
        for _ in range(ms // 30_000):
            self.clock.advance(30_000)
            found = self.answer(answer)
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_answer_names_them_and_moves_them(world: World) -> None:
    assert world.start() == {}
    assert world.answer(BOTH) == BOTH
    assert world.answer({1: "10.0.0.9", 2: "10.0.0.2"}) == {1: "10.0.0.9", 2: "10.0.0.2"}


def test_a_name_server_that_was_started_again_drops_nobody(world: World) -> None:
    world.answer(BOTH)
    assert world.answers_for(60_000, {}) == BOTH
    assert world.answer({2: "10.0.0.2"}) == BOTH
    world.clock.advance(30_000)
    assert world.answer(BOTH) == BOTH
    assert world.answers_for(CONFIRM_MS - 30_000, {}) == BOTH, "counted from its new absence on"


def test_who_is_missing_for_long_enough_is_dropped(world: World) -> None:
    world.answer(BOTH)
    assert world.answers_for(CONFIRM_MS, ONE) == ONE
    assert world.expelled == frozenset(), "a link that was confirmed in this life stays open"
    assert world.answers_for(CONFIRM_MS, {}) == {}


def test_silence_proves_nothing(world: World) -> None:
    world.answer(BOTH)
    assert world.answers_for(10 * CONFIRM_MS, None) == BOTH
    assert world.answers_for(CONFIRM_MS - 30_000, {}) == BOTH
    world.answer(None)
    assert world.answers_for(CONFIRM_MS - 30_000, {}) == BOTH, "a new round begins"


class TestAnotherLife:
    def test_they_are_known_at_once_and_confirmed_later(self, world: World) -> None:
        world.answer(BOTH)
        world.clock.advance(5_000)
        assert world.start() == BOTH
        assert world.answers_for(60_000, {}) == BOTH
        assert world.answer(BOTH) == BOTH
        assert world.answers_for(2 * MAX_AGE_MS, None) == BOTH, "confirmed: like any member"

    def test_who_does_not_register_again_is_expelled(self, world: World) -> None:
        world.answer(BOTH)
        world.start()
        assert world.answers_for(CONFIRM_MS - 30_000, ONE) == BOTH
        world.clock.advance(30_000)
        assert world.answer(ONE) == ONE
        assert world.expelled == {"10.0.0.2"}
        assert world.start() == ONE, "nor is it remembered"

    def test_not_where_another_member_has_the_address(self, world: World) -> None:
        world.answer({1: "10.0.0.1", 2: "10.0.0.1"})
        world.start()
        assert world.answers_for(CONFIRM_MS, ONE) == ONE
        assert world.expelled == frozenset()

    def test_a_stop_of_an_hour_is_no_restart(self, world: World) -> None:
        world.answer(BOTH)
        world.clock.advance(MAX_AGE_MS)
        assert world.start() == {}

    def test_many_restarts_make_nobody_younger(self, world: World) -> None:
        """Only an answer does."""
        world.answer(BOTH)
        for _ in range(5):
            world.clock.advance(MAX_AGE_MS // 6)
            assert world.start() == BOTH
            assert world.answer(None) == BOTH
            world.answer({})
        world.clock.advance(MAX_AGE_MS // 6)
        assert world.answer(None) == {}, "nor in a life whose name servers are silent"
        assert world.expelled == {"10.0.0.1", "10.0.0.2"}

    def test_long_lives_are_remembered_too(self, world: World) -> None:
        world.answers_for(2 * MAX_AGE_MS, BOTH)
        world.clock.advance(MAX_AGE_MS - SAVE_EVERY_MS - 1)
        assert world.start() == BOTH

    def test_a_clock_that_went_back_proves_no_age(self, world: World) -> None:
        world.answer(BOTH)
        content = json.loads(world.path.read_bytes())
        content["members"][0]["confirmedMs"] += 60_000
        world.path.write_text(json.dumps(content))
        assert world.start() == {2: "10.0.0.2"}

    def test_another_group_has_other_members(self, world: World) -> None:
        world.answer(BOTH)
        assert world.start("c") == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"version": 2, "brokerName": "b", "members": []}',
        b'{"version": 1, "brokerName": "b"}',
        b'{"version": 1, "brokerName": "b", "members": [5]}',
        b'{"version": 1, "brokerName": "b", "members": [{"id": "1", "ip": "x", "confirmedMs": 1}]}',
        b'{"version": 1, "brokerName": "b", "members": [{"id": 1, "ip": 5, "confirmedMs": 1}]}',
        b'{"version": 1, "brokerName": "b", "members": [{"id": 1, "ip": "10.0.0.1"}]}',
    ],
)
def test_a_file_that_is_none_is_said_and_replaced(
    world: World, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    world.path.write_bytes(content)
    assert world.start() == {}
    assert str(world.path) in caplog.text
    world.answer(ONE)
    assert world.start() == ONE


def test_a_failed_write_is_said_once_and_tried_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ha")
    moved = world.path.parent.with_name("elsewhere")
    world.path.parent.rename(moved)
    for _ in range(3):
        world.answer(BOTH)
    [record] = caplog.records
    assert str(world.path) in record.getMessage()
    moved.rename(world.path.parent)
    world.answer(BOTH)
    assert world.start() == BOTH


def test_nobody_is_written_where_nobody_was(world: World) -> None:
    world.answer({})
    world.answer(None)
    assert not world.path.exists()
