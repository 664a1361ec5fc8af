"""broker.metrics.store_stats_service: totals, rates over windows, put times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.metrics.store_stats_service import DISTRIBUTION_NAMES, StoreStatsService, percentile_ms
from ipc.scheduled_executor import ScheduledExecutor
from tests.broker.broker_fakes import FakeClock

CLASSES = 76


def test_rates_over_windows() -> None:
    clock = FakeClock()
    service = StoreStatsService(clock)
    for second in range(61):
        service.sample()
        assert (service.snapshot().put_tps[0] is None) is (second < 10)
        service.add_put(5, 500, 0)
        service.add_get(3, 1)
        service.add_get(0, 1)
        clock.advance(1_000)
    statistics = service.snapshot()
    assert statistics.put_tps == (5.0, 5.0, None)
    assert statistics.transferred_tps == (3.0, 3.0, None)
    assert statistics.found_tps == statistics.miss_tps == (1.0, 1.0, None)
    assert statistics.put_times_total == 305
    assert statistics.put_size_total == 30_500
    assert statistics.get_transferred_total == 183


def test_a_clock_that_jumps_back_gives_no_nonsense() -> None:
    clock = FakeClock()
    service = StoreStatsService(clock)
    for _ in range(11):
        service.sample()
        service.add_put(1, 1, 0)
        clock.now -= 1_000
    assert service.snapshot().put_tps[0] == 0.0


@pytest.mark.parametrize(
    ("elapsed_ms", "name"),
    [
        (-1, "[<=0ms]"),
        (0, "[<=0ms]"),
        (1, "[0~10ms]"),
        (9, "[0~10ms]"),
        (10, "[10~50ms]"),
        (999, "[500ms~1s]"),
        (1_000, "[1~2s]"),
        (9_999, "[5~10s]"),
        (10_000, "[10s~]"),
        (10**9, "[10s~]"),
    ],
)
def test_put_times_by_class(elapsed_ms: int, name: str) -> None:
    service = StoreStatsService(FakeClock())
    service.add_put(2, 100, elapsed_ms)
    assert sum(service.snapshot().put_distribution) == 0, "shown when the minute is over"
    service.turn_over()
    shown = dict(zip(DISTRIBUTION_NAMES, service.snapshot().put_distribution, strict=True))
    assert {key: count for key, count in shown.items() if count} == {name: 2}
    service.turn_over()
    assert sum(service.snapshot().put_distribution) == 0


def test_percentiles() -> None:
    assert percentile_ms((0,) * CLASSES, 0.99) == 0.0
    service = StoreStatsService(FakeClock())
    for elapsed_ms in range(1, 101):
        service.add_put(1, 1, elapsed_ms)
    service.turn_over()
    statistics = service.snapshot()
    assert 95 <= statistics.put_latency_99_ms <= 100
    assert statistics.put_latency_99_ms <= statistics.put_latency_999_ms <= 100
    assert statistics.put_entire_time_max_ms == 100


@given(st.lists(st.integers(0, 1_000), min_size=CLASSES, max_size=CLASSES))
def test_percentiles_rise(counts: list[int]) -> None:
    shares = [percentile_ms(tuple(counts), share) for share in (0.1, 0.5, 0.9, 0.99, 0.999)]
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 10_000


def test_scheduling() -> None:
    clock = FakeClock()
    service = StoreStatsService(clock)
    executor = ScheduledExecutor(clock)
    service.schedule_on(executor)
    service.add_put(1, 1, 5)
    for _ in range(60):
        clock.advance(1_000)
        executor.run_due()
    assert sum(service.snapshot().put_distribution) == 1
    assert service.snapshot().put_tps[1] is None
