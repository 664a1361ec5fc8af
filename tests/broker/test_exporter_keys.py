"""rocketmq-exporter's parser on the answer to 28 (tests/support/exporter_parser.py)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.metrics.broker_stats_manager import BrokerStats
from broker.metrics.runtime_info import PoolInfo, RuntimeInfo, runtime_table
from broker.metrics.store_stats_service import StoreStatsService
from tests.broker.broker_fakes import FakeClock
from tests.support.every_row import every_row
from tests.support.exporter_parser import KEYS, broker_runtime_stats

_SIZES = st.integers(min_value=0, max_value=1 << 62)


def table_of(info: RuntimeInfo) -> dict[str, str]:
    return runtime_table(info, BrokerStats(lambda: 3, lambda: 2))


def fresh() -> RuntimeInfo:
    """A broker that has just started: no window of a rate is over, no disk was looked at."""
    return RuntimeInfo(now_ms=1_000, statistics=StoreStatsService(FakeClock()).snapshot())


def test_a_broker_that_has_just_started() -> None:
    stats = broker_runtime_stats(table_of(fresh()))
    assert "putTps.ten" not in stats
    assert (stats["getTotalTps.ten"], stats["msgPutTotalTodayNow"]) == (0.0, 3)
    assert (stats["commitLogDiskRatio"], stats["remainHowManyDataToFlush"]) == (-1.0, 0.0)
    assert len([key for key in stats if key.startswith("putMessageDistributeTime.")]) == 13


def test_rates_of_the_windows_that_are_over() -> None:
    clock = FakeClock()
    service = StoreStatsService(clock)
    for _ in range(62):
        service.add_put(5, 500, 3)
        service.sample()
        clock.now += 1_000
    info = RuntimeInfo(now_ms=clock.now, statistics=service.snapshot())
    stats = broker_runtime_stats(table_of(info))
    assert stats["putTps.ten"] == stats["putTps.sixty"] == 5.0
    assert "putTps.sixHundred" not in stats


@given(total=_SIZES, free=_SIZES, behind=_SIZES, level=st.integers(1, 18), offset=_SIZES)
def test_any_size(total: int, free: int, behind: int, level: int, offset: int) -> None:
    info = RuntimeInfo(
        now_ms=1_000,
        statistics=StoreStatsService(FakeClock()).snapshot(),
        send_pool=PoolInfo(size=1, capacity=2, head_wait_ms=3),
        commit_log_dir_total=total,
        commit_log_dir_free=free,
        remain_flush_bytes=behind,
        schedule_offsets={level: (offset, offset)},
    )
    stats = broker_runtime_stats(table_of(info))
    assert stats["commitLogDirCapacityTotal"] == pytest.approx(total, rel=0.06, abs=1)
    assert stats["commitLogDirCapacityFree"] == pytest.approx(free, rel=0.06, abs=1)
    assert stats["remainHowManyDataToFlush"] == pytest.approx(behind, rel=0.06, abs=1)
    assert stats[f"scheduleMessageOffset_{level}.delayOffset"] == offset
    assert stats["sendThreadPoolQueueHeadWaitTimeMills"] == 3


@every_row("key", sorted(KEYS))
def test_each_key_is_needed(key: str) -> None:
    table = table_of(fresh())
    del table[key]
    with pytest.raises(KeyError, match=key):
        broker_runtime_stats(table)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("putMessageDistributeTime", "null"),
        ("putTps", ""),
        ("bootTimestamp", "1_000"),
        ("putLatency99", "1_0.0"),
        ("remainHowManyDataToFlush", "12"),
        ("runtime", ""),
    ],
)
def test_the_parser_takes_no_more_than_javas(key: str, text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        broker_runtime_stats({**table_of(fresh()), key: text})
