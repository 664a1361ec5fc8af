"""HotPathStats: the counters of the send and pull paths.

Runs on the loop thread of `remoting`. Caches the bound counters of each topic and group, so that
counting is a dict lookup and a few additions. `end_turn` adds the counts of a turn to the store's
statistics and to the latencies of /metrics, with the duration of the turn. A request that was
received before the turn in which it is answered is counted individually, with its own latency.
Other threads only read integers.

The fast paths of sends and pulls count into SendCounts and PullCounts, which `publish` flushes:
before the loop sleeps, after a turn of a millisecond or longer, and otherwise after 64 turns. With
one send in flight a turn takes 15 us, and updating every counter in each turn cost 5 to 9 us of
CPU.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from broker.metrics.broker_stats_manager import BrokerStatsManager, GetCounters, PutCounters
from broker.metrics.remoting_metrics import RemotingMetrics, Series
from broker.metrics.store_stats_service import StoreStatsService
from broker.topic.system_topics import SCHEDULE_TOPIC
from ipc.clock import Clock, SystemClock
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

_NORMAL: Final = "normal"
_SCHEDULE_GROUP: Final = "SCHEDULE_CONSUMER"
_FIFO: Final = "fifo"
_DELAY: Final = "delay"
_TRANSACTION: Final = "transaction"
_SEND_V2: Final = int(RequestCode.SEND_MESSAGE_V2)
_PULL: Final = int(RequestCode.PULL_MESSAGE)
_OF_POOLS: Final = frozenset({RequestCode.HEART_BEAT, RequestCode.END_TRANSACTION})
"""Codes that have a fast route on the loop; the threads of a pool count the others of them."""
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_NS_PER_MS: Final = 1_000_000
_CLOCK: Final = SystemClock()
_QUICK_TURNS: Final = 64
"""Number of turns shorter than a millisecond that are counted together."""


class SendCounts:
    """Counts of the fast path of sends that are not published yet. Owned by: the loop."""

    __slots__ = ("answered", "delayed", "fifo", "messages", "normal", "size", "transactions")

    def __init__(self) -> None:
        self.normal: dict[str, list[int]] = {}
        self.fifo: dict[str, list[int]] = {}
        self.transactions: dict[str, list[int]] = {}
        """By topic: messages and log bytes since `publish`; ordered (FIFO) messages, and halves and
        committed messages of transactions, separately."""
        self.delayed: dict[str, list[int]] = {}
        """The same by delay level, as text."""
        self.messages = self.size = self.answered = 0
        """Totals of this turn over all topics; answered: responses sent immediately, with
        success."""

    def add(self, table: dict[str, list[int]], name: str, messages: int, size: int) -> None:
        """Count in `table`, one of the above. A single send does it in line (SendRoute)."""
        counted = table.get(name)
        if counted is None:
            counted = table[name] = [0, 0]
        counted[0] += messages
        counted[1] += size
        self.messages += messages
        self.size += size


class PullCounts:
    """Counts of the fast path of pulls that are not published yet. Owned by: the loop."""

    __slots__ = ("answered", "found")

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], list[int]] = {}
        """By group and topic: pulls that were given messages, messages, and bytes."""
        self.answered = 0
        """How many pulls of this turn; all are of code 11 and had success."""


class HotPathStats:
    """Counters of the send and the pull path. Owned by: the loop thread."""

    def __init__(
        self,
        stats: BrokerStatsManager,
        store_stats: StoreStatsService,
        metrics: RemotingMetrics,
        clock: Clock = _CLOCK,
    ) -> None:
        self._stats = stats
        self._store_stats = store_stats
        self._metrics = metrics
        self.now_ns: Final = clock.monotonic_ns
        """The clock of the times passed to `add_timed_answer`. Any thread."""
        self.transactions: Final = metrics.transactions
        """What half messages and their ends count with."""
        self._values = metrics.values
        self._put: dict[tuple[str, str], tuple[PutCounters, Series | None]] = {}
        self._get: dict[tuple[str, str], tuple[GetCounters, Series | None]] = {}
        self.sends: Final = SendCounts()
        self._quick_turns = 0
        self._quick_messages = self._quick_size = 0
        self._quick_answered = self._quick_answered_ns = 0
        self.pulls: Final = PullCounts()
        self._quick_pull_turns = self._quick_pulls = self._quick_pulls_ns = 0
        self._turn_get = False
        self._turn_answers: dict[tuple[int, int], int] = {}
        self._turn_oneways: dict[tuple[int, int], int] = {}

    def forget(self) -> None:
        """Counters may have been dropped with their topic or group: rebind them on next use."""
        self.publish()
        self._put.clear()
        self._get.clear()

    def hide_gone(self, topics: Collection[str], groups: Collection[str]) -> None:
        """Drop cached counters, and hide the series of deleted topics and groups."""
        self.forget()
        self._metrics.hide_gone(topics, groups)

    def add_put(self, topic: str, count: int, size: int, message_type: str = _NORMAL) -> None:
        """`count` messages, `size` bytes of the log, were stored in `topic`."""
        self.sends.messages += count
        self.sends.size += size
        self._count_put(topic, count, size, message_type)

    def _count_put(self, topic: str, count: int, size: int, message_type: str) -> None:
        bound = self._put.get((topic, message_type))
        if bound is None:
            shown = self._stats.shown_name(topic)
            series = self._metrics.series_in(shown, message_type)
            bound = self._put[topic, message_type] = (self._stats.put_counters(shown), series)
        counters, series = bound
        counters.nums.add(count, count)
        counters.size.add(size, count)
        self._stats.broker_put_nums.add(count, count)
        if series is not None:
            values = self._values
            values[series.messages] += count
            values[series.size] += size

    def add_queue_put(self, topic: str, queue_id: int, size: int) -> None:
        """A message of `size` bytes was stored in a queue of the schedule topic."""
        self._stats.inc_queue_put(topic, queue_id, nums=1, size=size)

    def add_send_back(self, group: str, topic: str) -> None:
        """`group` sent back a message of `topic`."""
        self._stats.inc_send_back_nums(group, topic)

    def add_scheduled_get(self, queue_id: int, size: int) -> None:
        """A message of a queue of the schedule topic was delivered."""
        self._stats.inc_queue_get(_SCHEDULE_GROUP, SCHEDULE_TOPIC, queue_id, nums=1, size=size)

    def add_timer_delivered(self, topic: str) -> None:
        """A timer message for `topic` was delivered, or put off within the timers."""
        self._metrics.timers.add(topic)

    def add_put_failed(self) -> None:
        """The store rejected a send."""
        self._store_stats.put_failed_times += 1
        self._values[self._metrics.refused_sends] += 1

    def add_get(self, group: str, topic: str, count: int, size: int) -> None:
        """`count` messages of `size` bytes were delivered to `group`; 0 for an empty pull."""
        self._turn_get = True
        if count:
            self._count_get(group, topic, 1, count, size)
        else:
            self._store_stats.get_miss_times += 1

    def _count_get(self, group: str, topic: str, times: int, count: int, size: int) -> None:
        bound = self._get.get((group, topic))
        if bound is None:
            shown = self._stats.shown_name(topic), self._stats.shown_name(group)
            series = self._metrics.series_out(*shown)
            bound = self._get[group, topic] = (self._stats.get_counters(*shown), series)
        counters, series = bound
        counters.nums.add(count, times)
        counters.size.add(size, times)
        self._stats.broker_get_nums.add(count, times)
        self._store_stats.get_found_times += times
        self._store_stats.get_transferred += count
        if series is not None:
            values = self._values
            values[series.messages] += count
            values[series.size] += size

    def add_answers(self, request_code: int, code: int, count: int = 1) -> None:
        """`count` requests of this turn were answered with `code`."""
        answers = self._turn_answers
        key = (request_code, code)
        answers[key] = answers.get(key, 0) + count

    def add_oneway(self, request_code: int, code: int) -> None:
        """A oneway request of this turn would have been answered with `code`."""
        oneways = self._turn_oneways
        key = (request_code, code)
        oneways[key] = oneways.get(key, 0) + 1

    def add_timed_answer(
        self, request_code: int, code: int, came_ns: int, *, oneway: bool = False
    ) -> None:
        """A request received at `came_ns`, before this turn or in a pool, is answered now."""
        elapsed_ms = (self.now_ns() - came_ns) / _NS_PER_MS
        self._metrics.answered(request_code, code, elapsed_ms, oneway=oneway)

    def add_late_answer(self, request_code: int, code: int, held_ms: int) -> None:
        """A pull was answered with `code` after it had been held for `held_ms`."""
        self._metrics.sent(request_code, code, held_ms, held=True)

    def turn_codes(self) -> set[int]:
        """The codes that were answered on the fast paths in this turn; before `end_turn`."""
        codes = {code for code, _ in (*self._turn_answers, *self._turn_oneways)}
        if self.sends.messages:
            codes.add(_SEND_V2)
        if self.pulls.answered:
            codes.add(_PULL)
        return codes

    def end_turn(self, elapsed_ns: int) -> None:
        """A turn of the loop is over; every put and get of it took at most `elapsed_ns`."""
        if self.sends.messages:
            self._end_sends(elapsed_ns)
        if self.pulls.answered:
            self._end_pulls(elapsed_ns)
        if self._turn_get:
            self._turn_get = False
            longest = max(self._store_stats.get_entire_time_max_ms, elapsed_ns // _NS_PER_MS)
            self._store_stats.get_entire_time_max_ms = longest
        if self._turn_answers:
            elapsed_ms = elapsed_ns / _NS_PER_MS
            for (request_code, code), count in self._turn_answers.items():
                if request_code in _OF_POOLS:
                    self._metrics.answered(request_code, code, elapsed_ms, count=count)
                else:
                    self._metrics.sent(request_code, code, elapsed_ms, count)
            self._turn_answers.clear()
        if self._turn_oneways:
            elapsed_ms = elapsed_ns / _NS_PER_MS
            for (request_code, code), count in self._turn_oneways.items():
                if request_code in _OF_POOLS:
                    self._metrics.answered(request_code, code, elapsed_ms, oneway=True, count=count)
                else:
                    self._metrics.dropped(request_code, code, elapsed_ms, count)
            self._turn_oneways.clear()

    def _end_sends(self, elapsed_ns: int) -> None:
        sends = self.sends
        if elapsed_ns < _NS_PER_MS:
            self._quick_turns += 1
            self._quick_messages += sends.messages
            self._quick_size += sends.size
            self._quick_answered += sends.answered
            self._quick_answered_ns += sends.answered * elapsed_ns
            if self._quick_turns >= _QUICK_TURNS:
                self.publish()
        else:
            self._publish_put(sends.messages, sends.size, elapsed_ns)
            self._answered(sends.answered, sends.answered * elapsed_ns)
            self.publish()
        sends.messages = sends.size = sends.answered = 0

    def _end_pulls(self, elapsed_ns: int) -> None:
        answered = self.pulls.answered
        self.pulls.answered = 0
        self._quick_pulls += answered
        self._quick_pulls_ns += answered * elapsed_ns
        self._quick_pull_turns += 1
        is_long = elapsed_ns >= _NS_PER_MS
        self._turn_get = self._turn_get or is_long
        if is_long or self._quick_pull_turns >= _QUICK_TURNS:
            self._publish_pulls()

    def _publish_pulls(self) -> None:
        found = self.pulls.found
        for (group, topic), (times, count, size) in found.items():
            self._count_get(group, topic, times, count, size)
        found.clear()
        count = self._quick_pulls
        if count:
            self._metrics.sent(_PULL, _SUCCESS, self._quick_pulls_ns / _NS_PER_MS / count, count)
        self._quick_pull_turns = self._quick_pulls = self._quick_pulls_ns = 0

    def publish(self) -> None:
        """Publish the counts of the fast paths; see the module for how often."""
        if self.pulls.found or self._quick_pulls:
            self._publish_pulls()
        sends = self.sends
        if not (
            self._quick_turns or sends.normal or sends.fifo or sends.transactions or sends.delayed
        ):
            return  # Before most sleeps.
        for counts, message_type in (
            (sends.normal, _NORMAL),
            (sends.fifo, _FIFO),
            (sends.transactions, _TRANSACTION),
        ):
            if counts:
                for topic, (count, size) in counts.items():
                    self._count_put(topic, count, size, message_type)
                counts.clear()
        if sends.delayed:
            for level, (count, size) in sends.delayed.items():
                self._count_put(SCHEDULE_TOPIC, count, size, _DELAY)
                self._stats.inc_queue_put(SCHEDULE_TOPIC, int(level) - 1, nums=count, size=size)
            sends.delayed.clear()
        if self._quick_turns:
            self._publish_put(self._quick_messages, self._quick_size, 0)
            self._answered(self._quick_answered, self._quick_answered_ns)
            self._quick_turns = self._quick_messages = self._quick_size = 0
            self._quick_answered = self._quick_answered_ns = 0

    def _publish_put(self, messages: int, size: int, elapsed_ns: int) -> None:
        self._store_stats.add_put(messages, size, elapsed_ns // _NS_PER_MS)

    def _answered(self, count: int, elapsed_ns: int) -> None:
        """`count` sends were answered, in `elapsed_ns` in total."""
        if count:
            self._metrics.sent(_SEND_V2, _SUCCESS, elapsed_ns / _NS_PER_MS / count, count)
