"""RuntimeSource: the values of request 28 from the page, the disk and the counters."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.metrics.broker_stats_manager import BrokerStats
from broker.metrics.runtime_info import TimerInfo, runtime_table
from broker.metrics.store_stats_service import StoreStatsService
from broker.settings.memory_limit import memory_limit_bytes
from broker.settings.startup_options import StartupOptions
from broker.wiring.runtime_source import RuntimeSource, disk_space
from store.control_slots import (
    DISPATCHED_OFFSET,
    FENCE_COUNT,
    FENCED_BYTES,
    FLUSHED_OFFSET,
    LIGHT_QUEUES_UNWRITABLE,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
)
from tests.broker.broker_fakes import FakeClock
from tests.support.shared_memory import fresh_page


class World:
    def __init__(self, root: Path) -> None:
        self.options = StartupOptions.from_settings(
            {
                "storePathRootDir": str(root),
                "rocketmqHome": "/home",
                "listenPort": "10911",
                "startAcceptSendRequestTimeStamp": "42",
                "sendThreadPoolQueueCapacity": "123",
            }
        )
        self.options.store.commit_log_path.mkdir(parents=True)
        self.page = fresh_page()
        self.clock = FakeClock()
        self.stats = StoreStatsService(self.clock)
        self.pools: dict[str, Any] = {}
        self.access: Any = SimpleNamespace(store_timestamp_at=lambda offset: 1000 + offset)
        timers = TimerInfo(read_behind_ms=3_999, offset_behind=2, waiting=1)
        messages: Any = SimpleNamespace(
            append_queue=SimpleNamespace(
                held=[object()] * 3, head_wait_ms=lambda: 25, blocked_ms=lambda: 26
            ),
            waiters=[object()] * 17,
            timers=SimpleNamespace(info=lambda: timers),
        )
        resources: Any = SimpleNamespace(options=self.options, page=self.page, clock=self.clock)
        store: Any = SimpleNamespace(access=self.access, schedule_progress=lambda offsets: offsets)
        tables: Any = SimpleNamespace(schedule_offsets={3: (1, 2)})
        statistics: Any = SimpleNamespace(
            store=self.stats, longest_turns=SimpleNamespace(text=lambda: "")
        )
        self.source = RuntimeSource(resources, store, tables, statistics, messages, self.pools)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "store")


def test_values_of_the_page(world: World) -> None:
    counters = world.page.counters
    counters[MIN_PHY_OFFSET], counters[MAX_PHY_OFFSET] = 100, 900
    counters[DISPATCHED_OFFSET], counters[FLUSHED_OFFSET] = 700, 600
    counters[FENCE_COUNT], counters[FENCED_BYTES] = 2, 50
    counters[LIGHT_QUEUES_UNWRITABLE] = 3
    info = world.source.runtime_info()
    assert (info.commit_log_min_offset, info.commit_log_max_offset) == (100, 900)
    assert (info.dispatch_behind_bytes, info.remain_flush_bytes) == (200, 300)
    assert (info.fenced_ranges, info.fenced_bytes) == (2, 50)
    assert info.light_queues_unwritable == 3
    assert info.earliest_message_timestamp_ms == 1100
    assert info.now_ms == world.clock.now_ms()


def test_timers_are_shown_as_java_shows_them(world: World) -> None:
    table = runtime_table(world.source.runtime_info(), BrokerStats(lambda: 0, lambda: 0))
    assert {key: value for key, value in table.items() if key.startswith("timer")} == {
        "timerReadBehind": "3",
        "timerOffsetBehind": "2",
        "timerCongestNum": "1",
        "timerEnqueueTps": "0.0",
        "timerDequeueTps": "0.0",
    }


def test_the_earliest_message_of_an_empty_log_is_of_now(world: World) -> None:
    world.access.store_timestamp_at = lambda offset: -1
    info = world.source.runtime_info()
    assert info.earliest_message_timestamp_ms == info.now_ms == world.clock.now_ms()


def test_a_flush_ahead_of_the_page_is_no_negative_rest(world: World) -> None:
    world.page.counters[FLUSHED_OFFSET] = 50
    assert world.source.runtime_info().remain_flush_bytes == 0


def test_pools_settings_and_counters(world: World) -> None:
    world.stats.add_put(3, 300, 1)
    info = world.source.runtime_info()
    assert (info.send_pool.size, info.send_pool.capacity) == (20, 123)
    assert (info.send_pool.head_wait_ms, info.page_cache_lock_time_ms) == (25, 26)
    assert info.query_pool.capacity == 0
    world.pools["QueryMessageThread"] = SimpleNamespace(pending=4, capacity=20)
    world.pools["EndTransactionThread"] = SimpleNamespace(pending=5, capacity=30)
    pools = world.source.runtime_info()
    assert (pools.query_pool.size, pools.query_pool.capacity) == (4, 20)
    ends = pools.end_transaction_pool
    assert (ends.size, ends.capacity) == (5, 30)
    assert info.start_accept_send_request_timestamp_ms == 42
    assert info.statistics.put_times_total == 3
    assert info.schedule_offsets == {3: (1, 2)}


def test_the_disk(world: World, tmp_path: Path) -> None:
    info = world.source.runtime_info()
    assert 0 < info.commit_log_dir_free <= info.commit_log_dir_total
    ((path, ratio),) = info.commit_log_disk_ratios.items()
    assert path == str(world.options.store.commit_log_path)
    assert 0 < ratio < 1
    assert disk_space([tmp_path / "nothing here"]) == (0, 0)


def test_the_memory_limit_is_a_share_of_the_machine() -> None:
    whole = memory_limit_bytes(100)
    assert whole > 100 << 20
    assert memory_limit_bytes(0) == 0
    assert memory_limit_bytes(40) == whole * 40 // 100
