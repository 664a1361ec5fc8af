"""MemberRegistrar: which answers of the name servers count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.failover.member_registrar import MemberRegistrar
from broker.failover.messages import Event, NameServersAnswered, RegisterAtNameServers
from ipc.command_channel import CommandError
from tests.support.deadline import wait_until

MASTER = "10.0.0.1:10911"


class Remoting:
    """Process remoting, which asks no name server."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any] | CommandError] = []
        self.events: list[Event] = []
        self.addresses: list[str] = []
        self.registrar = MemberRegistrar(self, self.events.append, self.addresses.append)
        self.registrar.start()

    def call(self, command: str, timeout_ms: int, **arguments: Any) -> dict[str, Any]:
        assert command == "register_member"
        answer = self.answers.pop(0)
        self.asked.append(arguments)
        if isinstance(answer, CommandError):
            raise answer
        return answer

    def register(self, registration: RegisterAtNameServers, follows: str | None) -> None:
        """One tick of the member; returns when it was asked."""
        goal = len(self.asked) + 1
        self.registrar.register(registration, follows)
        wait_until(lambda: len(self.asked) >= goal)


@pytest.fixture
def remoting() -> Iterator[Remoting]:
    remoting = Remoting()
    yield remoting
    assert remoting.registrar.shutdown()


def test_a_master_is_registered_when_every_name_server_has_answered(remoting: Remoting) -> None:
    remoting.answers = [{"taken": False}, {"taken": True}]
    remoting.register(RegisterAtNameServers(0, 7), None)
    remoting.register(RegisterAtNameServers(0, 7), None)
    wait_until(lambda: remoting.events)
    asked = {"broker_id": 0, "state_version": 7, "master_address": None}
    assert remoting.asked == [asked] * 2
    assert remoting.events == [NameServersAnswered(7)]
    assert remoting.addresses == []


def test_a_process_that_does_not_answer_is_asked_again(
    remoting: Remoting, caplog: pytest.LogCaptureFixture
) -> None:
    remoting.answers = [CommandError("register_member: no response"), {"taken": True}]
    remoting.register(RegisterAtNameServers(0, 7), None)
    remoting.register(RegisterAtNameServers(0, 7), None)
    wait_until(lambda: remoting.events)
    assert "not registered yet: register_member: no response" in caplog.text


def test_a_follower_finds_the_ha_port_of_the_master_that_the_controller_names(
    remoting: Remoting,
) -> None:
    """They may not have heard of that one yet."""
    unknown = {"taken": True, "ha_address": None}
    right = {"taken": True, "ha_address": "10.0.0.1:10912"}
    remoting.answers = [{"taken": False, "ha_address": None}, unknown, right]
    remoting.register(RegisterAtNameServers(2, 7), MASTER)
    wait_until(lambda: remoting.events)
    assert remoting.events == [NameServersAnswered(7)]
    assert remoting.addresses == ["10.0.0.1:10912"]
    assert remoting.asked[-1] == {"broker_id": 2, "state_version": 7, "master_address": MASTER}


def test_the_ha_port_counts_though_another_name_server_refuses(remoting: Remoting) -> None:
    remoting.answers = [{"taken": False, "ha_address": "10.0.0.1:10912"}, {"taken": False}]
    remoting.register(RegisterAtNameServers(2, 7), MASTER)
    wait_until(lambda: remoting.addresses)
    assert remoting.events == []


def test_another_wish_ends_the_repetitions(remoting: Remoting) -> None:
    remoting.answers = [{"taken": False, "ha_address": None}] * 20
    remoting.register(RegisterAtNameServers(2, 7), MASTER)
    remoting.registrar.register(RegisterAtNameServers(0, 8), None)
    wait_until(lambda: remoting.asked[-1]["state_version"] == 8)
    count = len(remoting.asked)
    assert not remoting.registrar.wait_stopped(150)
    assert len(remoting.asked) == count, "a master's is repeated by the member's ticks"


def test_only_the_last_wish_counts(remoting: Remoting) -> None:
    remoting.registrar.shutdown()
    later = MemberRegistrar(remoting, remoting.events.append, remoting.addresses.append)
    remoting.answers = [{"taken": True}]
    later.register(RegisterAtNameServers(2, 7), MASTER)
    later.register(RegisterAtNameServers(0, 8), None)
    later.start()
    wait_until(lambda: remoting.events)
    later.shutdown()
    assert remoting.asked == [{"broker_id": 0, "state_version": 8, "master_address": None}]
