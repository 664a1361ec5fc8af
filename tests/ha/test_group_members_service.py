"""GroupMembersService: asks at start, on request, not too often."""

from __future__ import annotations

import pytest

from ha.group_members_service import ASK_PAUSE_MS, GroupMembersService
from ha.trusted_peers import TrustedPeers
from store.clock import SystemClock
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock


class _NameServer:
    def __init__(self) -> None:
        self.answer: list[str] | None = ["10.0.0.1"]
        self.asked = 0
        self.answered = 0

    def fetch(self) -> list[str] | None:
        self.asked += 1
        return self.answer

    def note_answer(self) -> None:
        self.answered += 1


@pytest.fixture
def name_server() -> _NameServer:
    return _NameServer()


def test_asks_at_start_and_on_request(name_server: _NameServer) -> None:
    trusted = TrustedPeers("", False)
    service = GroupMembersService(
        name_server.fetch, trusted, SystemClock(), answered=name_server.note_answer
    )
    service.start()
    wait_until(lambda: name_server.answered == 1)
    assert trusted.is_trusted("10.0.0.1")
    name_server.answer = None
    service.request()
    wait_until(lambda: name_server.answered == 2)
    assert trusted.is_trusted("10.0.0.1")
    name_server.answer = ["10.0.0.2"]
    service.request()
    wait_until(lambda: trusted.is_trusted("10.0.0.2"))
    assert service.shutdown()


def test_many_requests_are_few_questions(name_server: _NameServer) -> None:
    clock = ManualClock()
    service = GroupMembersService(name_server.fetch, TrustedPeers("", False), clock)
    service.start()
    wait_until(lambda: name_server.asked == 1)
    for _ in range(200):
        service.request()
    clock.advance(ASK_PAUSE_MS - 1)
    service.request()
    assert name_server.asked == 1
    clock.advance(1)
    service.request()
    wait_until(lambda: name_server.asked == 2)
    assert service.shutdown()
    assert name_server.asked == 2
