"""Pitfalls of controller mode that one member meets, played with its core alone (P1 … P37: the
numbers of docs/failover.md; the others: test_pitfalls.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.failover.asking import MAX_AT_ONCE
from broker.failover.member import Found, MemberCore, Stage
from broker.failover.messages import (
    Answered,
    Ask,
    Fenced,
    FindLeader,
    FrameTaken,
    GroupView,
    HangUp,
    Lead,
    LeaderNamed,
    LogEnds,
    MasterHello,
    Moved,
    NameServersAnswered,
    Ready,
    RegisterAtNameServers,
    ReplicaConnected,
    ReplicaGone,
    ReplicaReported,
    RoleNotified,
    SendHeartbeat,
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

    def __init__(
        self,
        epochs: EpochList = EpochList(),  # noqa: B008
        end: int = 0,
        *,
        list_is_old: bool = False,
        self_fence: bool = False,
    ) -> None:
        found = Found(None, None, epochs, 0, list_is_old)
        settings = replace(SETTINGS, self_fence=self_fence)
        self.core = MemberCore(settings, found, "b1;1")
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


def test_p16_ids_that_are_always_refused_are_asked_for_once_a_tick() -> None:
    """Each offer is a file written and synced; brokers that start together are refused a few."""
    lone, offers = Lone(), 0
    for _ in range(20):
        while lone.last.sends:
            lone.answer(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, next_broker_id=2)
            lone.answer(RequestCode.CONTROLLER_APPLY_BROKER_ID, 2014)
            offers += 1
            assert offers < 100
        lone.step(Tick(), 1_000)
    assert offers < 40


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


def _answer_everything(lone: Lone, answered: Answered) -> int:
    """How many requests follow each other when each one gets this answer, and each question for the
    leader its name, at once; at most 200."""
    count, waiting = 0, [*lone.last.sends]
    while waiting and count < 200:
        send = waiting.pop()
        if isinstance(send, Ask):
            count += 1
            waiting += lone.step(answered._replace(ticket=send.ticket)).sends
        elif isinstance(send, FindLeader):
            waiting += lone.step(LeaderNamed("c0")).sends
    return count


@pytest.mark.parametrize(
    "answered",
    [
        pytest.param(Answered(0, ResponseCode.CONTROLLER_NOT_LEADER), id="no leader, says it"),
        pytest.param(Answered(0, ResponseCode.SYSTEM_ERROR), id="an error"),
    ],
)
def test_a_controller_that_refuses_everything_at_once_is_not_asked_without_pause(
    answered: Answered,
) -> None:
    """A leader answers 2007 until it has committed something; each of them made the next question,
    thousands a second."""
    lone = Lone()
    assert 1 <= _answer_everything(lone, answered) <= MAX_AT_ONCE
    lone.step(Tick(), 4_000)
    assert any(isinstance(one, Ask | FindLeader) for one in lone.last.sends), "the tick goes on"


def test_an_id_refused_without_a_reason_is_not_applied_for_without_pause() -> None:
    lone = Lone()
    lone.answer(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, next_broker_id=2)
    assert 1 <= _answer_everything(lone, Answered(0, ResponseCode.SYSTEM_ERROR)) <= MAX_AT_ONCE
    lone.step(Tick(), 1_000)
    lone.asked(RequestCode.CONTROLLER_APPLY_BROKER_ID)


def test_epochs_that_pass_as_fast_as_one_asks() -> None:
    """A group without a master whose epoch is newer with each answer."""
    lone = Lone()
    lone.lead()
    count, waiting = 0, [*lone.step(RoleNotified(GroupView(None, None, 2, frozenset(), 1))).sends]
    while waiting and count < 200:
        send = waiting.pop()
        if isinstance(send, Ask):
            count += 1
            view = GroupView(None, None, 2 + count, frozenset(), 1)
            waiting += lone.step(Answered(send.ticket, ResponseCode.SUCCESS, view)).sends
    assert count < MAX_AT_ONCE


def test_a_check_of_the_set_that_had_to_wait_comes_with_the_next_tick() -> None:
    alter = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
    lone = Lone()
    lone.lead()
    lone.step(ReplicaConnected(1, 2))
    lone.step(ReplicaReported(1, 0))
    while any(isinstance(one, Ask) and one.code == alter for one in lone.last.sends):
        lone.answer(alter, ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED)
        lone.step(ReplicaReported(1, 0))
    lone.step(Tick(), 100)
    assert lone.asked(alter).sync_state_set == {1, 2}


@pytest.mark.parametrize("master", [None, 2])
def test_another_master_in_the_own_epoch_brings_no_set(master: int | None) -> None:
    """Of a controller whose state was put back from a copy: SEND_OK would have waited for broker 2
    only, and not for the own log."""
    lone = Lone()
    lone.lead()
    own = GroupView(1, "b1", 1, frozenset((1,)), 1)
    lone.step(RoleNotified(GroupView(master, "b2", 1, frozenset((2,)), 9)))
    assert (lone.core.sync_state_set, lone.core.is_master) == ({1}, True)
    assert "in which this broker leads" in (lone.core.trouble or "")
    lone.step(RoleNotified(own))
    assert lone.core.trouble is None


def _slave_of(epoch: int, end: int) -> Lone:
    lone = Lone(epoch_list([(1, 0)]), end)
    lone.answer(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, next_broker_id=2)
    lone.answer(RequestCode.CONTROLLER_APPLY_BROKER_ID)
    view = GroupView(1, "b1", epoch, frozenset((1,)), 1)
    lone.answer(RequestCode.CONTROLLER_REGISTER_BROKER, view=view)
    return lone


def test_a_list_newer_than_its_master_is_not_taken_over() -> None:
    """With epoch 2147483647 in its own list no broker leads any more: no epoch is newer."""
    lone = _slave_of(2, 100)
    lies = lone.step(MasterHello(2, epoch_list([(1, 0), (2**31 - 1, 100)]), 100))
    assert (lies.role, lies.steps) == (HangUp(), ())
    assert isinstance(lies.role, HangUp)
    assert lone.core.epochs == epoch_list([(1, 0)])
    assert "up to 2147483647" in (lone.core.trouble or "")


def test_a_master_that_is_not_followed_confirms_nothing() -> None:
    """Its heartbeats come before both logs are compared, and after the connection was given up."""
    lone = _slave_of(2, 100)
    lone.step(FrameTaken(80))
    assert lone.core.confirm_offset == 0
    assert isinstance(lone.step(MasterHello(2, epoch_list([(1, 0), (2, 50)]), 50)).role, Transfer)
    lone.log = LogEnds(50, 50)
    lone.step(FrameTaken(40))
    assert lone.core.confirm_offset == 40
    assert isinstance(lone.step(MasterHello(1, epoch_list([(1, 0)]), 50)).role, HangUp)
    lone.step(FrameTaken(50))
    assert lone.core.confirm_offset == 40


def test_who_registers_and_follows_is_alive_before_it_can_join_a_set() -> None:
    """It was refused there until its next heartbeat, a second later, with two members for as long
    as nobody could send."""
    heartbeats = [one for one in _slave_of(2, 100).last.sends if isinstance(one, SendHeartbeat)]
    assert [(one.broker_id, one.epoch, one.max_offset) for one in heartbeats] == [(2, 1, 100)]


def test_a_master_that_asks_for_a_new_epoch_is_not_kept_alive_by_that() -> None:
    """A Java controller refuses it as long as it takes the broker for alive."""
    lone = Lone(epoch_list([(1, 0), (2, 50)]), 100)
    lone.answer(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, next_broker_id=1)
    lone.answer(RequestCode.CONTROLLER_APPLY_BROKER_ID)
    view = GroupView(1, "b1", 2, frozenset((1,)), 1)
    lone.answer(RequestCode.CONTROLLER_REGISTER_BROKER, view=view)
    assert lone.asked(RequestCode.CONTROLLER_ELECT_MASTER).designate_elect
    assert not any(isinstance(one, SendHeartbeat) for one in lone.last.sends)


def test_what_a_master_confirmed_counts_once_it_is_flushed_here() -> None:
    """It says it once; the next frame may come five seconds later."""
    lone = _slave_of(2, 0)
    lone.log = LogEnds(0, 0)
    assert isinstance(lone.step(MasterHello(2, epoch_list([(2, 0)]), 50)).role, Transfer)
    lone.log = LogEnds(50, 10)
    lone.step(FrameTaken(50))
    assert lone.core.confirm_offset == 10
    lone.log = LogEnds(60, 60)
    lone.step(Moved())
    assert lone.core.confirm_offset == 50


def test_a_master_whose_last_list_is_damaged_does_not_lead_twice_in_one_epoch() -> None:
    """Its older list lacks the epoch that it has led: it went on in it from the log's end, and the
    slaves cut off what it had answered."""
    register, elect = RequestCode.CONTROLLER_REGISTER_BROKER, RequestCode.CONTROLLER_ELECT_MASTER
    lone = Lone(epoch_list([(1, 0)]), 100, list_is_old=True)
    lone.answer(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, next_broker_id=1)
    lone.answer(RequestCode.CONTROLLER_APPLY_BROKER_ID)
    lone.answer(register, view=GroupView(1, "b1", 2, frozenset((1, 2)), 4))
    assert lone.last.role is None
    assert lone.asked(elect).designate_elect
    lone.answer(elect, view=GroupView(1, "b1", 3, frozenset((1,)), 5))
    assert lone.last.role == Lead(3)
    assert lone.core.epochs == epoch_list([(1, 0), (3, 100)])


def test_a_group_that_was_unknown_for_a_moment_leaves_no_trouble() -> None:
    lone = Lone()
    lone.lead()
    lone.step(Tick(), 10)
    lone.answer(RequestCode.CONTROLLER_GET_REPLICA_INFO, 2008)
    assert "does not know cb" in (lone.core.trouble or "")
    lone.step(Tick(), 6_000)
    view = GroupView(1, "b1", 1, frozenset((1,)), 1)
    lone.answer(RequestCode.CONTROLLER_GET_REPLICA_INFO, view=view)
    assert lone.core.trouble is None


def test_a_slave_with_the_masters_own_id_is_no_replica() -> None:
    """Two brokers with one id, by a copied directory."""
    lone = Lone()
    lone.lead()
    lone.step(ReplicaConnected(1, 1))
    assert "two brokers have one id" in (lone.core.trouble or "")
    lone.step(ReplicaReported(1, 0))
    assert lone.last.sends == ()
    own = RoleNotified(GroupView(1, "b1", 1, frozenset((1,)), 1))
    lone.step(own)
    assert lone.core.trouble is not None, "it is still there"
    lone.step(ReplicaGone(1))
    lone.step(own)
    assert lone.core.trouble is None


@pytest.mark.parametrize("end", [0, 100])
def test_a_master_without_a_list_of_epochs_is_asked_again_later(end: int) -> None:
    """A Java broker that is elected writes its list down a moment after it is asked. Without one
    a slave started over, and an empty slave took bytes with which it could not start again."""
    lone = _slave_of(2, end)
    before = lone.core.epochs
    none = lone.step(MasterHello(2, EpochList(), 0))
    assert (none.role, none.steps) == (HangUp(), ())
    assert isinstance(none.role, HangUp)
    assert lone.core.epochs == before
    assert "no list of epochs" in (lone.core.trouble or "")
    assert isinstance(lone.step(MasterHello(2, epoch_list([(1, 0), (2, 60)]), 60)).role, Transfer)


def test_a_list_beyond_its_masters_own_end_is_none() -> None:
    lone = _slave_of(2, 100)
    lies = lone.step(MasterHello(2, epoch_list([(1, 0), (2, 101)]), 100))
    assert (lies.role, lies.steps) == (HangUp(), ())
    assert isinstance(lies.role, HangUp)
    assert isinstance(lone.step(MasterHello(2, epoch_list([(1, 0), (2, 100)]), 100)).role, Transfer)


def test_the_own_id_with_another_brokers_address_is_not_this_brokers_election() -> None:
    """Two brokers with one id, by a copied directory: both led in one epoch, as each took the
    election of the one that the controller had heard from last for its own."""
    elect, register = RequestCode.CONTROLLER_ELECT_MASTER, RequestCode.CONTROLLER_REGISTER_BROKER
    lone = Lone(epoch_list([(1, 0)]), 100)
    lone.answer(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, next_broker_id=1)
    lone.answer(RequestCode.CONTROLLER_APPLY_BROKER_ID)
    twin = GroupView(1, "the twin", 2, frozenset((1,)), 1)
    lone.answer(register, view=twin)
    assert (lone.core.is_master, lone.last.role) == (False, None)
    lone.answer(elect, 2010, view=twin)
    assert (lone.core.is_master, lone.last.role) == (False, None)
    assert "two brokers have one id" in (lone.core.trouble or "")
    lone.step(Tick(), 1_000)
    # The address is this broker's again, as after a start with another one.
    lone.answer(elect, view=twin._replace(master_address="b1"))
    assert (lone.last.role, lone.core.trouble) == (Lead(2), None)


def test_a_master_ends_when_its_twin_is_elected() -> None:
    lone = Lone()
    lone.lead()
    lone.step(RoleNotified(GroupView(1, "the twin", 2, frozenset((1,)), 2)))
    assert lone.last.role == Fenced()
    assert isinstance(lone.last.role, Fenced)
    assert not lone.core.is_master
    assert "two brokers have one id" in (lone.core.trouble or "")


def test_a_twin_in_the_own_epoch_is_said_and_renews_no_lease() -> None:
    lone = Lone(self_fence=True)
    lone.lead()
    poll = RequestCode.CONTROLLER_GET_REPLICA_INFO
    own = GroupView(1, "b1", 1, frozenset((1,)), 1)
    lone.answer(poll, view=own)
    until_ms = lone.core.puts.until_ms
    assert until_ms is not None
    lone.step(Tick(), 6_000)
    lone.answer(poll, view=own._replace(master_address="the twin"))
    assert lone.core.puts.until_ms == until_ms
    assert "two brokers have one id" in (lone.core.trouble or "")
    lone.step(Tick(), 6_000)
    lone.answer(poll, view=own)
    assert (lone.core.puts.until_ms, lone.core.trouble) == (until_ms + 12_000, None)


def test_only_the_master_that_the_controller_named_is_compared_with() -> None:
    """A hello of an election that this member has not heard of yet, and one that comes when it
    leads itself."""
    slave = _slave_of(2, 100)
    newer = slave.step(MasterHello(3, epoch_list([(1, 0), (3, 50)]), 50))
    assert (newer.role, newer.steps) == (HangUp(), ())
    assert isinstance(newer.role, HangUp)
    master = Lone()
    master.lead()
    master.log = LogEnds(100, 100)
    late = master.step(MasterHello(1, epoch_list([(1, 0)]), 100))
    assert (late.role, late.steps) == (HangUp(), ())
    assert isinstance(late.role, HangUp)
