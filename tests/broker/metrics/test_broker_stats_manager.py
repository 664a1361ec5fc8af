"""broker.metrics.broker_stats_manager: counters, windows, clean-up, midnight."""

from __future__ import annotations

from datetime import datetime

import pytest

from broker.metrics.broker_stats_manager import (
    BrokerStats,
    BrokerStatsManager,
    StatsItem,
    StatsName,
    StatsSnapshot,
    ms_until_midnight,
)
from ipc.scheduled_executor import ScheduledExecutor
from tests.broker.broker_fakes import FakeClock


def test_the_first_sample_starts_from_zero() -> None:
    item = StatsItem()
    assert item.in_minute() == StatsSnapshot(0, 0.0, 0.0, 0)
    item.add(20, 2)
    item.sample_minute(100_000)
    assert item.in_minute() == StatsSnapshot(20, 2.0, 10.0, 2)


def test_the_minute_slides() -> None:
    item = StatsItem()
    now_ms = 0
    for _ in range(30):
        item.add(10)
        now_ms += 10_000
        item.sample_minute(now_ms)
    assert item.in_minute() == StatsSnapshot(60, 1.0, 10.0, 6)


def test_hour_and_day_slide() -> None:
    item = StatsItem()
    for step in range(1, 31):
        item.add(1)
        item.sample_hour(step * 600_000)
        item.sample_day(step * 3_600_000)
    assert item.in_hour().sum == 6
    assert item.in_day().sum == 24


def test_samples_at_the_same_ms_divide_by_nothing() -> None:
    item = StatsItem()
    for _ in range(8):
        item.sample_minute(5)
    item.add(1)
    item.sample_minute(5)
    assert item.in_minute().tps == 0.0


def test_counting() -> None:
    stats = BrokerStatsManager(FakeClock(), "C")
    put = stats.put_counters("t")
    assert put.nums is stats.put_counters("t").nums
    assert put.nums is stats.find_stats_item("TOPIC_PUT_NUMS", "t")
    assert stats.get_counters("t", "g").size is stats.find_stats_item("GROUP_GET_SIZE", "t@g")
    assert stats.broker_put_nums is stats.find_stats_item("BROKER_PUT_NUMS", "C")
    stats.inc_send_back_nums("g", "t")
    stats.inc_group_get_latency("g", "t", 3, 12)
    stats.inc_queue_put("t", 3, nums=2, size=200)
    stats.inc_queue_get("g", "t", 3, nums=1, size=100)
    expected = {
        ("SNDBCK_PUT_NUMS", "t@g"): 1,
        ("GROUP_GET_LATENCY", "3@t@g"): 12,
        ("QUEUE_PUT_NUMS", "t@3"): 2,
        ("QUEUE_PUT_SIZE", "t@3"): 200,
        ("QUEUE_GET_NUMS", "t@3@g"): 1,
        ("QUEUE_GET_SIZE", "t@3@g"): 100,
    }
    for (name, key), value in expected.items():
        item = stats.find_stats_item(name, key)
        assert item is not None
        assert item.value == value
    assert stats.find_stats_item("NO_SUCH", "t") is None
    assert stats.find_stats_item("TOPIC_PUT_NUMS", "x") is None


def test_without_queue_level() -> None:
    stats = BrokerStatsManager(FakeClock(), "C", enable_detail_stat=False)
    stats.inc_queue_put("t", 3, nums=2, size=200)
    assert stats.find_stats_item("QUEUE_PUT_NUMS", "t@3") is None
    stats.inc_group_get_latency("g", "t", 3, 12)
    assert stats.find_stats_item("GROUP_GET_LATENCY", "t@g") is not None


def test_consume_tps() -> None:
    clock = FakeClock()
    stats = BrokerStatsManager(clock, "C")
    assert stats.tps_group_get_nums("g", "t") == 0.0
    stats.get_counters("t", "g").nums.add(50)
    stats.sample_minute()
    assert stats.tps_group_get_nums("g", "t") == 5.0


@pytest.mark.parametrize(
    ("forget", "kept"),
    [
        (
            "topic",
            {("TOPIC_PUT_NUMS", "tt"), ("GROUP_GET_NUMS", "tt@g"), ("SNDBCK_PUT_NUMS", "u@g")},
        ),
        ("group", {("TOPIC_PUT_NUMS", "t"), ("TOPIC_PUT_NUMS", "tt"), ("GROUP_GET_NUMS", "t@gg")}),
    ],
)
def test_forgetting(forget: str, kept: set[tuple[str, str]]) -> None:
    stats = BrokerStatsManager(FakeClock(), "C")
    keys = [
        ("TOPIC_PUT_NUMS", "t"),
        ("TOPIC_PUT_NUMS", "tt"),
        ("GROUP_GET_NUMS", "t@g"),
        ("GROUP_GET_NUMS", "tt@g"),
        ("GROUP_GET_NUMS", "t@gg"),
        ("SNDBCK_PUT_NUMS", "u@g"),
        ("GROUP_GET_LATENCY", "0@t@g"),
        ("QUEUE_GET_NUMS", "t@0@g"),
    ]
    for name, key in keys:
        stats.item(StatsName(name), key)
    if forget == "topic":
        stats.on_topic_deleted("t")
    else:
        stats.on_group_deleted("g")
    assert {each for each in keys if stats.find_stats_item(*each) is not None} == kept


def test_scheduling() -> None:
    clock = FakeClock()
    stats = BrokerStatsManager(clock, "C")
    executor = ScheduledExecutor(clock)
    stats.schedule_on(executor)
    stats.broker_put_nums.add(3)
    assert executor.run_due() == 3
    assert stats.broker_put_nums.in_minute().sum == 3
    clock.advance(10_000)
    assert executor.run_due() == 1


def test_midnight() -> None:
    put, get = 10, 4
    totals = BrokerStats(lambda: put, lambda: get)
    totals.record()
    put, get = 25, 9
    assert (totals.msg_put_total_today_morning, totals.msg_put_total_today_now) == (10, 25)
    totals.record()
    assert (totals.msg_put_total_yesterday_morning, totals.msg_put_total_today_morning) == (10, 25)
    assert (totals.msg_get_total_yesterday_morning, totals.msg_get_total_today_morning) == (4, 9)
    assert totals.msg_get_total_today_now == 9


def test_each_midnight_is_recorded() -> None:
    clock = FakeClock()
    executor = ScheduledExecutor(clock)
    totals = BrokerStats(lambda: 7, lambda: 3)
    totals.schedule_on(executor, clock.now_ms())
    clock.advance(ms_until_midnight(clock.now_ms()) - 1)
    assert executor.run_due() == 0
    clock.advance(1)
    assert executor.run_due() == 1
    assert (totals.msg_put_total_today_morning, totals.msg_get_total_today_morning) == (7, 3)
    clock.advance(86_400_000)
    assert executor.run_due() == 1


def test_ms_until_midnight() -> None:
    late = datetime(2024, 5, 17, 23, 59, 58, 500_000).astimezone()
    assert ms_until_midnight(round(late.timestamp() * 1000)) == 1_500
    early = datetime(2024, 5, 17).astimezone()
    assert ms_until_midnight(round(early.timestamp() * 1000)) == 86_400_000
