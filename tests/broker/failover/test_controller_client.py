"""Who the leader is, when controllers disagree, and what of their answers counts."""

from __future__ import annotations

import pytest

from broker.failover.controller_client import MAX_LOOKS, ControllerClient
from broker.failover.controller_names import ControllerNames
from broker.failover.messages import (
    Answered,
    Ask,
    Event,
    GroupView,
    LeaderNamed,
    RoleNotified,
    SendHeartbeat,
)
from broker.failover.settings import MemberSettings
from remoting.errors import (
    RemotingConnectError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.response_table import ResponseCallback
from tests.support.manual_clock import ManualClock

A, B, C = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"


class Calls:
    """Keeps what is asked until the test answers it."""

    def __init__(self) -> None:
        self.open: list[tuple[str, int, ResponseCallback]] = []
        self.heartbeats: list[str] = []
        self.sent: list[int] = []
        """Codes, in their order."""
        self.refuses_oneway = False

    def invoke_async(
        self, address: str, command: RemotingCommand, timeout_ms: int, callback: ResponseCallback
    ) -> None:
        self.open.append((address, command.code, callback))
        self.sent.append(command.code)

    def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        assert command.code == RequestCode.BROKER_HEARTBEAT
        if self.refuses_oneway:
            raise RemotingTooMuchRequestError(address, "no permit is free")
        self.sent.append(command.code)
        self.heartbeats.append(address)

    def answer(self, address: str, code: int = 0, remark: str | None = None, **fields: str) -> None:
        callback = self._taken(address)
        callback(RemotingCommand.request(1).response(code, remark, fields), None)

    def fail(self, error: RemotingError) -> None:
        self._taken(error.address)(None, error)

    def _taken(self, address: str) -> ResponseCallback:
        (index,) = (n for n, one in enumerate(self.open) if one[0] == address)
        return self.open.pop(index)[2]


class World:
    def __init__(self, heartbeat_timeout_ms: int = 10_000) -> None:
        self.calls = Calls()
        self.events: list[Event] = []
        self.clock = ManualClock()
        self.client = ControllerClient(
            self.calls,
            ControllerNames((A, B, C), all_addresses=False),
            MemberSettings(
                "C", "b", "127.0.0.1:10911", controller_heartbeat_timeout_ms=heartbeat_timeout_ms
            ),
            self.clock,
            self.events.append,
        )

    def metadata(self, address: str, leader: str | None, *, leads: bool = False) -> None:
        """The answer to 1005; Java leaves an unknown leader out."""
        named = {} if leader is None else {"controllerLeaderAddress": leader}
        self.calls.answer(address, isLeader="true" if leads else "false", **named)

    def beat(self) -> list[str]:
        """Who gets a heartbeat now."""
        self.calls.heartbeats.clear()
        self.client.send_heartbeat(SendHeartbeat(1, 1, 0, 0))
        return self.calls.heartbeats

    def ask(self) -> Ask:
        ask = Ask(7, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
        self.client.ask(ask)
        return ask


def test_everybody_is_asked_and_the_leader_s_own_word_counts() -> None:
    world = World()
    world.client.find_leader()
    assert [one[:2] for one in world.calls.open] == [(A, 1005), (B, 1005), (C, 1005)]
    world.metadata(A, C)
    assert world.client.leader == C, "a hint is better than nobody"
    world.metadata(B, B, leads=True)
    world.metadata(C, A)
    assert world.client.leader == B, "who leads knows it best"
    assert world.events == [LeaderNamed(C), LeaderNamed(B)]


def test_the_next_round_may_name_another_one() -> None:
    world = World()
    world.client.find_leader()
    world.metadata(B, B, leads=True)
    world.client.find_leader()
    world.calls.open = world.calls.open[-3:]
    world.metadata(A, C)
    assert world.client.leader == C


def test_controllers_that_elect_name_nobody() -> None:
    world = World()
    world.client.find_leader()
    world.metadata(A, None)
    world.calls.answer(B, 1)
    world.calls.answer(C, isLeader="true", controllerLeaderAddress="x" * 400)
    assert (world.client.leader, world.events) == (None, [])


def test_requests_go_to_the_leader_only() -> None:
    world = World()
    world.ask()
    assert world.calls.open == [], "nobody to ask"
    world.client.find_leader()
    world.metadata(B, B, leads=True)
    world.calls.open.clear()
    world.events.clear()
    ask = world.ask()
    assert [one[:2] for one in world.calls.open] == [(B, 1012)]
    world.calls.answer(B, nextBrokerId="4")
    assert world.events == [Answered(ask.ticket, ResponseCode.SUCCESS, next_broker_id=4)]


def test_a_request_without_a_readable_answer_gives_no_event() -> None:
    world = World()
    world.client.find_leader()
    world.metadata(B, B, leads=True)
    world.calls.open.clear()
    world.events.clear()
    world.ask()
    world.calls.answer(B, nextBrokerId="four")
    world.ask()
    _, _, callback = world.calls.open.pop()
    callback(None, RemotingTimeoutError(B, "no response"))
    assert world.events == []


def test_heartbeats_go_to_every_controller_that_is_reached() -> None:
    world = World()
    world.client.find_leader()
    assert world.beat() == []
    world.metadata(A, B)
    world.metadata(B, B, leads=True)
    world.calls.fail(RemotingConnectError(C, "refused"))
    assert world.beat() == [A, B]
    assert world.calls.open == [], "a controller that is gone is not connected to each second"
    world.clock.advance(3_000)
    assert world.beat() == [A, B]
    world.metadata(C, B)
    assert world.beat() == [A, B, C]


@pytest.mark.parametrize(("timeout_ms", "pause_ms"), [(3_000, 1_000), (60_000, 3_000)])
def test_a_controller_that_starts_anew_soon_hears_of_this_broker(
    timeout_ms: int, pause_ms: int
) -> None:
    """Well within its warm-up, which is as long as the heartbeat timeout."""
    world = World(timeout_ms)
    world.client.find_leader()
    world.metadata(B, B, leads=True)
    world.calls.fail(RemotingConnectError(A, "refused"))
    world.calls.open.clear()
    world.clock.advance(pause_ms - 1)
    world.beat()
    assert world.calls.open == []
    world.clock.advance(1)
    world.beat()
    assert [one[:2] for one in world.calls.open] == [(A, 1005), (C, 1005)]


def test_the_heartbeat_of_a_question_leaves_before_it_whoever_is_reached() -> None:
    """Over one connection, so that whoever answers has heard it."""
    world = World()
    world.client.find_leader()
    world.metadata(B, B, leads=True)
    world.client.find_leader()
    world.calls.fail(RemotingSendRequestError(B, "reset"))
    world.calls.sent.clear()
    poll, beat = RequestCode.CONTROLLER_GET_REPLICA_INFO, SendHeartbeat(1, 1, 0, 0)
    world.client.ask(Ask(8, poll, beat=beat))
    world.client.ask(Ask(9, poll))
    assert world.calls.sent == [904, 1004, 1004]


def test_a_question_whose_heartbeat_cannot_leave_is_not_asked() -> None:
    """Its answer would renew a lease of which the controller has not heard."""
    world = World()
    world.client.find_leader()
    world.metadata(B, B, leads=True)
    world.calls.sent.clear()
    world.calls.refuses_oneway = True
    poll, beat = RequestCode.CONTROLLER_GET_REPLICA_INFO, SendHeartbeat(1, 1, 0, 0)
    world.client.ask(Ask(8, poll, beat=beat))
    assert world.calls.sent == []
    world.client.ask(Ask(9, poll))
    assert world.calls.sent == [1004]


def test_a_silent_controller_goes_on_getting_heartbeats_and_a_dead_one_does_not() -> None:
    world = World()
    world.client.find_leader()
    for address in (A, B, C):
        world.metadata(address, B)
    world.client.find_leader()
    world.calls.fail(RemotingTimeoutError(A, "no response"))
    world.calls.fail(RemotingSendRequestError(B, "connection reset"))
    assert world.beat() == [A, C]


def view(epoch: int) -> dict[str, str]:
    """Of a group without a master, which needs no body."""
    return {"masterEpoch": str(epoch)}


def test_a_notice_without_a_leader_is_looked_into_when_one_is_named() -> None:
    world = World()
    world.client.look_at_roles()
    assert world.calls.open == []
    world.client.find_leader()
    world.metadata(B, B, leads=True)
    assert [one[:2] for one in world.calls.open] == [(A, 1005), (C, 1005), (B, 1004)]
    world.calls.answer(B, **view(3))
    assert world.events[-1] == RoleNotified(GroupView(None, None, 3, frozenset(), 0))


def test_many_notices_are_one_question_and_one_more() -> None:
    world = World()
    world.client.find_leader()
    world.metadata(B, B, leads=True)
    world.calls.open.clear()
    for _ in range(100):
        world.client.look_at_roles()
    assert [one[:2] for one in world.calls.open] == [(B, 1004)]
    world.calls.answer(B, **view(3))
    assert [one[:2] for one in world.calls.open] == [(B, 1004)], "the answer may be older"
    world.calls.answer(B, **view(4))
    assert world.calls.open == []


def test_a_leader_that_leads_no_more_says_nothing_of_roles() -> None:
    world = World()
    world.client.find_leader()
    world.metadata(B, B, leads=True)
    world.calls.open.clear()
    world.events.clear()
    world.client.look_at_roles()
    world.calls.answer(B, ResponseCode.CONTROLLER_NOT_LEADER, **view(9))
    assert world.events == []
    world.client.find_leader()
    world.metadata(C, C, leads=True)
    assert (C, 1004) in [one[:2] for one in world.calls.open]


def test_strangers_notices_make_few_questions() -> None:
    """Each 1008 with an epoch from the future made the leader answer one more 1004."""
    world = World()
    world.client.find_leader()
    world.metadata(B, B, leads=True)
    world.calls.open.clear()

    def answered() -> int:
        count = 0
        while world.calls.open:
            world.client.look_at_roles()
            world.calls.answer(B, **view(1))
            count += 1
            assert count < 50
        return count

    world.client.look_at_roles()
    assert answered() == MAX_LOOKS
    assert not world.client.look_at_roles()
    world.beat()
    assert answered() == MAX_LOOKS, "the last notice is not forgotten"


def test_leaders_that_change_with_each_answer_leave_nothing_behind() -> None:
    world = World()
    for number in range(100):
        world.client.find_leader()
        world.calls.open.clear()
        world.client.find_leader()
        world.metadata(A, f"10.0.0.{number}:1")
        world.calls.open.clear()
        world.ask()
        world.calls.fail(RemotingConnectError(f"10.0.0.{number}:1", "refused"))
    world.client.find_leader()
    kept = [len(value) for value in vars(world.client).values() if isinstance(value, set | dict)]
    assert max(kept) <= 3


@pytest.mark.parametrize("name", ["", "c:1\n2026 ERROR all is lost", "c\x1b[2J:1", "x" * 301])
def test_a_leader_with_a_name_that_is_none(name: str) -> None:
    world = World()
    world.client.find_leader()
    world.metadata(A, name, leads=True)
    assert (world.client.leader, world.events) == (None, [])


def test_what_a_controller_repeats_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """It is asked every second, for days; and its words must not look like lines of the log."""
    world = World()
    world.client.find_leader()
    world.metadata(B, B, leads=True)
    world.calls.open.clear()
    with caplog.at_level("INFO"):
        for _ in range(5):
            world.ask()
            world.calls.answer(B, nextBrokerId="four")
        assert len(caplog.messages) == 1
        for _ in range(5):
            world.ask()
            world.calls.answer(B, 1, "no\n2026 ERROR all is lost" + "x" * 10_000)
    assert len(caplog.messages) == 2
    assert "\n" not in caplog.messages[1]
    assert len(caplog.messages[1]) < 400
