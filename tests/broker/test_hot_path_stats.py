"""HotPathStats: what a turn counts, and where it goes."""

from __future__ import annotations

import pytest

from broker.broker_stats_manager import BrokerStatsManager, StatsName
from broker.hot_path_stats import HotPathStats
from broker.store_stats_service import StoreStatsService
from tests.broker.broker_fakes import FakeClock


class World:
    def __init__(self) -> None:
        clock = FakeClock()
        self.manager = BrokerStatsManager(clock, "C")
        self.store = StoreStatsService(clock)
        self.stats = HotPathStats(self.manager, self.store)

    def value(self, name: StatsName, key: str) -> tuple[int, int]:
        item = self.manager.item(name, key)
        return item.value, item.times


@pytest.fixture
def world() -> World:
    return World()


def test_puts(world: World) -> None:
    world.stats.add_put("T", 3, 300)
    world.stats.add_put("T", 1, 50)
    world.stats.add_put("U", 2, 10)
    assert world.value(StatsName.TOPIC_PUT_NUMS, "T") == (4, 4)
    assert world.value(StatsName.TOPIC_PUT_SIZE, "T") == (350, 4)
    assert world.value(StatsName.TOPIC_PUT_NUMS, "U") == (2, 2)
    assert world.manager.broker_put_nums.value == 6
    assert world.store.put_times == 0, "a turn's puts are added at its end"
    world.stats.end_turn(7)
    assert (world.store.put_times, world.store.put_size) == (6, 360)
    assert world.store.put_entire_time_max_ms == 7
    world.stats.end_turn(99)
    assert (world.store.put_times, world.store.put_entire_time_max_ms) == (6, 7)


def test_gets(world: World) -> None:
    world.stats.add_get("G", "T", 32, 3200)
    world.stats.add_get("G", "T", 1, 100)
    world.stats.add_get("G", "T", 0, 0)
    assert world.value(StatsName.GROUP_GET_NUMS, "T@G") == (33, 2)
    assert world.value(StatsName.GROUP_GET_SIZE, "T@G") == (3300, 2)
    assert world.manager.broker_get_nums.value == 33
    store = world.store
    assert (store.get_found_times, store.get_miss_times, store.get_transferred) == (2, 1, 33)
    world.stats.end_turn(5)
    world.stats.add_get("G", "T", 0, 0)
    world.stats.end_turn(3)
    world.stats.end_turn(50)
    assert store.get_entire_time_max_ms == 5


def test_forgotten_counters_are_bound_anew(world: World) -> None:
    world.stats.add_put("T", 1, 1)
    world.stats.add_get("G", "T", 1, 1)
    world.manager.on_topic_deleted("T")
    world.stats.forget()
    world.stats.add_put("T", 5, 5)
    world.stats.add_get("G", "T", 7, 7)
    assert world.value(StatsName.TOPIC_PUT_NUMS, "T") == (5, 5)
    assert world.value(StatsName.GROUP_GET_NUMS, "T@G") == (7, 1)


def test_failed_puts(world: World) -> None:
    world.stats.add_put_failed()
    assert world.store.put_failed_times == 1
