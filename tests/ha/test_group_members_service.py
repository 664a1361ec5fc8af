"""GroupMembersService: asks at start, on request, not too often; when a member is none any more."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ha.group_members_service import ASK_PAUSE_MS, KEEP_MS, GroupMembersService
from ipc.clock import Clock, SystemClock
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock


class _World:
    """A name server, and whoever uses the members."""

    def __init__(self) -> None:
        self.answer: dict[int, str] | None = {1: "10.0.0.1"}
        self.asked = 0
        self.used: list[dict[int, str]] = []

    def fetch(self) -> dict[int, str] | None:
        self.asked += 1
        return self.answer

    def use(self, members: Mapping[int, str]) -> None:
        self.used.append(dict(members))

    def service(self, clock: Clock) -> GroupMembersService:
        return GroupMembersService(self.fetch, self.use, clock)


@pytest.fixture
def world() -> _World:
    return _World()


def test_asks_at_start_and_on_request(world: _World) -> None:
    service = world.service(SystemClock())
    service.start()
    wait_until(lambda: world.used == [{1: "10.0.0.1"}])
    world.answer = None
    service.request()
    wait_until(lambda: world.asked == 2)
    world.answer = {1: "10.0.0.2"}
    service.request()
    wait_until(lambda: world.used[1:] == [{1: "10.0.0.2"}])
    assert service.shutdown()


def test_a_name_server_that_knows_nobody_yet_changes_nothing_for_a_while(world: _World) -> None:
    clock = ManualClock()
    service = world.service(clock)

    def ask() -> dict[int, str]:
        clock.advance(ASK_PAUSE_MS)
        service.wakeup()
        service.step()
        return world.used[-1]

    assert ask() == {1: "10.0.0.1"}
    world.answer = {2: "10.0.0.2"}
    assert ask() == {1: "10.0.0.1", 2: "10.0.0.2"}
    clock.advance(KEEP_MS)
    assert ask() == {2: "10.0.0.2"}


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
