"""HotPathStats: what sends and pulls count on their way.

Runs on the loop thread of `remoting`. Keeps the bound counters of each topic and group, so that
counting is a dict lookup and a few additions; `end_turn` adds what a turn of the loop counted to
the store's statistics and to the latencies of /metrics, with the time that the turn took. Other
threads read whole numbers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from broker.broker_stats_manager import BrokerStatsManager, GetCounters, PutCounters
from broker.remoting_metrics import RemotingMetrics, Series
from broker.store_stats_service import StoreStatsService

_NORMAL: Final = "normal"


class HotPathStats:
    """Counters of the send and the pull path. Owned by: the loop thread."""

    def __init__(
        self, stats: BrokerStatsManager, store_stats: StoreStatsService, metrics: RemotingMetrics
    ) -> None:
        self._stats = stats
        self._store_stats = store_stats
        self._metrics = metrics
        self._values = metrics.values
        self._put: dict[tuple[str, str], tuple[PutCounters, Series | None]] = {}
        self._get: dict[tuple[str, str], tuple[GetCounters, Series | None]] = {}
        self._turn_put = 0
        self._turn_size = 0
        self._turn_get = False
        self._turn_answers: dict[tuple[int, int], int] = {}

    def forget(self) -> None:
        """Counters may have been dropped with their topic or group: bind them anew."""
        self._put.clear()
        self._get.clear()

    def hide_gone(self, topics: Collection[str], groups: Collection[str]) -> None:
        """Forget, and show no more what topics and groups have counted that are gone."""
        self.forget()
        self._metrics.hide_gone(topics, groups)

    def add_put(self, topic: str, count: int, size: int, message_type: str = _NORMAL) -> None:
        """`count` messages, `size` bytes of the log, went into `topic`."""
        bound = self._put.get((topic, message_type))
        if bound is None:
            series = self._metrics.series_in(topic, message_type)
            bound = self._put[topic, message_type] = (self._stats.put_counters(topic), series)
        counters, series = bound
        counters.nums.add(count, count)
        counters.size.add(size, count)
        self._stats.broker_put_nums.add(count, count)
        self._turn_put += count
        self._turn_size += size
        if series is not None:
            values = self._values
            values[series.messages] += count
            values[series.size] += size

    def add_put_failed(self) -> None:
        """A send was refused by the store."""
        self._store_stats.put_failed_times += 1

    def add_get(self, group: str, topic: str, count: int, size: int) -> None:
        """`count` messages of `size` bytes were given to `group`; 0 for a pull without any."""
        self._turn_get = True
        store_stats = self._store_stats
        if not count:
            store_stats.get_miss_times += 1
            return
        bound = self._get.get((group, topic))
        if bound is None:
            series = self._metrics.series_out(topic, group)
            bound = self._get[group, topic] = (self._stats.get_counters(topic, group), series)
        counters, series = bound
        counters.nums.add(count, 1)
        counters.size.add(size, 1)
        self._stats.broker_get_nums.add(count, 1)
        store_stats.get_found_times += 1
        store_stats.get_transferred += count
        if series is not None:
            values = self._values
            values[series.messages] += count
            values[series.size] += size

    def add_answers(self, request_code: int, code: int, count: int = 1) -> None:
        """`count` requests of this turn were answered with `code`."""
        answers = self._turn_answers
        key = (request_code, code)
        answers[key] = answers.get(key, 0) + count

    def add_late_answer(self, request_code: int, code: int, held_ms: int) -> None:
        """A pull was answered with `code` after it had been held for `held_ms`."""
        self._metrics.sent(request_code, code, held_ms, held=True)

    def end_turn(self, elapsed_ns: int) -> None:
        """A turn of the loop is over; every put and get of it took at most `elapsed_ns`."""
        elapsed_ms = elapsed_ns // 1_000_000
        if self._turn_put:
            self._store_stats.add_put(self._turn_put, self._turn_size, elapsed_ms)
            self._turn_put = self._turn_size = 0
        if self._turn_get:
            self._turn_get = False
            longest = max(self._store_stats.get_entire_time_max_ms, elapsed_ms)
            self._store_stats.get_entire_time_max_ms = longest
        if self._turn_answers:
            for (request_code, code), count in self._turn_answers.items():
                self._metrics.sent(request_code, code, elapsed_ns / 1_000_000, count)
            self._turn_answers.clear()
