"""MemberFacts: what a member shows of its group, from the slots and the file of its roles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.failover.messages import Cause, Taken
from broker.failover.role_log import RoleLog
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
    world.counters[PUTS_UNTIL_MS] = NO_BOUND
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


def test_how_long_there_is_no_master(world: World) -> None:
    world.counters[WITHOUT_MASTER_MS] = 4_000
    assert world.facts.without_master_ms() == 4_000
    world.counters[MASTER_SEEN_MS] = 99_200
    assert world.facts.without_master_ms() == 0
    world.clock.advance(3_000)
    assert world.facts.without_master_ms() == 3_800


def test_roles_are_read_when_there_is_a_new_one(world: World) -> None:
    assert world.facts.roles_after(None) == []
    world.log.took(MemberRole.FENCED, 6, TAKEN)
    world.log.took(MemberRole.LEAD, 7, TAKEN)
    assert [role.role for role in world.facts.roles_after(None)] == ["FENCED", "LEAD"]
    assert [role.role for role in world.facts.roles_after(1)] == ["LEAD"]
    assert world.facts.roles_after(2) == []


def test_a_damaged_file_costs_no_line(world: World, tmp_path: Path) -> None:
    world.log.took(MemberRole.FENCED, 6, TAKEN)
    (tmp_path / "memberRoles.json").write_bytes(b"{")
    assert world.facts.roles_after(None) == []
    assert world.facts.line()["role"] == "FENCED"


def test_without_controller_mode_there_is_nothing_to_show(tmp_path: Path) -> None:
    world = World(tmp_path, enableControllerMode="false")
    assert find_member_facts(world.options, world.counters, world.clock) is None
