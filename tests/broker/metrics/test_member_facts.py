"""MemberFacts: what a member shows of its group, from the slots and the file of its roles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.failover.messages import Cause, Taken
from broker.failover.role_log import RoleLog
from broker.metrics import member_facts
from broker.metrics import metrics_table as table
from broker.metrics.member_facts import MemberFacts, find_member_facts
from broker.settings.startup_options import StartupOptions
from ha.control_slots import (
    MASTER_BROKER_ID,
    MASTER_EPOCH,
    MASTER_SEEN_MS,
    MEMBER_ID,
    MEMBER_ORDER,
    ORDER_TAKEN,
    PUTS_REFUSED,
    PUTS_UNTIL_MS,
    SYNC_STATE_SET_SIZE,
    TWO_MASTERS_SEEN,
    WITHOUT_MASTER_MS,
    MemberRole,
    order_after,
)
from ha.taken_role import TakenRole, read_roles
from store.control_slots import CONFIRM_OFFSET, MAX_PHY_OFFSET, NO_BOUND
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import fresh_page

TAKEN = Taken(Cause.POLLED, 6, 1, frozenset({2, 3}), 600, 693)


class World:
    def __init__(self, root: Path, **settings: str) -> None:
        self.page = fresh_page()
        self.counters = self.page.counters
        self.clock = ManualClock(monotonic_ms=100_000)
        self.counters[MEMBER_ID] = 2
        self.counters[PUTS_UNTIL_MS] = NO_BOUND
        conf = {"enableControllerMode": "true", "minInSyncReplicas": "2", **settings}
        self.options = StartupOptions.from_settings({"storePathRootDir": str(root), **conf})
        self.log = RoleLog(root / "memberRoles.json", self.counters, self.clock)
        self.facts = MemberFacts(self.options, self.counters, self.clock)

    def order(self, role: MemberRole, *, taken: bool = True) -> None:
        order = self.counters[MEMBER_ORDER] = order_after(self.counters[MEMBER_ORDER], role)
        if taken:
            self.counters[ORDER_TAKEN] = order

    def lead(self) -> None:
        self.order(MemberRole.LEAD)
        self.counters[MASTER_EPOCH] = 7
        self.counters[MASTER_BROKER_ID] = 2
        self.counters[SYNC_STATE_SET_SIZE] = 2

    def shown(self) -> dict[str, Any]:
        return {metric.name: rows() for metric, rows in self.facts.sources().items() if rows()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_only_who_has_taken_the_order_leads(world: World) -> None:
    world.order(MemberRole.LEAD, taken=False)
    assert not world.facts.leads
    assert world.shown()[table.HA_BROKER_ID.name] == [((), [2.0])]
    world.order(MemberRole.LEAD)
    assert world.facts.leads
    assert world.shown()[table.HA_BROKER_ID.name] == [((), [0.0])]


def test_what_a_leader_shows(world: World) -> None:
    world.lead()
    world.counters[CONFIRM_OFFSET] = NO_BOUND
    world.counters[MAX_PHY_OFFSET] = 693
    world.counters[PUTS_UNTIL_MS] = 102_500
    world.counters[MASTER_SEEN_MS] = 99_900
    world.counters[WITHOUT_MASTER_MS] = 1_200
    world.counters[TWO_MASTERS_SEEN] = 1
    world.log.took(MemberRole.LEAD, 7, TAKEN)
    values = {
        "rocketmq_ha_leads": 1,
        "rocketmq_ha_takes_messages": 1,
        "rocketmq_ha_broker_id": 0,
        "rocketmq_ha_epoch": 7,
        "rocketmq_ha_sync_state_set_size": 2,
        "rocketmq_ha_sync_state_set_minimum": 2,
        "rocketmq_ha_confirm_offset_bytes": 693,
        "rocketmq_ha_lease_seconds": 2.5,
        "rocketmq_ha_master_absent_seconds": 0,
        "rocketmq_ha_without_master_seconds_total": 1.2,
        "rocketmq_ha_two_masters_total": 1,
        "rocketmq_ha_roles_taken_total": 1,
    }
    shown = world.shown()
    last = shown.pop("rocketmq_ha_last_election_timestamp_seconds")
    assert last == [(("polled",), [world.clock.now_ms() / 1000])]
    assert shown == {name: [((), [float(value)])] for name, value in values.items()}


def test_a_lease_that_is_out_or_a_set_that_is_too_small_takes_nothing(world: World) -> None:
    world.lead()
    assert world.facts.takes_messages()
    world.counters[PUTS_UNTIL_MS] = 100_000
    assert (world.facts.lease_ms(), world.facts.takes_messages()) == (0, False)
    world.clock.advance(1)
    assert (world.facts.lease_ms(), world.facts.takes_messages()) == (0, False)
    world.counters[PUTS_UNTIL_MS] = NO_BOUND
    assert (world.facts.lease_ms(), world.facts.takes_messages()) == (None, True)
    world.counters[PUTS_REFUSED] = 1
    assert not world.facts.takes_messages()
    world.order(MemberRole.FOLLOW)
    assert world.facts.lease_ms() is None


def test_a_follower_shows_no_set_and_no_lease(world: World) -> None:
    world.order(MemberRole.FOLLOW)
    world.counters[PUTS_UNTIL_MS] = 0
    shown = world.shown()
    for metric in (table.HA_SET_SIZE, table.HA_SET_MINIMUM, table.HA_LEASE, table.HA_LAST_ELECTION):
        assert metric.name not in shown
    assert shown[table.HA_LEADS.name] == [((), [0.0])]
    assert shown[table.HA_TAKES_MESSAGES.name] == [((), [0.0])]
    world.counters[MEMBER_ID] = 0
    assert table.HA_BROKER_ID.name not in world.shown()


def everything_set(world: World) -> None:
    """A value of its own in each slot."""
    counters = world.counters
    counters[MASTER_EPOCH], counters[SYNC_STATE_SET_SIZE] = 7, 3
    counters[CONFIRM_OFFSET], counters[MAX_PHY_OFFSET] = 600, 693
    counters[PUTS_UNTIL_MS], counters[MASTER_SEEN_MS] = 104_000, 97_000
    counters[WITHOUT_MASTER_MS], counters[TWO_MASTERS_SEEN] = 4_200, 5
    world.log.took(MemberRole.FENCED, 6, TAKEN)
    world.clock.advance(1_000)
    world.log.took(MemberRole.LEAD, 7, TAKEN)
    world.clock.advance(500)


def test_a_line_of_a_leader_and_of_who_knows_no_master(world: World) -> None:
    everything_set(world)
    world.lead()
    line = {
        "role": "LEAD",
        "leads": True,
        "broker_id": 0,
        "epoch": 7,
        "master": 2,
        "since": 101_000,
        "set_size": 2,
        "min_in_sync": 2,
        "takes_messages": True,
        "confirm_offset": 600,
        "lease_ms": 2_500,
        "without_master_ms": 4_200,
        "two_masters_seen": 5,
    }
    assert world.facts.line() == line
    world.order(MemberRole.FENCED)
    world.counters[MASTER_BROKER_ID] = world.counters[SYNC_STATE_SET_SIZE] = 0
    changes = {"role": "FENCED", "leads": False, "broker_id": 2, "master": None, "set_size": 0}
    assert world.facts.line() == line | changes | {"takes_messages": False, "lease_ms": None}


def test_the_group_as_an_operator_asks_for_it(world: World) -> None:
    assert world.facts.status(())["lastRole"] is None
    everything_set(world)
    world.lead()
    status = {
        "role": "lead",
        "takesMessages": True,
        "brokerId": 0,
        "memberId": 2,
        "epoch": 7,
        "masterId": 2,
        "syncStateSet": [2, 3, 9],
        "minInSyncReplicas": 2,
        "confirmOffset": 600,
        "leaseMillis": 2_500,
        "withoutMasterMillis": 4_500,
        "withoutMasterTotalMillis": 4_200,
        "twoMastersSeen": 5,
        "lastRole": {
            "role": "lead",
            "cause": "polled",
            "epoch": 7,
            "oldEpoch": 6,
            "oldMasterId": 1,
            "timestamp": world.clock.now_ms() - 500,
            "withoutMasterMillis": 4_000,
            "confirmOffset": 600,
            "logEnd": 693,
        },
    }
    assert world.facts.status(frozenset({3, 9, 2})) == status
    world.counters[PUTS_REFUSED] = 1
    assert world.facts.status(()) == status | {"takesMessages": False, "syncStateSet": []}
    world.order(MemberRole.FOLLOW)
    assert world.facts.status(())["brokerId"] == 2


def test_how_long_there_is_no_master(world: World) -> None:
    world.counters[WITHOUT_MASTER_MS] = 4_000
    assert world.facts.without_master_ms() == 4_000
    world.counters[MASTER_SEEN_MS] = 99_200
    assert world.facts.without_master_ms() == 0
    world.clock.advance(3_000)
    assert world.facts.without_master_ms() == 3_800


def test_roles_are_read_when_there_is_a_new_one(world: World, tmp_path: Path) -> None:
    assert world.facts.roles_after(None) == []
    world.log.took(MemberRole.FENCED, 6, TAKEN)
    world.log.took(MemberRole.LEAD, 7, TAKEN)
    assert [role.role for role in world.facts.roles_after(None)] == ["FENCED", "LEAD"]
    assert [role.role for role in world.facts.roles_after(1)] == ["LEAD"]
    assert world.facts.roles_after(2) == []
    (tmp_path / "memberRoles.json").unlink()
    assert [role.role for role in world.facts.roles_after(1)] == ["LEAD"], "it was read already"


def test_the_first_line_of_a_life_repeats_the_newest(world: World) -> None:
    for epoch in range(1, 26):
        world.clock.advance(1_000)
        world.log.took(MemberRole.FOLLOW, epoch, TAKEN)
    assert [role.epoch for role in world.facts.roles_after(None)] == [*range(6, 26)]
    assert world.shown()[table.HA_LAST_ELECTION.name] == [
        (("polled",), [world.clock.now_ms() / 1000])
    ]


def test_a_role_that_is_taken_while_the_file_is_read_is_told_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.log.took(MemberRole.FENCED, 6, TAKEN)

    def read(path: Path) -> list[TakenRole]:
        roles = read_roles(path)
        if len(roles) == 1:
            world.log.took(MemberRole.LEAD, 7, TAKEN)
        return roles

    monkeypatch.setattr(member_facts, "read_roles", read)
    assert [role.role for role in world.facts.roles_after(None)] == ["FENCED"]
    assert [role.role for role in world.facts.roles_after(1)] == ["LEAD"]


def test_a_damaged_file_costs_no_line(world: World, tmp_path: Path) -> None:
    world.log.took(MemberRole.FENCED, 6, TAKEN)
    (tmp_path / "memberRoles.json").write_bytes(b"{")
    assert world.facts.roles_after(None) == []
    assert world.facts.line()["role"] == "FENCED"


def test_a_file_that_cannot_be_read_costs_no_line(world: World, tmp_path: Path) -> None:
    world.log.took(MemberRole.FENCED, 6, TAKEN)
    (tmp_path / "memberRoles.json").unlink()
    (tmp_path / "memberRoles.json").mkdir()
    assert world.facts.roles_after(None) == []


def test_without_controller_mode_there_is_nothing_to_show(tmp_path: Path) -> None:
    world = World(tmp_path, enableControllerMode="false")
    assert find_member_facts(world.options, world.counters, world.clock) is None
