"""GroupMembersService: asks at start, on request, not too often; uses what is remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from ha.group_members_service import ASK_PAUSE_MS, GroupMembersService
from ha.known_members import FILE_NAME, KnownMembers, Members
from ipc.clock import Clock, SystemClock
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock


class _World:
    """A name server, and whoever uses the members."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE_NAME
        self.answer: dict[int, str] | None = {1: "10.0.0.1"}
        self.asked = 0
        self.used: list[dict[int, str]] = []

    def fetch(self) -> dict[int, str] | None:
        self.asked += 1
        return self.answer

    def use(self, members: Members) -> None:
        self.used.append(dict(members.ips))

    def service(self, clock: Clock) -> GroupMembersService:
        known = KnownMembers(self.path, "b", clock)
        return GroupMembersService(self.fetch, known, self.use, clock)


@pytest.fixture
def world(tmp_path: Path) -> _World:
    return _World(tmp_path)


def test_asks_at_start_and_on_request(world: _World) -> None:
    service = world.service(SystemClock())
    service.start()
    wait_until(lambda: world.used == [{1: "10.0.0.1"}])
    world.answer = None
    service.request()
    wait_until(lambda: world.used[1:] == [{1: "10.0.0.1"}])
    world.answer = {1: "10.0.0.2"}
    service.request()
    wait_until(lambda: world.used[2:] == [{1: "10.0.0.2"}])
    assert service.shutdown()


def test_those_of_the_life_before_are_used_before_anybody_is_asked(world: _World) -> None:
    before = world.service(SystemClock())
    before.start()
    wait_until(world.path.exists)
    assert before.shutdown()
    asked, world.used = world.asked, []
    world.service(SystemClock()).begin()
    assert (world.used, world.asked) == ([{1: "10.0.0.1"}], asked)


def test_many_requests_are_few_questions(world: _World) -> None:
    clock = ManualClock()
    service = world.service(clock)
    service.start()
    wait_until(lambda: world.asked == 1)
    for _ in range(200):
        service.request()
    clock.advance(ASK_PAUSE_MS - 1)
    service.request()
    assert world.asked == 1
    clock.advance(1)
    service.request()
    wait_until(lambda: world.asked == 2)
    assert service.shutdown()
    assert world.asked == 2
