"""ha.group_transfer_service: what is published, when the bell rings, what the log says."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.control_slots import REPLICA_COUNT, REPLICA_FLUSHED_OFFSET, REPLICATED_OFFSET
from ha.group_transfer_service import (
    FALL_BEHIND_LINE_MS,
    GroupTransferService,
    replicated_offset_of,
)
from ha.ha_config import HaConfig
from ha.refusals import RefusalReason
from ha.slave_progress import ReplicaState
from tests.ha.replica_world import ReplicaWorld
from tests.support.deadline import wait_until

LOG = "ha.group_transfer_service"
ACKS = st.lists(st.integers(0, 2**62), max_size=8)


@given(ACKS, st.integers(1, 9))
def test_as_many_replicas_as_are_needed_hold_it(acks: list[int], needed: int) -> None:
    replicated = replicated_offset_of(acks, needed)
    holders = sum(ack >= replicated for ack in acks)
    copies = max(needed, 2) - 1
    if len(acks) >= copies:
        assert holders >= copies
        assert sum(ack > replicated for ack in acks) < copies, "and it is the largest such offset"
    else:
        assert replicated == 0


@given(ACKS.filter(bool), st.integers(1, 9), st.data())
def test_it_never_rises_when_a_replica_goes(
    acks: list[int], needed: int, data: st.DataObject
) -> None:
    gone = data.draw(st.integers(0, len(acks) - 1))
    fewer = acks[:gone] + acks[gone + 1 :]
    assert replicated_offset_of(fewer, needed) <= replicated_offset_of(acks, needed)


def test_only_slaves_that_report_their_disk_count_as_flushed() -> None:
    world = ReplicaWorld(in_sync_replicas=3)
    world.log_ends_at(10_000)
    counters = world.page.counters
    world.connect("10.0.0.1:1", 700)
    first = world.connect("10.0.0.2:1", 500, reports_flushed=True)
    assert (world.published[0], counters[REPLICA_FLUSHED_OFFSET]) == (500, 0)
    second = world.connect("10.0.0.3:1", 300, reports_flushed=True)
    assert (world.published[0], counters[REPLICA_FLUSHED_OFFSET]) == (500, 300)
    world.ack(second, 600)
    assert (world.published[0], counters[REPLICA_FLUSHED_OFFSET]) == (600, 500)
    world.service.remove(first, None, "stopped")
    assert counters[REPLICA_FLUSHED_OFFSET] == 0
    world.connect("10.0.0.2:2", 650, reports_flushed=True)
    assert counters[REPLICA_FLUSHED_OFFSET] == 600
    world.service.shutdown()
    assert counters[REPLICA_FLUSHED_OFFSET] == 0


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["connect", "ack", "disconnect"]),
        st.integers(0, 3),
        st.integers(0, 500),
    ),
    max_size=30,
)


@given(EVENTS, st.integers(1, 4))
def test_published_is_never_more_than_distinct_live_replicas_hold(
    events: list[tuple[str, int, int]], needed: int
) -> None:
    world = ReplicaWorld(in_sync_replicas=needed)
    world.log_ends_at(10_000)
    live = {}
    for number, (what, slave, offset) in enumerate(events):
        if what == "connect":  # every slave has an ip, and announces no other's name
            live[number] = (slave, world.connect(f"10.0.0.{slave}:{number}", offset))
            world.registry.announce(f"10.0.0.{slave}:{number}", "b", slave + 1)
        elif live:
            key = sorted(live)[slave % len(live)]
            progress = live[key][1]
            if what == "ack":
                world.ack(progress, max(progress.ack_offset, offset))
            else:
                world.service.remove(live.pop(key)[1], RefusalReason.NETWORK, "gone")
        world.service.evaluate()
        newest = {slave: progress.ack_offset for slave, progress in live.values()}
        replicated, count = world.published
        assert replicated == replicated_offset_of(newest.values(), needed)
        assert count <= len(newest)


def test_one_replica() -> None:
    world = ReplicaWorld()
    world.log_ends_at(5000)
    assert world.published == (0, 0)
    slave = world.connect("10.0.0.1:1", 4500)
    assert world.published == (4500, 1)
    world.ack(slave, 5000)
    assert world.published == (5000, 1)
    world.service.remove(slave, RefusalReason.NETWORK, "reset by peer")
    assert world.published == (0, 0), "no maximum that outlives its replica"


def test_three_copies_need_the_second_largest_ack() -> None:
    world = ReplicaWorld(in_sync_replicas=3)
    world.log_ends_at(5000)
    first = world.connect("10.0.0.1:1", 5000)
    assert world.published == (0, 1), "one replica is not enough, whatever it holds"
    second = world.connect("10.0.0.2:1", 4700)
    assert world.published == (4700, 2)
    third = world.connect("10.0.0.3:1", 4900)
    assert world.published == (4900, 3)
    world.service.remove(first, None, "stopped")
    assert world.published == (4700, 2)
    world.service.remove(third, None, "stopped")
    world.service.remove(third, None, "stopped")
    assert world.published == (0, 1)
    world.ack(second, 5000)
    assert world.published == (0, 1)


def test_the_same_slave_twice_is_one_copy_and_its_newest_connection_counts() -> None:
    world = ReplicaWorld(in_sync_replicas=3)
    world.log_ends_at(5000)
    world.registry.set_members("b", {0: "10.0.0.9", 1: "10.0.0.1"})
    old = world.connect("10.0.0.1:1", 5000)
    world.connect("10.0.0.1:2", 4600)
    assert world.published == (0, 1)
    world.service.remove(old, RefusalReason.SILENT, "hung")
    assert world.published == (0, 1)


def test_a_replica_far_behind_is_no_replica_but_its_acks_are_true() -> None:
    world = ReplicaWorld(fallbehind_max=1000)
    world.log_ends_at(5000)
    slave = world.connect("10.0.0.1:1", 4000)
    assert world.published == (4000, 0)
    world.ack(slave, 4001)
    assert world.published == (4001, 1)
    world.log_ends_at(6000)
    world.service.evaluate()
    assert world.published == (4001, 0)


def test_the_bell_rings_for_changes_only() -> None:
    world = ReplicaWorld()
    world.log_ends_at(5000)
    slow = world.connect("10.0.0.1:1", 4500)
    fast = world.connect("10.0.0.2:1", 4900)
    assert world.rings == [(4500, 1), (4900, 2)]
    world.ack(slow, 4800)
    world.ack(fast, 4900)
    world.service.evaluate()
    assert len(world.rings) == 2, "nothing that is published changed"
    world.ack(slow, 4950)
    assert world.rings[2:] == [(4950, 2)]


def test_the_thread_sees_who_falls_behind_without_a_word() -> None:
    world = ReplicaWorld(fallbehind_max=1000)
    world.log_ends_at(5000)
    slave = world.connect("10.0.0.1:1", 5000)
    assert slave.state is ReplicaState.in_sync
    world.service.start()
    try:
        world.log_ends_at(6000)
        wait_until(lambda: world.published == (5000, 0))
        wait_until(lambda: slave.state is ReplicaState.catching_up)
    finally:
        assert world.service.shutdown()


def test_zero_at_the_start_and_for_good_after_the_stop() -> None:
    world = ReplicaWorld()
    world.log_ends_at(5000)
    slave = world.connect("10.0.0.1:1", 4000)
    assert world.published == (4000, 0)
    world.service.start()
    assert world.service.shutdown()
    assert world.published == (0, 0)
    assert world.rings[-1] == (0, 0)
    world.ack(slave, 4500)
    world.service.remove(slave, None, "stopped")
    world.connect("10.0.0.1:2", 5000)
    assert world.published == (0, 0)


def test_a_restarted_process_begins_at_zero() -> None:
    world = ReplicaWorld()
    world.page.counters[REPLICATED_OFFSET] = world.page.counters[REPLICA_COUNT] = 77
    GroupTransferService(
        world.page, HaConfig(), world.clock, world.registry, world.marks, lambda: None
    )
    assert world.published == (0, 0)


def test_changes_of_state_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG)
    world = ReplicaWorld(fallbehind_max=1000)
    world.log_ends_at(5000)
    slave = world.connect("10.0.0.1:4711", 4500)
    world.ack(slave, 5000)
    for end in (5500, 6500, 6600):
        world.log_ends_at(end)
        world.service.evaluate()
    world.ack(slave, 6600)
    world.service.evaluate()
    world.service.remove(slave, RefusalReason.SILENT, "nothing for 20000 ms")
    assert [record.getMessage() for record in caplog.records] == [
        "replica 10.0.0.1: connected from 10.0.0.1:4711, starts at 4500, 500 bytes behind",
        "replica 10.0.0.1: in sync",
        "replica 10.0.0.1: fell behind by 1500 bytes",
        "replica 10.0.0.1: in sync",
        "replica 10.0.0.1: disconnected from 10.0.0.1:4711 at 6600: silent: nothing for 20000 ms",
    ]


def test_the_line_of_the_original_each_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOG)
    world = ReplicaWorld()
    world.log_ends_at(5000)
    world.connect("10.0.0.1:1", 4500)
    world.service.remove(world.connect("10.0.0.2:1", 4000), None, "stopped")
    caplog.clear()
    world.service.wakeup()
    world.service.step()
    assert not caplog.records
    world.clock.advance(FALL_BEHIND_LINE_MS)
    for _ in range(2):
        world.service.wakeup()
        world.service.step()
    assert [record.getMessage() for record in caplog.records] == [
        "slave fall behind: 10.0.0.1 500 bytes (catching_up), 10.0.0.2 1000 bytes (disconnected)"
    ]


def test_it_looks_seldom_while_nobody_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ReplicaWorld()
    waits: list[float] = []
    woken: list[bool] = []
    monkeypatch.setattr(world.service, "wait_for_running", waits.append)
    monkeypatch.setattr(world.service, "wakeup", lambda: woken.append(True))
    world.service.step()
    progress = world.connect("10.0.0.1:1", 0)
    assert woken == [True]
    world.service.step()
    world.service.remove(progress, RefusalReason.NETWORK, "gone")
    world.service.step()
    assert waits == [1_000, 100, 1_000]
