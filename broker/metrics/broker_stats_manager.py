"""BrokerStatsManager: messages put and got, by topic and group (code 315, statsAll).

Counting costs two integer additions: the hot path binds a StatsItem once per topic or group and
adds to its `value` and `times`. Every item is incremented by one thread (the loop); a second one
could lose an increment, nothing worse. Code that keeps bound items must drop them when a topic or
group is deleted. Samples are taken by the scheduled executor: each 10 s for the minute, 10 min for
the hour, 1 h for the day. In memory only. Also BrokerStats: the totals of code 28 with their
snapshots at midnight. Knows no request.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ipc.clock import Clock
from store.lmq_places import LMQ_PREFIX, is_lmq

if TYPE_CHECKING:
    from ipc.scheduled_executor import ScheduledExecutor

MINUTE_SAMPLING_MS: Final = 10_000
HOUR_SAMPLING_MS: Final = 600_000
DAY_SAMPLING_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000
_MINUTE_SAMPLES: Final = 7
_HOUR_SAMPLES: Final = 7
_DAY_SAMPLES: Final = 25


class StatsName(StrEnum):
    """Names of statistics as used by operators and mqadmin; each comment shows the key format."""

    QUEUE_PUT_NUMS = "QUEUE_PUT_NUMS"  # topic@queueId
    QUEUE_PUT_SIZE = "QUEUE_PUT_SIZE"
    QUEUE_GET_NUMS = "QUEUE_GET_NUMS"  # topic@queueId@group
    QUEUE_GET_SIZE = "QUEUE_GET_SIZE"
    TOPIC_PUT_NUMS = "TOPIC_PUT_NUMS"  # topic
    TOPIC_PUT_SIZE = "TOPIC_PUT_SIZE"
    GROUP_GET_NUMS = "GROUP_GET_NUMS"  # topic@group
    GROUP_GET_SIZE = "GROUP_GET_SIZE"
    GROUP_GET_LATENCY = "GROUP_GET_LATENCY"  # queueId@topic@group
    SNDBCK_PUT_NUMS = "SNDBCK_PUT_NUMS"  # topic@group
    BROKER_PUT_NUMS = "BROKER_PUT_NUMS"  # cluster
    BROKER_GET_NUMS = "BROKER_GET_NUMS"
    GROUP_GET_FROM_DISK_NUMS = "GROUP_GET_FROM_DISK_NUMS"  # never counted, as in Java
    GROUP_GET_FROM_DISK_SIZE = "GROUP_GET_FROM_DISK_SIZE"
    BROKER_GET_FROM_DISK_NUMS = "BROKER_GET_FROM_DISK_NUMS"
    BROKER_GET_FROM_DISK_SIZE = "BROKER_GET_FROM_DISK_SIZE"
    COMMERCIAL_SEND_TIMES = "COMMERCIAL_SEND_TIMES"  # owner@topic@group@type
    COMMERCIAL_SNDBCK_TIMES = "COMMERCIAL_SNDBCK_TIMES"
    COMMERCIAL_RCV_TIMES = "COMMERCIAL_RCV_TIMES"
    COMMERCIAL_RCV_EPOLLS = "COMMERCIAL_RCV_EPOLLS"
    COMMERCIAL_SEND_SIZE = "COMMERCIAL_SEND_SIZE"
    COMMERCIAL_RCV_SIZE = "COMMERCIAL_RCV_SIZE"
    COMMERCIAL_PERM_FAILURES = "COMMERCIAL_PERM_FAILURES"


_QUEUE_LEVEL: Final = frozenset(
    {
        StatsName.QUEUE_PUT_NUMS,
        StatsName.QUEUE_PUT_SIZE,
        StatsName.QUEUE_GET_NUMS,
        StatsName.QUEUE_GET_SIZE,
    }
)
_BY_GROUP: Final = (
    StatsName.GROUP_GET_NUMS,
    StatsName.GROUP_GET_SIZE,
    StatsName.QUEUE_GET_NUMS,
    StatsName.QUEUE_GET_SIZE,
    StatsName.SNDBCK_PUT_NUMS,
    StatsName.GROUP_GET_LATENCY,
)
_TOPIC_FIRST: Final = (
    StatsName.QUEUE_PUT_NUMS,
    StatsName.QUEUE_PUT_SIZE,
    StatsName.GROUP_GET_NUMS,
    StatsName.GROUP_GET_SIZE,
    StatsName.QUEUE_GET_NUMS,
    StatsName.QUEUE_GET_SIZE,
    StatsName.SNDBCK_PUT_NUMS,
)


class CallSnapshot(NamedTuple):
    """The counts of an item at one moment (wall clock ms)."""

    timestamp_ms: int
    times: int
    value: int


class StatsSnapshot(NamedTuple):
    """Growth over a window: sum of values, per second, and per call."""

    sum: int
    tps: float
    avgpt: float
    times: int


_NOTHING: Final = StatsSnapshot(0, 0.0, 0.0, 0)


class StatsItem:
    """One counter with its three windows. One thread increments `value` and `times`."""

    __slots__ = ("_day", "_hour", "_minute", "times", "value")

    def __init__(self) -> None:
        self.value = 0
        self.times = 0
        self._minute: deque[CallSnapshot] = deque(maxlen=_MINUTE_SAMPLES)
        self._hour: deque[CallSnapshot] = deque(maxlen=_HOUR_SAMPLES)
        self._day: deque[CallSnapshot] = deque(maxlen=_DAY_SAMPLES)

    def add(self, value: int, times: int = 1) -> None:
        """Count `value` in `times` calls."""
        self.value += value
        self.times += times

    def sample_minute(self, now_ms: int) -> None:
        """Called every 10 s."""
        self._sample(self._minute, now_ms, MINUTE_SAMPLING_MS)

    def sample_hour(self, now_ms: int) -> None:
        """Called every 10 min."""
        self._sample(self._hour, now_ms, HOUR_SAMPLING_MS)

    def sample_day(self, now_ms: int) -> None:
        """Called each hour."""
        self._sample(self._day, now_ms, DAY_SAMPLING_MS)

    def _sample(self, samples: deque[CallSnapshot], now_ms: int, period_ms: int) -> None:
        if not samples:
            samples.append(CallSnapshot(now_ms - period_ms, 0, 0))
        samples.append(CallSnapshot(now_ms, self.times, self.value))

    def in_minute(self) -> StatsSnapshot:
        """The last minute."""
        return _growth(self._minute)

    def in_hour(self) -> StatsSnapshot:
        """The last hour."""
        return _growth(self._hour)

    def in_day(self) -> StatsSnapshot:
        """The last day."""
        return _growth(self._day)


def _growth(samples: deque[CallSnapshot]) -> StatsSnapshot:
    kept = tuple(samples)
    if not kept:
        return _NOTHING
    first, last = kept[0], kept[-1]
    value, times = last.value - first.value, last.times - first.times
    span_ms = last.timestamp_ms - first.timestamp_ms
    tps = value * 1000.0 / span_ms if span_ms > 0 else 0.0
    return StatsSnapshot(value, tps, value / times if times > 0 else 0.0, times)


class PutCounters(NamedTuple):
    """The counters of a send; bound once per topic and cached."""

    nums: StatsItem
    size: StatsItem


class GetCounters(NamedTuple):
    """The counters of a pull; bound once per topic and group and cached."""

    nums: StatsItem
    size: StatsItem


class BrokerStatsManager:
    """All statistics of this broker. Tables are changed under `_lock`, read without it."""

    def __init__(
        self,
        clock: Clock,
        cluster_name: str,
        *,
        enable_detail_stat: bool = True,
        joins_lmq: bool = False,
    ) -> None:
        """joins_lmq: light queues and groups (%LMQ%…) are counted together."""
        self._clock = clock
        self._joins_lmq = joins_lmq
        self._enable_detail_stat = enable_detail_stat
        self._lock = threading.Lock()
        self._tables: dict[str, dict[str, StatsItem]] = {
            name.value: {} for name in StatsName if enable_detail_stat or name not in _QUEUE_LEVEL
        }
        self.broker_put_nums = self.item(StatsName.BROKER_PUT_NUMS, cluster_name)
        self.broker_get_nums = self.item(StatsName.BROKER_GET_NUMS, cluster_name)

    # -- counting -------------------------------------------------------------------------------

    def shown_name(self, name: str) -> str:
        """As which a topic or a group is counted (RocketMQ's LmqBrokerStatsManager)."""
        return LMQ_PREFIX if self._joins_lmq and is_lmq(name) else name

    def item(self, name: StatsName, key: str) -> StatsItem:
        """The counter `key` of `name`, made if missing.

        For queue-level counters that are switched off it returns an item that is never sampled or
        shown.
        """
        table = self._tables.get(name)
        if table is None:
            return StatsItem()
        found = table.get(key)
        if found is not None:
            return found
        with self._lock:
            return table.setdefault(key, StatsItem())

    def put_counters(self, topic: str) -> PutCounters:
        """TOPIC_PUT_NUMS and TOPIC_PUT_SIZE of a topic, to be kept by the send path."""
        return PutCounters(
            self.item(StatsName.TOPIC_PUT_NUMS, topic), self.item(StatsName.TOPIC_PUT_SIZE, topic)
        )

    def get_counters(self, topic: str, group: str) -> GetCounters:
        """GROUP_GET_NUMS and GROUP_GET_SIZE, to be kept by the pull path."""
        key = f"{topic}@{group}"
        return GetCounters(
            self.item(StatsName.GROUP_GET_NUMS, key), self.item(StatsName.GROUP_GET_SIZE, key)
        )

    def inc_group_get_latency(self, group: str, topic: str, queue_id: int, latency_ms: int) -> None:
        """How long a pull took in the broker."""
        key = f"{self.shown_name(topic)}@{self.shown_name(group)}"
        if self._enable_detail_stat:
            key = f"{queue_id}@{key}"
        self.item(StatsName.GROUP_GET_LATENCY, key).add(latency_ms)

    def inc_send_back_nums(self, group: str, topic: str) -> None:
        """A consumer sent a message back (36)."""
        key = f"{self.shown_name(topic)}@{self.shown_name(group)}"
        self.item(StatsName.SNDBCK_PUT_NUMS, key).add(1)

    def inc_queue_put(self, topic: str, queue_id: int, *, nums: int, size: int) -> None:
        """Queue-level puts; RocketMQ counts them for SCHEDULE_TOPIC_XXXX only."""
        key = f"{topic}@{queue_id}"
        self.item(StatsName.QUEUE_PUT_NUMS, key).add(nums, nums)
        self.item(StatsName.QUEUE_PUT_SIZE, key).add(size, nums)

    def inc_queue_get(self, group: str, topic: str, queue_id: int, *, nums: int, size: int) -> None:
        """Queue-level gets; RocketMQ counts them for the delay service only."""
        key = f"{topic}@{queue_id}@{group}"
        self.item(StatsName.QUEUE_GET_NUMS, key).add(nums)
        self.item(StatsName.QUEUE_GET_SIZE, key).add(size)

    # -- reading --------------------------------------------------------------------------------

    def find_stats_item(self, name: str, key: str) -> StatsItem | None:
        """The counter that 315 asks for, or None."""
        return self._tables.get(name, {}).get(key)

    def tps_topic_put_nums(self, topic: str) -> float:
        """Messages per second put into the topic in the last minute."""
        found = self.find_stats_item(StatsName.TOPIC_PUT_NUMS, topic)
        return 0.0 if found is None else found.in_minute().tps

    def tps_group_get_nums(self, group: str, topic: str) -> float:
        """Messages per second that the group got from the topic in the last minute."""
        key = f"{self.shown_name(topic)}@{self.shown_name(group)}"
        found = self.find_stats_item(StatsName.GROUP_GET_NUMS, key)
        return 0.0 if found is None else found.in_minute().tps

    # -- removing -----------------------------------------------------------------------------

    def on_topic_deleted(self, topic: str) -> None:
        """Drop every counter of a topic (215, when autoDeleteUnusedStats)."""
        for name in (StatsName.TOPIC_PUT_NUMS, StatsName.TOPIC_PUT_SIZE):
            self._drop(name, lambda key: key == topic)
        for name in _TOPIC_FIRST:
            self._drop(name, lambda key: key.startswith(f"{topic}@"))
        self._drop(StatsName.GROUP_GET_LATENCY, lambda key: f"@{topic}@" in key)

    def on_group_deleted(self, group: str) -> None:
        """Drop every counter of a group (207, when autoDeleteUnusedStats)."""
        for name in _BY_GROUP:
            self._drop(name, lambda key: key.endswith(f"@{group}"))

    def _drop(self, name: StatsName, gone: Callable[[str], bool]) -> None:
        with self._lock:
            table = self._tables.get(name, {})
            for key in [key for key in table if gone(key)]:
                del table[key]

    # -- sampling -------------------------------------------------------------------------------

    def schedule_on(self, scheduler: ScheduledExecutor) -> None:
        """Schedule the sampling tasks."""
        for name, function, period_ms in (
            ("stats-minute", self.sample_minute, MINUTE_SAMPLING_MS),
            ("stats-hour", self.sample_hour, HOUR_SAMPLING_MS),
            ("stats-day", self.sample_day, DAY_SAMPLING_MS),
        ):
            scheduler.schedule(name, function, first_delay_ms=0, period_ms=period_ms)

    def sample_minute(self) -> None:
        """Runs every 10 s."""
        now_ms = self._clock.now_ms()
        for item in self._all_items():
            item.sample_minute(now_ms)

    def sample_hour(self) -> None:
        """Runs every 10 min."""
        now_ms = self._clock.now_ms()
        for item in self._all_items():
            item.sample_hour(now_ms)

    def sample_day(self) -> None:
        """Runs every hour."""
        now_ms = self._clock.now_ms()
        for item in self._all_items():
            item.sample_day(now_ms)

    def _all_items(self) -> list[StatsItem]:
        with self._lock:
            return [item for table in self._tables.values() for item in table.values()]


class BrokerStats:
    """Put and get totals since the start, with snapshots at midnight (Java: BrokerStats).

    Owned by: the scheduled task that records. Any thread may read.
    """

    def __init__(self, put_total: Callable[[], int], get_total: Callable[[], int]) -> None:
        self._put_total = put_total
        self._get_total = get_total
        self.msg_put_total_yesterday_morning = 0
        self.msg_put_total_today_morning = 0
        self.msg_get_total_yesterday_morning = 0
        self.msg_get_total_today_morning = 0

    @property
    def msg_put_total_today_now(self) -> int:
        """Messages put since the start."""
        return self._put_total()

    @property
    def msg_get_total_today_now(self) -> int:
        """Messages given to consumers since the start."""
        return self._get_total()

    def schedule_on(self, scheduler: ScheduledExecutor, now_ms: int) -> None:
        """Record each midnight, from the one after `now_ms` (wall clock) on."""
        scheduler.schedule(
            "record-broker-stats",
            self.record,
            first_delay_ms=ms_until_midnight(now_ms),
            period_ms=_DAY_MS,
        )

    def record(self) -> None:
        """Runs at midnight: today's totals become yesterday's."""
        self.msg_put_total_yesterday_morning = self.msg_put_total_today_morning
        self.msg_get_total_yesterday_morning = self.msg_get_total_today_morning
        self.msg_put_total_today_morning = self._put_total()
        self.msg_get_total_today_morning = self._get_total()


def ms_until_midnight(now_ms: int) -> int:
    """From a wall clock moment to the next local 00:00: the first delay of BrokerStats.record."""
    now = datetime.fromtimestamp(now_ms / 1000).astimezone()
    morning = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(1, round((morning - now).total_seconds() * 1000))
