"""BrokerMemberHost: in which order it changes the log's writer, and what it shows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.failover.member_host import OrderedRole
from broker.failover.member_service import CutRefusedError, MemberStoppedError
from broker.failover.messages import (
    Cause,
    CutHalfRecord,
    CutLog,
    Fenced,
    FlushLog,
    Follow,
    HangUp,
    Lead,
    LogEnds,
    RegisterAtNameServers,
    StopReplication,
    Taken,
    Transfer,
)
from broker.failover.puts import NOT_MASTER, TOO_FEW_MEMBERS, Puts
from ha.control_slots import (
    MASTER_BROKER_ID,
    MASTER_EPOCH,
    MEMBER_ID,
    MEMBER_ORDER,
    ORDER_TAKEN,
    PUTS_REFUSED,
    PUTS_UNTIL_MS,
    REPLICATED_OFFSET,
    SYNC_STATE_SET_SIZE,
    TWO_MASTERS_SEEN,
    MemberRole,
    order_after,
)
from ha.epoch_file import decode_epochs
from ha.epochs import CUT_STEPS, EpochList, epoch_list
from ha.taken_role import read_roles
from store.control_slots import (
    CONFIRM_OFFSET,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    NO_BOUND,
)
from tests.broker.failover.host_world import Done, HostWorld, status
from tests.support.deadline import wait_until

EPOCHS = epoch_list([(1, 0), (7, 600)])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[HostWorld]:
    world = HostWorld(tmp_path)
    yield world
    world.end()


def _begun(world: HostWorld) -> HostWorld:
    world.host.begin()
    world.host.do(StopReplication())
    world.done.clear()
    return world


def test_a_start_fences_whoever_leads(world: HostWorld) -> None:
    """A predecessor may have died while `remoting` was the log's writer."""
    world.remoting.hangs.set()
    world.counters[MEMBER_ORDER] = old = order_after(0, MemberRole.LEAD)
    world.counters[ORDER_TAKEN] = old
    world.host.begin()
    assert world.order is MemberRole.FENCED
    stopped = threading.Thread(target=world.host.do, args=(StopReplication(),), daemon=True)
    stopped.start()
    stopped.join(0.05)
    assert stopped.is_alive(), "remoting has not given the log up"
    world.remoting.hangs.clear()
    stopped.join(5)
    assert not stopped.is_alive()
    assert world.done == [Done("stop"), Done("taken", MemberRole.FENCED)]


def test_an_order_of_a_predecessor_is_no_order(world: HostWorld) -> None:
    """It was carried out for somebody who wrote the log as a follower, and has died since."""
    world.remoting.hangs.set()
    world.counters[MEMBER_ORDER] = old = order_after(0, MemberRole.FOLLOW)
    world.counters[ORDER_TAKEN] = old
    assert not world.orders.is_taken
    world.host.begin()
    assert not world.orders.is_taken
    world.remoting.hangs.clear()
    wait_until(lambda: world.orders.is_taken)


def test_a_master_s_log_is_taken_from_remoting_behind_the_acknowledgements(
    world: HostWorld,
) -> None:
    """What would be acknowledged in between was answered SEND_OK by a master that is none."""
    _begun(world)
    world.host.show(status(is_master=True, epochs=EPOCHS))
    world.host.take_role(Lead(7))
    assert sorted(world.done, key=lambda done: done.what) == [
        Done("lead", (EPOCHS, 7, True)),
        Done("taken", MemberRole.LEAD),
    ]
    world.done.clear()
    world.host.do(StopReplication())
    world.host.do(CutHalfRecord())
    assert world.done == [
        Done("stop"),
        Done("taken", MemberRole.FENCED),
        Done("cut half record"),
    ]


def test_a_follower_connects_when_remoting_has_given_the_log_up(world: HostWorld) -> None:
    _begun(world)
    world.host.show(status(epochs=EPOCHS))
    world.host.take_role(Follow(1, "10.0.0.1:10911", 7))
    assert world.done == [Done("taken", MemberRole.FOLLOW), Done("follow", (2, 7, None))]
    assert world.counters[MASTER_EPOCH] == 7
    world.host.take_role(Transfer())
    world.host.take_role(HangUp())
    assert world.done[2:] == [Done("transfer"), Done("hang up")]
    world.done.clear()
    world.host.do(StopReplication())
    assert world.done == [Done("stop")], "remoting does not write: no order is needed"


def test_remoting_finds_what_belongs_to_an_order(world: HostWorld) -> None:
    _begun(world)
    world.host.show(status(epochs=EPOCHS))
    world.host.take_role(Follow(1, "10.0.0.1:10911", 7))
    order = world.counters[MEMBER_ORDER]
    follow = OrderedRole(order, MemberRole.FOLLOW, 2, 1, "10.0.0.1:10911", 7)
    assert world.host.ordered == follow
    world.host.register(RegisterAtNameServers(2, 7))
    world.host.show(status(is_master=True))
    world.host.take_role(Lead(7))
    order = world.counters[MEMBER_ORDER]
    assert world.host.ordered == OrderedRole(order, MemberRole.LEAD, 2, 2, None, 7)
    world.host.register(RegisterAtNameServers(0, 7))
    world.host.take_role(Fenced())
    order = world.counters[MEMBER_ORDER]
    assert world.host.ordered == OrderedRole(order, MemberRole.FENCED, 2, None, None, 7)
    registered = [done.detail for done in world.done if done.what == "register"]
    assert registered == [
        (RegisterAtNameServers(2, 7), "10.0.0.1:10911"),
        (RegisterAtNameServers(0, 7), None),
    ]


def test_a_stop_ends_the_wait_for_remoting(tmp_path: Path) -> None:
    world = HostWorld(tmp_path, hangs=True)
    world.host.begin()
    world.stopping.set()
    with pytest.raises(MemberStoppedError):
        world.host.do(StopReplication())
    world.end()


def test_a_wait_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = HostWorld(tmp_path, hangs=True)
    world.host.begin()
    stopped = threading.Thread(target=world.host.do, args=(StopReplication(),), daemon=True)
    stopped.start()
    try:
        wait_until(lambda: "is not carried out by process remoting" in caplog.text)
    finally:
        world.remoting.hangs.clear()
        stopped.join(5)
        world.end()


# What is shown


@pytest.mark.parametrize(
    ("puts", "refused", "until_ms"),
    [
        (Puts(None, None), 0, NO_BOUND),
        (Puts(None, 90_000), 0, 90_000),
        (Puts(None, 0), 0, 0),
        (Puts(TOO_FEW_MEMBERS, None), 1, NO_BOUND),
        (Puts(NOT_MASTER, None), 14, NO_BOUND),
    ],
)
def test_puts(world: HostWorld, puts: Puts, refused: int, until_ms: int) -> None:
    world.host.show(status(is_master=True, puts=puts))
    counters = world.counters
    assert (counters[PUTS_REFUSED], counters[PUTS_UNTIL_MS]) == (refused, until_ms)


def test_offsets_are_shown_and_rung_for_when_they_move(world: HostWorld) -> None:
    world.host.show(status(is_master=True, confirm=600, acknowledged=700))
    counters = world.counters
    assert (counters[CONFIRM_OFFSET], counters[REPLICATED_OFFSET]) == (600, 700)
    assert world.rings == ["store", "remoting"]
    world.host.show(status(is_master=True, confirm=600, acknowledged=700))
    assert world.rings == ["store", "remoting"]


def test_without_all_ack_a_master_s_readers_do_not_wait_for_this_process(tmp_path: Path) -> None:
    world = HostWorld(tmp_path, all_ack=False)
    world.host.show(status(is_master=True, confirm=600))
    assert world.counters[CONFIRM_OFFSET] == NO_BOUND
    world.host.show(status(is_master=False, confirm=600))
    assert world.counters[CONFIRM_OFFSET] == 600, "a slave's may be cut"
    world.end()


def test_without_all_ack_nobody_waits_for_the_growth_of_the_log(tmp_path: Path) -> None:
    world = _begun(HostWorld(tmp_path, all_ack=False))
    world.host.show(status(is_master=True, epochs=EPOCHS))
    world.host.take_role(Lead(7))
    assert Done("lead", (EPOCHS, 7, False)) in world.done
    world.end()


def test_frames_say_what_consumers_may_read_here(world: HostWorld) -> None:
    _begun(world)
    world.host.show(status(is_master=True, confirm=600, epochs=EPOCHS))
    world.host.take_role(Lead(7))
    world.counters[MAX_PHY_OFFSET] = 900
    assert world.replication.confirm() == 600
    world.counters[CONFIRM_OFFSET] = NO_BOUND
    assert world.replication.confirm() == 900


def test_the_set_is_shown_in_the_status(world: HostWorld) -> None:
    for members in ((1, 2), (1, 2), (1,)):
        world.host.show(status(is_master=True, members=frozenset(members)))
    assert world.replication.sets == [frozenset((1, 2)), frozenset((1,))]


def test_log_ends(tmp_path: Path) -> None:
    for sync_flush, counted_end in ((False, 900), (True, 500)):
        world = HostWorld(tmp_path, sync_flush=sync_flush)
        world.counters[MAX_PHY_OFFSET] = 900
        world.counters[FLUSHED_OFFSET] = 500
        assert world.host.log_ends() == LogEnds(900, counted_end)
        world.end()


# Steps with the log


def test_all_of_the_log_is_flushed(world: HostWorld) -> None:
    world.counters[MAX_PHY_OFFSET] = 900
    world.counters[FLUSHED_OFFSET] = 500
    world.host.do(FlushLog())
    assert world.done == [Done("sync", (500, 900))]


def _cut(world: HostWorld, cut_to: int, epochs: EpochList) -> None:
    def cut() -> None:
        for step in CUT_STEPS:
            world.host.do(CutLog(step, cut_to, epochs))

    with pytest.raises(MemberStoppedError):
        cut()


def test_a_cut_is_asked_for_and_the_store_is_opened_anew(world: HostWorld, tmp_path: Path) -> None:
    world.counters[MAX_PHY_OFFSET] = 900
    _cut(world, 600, epoch_list([(1, 0)]))
    assert world.whats == ["truncate to 600", "stop", "reopen"]
    written = decode_epochs((tmp_path / "epochFileCheckpoint").read_bytes())
    assert written == epoch_list([(1, 0)])


def test_an_open_store_is_cut_and_the_link_begins_anew(tmp_path: Path) -> None:
    """A link publishes what it has until it is closed, so that it is closed before the cut."""
    world = HostWorld(tmp_path)
    try:
        _begun(world)
        world.cuts_open_stores = True
        world.counters[MAX_PHY_OFFSET] = 900
        world.host.show(status(epochs=EPOCHS))
        for step in CUT_STEPS:
            world.host.do(CutLog(step, 600, epoch_list([(1, 0)])))
        world.host.take_role(Transfer())
        world.host.take_role(Transfer())
        assert world.whats == [
            "truncate to 600",
            "stop",
            "cut",
            "follow",
            "transfer",
        ]
    finally:
        world.end()


def test_a_weaker_mode_never_cuts_an_open_store(tmp_path: Path) -> None:
    """What a leader took there was shown, or is being shown, to consumers."""
    world = HostWorld(tmp_path, all_ack=False)
    try:
        world.cuts_open_stores = True
        world.counters[MAX_PHY_OFFSET] = 900
        _cut(world, 600, epoch_list([(1, 0)]))
        assert world.whats == ["truncate to 600", "stop", "reopen"]
    finally:
        world.end()


def test_a_cut_that_was_refused_before_ends_no_process(world: HostWorld) -> None:
    world.refuses = True
    world.counters[MAX_PHY_OFFSET] = 900
    with pytest.raises(CutRefusedError, match="refused before"):
        world.host.do(CutLog(CUT_STEPS[0], 600, EpochList()))
    assert world.done == []


def test_a_cut_of_everything_starts_over(world: HostWorld) -> None:
    """A file of the log is never cut at its first byte: that of the log neither."""
    world.counters[MAX_PHY_OFFSET] = 9_000
    world.counters[MIN_PHY_OFFSET] = 4_096
    _cut(world, 4_096, EpochList())
    assert world.whats == ["start_over to 4096", "stop", "reopen"]


def test_each_role_is_noted_when_it_is_taken(world: HostWorld, tmp_path: Path) -> None:
    _begun(world)
    taken = Taken(Cause.NOTIFIED, 6, 1, frozenset({2, 3}), 600, 693)
    for role, is_master in ((Lead(7), True), (Follow(1, "10.0.0.1:10911", 7), False)):
        world.host.show(status(is_master=is_master, taken=taken))
        world.host.take_role(role)
    world.host.take_role(Fenced())
    world.host.take_role(HangUp())
    roles = read_roles(tmp_path / "memberRoles.json")
    told = [(role.role, role.cause, role.id, role.master, role.epoch) for role in roles]
    assert told == [
        ("LEAD", "notified", 2, 2, 7),
        ("FOLLOW", "notified", 2, 1, 7),
        ("FENCED", "notified", 2, 1, 7),
    ]
    assert {(role.old_epoch, role.confirm_offset, role.log_end) for role in roles} == {
        (6, 600, 693)
    }


def test_the_group_is_shown(world: HostWorld) -> None:
    counters = world.counters
    slots = (MEMBER_ID, MASTER_BROKER_ID, SYNC_STATE_SET_SIZE, TWO_MASTERS_SEEN)
    counters[TWO_MASTERS_SEEN] = 5  # Of a predecessor.
    world.host.show(status(is_master=True, members=frozenset({1, 2})))
    assert [counters[slot] for slot in slots] == [2, 2, 2, 5]
    world.host.show(status(is_master=True, members=frozenset({2}), two_masters_seen=2))
    assert [counters[slot] for slot in slots] == [2, 2, 1, 7]
    world.host.show(status(two_masters_seen=2))
    assert [counters[slot] for slot in slots] == [2, 1, 0, 7]
