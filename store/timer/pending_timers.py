"""PendingTimers: what still waits, counted: by topic for timermetrics, by commit log file for
retention.

Each unit is counted when it is entered and again, with the other sign, when its slot has passed; a
recall counts -1 for its topic at both times, so that every slot leaves nothing behind. Owned by:
the thread of TimerMessageStore. It knows no record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from store.java_hash import string_hash
from store.timer.timer_log import TimerLogReader, TimerUnit
from store.timer.timer_metrics import TimerMetrics
from store.timer.timer_wheel import TimerWheel

NOTHING_PENDING: Final = 1 << 62


class PendingTimers:
    """See the module."""

    def __init__(
        self, metrics: TimerMetrics, log_file_size: int, find_topic: Callable[[int], str]
    ) -> None:
        """find_topic(commit log offset) reads a timer's real topic; empty: unknown."""
        self.metrics = metrics
        self._file_size = log_file_size
        self._find_topic = find_topic
        self._files: Counter[int] = Counter()
        self._topics = {string_hash(topic): topic for topic in metrics.topics}
        self._hashes = {topic: number for number, topic in self._topics.items()}

    def hash_of(self, topic: str) -> int:
        """String.hashCode of a topic, 0 for none; it is remembered."""
        found = self._hashes.get(topic)
        if found is None:
            found = self._hashes[topic] = string_hash(topic) if topic else 0
            self._topics.setdefault(found, topic)
        return found

    def restart(self, units: Iterable[TimerUnit], now_ms: int) -> None:
        """Count anew: these units wait, nothing else."""
        for topic, metric in self.metrics.topics.items():
            if metric.count:
                self.metrics.add(topic, -metric.count, now_ms)
        self._files.clear()
        self.count(units, 1, now_ms)

    def count(self, units: Iterable[TimerUnit], sign: int, now_ms: int) -> int:
        """Units were entered (sign 1), or their slot has passed (-1); returns how many."""
        topics: Counter[int] = Counter()
        files: Counter[int] = Counter()
        places: dict[int, int] = {}
        for unit in units:
            topics[unit.topic_hash] += -sign if unit.deletes else sign
            files[unit.phy_offset // self._file_size] += 1
            places[unit.topic_hash] = unit.phy_offset
        for number, change in topics.items():
            topic = self._topics.get(number)
            if topic is None:
                topic = self._topics[number] = self._find_topic(places[number])
            if topic and change:
                self.metrics.add(topic, change, now_ms)
        for file, count in files.items():
            self._files[file] += sign * count
            if self._files[file] <= 0:
                del self._files[file]
        return sum(files.values())

    @property
    def first_phy_offset(self) -> int:
        """Start of the first commit log file that a waiting timer needs, or NOTHING_PENDING."""
        return min(self._files) * self._file_size if self._files else NOTHING_PENDING


def units_from(wheel: TimerWheel, log: TimerLogReader, read_ms: int) -> Iterator[TimerUnit]:
    """The units of all slots from a read time on, as far as their chains can be read."""
    for time_ms in wheel.reader.used_slots(read_ms):
        slot = wheel.slot(time_ms)
        if slot is not None:
            yield from log.chain(slot.last_pos)
