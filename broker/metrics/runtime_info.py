"""RuntimeInfo: the state of this broker for operators (28), and its text form.

The composition root gathers the values (wiring/runtime_source.py); `runtime_table` turns them into
the strings that RocketMQ uses, key by key. `haProtocol` is ours: by it a slave knows that its
master speaks the handshake of ha/handshake.py; so are `resyncBackups`, `compiledModules`,
`loopLongestTurn`, and `isolated` of a broker that waits for its group.
`getTransferredTps` and `brokerActive` are for mqadmin of 5.3.3, which reads those keys. Pure, any
thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.metrics.broker_stats_manager import BrokerStats
from broker.metrics.store_stats_service import DISTRIBUTION_NAMES, Rates, StoreStatistics
from ha.handshake import VERSION as HA_PROTOCOL
from remoting.java_text import java_double
from remoting.mq_version import CURRENT_VERSION, version_name

NO_TRANSIENT_POOL: Final = 2**31 - 1
"""remainTransientStoreBufferNumbs of a store without a transient store pool."""

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolInfo:
    """A request queue: its length, its capacity, and the age of the head in ms."""

    size: int = 0
    capacity: int = 0
    head_wait_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerInfo:
    """How the timers get on; zeros with timerWheelEnable=false, as in RocketMQ."""

    read_behind_ms: int = 0
    """Now minus the slot that is delivered next."""
    offset_behind: int = 0
    """Messages of the timer topic that are not in the wheel yet."""
    waiting: int = 0
    """Messages in the wheel."""
    enqueue_tps: float = 0.0
    dequeue_tps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInfo:
    """Values at one moment. Times in ms, sizes and offsets in bytes."""

    now_ms: int
    statistics: StoreStatistics
    send_pool: PoolInfo = field(default_factory=PoolInfo)
    pull_pool: PoolInfo = field(default_factory=PoolInfo)
    query_pool: PoolInfo = field(default_factory=PoolInfo)
    end_transaction_pool: PoolInfo = field(default_factory=PoolInfo)
    page_cache_lock_time_ms: int = 0
    dispatch_behind_bytes: int = 0
    start_accept_send_request_timestamp_ms: int = 0
    earliest_message_timestamp_ms: int = -1
    commit_log_min_offset: int = 0
    commit_log_max_offset: int = 0
    commit_log_disk_ratios: Mapping[str, float] = field(default_factory=dict)
    """Used share 0..1 of the disk of each commit log path, -1 when unknown."""
    consume_queue_disk_ratio: float = -1.0
    commit_log_dir_total: int = 0
    commit_log_dir_free: int = 0
    remain_flush_bytes: int = 0
    fenced_ranges: int = 0
    """Damaged ranges of the commit log, which hold `fenced_bytes`."""
    fenced_bytes: int = 0
    light_queues_unwritable: int = 0
    schedule_offsets: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Delay level to (delivered offset, max offset of its queue)."""
    timers: TimerInfo = field(default_factory=TimerInfo)
    broker_active: bool = True
    resync_backups: tuple[str, ...] = ()
    """Names of what re-syncs of this store moved aside, the oldest first."""
    compiled_modules: int = 0
    """How many modules of this process are compiled ones."""
    isolation: str = ""
    """Why this broker is not registered yet, and takes nothing."""
    longest_turn: str = ""
    """Of the loop since its start, and the code of its request."""


def runtime_table(info: RuntimeInfo, totals: BrokerStats) -> dict[str, str]:
    """Every key of 28."""
    return {
        **_statistics(info.statistics, info.now_ms),
        **_totals(totals),
        **_pools(info),
        **_store(info),
        **_timers(info.timers),
        "brokerVersionDesc": version_name(CURRENT_VERSION),
        "brokerVersion": str(CURRENT_VERSION),
        "startAcceptSendRequestTimeStamp": str(info.start_accept_send_request_timestamp_ms),
        **({"isolated": info.isolation} if info.isolation else {}),
        "brokerActive": "true" if info.broker_active else "false",
        **({"loopLongestTurn": info.longest_turn} if info.longest_turn else {}),
        **({"compiledModules": str(info.compiled_modules)} if info.compiled_modules else {}),
    }


def _statistics(stats: StoreStatistics, now_ms: int) -> dict[str, str]:
    distribution = zip(DISTRIBUTION_NAMES, stats.put_distribution, strict=True)
    return {
        "bootTimestamp": str(stats.boot_timestamp_ms),
        "runtime": duration_text(now_ms - stats.boot_timestamp_ms),
        "putMessageEntireTimeMax": str(stats.put_entire_time_max_ms),
        "putMessageTimesTotal": str(stats.put_times_total),
        "putMessageFailedTimes": str(stats.put_failed_times),
        "putMessageSizeTotal": str(stats.put_size_total),
        "putMessageDistributeTime": "".join(f"{name}:{count} " for name, count in distribution),
        "putMessageAverageSize": java_double(stats.put_size_total / max(1, stats.put_times_total)),
        "dispatchMaxBuffer": "0",
        "getMessageEntireTimeMax": str(stats.get_entire_time_max_ms),
        "putTps": rates_text(stats.put_tps),
        "getFoundTps": rates_text(stats.found_tps),
        "getMissTps": rates_text(stats.miss_tps),
        "getTotalTps": _total_rates_text(stats.found_tps, stats.miss_tps),
        "getTransferedTps": rates_text(stats.transferred_tps),
        "getTransferredTps": rates_text(stats.transferred_tps),
        "putLatency99": f"{stats.put_latency_99_ms:.2f}",
        "putLatency999": f"{stats.put_latency_999_ms:.2f}",
    }


def _totals(totals: BrokerStats) -> dict[str, str]:
    return {
        "msgPutTotalYesterdayMorning": str(totals.msg_put_total_yesterday_morning),
        "msgPutTotalTodayMorning": str(totals.msg_put_total_today_morning),
        "msgPutTotalTodayNow": str(totals.msg_put_total_today_now),
        "msgGetTotalYesterdayMorning": str(totals.msg_get_total_yesterday_morning),
        "msgGetTotalTodayMorning": str(totals.msg_get_total_today_morning),
        "msgGetTotalTodayNow": str(totals.msg_get_total_today_now),
    }


def _pools(info: RuntimeInfo) -> dict[str, str]:
    table: dict[str, str] = {}
    for name, pool in (
        ("send", info.send_pool),
        ("pull", info.pull_pool),
        ("query", info.query_pool),
    ):
        table[f"{name}ThreadPoolQueueSize"] = str(pool.size)
        table[f"{name}ThreadPoolQueueCapacity"] = str(pool.capacity)
        table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = str(pool.head_wait_ms)
    table["EndTransactionQueueSize"] = str(info.end_transaction_pool.size)
    table["EndTransactionThreadPoolQueueCapacity"] = str(info.end_transaction_pool.capacity)
    return table


def _store(info: RuntimeInfo) -> dict[str, str]:
    ratios = info.commit_log_disk_ratios
    total, free = info.commit_log_dir_total, info.commit_log_dir_free
    return {
        "pageCacheLockTimeMills": str(info.page_cache_lock_time_ms),
        "dispatchBehindBytes": str(info.dispatch_behind_bytes),
        "earliestMessageTimeStamp": str(info.earliest_message_timestamp_ms),
        "commitLogMinOffset": str(info.commit_log_min_offset),
        "commitLogMaxOffset": str(info.commit_log_max_offset),
        "haProtocol": str(HA_PROTOCOL),
        **({"resyncBackups": ",".join(info.resync_backups)} if info.resync_backups else {}),
        "commitLogDiskRatio": java_double(min(ratios.values(), default=-1.0)),
        **{f"commitLogDiskRatio_{path}": java_double(ratio) for path, ratio in ratios.items()},
        "consumeQueueDiskRatio": java_double(info.consume_queue_disk_ratio),
        "commitLogDirCapacity": f"Total : {size_text(total)}, Free : {size_text(free)}.",
        "remainHowManyDataToFlush": size_text(info.remain_flush_bytes),
        **_damage(info),
        "remainTransientStoreBufferNumbs": str(NO_TRANSIENT_POOL),
        **{
            f"scheduleMessageOffset_{level}": f"{delivered},{max_offset}"
            for level, (delivered, max_offset) in sorted(info.schedule_offsets.items())
        },
    }


def _timers(timers: TimerInfo) -> dict[str, str]:
    """Of 5.x."""
    return {
        "timerReadBehind": str(timers.read_behind_ms // 1000),
        "timerOffsetBehind": str(timers.offset_behind),
        "timerCongestNum": str(timers.waiting),
        "timerEnqueueTps": java_double(timers.enqueue_tps),
        "timerDequeueTps": java_double(timers.dequeue_tps),
    }


def _damage(info: RuntimeInfo) -> dict[str, str]:
    """Ours; nothing for a store that is not known to be damaged."""
    found = {}
    if info.fenced_ranges:
        found["commitLogDamagedRanges"] = str(info.fenced_ranges)
        found["commitLogDamagedBytes"] = str(info.fenced_bytes)
    if info.light_queues_unwritable:
        found["lightQueuesUnwritable"] = str(info.light_queues_unwritable)
    return found


def rates_text(rates: Rates) -> str:
    """Three numbers separated by spaces; empty for a window that is not over yet."""
    return " ".join("" if rate is None else java_double(rate) for rate in rates)


def _total_rates_text(found: Rates, miss: Rates) -> str:
    """Found plus missed; here RocketMQ shows 0.0 for a window that is not over yet."""
    return " ".join(
        java_double((one or 0.0) + (other or 0.0)) for one, other in zip(found, miss, strict=True)
    )


def duration_text(duration_ms: int) -> str:
    """[ d days, h hours, m minutes, s seconds ]; thousands of days get Java's comma."""
    seconds = max(0, duration_ms) // 1000
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days:,} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def size_text(size: int) -> str:
    """Bytes in binary units with one decimal, as MixAll.humanReadableByteCount."""
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in _UNITS:
        value /= 1024
        if value < 1024 or unit == _UNITS[-1]:
            break
    return f"{value:.1f} {unit}"
