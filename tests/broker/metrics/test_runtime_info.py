"""broker.metrics.runtime_info: the strings of code 28."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.metrics.broker_stats_manager import BrokerStats
from broker.metrics.runtime_info import (
    PoolInfo,
    RuntimeInfo,
    duration_text,
    rates_text,
    runtime_table,
    size_text,
)
from broker.metrics.store_stats_service import StoreStatsService
from tests.broker.broker_fakes import FakeClock, golden, json_of

COMMIT_LOG = "/opt/rocketmq-498/gold-work-G/store-master/commitlog"


def info_of(service: StoreStatsService) -> RuntimeInfo:
    """The golden broker's values where they can be set."""
    statistics = service.snapshot()
    return RuntimeInfo(
        now_ms=statistics.boot_timestamp_ms + 87_400,
        statistics=statistics,
        send_pool=PoolInfo(capacity=10_000),
        pull_pool=PoolInfo(capacity=100_000),
        query_pool=PoolInfo(capacity=20_000),
        end_transaction_pool=PoolInfo(capacity=100_000),
        commit_log_max_offset=24_731,
        commit_log_disk_ratios={COMMIT_LOG: 0.27},
        consume_queue_disk_ratio=0.27,
        commit_log_dir_total=270_582_939_648,
        commit_log_dir_free=80_315_888_435,
        schedule_offsets={1: (1, 1), 2: (1, 1), 3: (3, 3)},
    )


def test_values_are_written_as_java_writes_them() -> None:
    service = StoreStatsService(FakeClock(1795177712327))
    for elapsed_ms, count in ((0, 7), (1, 40), (9, 1), (11, 2)):
        service.add_put(count, 0, elapsed_ms)
    service.add_put(5, 23_512, 3)
    service.turn_over()
    service.add_get(3, 2)
    ours = runtime_table(info_of(service), BrokerStats(lambda: 55, lambda: 53))
    _, answer = golden(28)
    assert answer is not None
    java = json_of(answer.body)["table"]
    counted = {
        "getFoundTps",
        "getMissTps",
        "getTotalTps",
        "getTransferedTps",
        "putLatency99",
        "putLatency999",
        "putMessageDistributeTime",
        "putTps",
    }
    for key in set(java) - counted:
        assert (key, ours[key]) == (key, java[key])
    assert ours["putMessageDistributeTime"] == java["putMessageDistributeTime"].replace(
        "[0~10ms]:41", "[0~10ms]:46"
    )
    assert ours["putTps"] == "  "
    assert ours["getTotalTps"] == "0.0 0.0 0.0"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1.0 MiB"),
        (270_582_939_648, "252.0 GiB"),
        (1 << 62, "4.0 EiB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


@given(st.integers(0, 2**63 - 1))
def test_sizes_are_near(size: int) -> None:
    number, unit = size_text(size).split()
    factor = 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(unit)
    assert abs(float(number) * factor - size) <= 0.051 * factor


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (87_400, "[ 0 days, 0 hours, 1 minutes, 27 seconds ]"),
        (0, "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"),
        (-5, "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"),
        (86_400_000 * 1_234 + 3_600_000, "[ 1,234 days, 1 hours, 0 minutes, 0 seconds ]"),
    ],
)
def test_durations(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text


def test_rates() -> None:
    assert rates_text((0.0, 0.04973639709539441, None)) == "0.0 0.04973639709539441 "
    assert rates_text((12345678.9, None, None)) == "1.23456789E7  "


def test_what_is_known_to_be_damaged() -> None:
    info = info_of(StoreStatsService(FakeClock(1795177712327)))
    totals = BrokerStats(lambda: 0, lambda: 0)
    sound = runtime_table(info, totals)

    def more(**fields: int) -> set[tuple[str, str]]:
        return runtime_table(replace(info, **fields), totals).items() - sound.items()

    assert more(light_queues_unwritable=2) == {("lightQueuesUnwritable", "2")}
    assert more(fenced_ranges=1, fenced_bytes=700) == {
        ("commitLogDamagedRanges", "1"),
        ("commitLogDamagedBytes", "700"),
    }


def test_no_disk_known() -> None:
    service = StoreStatsService(FakeClock())
    info = RuntimeInfo(now_ms=0, statistics=service.snapshot(), broker_active=False)
    table = runtime_table(info, BrokerStats(lambda: 0, lambda: 0))
    assert table["commitLogDiskRatio"] == table["consumeQueueDiskRatio"] == "-1.0"
    assert table["brokerActive"] == "false"
    assert table["putMessageAverageSize"] == "0.0"
