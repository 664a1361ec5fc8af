"""What is shown of the replicas while process ha is dead or hangs, and when it is back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.metrics import metrics_table as table
from ha.control_slots import REPLICA_COUNT
from remoting.metrics.metric import Metric
from store.control_slots import MAX_PHY_OFFSET
from tests.broker.metrics_world import MetricsWorld

A = ("g:1", "SYNC_MASTER")
B = ("g:2", "SYNC_MASTER")
STATE = table.HA_STATE_SECONDS


class HaWorld(MetricsWorld):
    """Replica A has all, replica B is 100 bytes (4 s) behind; ha looked just now."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.page.counters[MAX_PHY_OFFSET] = 10_000
        self.page.counters[REPLICA_COUNT] = 2
        for replica, behind, age in ((A, 0, 0), (B, 100, 4)):
            self.ha(table.HA_REPLICA_CONNECTED, 1, *replica)
            self.ha(table.HA_REPLICA_IN_SYNC, 1, *replica)
            self.ha(table.HA_REPLICA_LAG_BYTES, behind, *replica)
            self.ha(table.HA_REPLICA_LAG_SECONDS, age, *replica)
            self.ha(table.HA_REPLICA_LAG_EXACT, 1, *replica)
            self.ha(table.HA_REPLICA_LEFT, 0, *replica)
            self.ha(table.HA_ACK_OFFSET, 10_000 - behind, *replica)
        self.ha(STATE, 60, "g:1", "in_sync")
        self.ha(STATE, 50, "g:2", "in_sync")
        self.ha(STATE, 10, "g:2", "disconnected")
        self.ha(table.HA_MASTER_MAX_OFFSET, 10_000)
        self.ha(table.HA_UNREPLICATED_BYTES, 0)
        self.ha(table.HA_OLDEST_UNREPLICATED, 0)
        self.ha(table.HA_UNREPLICATED_EXACT, 1)
        self.looks()

    def ha(self, metric: Metric, value: float, *labels: str) -> None:
        self.set(metric, value, *labels, ha=True)

    def looks(self) -> None:
        self.ha(table.HA_OBSERVED_MS, self.clock.monotonic_ms())

    def kill(self) -> None:
        self.children[1].process = None

    def one(self, metric: Metric, *labels: str) -> float:
        """labels: in the order of their names."""
        return self.samples()[metric.name][labels]

    def disconnected(self) -> dict[str, float]:
        found = self.samples()[STATE.name]
        return {labels[0]: value for labels, value in found.items() if labels[1] == "disconnected"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[HaWorld]:
    made = HaWorld(tmp_path)
    yield made
    made.close()


def test_while_it_looks_the_slots_are_shown(world: HaWorld) -> None:
    world.clock.advance(1_900)
    world.page.counters[MAX_PHY_OFFSET] = 12_000
    samples = world.samples()
    assert samples[table.HA_REPLICA_CONNECTED.name] == {A: 1, B: 1}
    assert samples[table.HA_REPLICA_LAG_BYTES.name] == {A: 0, B: 100}
    assert samples[table.HA_REPLICAS.name] == {(): 2}
    assert world.disconnected() == {"g:2": 10}
    assert table.HA_OBSERVED_MS.name not in samples


def test_a_dead_process_has_no_replicas_at_once(world: HaWorld) -> None:
    world.clock.advance(500)
    world.kill()
    samples = world.samples()
    assert samples[table.HA_REPLICA_CONNECTED.name] == {A: 0, B: 0}
    assert samples[table.HA_REPLICA_IN_SYNC.name] == {A: 0, B: 0}
    assert samples[table.HA_REPLICAS.name] == {(): 0}
    # A gap that short is not disconnection: ha says what it was when it is back.
    assert world.disconnected() == {"g:2": 10}


def test_a_restarted_process_has_none_until_it_looks(world: HaWorld) -> None:
    """What its predecessor wrote is no news."""
    world.clock.advance(500)
    ha = next(child for child in world.children if child.spec.name == "ha")
    ha.started_ms = world.clock.monotonic_ms()
    world.clock.advance(100)
    assert world.samples()[table.HA_REPLICA_CONNECTED.name] == {A: 0, B: 0}
    world.clock.advance(100)
    world.set(table.HA_OBSERVED_MS, world.clock.monotonic_ms(), ha=True)
    assert world.samples()[table.HA_REPLICA_CONNECTED.name] == {A: 1, B: 1}


def test_a_hung_process_has_none_after_two_seconds(world: HaWorld) -> None:
    world.clock.advance(2_500)
    samples = world.samples()
    assert samples[table.HA_REPLICA_CONNECTED.name] == {A: 0, B: 0}
    assert samples[table.HA_REPLICAS.name] == {(): 0}
    assert world.disconnected() == {"g:1": 2.5, "g:2": 12.5}
    assert samples["rocketmq_process_up"]["ha",] == 1


def test_what_it_knew_gets_older(world: HaWorld) -> None:
    world.clock.advance(3_000)
    samples = world.samples()
    assert samples[table.HA_REPLICA_LAG_BYTES.name] == {A: 0, B: 100}
    assert samples[table.HA_REPLICA_LAG_SECONDS.name] == {A: 0, B: 7}
    # B may have acknowledged something after ha looked last; A lacks nothing.
    assert samples[table.HA_REPLICA_LAG_EXACT.name] == {A: 1, B: 0}
    assert samples[table.HA_UNREPLICATED_EXACT.name] == {(): 1}
    world.page.counters[MAX_PHY_OFFSET] = 10_500
    samples = world.samples()
    assert samples[table.HA_REPLICA_LAG_BYTES.name] == {A: 500, B: 600}
    assert samples[table.HA_REPLICA_LAG_SECONDS.name] == {A: 3, B: 7}
    assert samples[table.HA_REPLICA_LAG_EXACT.name] == {A: 0, B: 0}
    assert samples[table.HA_ACK_OFFSET.name] == {A: 10_000, B: 9_900}
    left = world.clock.now_ms() / 1000 - 3
    assert samples[table.HA_REPLICA_LEFT.name] == {A: left, B: left}
    assert samples[table.HA_MASTER_MAX_OFFSET.name] == {(): 10_500}
    assert samples[table.HA_UNREPLICATED_BYTES.name] == {(): 500}
    assert samples[table.HA_OLDEST_UNREPLICATED.name] == {(): 3}
    assert samples[table.HA_UNREPLICATED_EXACT.name] == {(): 0}


def test_disconnected_time_never_goes_back(world: HaWorld) -> None:
    """ha is back: it says that it looks before it has booked the gap."""
    world.clock.advance(20_000)
    world.kill()
    assert world.disconnected() == {"g:1": 20, "g:2": 30}
    world.children[1].process = "runs"
    world.looks()
    assert world.disconnected() == {"g:1": 20, "g:2": 30}
    world.ha(STATE, 20, "g:1", "disconnected")
    world.ha(STATE, 30, "g:2", "disconnected")
    assert world.disconnected() == {"g:1": 20, "g:2": 30}
    world.ha(STATE, 31, "g:2", "disconnected")
    assert world.disconnected() == {"g:1": 20, "g:2": 31}


def test_a_replica_that_is_forgotten_begins_anew(world: HaWorld) -> None:
    world.clock.advance(20_000)
    assert world.disconnected()["g:2"] == 30
    world.looks()
    for state in ("in_sync", "disconnected"):
        world.ha_slots.hide(STATE.name, ("g:2", state))
    assert "g:2" not in world.disconnected()
    world.ha(STATE, 1, "g:2", "disconnected")
    assert world.disconnected()["g:2"] == 1


def test_a_broker_without_replicas_shows_none(tmp_path: Path) -> None:
    world = MetricsWorld(tmp_path)
    world.children[1].process = None
    samples = world.samples()
    assert samples[table.HA_REPLICAS.name] == {(): 0}
    assert STATE.name not in samples
    world.close()


def test_a_slave_whose_link_is_not_watched_is_not_connected(world: HaWorld) -> None:
    world.ha(table.HA_CLIENT_CONNECTED, 1)
    world.ha(table.HA_CLIENT_RECEIVED, 77)
    assert world.one(table.HA_CLIENT_CONNECTED) == 1
    world.kill()
    assert world.one(table.HA_CLIENT_CONNECTED) == 0
    assert world.one(table.HA_CLIENT_RECEIVED) == 77
