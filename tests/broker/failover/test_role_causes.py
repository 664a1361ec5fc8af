"""What MemberCore notes of a role: why it was taken, whom it follows upon, what was at risk."""

from __future__ import annotations

import pytest

from broker.failover.identity import Identity
from broker.failover.member import Found, MemberCore
from broker.failover.messages import (
    Answered,
    Ask,
    Cause,
    Event,
    GroupView,
    LeaderNamed,
    LogEnds,
    Ready,
    RoleNotified,
    Tick,
)
from broker.failover.settings import MemberSettings
from ha.epochs import epoch_list
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

OWN, OTHER = "10.0.0.2:10911", "10.0.0.1:10911"
SETTINGS = MemberSettings(
    cluster_name="C", broker_name="b", broker_address=OWN, all_ack_in_sync_state_set=True
)


def view(master: int | None, epoch: int, *members: int, address: str | None = None) -> GroupView:
    where = address or (OWN if master == 2 else OTHER)
    return GroupView(master, where if master else None, epoch, frozenset(members), 1)


class World:
    """Member 2, whose log has 693 bytes, of which 600 are confirmed."""

    def __init__(self) -> None:
        found = Found(None, Identity("C", "b", 2), epoch_list([(1, 0)]), 600)
        self.core = MemberCore(SETTINGS, found, "")
        self.now_ms = 1_000
        self.asked: dict[RequestCode, Ask] = {}
        self.step(LeaderNamed("c:1"))

    def step(self, event: Event) -> Ready:
        ready = self.core.step(event, self.now_ms, LogEnds(693, 693))
        for send in ready.sends:
            if isinstance(send, Ask):
                self.asked[send.code] = send
        return ready

    def answer(self, code: RequestCode, found: GroupView | None) -> None:
        self.step(Answered(self.asked[code].ticket, ResponseCode.SUCCESS, found))

    def poll(self, found: GroupView) -> None:
        self.now_ms += 10_000
        self.step(Tick())
        self.step(LeaderNamed("c:1"))
        self.answer(RequestCode.CONTROLLER_GET_REPLICA_INFO, found)


def test_the_first_role_is_that_of_the_start() -> None:
    world = World()
    world.answer(RequestCode.CONTROLLER_REGISTER_BROKER, view(1, 4, 1, 2))
    taken = world.core.taken
    assert (taken.cause, taken.old_epoch, taken.old_master) == (Cause.START, 0, None)
    assert (taken.confirm_offset, taken.log_end) == (600, 693)
    assert taken.sync_state_set == {1, 2}


def following() -> World:
    world = World()
    world.answer(RequestCode.CONTROLLER_REGISTER_BROKER, view(1, 4, 1, 2))
    return world


def test_a_notice_that_was_confirmed() -> None:
    world = following()
    world.step(RoleNotified(view(2, 5, 2)))
    taken = world.core.taken
    assert world.core.is_master
    assert (taken.cause, taken.old_epoch, taken.old_master) == (Cause.NOTIFIED, 4, 1)
    assert (taken.confirm_offset, taken.log_end) == (600, 693), "before the new set confirms all"
    assert world.core.confirm_offset == 693


def test_a_poll_that_found_another_epoch() -> None:
    world = following()
    world.poll(view(3, 5, 3))
    assert (world.core.taken.cause, world.core.master_broker_id) == (Cause.POLLED, 3)


def test_who_knows_no_master_asks_for_one() -> None:
    world = following()
    world.step(RoleNotified(view(None, 5)))
    assert world.core.taken.cause is Cause.NOTIFIED
    world.answer(RequestCode.CONTROLLER_ELECT_MASTER, view(2, 6, 2))
    taken = world.core.taken
    assert (taken.cause, taken.old_epoch, taken.old_master) == (Cause.ASKED, 5, None)


def test_what_changes_no_role_is_not_noted() -> None:
    world = following()
    before = world.core.taken
    world.step(RoleNotified(view(1, 4, 1, 2)))
    world.step(RoleNotified(view(3, 3, 3)))
    assert world.core.taken is before


@pytest.mark.parametrize("found", [view(1, 5, 1), view(2, 5, 2, address=OTHER)])
def test_two_masters_of_one_epoch_are_counted(found: GroupView) -> None:
    """Another id, or the own id at another address."""
    world = following()
    world.step(RoleNotified(view(2, 5, 2)))
    world.step(RoleNotified(view(2, 5, 2)))
    assert world.core.two_masters_seen == 0
    world.step(RoleNotified(found))
    assert world.core.two_masters_seen == 1
    assert world.core.is_master
