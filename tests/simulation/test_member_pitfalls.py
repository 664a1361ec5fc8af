"""Pitfalls of controller mode that one member meets, played with its core alone (P1 … P37: the
numbers of docs/failover.md; the others: test_pitfalls.py)."""

from __future__ import annotations

import pytest

from broker.failover.member import Found, MemberCore, Stage
from broker.failover.messages import (
    Answered,
    Ask,
    FrameTaken,
    GroupView,
    HangUp,
    Lead,
    LeaderNamed,
    LogEnds,
    MasterHello,
    NameServersAnswered,
    Ready,
    RegisterAtNameServers,
    ReplicaConnected,
    ReplicaGone,
    ReplicaReported,
    Tick,
    Transfer,
)
from broker.failover.settings import MemberSettings
from ha.epochs import EpochList, epoch_list
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

SETTINGS = MemberSettings("C", "cb", "b1", all_ack_in_sync_state_set=True, min_in_sync_replicas=2)


class Lone:
    """One member and its log."""

    def __init__(self, epochs: EpochList = EpochList(), end: int = 0) -> None:  # noqa: B008
        found = Found(None, None, epochs, 0)
        self.core = MemberCore(SETTINGS, found, "b1;1")
        self.log = LogEnds(end, end)
        self.now = 0
        self.step(LeaderNamed("c0"))

    def step(self, event: object, ms: int = 0) -> Ready:
        self.now += ms
        self.last = self.core.step(event, self.now, self.log)  # type: ignore[arg-type]
        return self.last

    def asked(self, code: RequestCode) -> Ask:
        (found,) = (one for one in self.last.sends if isinstance(one, Ask) and one.code == code)
        return found

    def answer(self, code: RequestCode, result: int = 0, **more: object) -> Ready:
        ticket = self.asked(code).ticket
        return self.step(Answered(ticket, ResponseCode(result), **more))  # type: ignore[arg-type]

    def lead(self, epoch: int = 1) -> None:
        self.answer(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, next_broker_id=1)
        self.answer(RequestCode.CONTROLLER_APPLY_BROKER_ID)
        self.answer(RequestCode.CONTROLLER_REGISTER_BROKER)
        view = GroupView(1, "b1", epoch, frozenset((1,)), 1)
        self.answer(RequestCode.CONTROLLER_ELECT_MASTER, view=view)


def test_p6_a_wanted_set_counts_before_its_answer() -> None:
    lone = Lone()
    lone.lead()
    assert lone.last.role == Lead(1)
    lone.step(ReplicaConnected(1, 2))
    lone.step(ReplicaReported(1, 0))
    assert lone.asked(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET).sync_state_set == {1, 2}
    lone.log = LogEnds(100, 100)
    lone.step(Tick(), 10)
    assert lone.core.acknowledged_offset == 0
    lone.step(ReplicaReported(1, 60))
    assert lone.core.acknowledged_offset == 60


def test_p16_refused_ids_are_asked_anew_and_said_aloud() -> None:
    lone = Lone()
    for _ in range(3):
        lone.answer(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, next_broker_id=2)
        lone.answer(RequestCode.CONTROLLER_APPLY_BROKER_ID, 2014)
    assert "refuses them" in (lone.core.trouble or "")
    lone.asked(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)


def test_p18_p19_a_refused_set_is_asked_for_and_the_next_check_goes_on() -> None:
    lone = Lone()
    lone.lead()
    lone.step(ReplicaConnected(1, 2))
    lone.step(ReplicaReported(1, 0))
    lone.answer(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, 2013)
    assert lone.core.sync_state_set == {1}
    lone.asked(RequestCode.CONTROLLER_GET_REPLICA_INFO)
    lone.step(Tick(), 6_000)
    lone.asked(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET)


@pytest.mark.parametrize("code", [1, 2, 2015])
def test_a_set_counts_while_nobody_knows_whether_it_was_taken(code: int) -> None:
    """A Java controller whose raft is slow answers 1, and the wanted set comes into force later."""
    lone = Lone()
    lone.lead()
    lone.step(ReplicaConnected(1, 2))
    lone.step(ReplicaReported(1, 0))
    lone.answer(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, code)
    assert lone.core.sync_state_set == {1, 2}
    lone.log = LogEnds(100, 100)
    lone.step(ReplicaReported(1, 60))
    assert lone.core.acknowledged_offset == 60


def test_p23_a_slave_that_does_not_follow_leaves_the_set() -> None:
    lone = Lone()
    lone.lead()
    lone.step(ReplicaConnected(1, 2))
    lone.step(ReplicaReported(1, 0))
    lone.answer(
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        view=GroupView(1, "b1", 1, frozenset((1, 2)), 2),
    )
    lone.log = LogEnds(100, 100)
    lone.step(ReplicaReported(1, 0), 14_000)
    lone.step(Tick(), 6_000)
    assert lone.asked(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET).sync_state_set == {1}


def test_p27_a_controller_behind_the_log_changes_nothing() -> None:
    lone = Lone(epoch_list([(1, 0), (7, 50)]), 80)
    lone.lead(epoch=6)
    assert lone.last.role is None
    assert "this log at 7" in (lone.core.trouble or "")
    assert lone.core.stage is Stage.FINDING_MASTER
    lone.step(Tick(), 1_000)
    assert not any(isinstance(one, RegisterAtNameServers) for one in lone.last.sends)
    lone.asked(RequestCode.CONTROLLER_ELECT_MASTER)


def test_p28_p36_the_registration_carries_the_epoch_and_is_repeated() -> None:
    lone = Lone()
    lone.lead(epoch=3)
    assert RegisterAtNameServers(0, 3) in lone.last.sends
    lone.step(Tick(), 1_000)
    assert RegisterAtNameServers(0, 3) in lone.last.sends
    lone.step(NameServersAnswered(3))
    lone.step(Tick(), 1_000)
    assert RegisterAtNameServers(0, 3) not in lone.last.sends


def test_p30_no_controller_at_all_is_asked_for_again() -> None:
    lone = Lone()
    lone.step(LeaderNamed(None))
    assert lone.step(Tick(), 4_000).sends


def test_a_slaves_late_older_connection_does_not_hide_its_newer_one() -> None:
    """Found by the simulation (a seed of 752): the older handshake came last."""
    lone = Lone()
    lone.lead()
    lone.step(ReplicaConnected(2, 2))
    lone.step(ReplicaConnected(1, 2))
    lone.step(ReplicaReported(2, 0))
    lone.step(ReplicaGone(1))
    assert lone.core.sync_state_set == {1, 2}


def test_a_handshakes_answer_that_comes_twice_cuts_nothing() -> None:
    """What had been acknowledged in between was gone, and this slave could be elected."""
    lone = Lone()
    lone.answer(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, next_broker_id=2)
    lone.answer(RequestCode.CONTROLLER_APPLY_BROKER_ID)
    lone.answer(
        RequestCode.CONTROLLER_REGISTER_BROKER,
        view=GroupView(1, "b1", 2, frozenset((1,)), 1),
    )
    hello = MasterHello(2, epoch_list([(1, 0), (2, 50)]), 60)
    assert lone.step(hello).role == Transfer()
    lone.log = LogEnds(100, 100)
    lone.step(FrameTaken(100))
    again = lone.step(hello)
    assert (again.role, again.steps) == (HangUp(), ())
    assert "its master 60" in (lone.core.trouble or "")


@pytest.mark.parametrize(
    "code", [ResponseCode.CONTROLLER_INVALID_REPLICAS, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE]
)
def test_one_whom_the_controller_does_not_take_keeps_nobody_in_or_out(code: ResponseCode) -> None:
    """A broker that was cleaned away, or whose heartbeats do not arrive, and that replicates: no
    other slave joined the set, and nobody who was dead left it, so that no put was answered. And
    each of its reports made a request."""
    alter = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
    lone = Lone()
    lone.lead()

    def takes(members: set[int], epoch: int) -> None:
        assert lone.asked(alter).sync_state_set == members
        lone.answer(alter, view=GroupView(1, "b1", 1, frozenset(members), epoch))

    for number in (2, 3, 4):
        lone.step(ReplicaConnected(number, number))
    lone.step(ReplicaReported(2, 0))
    takes({1, 2}, 2)
    lone.step(ReplicaReported(3, 0))
    lone.answer(alter, code)
    for _ in range(5):
        lone.step(ReplicaReported(3, 0), 100)
        assert not any(isinstance(one, Ask) and one.code == alter for one in lone.last.sends)
    lone.step(ReplicaReported(4, 0))
    takes({1, 2, 4}, 3)
    lone.step(ReplicaGone(2))
    takes({1, 4}, 4)
    lone.step(Tick(), 6_000)
    lone.step(ReplicaReported(3, 0))
    lone.step(ReplicaReported(4, 0))
    lone.step(Tick(), 6_000)
    takes({1, 3, 4}, 5)


def test_one_who_is_gone_before_the_refusal_is_not_tried_again() -> None:
    lone = Lone()
    lone.lead()
    lone.step(ReplicaConnected(1, 2))
    lone.step(ReplicaReported(1, 0))
    asked = lone.asked(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET)
    lone.step(ReplicaGone(1))
    lone.step(Answered(asked.ticket, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE))
    lone.step(Tick(), 6_000)
    assert lone.core.sync_state_set == {1}
