"""A leader that lacks a process has another one elected, or waits where there is none; a follower
that lacks one is elected last. With the member's core alone."""

from __future__ import annotations

import pytest

from broker.failover.hand_over import SETTLE_MS
from broker.failover.messages import (
    Answered,
    Ask,
    Cause,
    Fitness,
    Follow,
    GroupView,
    LeaderNamed,
    LogEnds,
    Moved,
    ReplicaConnected,
    ReplicaGone,
    ReplicaReported,
    RoleNotified,
    SendHeartbeat,
    Tick,
)
from broker.failover.puts import HANDING_OVER, NOT_CONFIRMED
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tests.simulation.test_member_pitfalls import SETTINGS, Lone

ELECT = RequestCode.CONTROLLER_ELECT_MASTER
POLL = RequestCode.CONTROLLER_GET_REPLICA_INFO
REST_MS = SETTINGS.controller_heartbeat_timeout_ms
GONE = Fitness("process remoting has ended")


class Leader(Lone):
    """Member 1 leads epoch 1 with a log of 100 bytes; 2 and 3 are in its set and have 40."""

    def __init__(self, *, self_fence: bool = False) -> None:
        super().__init__(self_fence=self_fence)
        self.lead()
        for number in (2, 3):
            self.step(ReplicaConnected(number, number))
            self.step(ReplicaReported(number, 0))
        self.poll(GroupView(1, "b1", 1, frozenset((1, 2, 3)), 7))
        self.log = LogEnds(100, 100)
        for number in (2, 3):
            self.step(ReplicaReported(number, 40))
        assert self.core.sync_state_set == {1, 2, 3}

    def lack(self) -> None:
        """A process has ended, and what was being put then is in the log."""
        self.step(GONE)
        self.step(Moved(), SETTLE_MS)

    def poll(self, view: GroupView) -> None:
        """As if the question for roles had been answered."""
        self.step(RoleNotified(view))

    def asked_poll(self, ms: int) -> Ask:
        """What asks who leads, so much later."""
        found = []
        for event, after_ms in ((Tick(), ms), (LeaderNamed("c0"), 0)):
            sends = self.step(event, after_ms).sends
            found += [one for one in sends if isinstance(one, Ask) and one.code == POLL]
        return found[-1]

    @property
    def elections(self) -> list[Ask]:
        return [one for one in self.last.sends if isinstance(one, Ask) and one.code == ELECT]

    @property
    def beats(self) -> list[SendHeartbeat]:
        return [one for one in self.last.sends if isinstance(one, SendHeartbeat)]


def test_it_designates_who_has_all_of_its_log() -> None:
    """Nothing that it has answered is lost, whatever the mode: until then puts are refused."""
    leader = Leader()
    assert leader.core.puts.refusal is None
    leader.step(GONE)
    assert (leader.elections, leader.beats) == ([], [])
    assert leader.core.puts.refusal == HANDING_OVER
    leader.step(ReplicaReported(2, 99), SETTLE_MS)
    assert leader.elections == []
    leader.step(ReplicaReported(3, 100))
    (ask,) = leader.elections
    assert (ask.broker_id, ask.designate_elect) == (3, True)
    view = GroupView(3, "b3", 2, frozenset((3,)), 8)
    leader.step(Answered(ask.ticket, ResponseCode.SUCCESS, view))
    assert leader.last.role == Follow(3, "b3", 2)
    assert leader.core.taken.cause is Cause.HANDED_OVER


def test_what_was_being_put_is_waited_for() -> None:
    """Process `remoting` may have found puts allowed just before they were refused."""
    leader = Leader()
    leader.step(ReplicaReported(2, 100))
    leader.step(GONE)
    assert leader.elections == []
    leader.step(Moved(), SETTLE_MS - 1)
    assert leader.elections == []
    leader.log = LogEnds(150, 150)
    leader.step(Moved(), 1)
    assert leader.elections == []
    leader.step(ReplicaReported(2, 150))
    assert len(leader.elections) == 1
    leader.step(Answered(leader.elections[0].ticket, ResponseCode.NO_PERMISSION))
    leader.step(Fitness(""))
    leader.step(ReplicaReported(2, 150), 1_000)
    leader.step(GONE)
    assert leader.elections == [], "puts were taken again meanwhile"


def test_nobody_is_asked_for_who_has_led_a_moment_ago() -> None:
    """It may lack a process as well, the same one for the same reason: as a lone leader would, this
    one waits for its own."""
    member = Leader()
    member.lack()
    member.poll(GroupView(2, "b2", 2, frozenset((1, 2, 3)), 8))
    member.poll(GroupView(1, "b1", 3, frozenset((1,)), 9))
    member.step(ReplicaConnected(12, 2))
    member.step(ReplicaReported(12, 100))
    member.poll(GroupView(1, "b1", 3, frozenset((1, 2)), 10))
    member.step(Tick(), REST_MS - SETTLE_MS - 1)
    assert (member.elections, len(member.beats)) == ([], 1)
    assert member.core.puts.refusal is None
    member.step(LeaderNamed("c0"))
    member.step(ReplicaConnected(13, 3))
    member.step(ReplicaReported(13, 100))
    member.poll(GroupView(1, "b1", 3, frozenset((1, 2, 3)), 11))
    member.step(Moved(), SETTLE_MS)
    (ask,) = member.elections
    assert ask.broker_id == 3, "who has not led"
    member.step(Answered(ask.ticket, ResponseCode.NO_PERMISSION))
    member.step(ReplicaGone(13))
    member.step(Tick(), 1)
    member.step(Moved(), SETTLE_MS)
    assert [one.broker_id for one in member.elections] == [2], "after a heartbeat timeout"


def test_while_it_is_to_be_replaced_it_sends_no_heartbeats() -> None:
    """Should the request not do, the controllers find it dead."""
    leader = Leader()
    leader.step(ReplicaReported(2, 100))
    leader.lack()
    for _ in range(5):
        assert leader.beats == []
        leader.step(Tick(), 1_000)
    leader.step(Fitness(""))
    assert [beat.max_offset for beat in leader.beats] == [100]


@pytest.mark.parametrize("code", [2012, ResponseCode.NO_PERMISSION])
def test_a_refusal_is_asked_about_once_a_tick(code: int) -> None:
    leader = Leader()
    leader.step(ReplicaReported(2, 100))
    leader.lack()
    for _ in range(3):
        (ask,) = leader.elections
        leader.step(Answered(ask.ticket, ResponseCode(code)))
        leader.step(ReplicaReported(2, 100))
        assert leader.elections == []
        leader.step(Tick(), 500)
    leader.step(Answered(leader.elections[0].ticket, ResponseCode(code)))
    leader.step(Fitness(""))
    assert leader.core.puts.refusal is None
    assert leader.core.is_master


def test_puts_stay_refused_while_the_request_is_under_way() -> None:
    """It may be carried out at any moment; given up after its time."""
    leader = Leader()
    leader.step(ReplicaReported(2, 100))
    leader.lack()
    assert len(leader.elections) == 1
    leader.step(Tick(), 1_000)
    leader.step(Fitness(""))
    assert leader.core.puts.refusal == HANDING_OVER
    leader.step(Tick(), 2_000)
    assert leader.core.puts.refusal is None


def test_a_lone_leader_waits_for_its_process() -> None:
    """One that is connected, and not in the set, could not stand in for it."""
    lone = Leader()
    lone.poll(GroupView(1, "b1", 1, frozenset((1,)), 9))
    lone.step(ReplicaReported(2, 100))
    lone.step(GONE)
    for _ in range(3):
        assert (lone.elections, len(lone.beats)) == ([], 1)
        assert lone.beats[0].max_offset == 100
        lone.step(Tick(), 1_000)
    assert lone.core.is_master
    assert lone.core.puts.refusal != HANDING_OVER


def test_without_a_controller_it_goes_on() -> None:
    """Nobody could be elected."""
    leader = Leader()
    leader.step(LeaderNamed(None))
    leader.step(ReplicaReported(2, 100))
    leader.lack()
    assert leader.elections == []
    assert leader.core.puts.refusal is None
    leader.step(LeaderNamed("c0"))
    leader.step(Moved(), SETTLE_MS)
    assert len(leader.elections) == 1


def test_its_own_epoch_in_the_answer_silences_nobody() -> None:
    """2011 to the request for another one: who leads already; a Java controller says it to a master
    that asks for itself while it lives, which then is silent until it is taken for dead."""
    leader = Leader()
    leader.step(ReplicaReported(2, 100))
    leader.lack()
    (ask,) = leader.elections
    still = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    leader.step(Answered(ask.ticket, still, GroupView(1, "b1", 1, frozenset((1, 2)), 9)))
    leader.step(Fitness(""))
    assert len(leader.beats) == 1


def test_a_lease_from_before_counts_no_more() -> None:
    """The other one may lead: only what is asked after all of that confirms this one again."""
    leader = Leader(self_fence=True)
    view = GroupView(1, "b1", 1, frozenset((1, 2, 3)), 7)
    early = leader.asked_poll(6_000)
    leader.step(Answered(early.ticket, ResponseCode.SUCCESS, view))
    assert leader.core.puts.find_refusal(leader.now) is None
    before = leader.asked_poll(6_000)
    leader.step(ReplicaReported(2, 100))
    leader.lack()
    (ask,) = leader.elections
    leader.step(Answered(ask.ticket, ResponseCode.NO_PERMISSION))
    leader.step(Fitness(""), 10)
    leader.step(Answered(before.ticket, ResponseCode.SUCCESS, view), 1)
    assert leader.core.puts.find_refusal(leader.now) == NOT_CONFIRMED
    after = leader.asked_poll(1_000)  # At the next tick, whatever the period is.
    leader.step(Answered(after.ticket, ResponseCode.SUCCESS, view))
    assert leader.core.puts.find_refusal(leader.now) is None


def test_who_has_its_process_again_asks_at_once() -> None:
    """So that a lease begins, if nobody else was elected."""
    leader = Leader(self_fence=True)
    view = GroupView(1, "b1", 1, frozenset((1, 2, 3)), 7)
    leader.step(Answered(leader.asked_poll(6_000).ticket, ResponseCode.SUCCESS, view))
    leader.step(GONE)
    leader.step(Answered(leader.asked(POLL).ticket, ResponseCode.SUCCESS, view), 1)
    assert leader.core.puts.refusal == HANDING_OVER
    leader.step(Fitness(""), 10)
    leader.step(Answered(leader.asked(POLL).ticket, ResponseCode.SUCCESS, view), 1)
    assert leader.core.puts.find_refusal(leader.now) is None


def test_a_follower_that_lacks_a_process_offers_nothing() -> None:
    """It is alive, and the last to be elected; nobody hears of it later than at once."""
    follower = Leader()
    follower.poll(GroupView(2, "b2", 2, frozenset((1, 2)), 8))
    assert not follower.core.is_master
    follower.step(GONE)
    assert [beat[1:] for beat in follower.beats] == [(0, 0, 0)]
    follower.step(Tick(), 1_000)
    assert [beat[1:] for beat in follower.beats] == [(0, 0, 0)]
    follower.step(Fitness(""))
    assert [beat.max_offset for beat in follower.beats] == [100]


def test_who_lacks_a_process_does_not_ask_to_be_elected() -> None:
    """But who is, so that it follows."""
    member = Leader()
    member.step(GONE)
    member.step(Answered(member.asked(POLL).ticket, ResponseCode.SUCCESS))
    member.poll(GroupView(None, None, 2, frozenset((1, 2, 3)), 7))
    for _ in range(3):
        assert member.elections == []
        poll = member.asked(POLL)
        member.step(Answered(poll.ticket, ResponseCode.SUCCESS))
        member.step(Tick(), 500)
    member.step(Fitness(""))
    (ask,) = member.elections
    assert (ask.broker_id, ask.designate_elect) == (1, False)


def test_a_question_without_a_heartbeat_confirms_nothing() -> None:
    """A controller that was cut off takes who asks, and was not heard, for dead a moment later."""
    leader = Leader(self_fence=True)
    view = GroupView(1, "b1", 1, frozenset((1, 2, 3)), 7)
    ask = leader.asked_poll(6_000)
    assert ask.beat is not None
    assert ask.beat.max_offset == 100
    leader.step(Answered(ask.ticket, ResponseCode.SUCCESS, view))
    assert leader.core.puts.find_refusal(leader.now) is None
    ask = leader.asked_poll(6_000)
    found = leader.core.asking.take(ask.ticket)
    assert found is not None
    leader.core.asking.sent(found[0]._replace(beat=None), leader.now)
    leader.step(Answered(ask.ticket, ResponseCode.SUCCESS, view))
    leader.step(Tick(), REST_MS - 6_000)
    assert leader.core.puts.find_refusal(leader.now) == NOT_CONFIRMED
    assert Leader().asked_poll(6_000).beat is None, "without a lease it costs nothing"
