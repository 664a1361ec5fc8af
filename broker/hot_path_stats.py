"""HotPathStats: what sends and pulls count on their way.

Runs on the loop thread of `remoting`. Keeps the bound counters of each topic and group, so that
counting is a dict lookup and a few additions; `end_turn` adds what a turn of the loop counted to
the store's statistics, with the time that the turn took. Other threads read whole numbers.
"""

from __future__ import annotations

from broker.broker_stats_manager import BrokerStatsManager, GetCounters, PutCounters
from broker.store_stats_service import StoreStatsService


class HotPathStats:
    """Counters of the send and the pull path. Owned by: the loop thread."""

    def __init__(self, stats: BrokerStatsManager, store_stats: StoreStatsService) -> None:
        self._stats = stats
        self._store_stats = store_stats
        self._put: dict[str, PutCounters] = {}
        self._get: dict[tuple[str, str], GetCounters] = {}
        self._turn_put = 0
        self._turn_size = 0
        self._turn_get = False

    def forget(self) -> None:
        """Counters may have been dropped with their topic or group: bind them anew."""
        self._put.clear()
        self._get.clear()

    def add_put(self, topic: str, count: int, size: int) -> None:
        """`count` messages of `size` bytes went into `topic`."""
        counters = self._put.get(topic)
        if counters is None:
            counters = self._put[topic] = self._stats.put_counters(topic)
        counters.nums.add(count, count)
        counters.size.add(size, count)
        self._stats.broker_put_nums.add(count, count)
        self._turn_put += count
        self._turn_size += size

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
        counters = self._get.get((group, topic))
        if counters is None:
            counters = self._get[group, topic] = self._stats.get_counters(topic, group)
        counters.nums.add(count, 1)
        counters.size.add(size, 1)
        self._stats.broker_get_nums.add(count, 1)
        store_stats.get_found_times += 1
        store_stats.get_transferred += count

    def end_turn(self, elapsed_ms: int) -> None:
        """A turn of the loop is over; every put and get of it took at most `elapsed_ms`."""
        if self._turn_put:
            self._store_stats.add_put(self._turn_put, self._turn_size, elapsed_ms)
            self._turn_put = self._turn_size = 0
        if self._turn_get:
            self._turn_get = False
            longest = max(self._store_stats.get_entire_time_max_ms, elapsed_ms)
            self._store_stats.get_entire_time_max_ms = longest
