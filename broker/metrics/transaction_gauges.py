"""TransactionGauges: which half messages wait now, sampled from WaitingHalves.

Runs on the scheduled executor of `remoting`, the only writer of these series. Nothing is shown
before a master knows what waited when it began, and by a slave, which serves no transactions. A
topic's row stays at 0 while the topic exists, as in 5.x; a group's ends with its last half.

Tested by tests/broker/metrics/test_transaction_metrics.py.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from broker.metrics import metrics_table as table
from broker.metrics.gauge_series import Labels, set_series
from broker.metrics.waiting_halves import Waiting, WaitingHalves
from broker.topic.topic_config_manager import TopicConfigManager
from ipc.clock import Clock
from ipc.metric_slots import MetricSlots
from ipc.scheduled_executor import ScheduledExecutor

SAMPLING_MS: Final = 1_000


class TransactionGauges:
    """See the module. Owned by: the scheduled executor."""

    def __init__(
        self,
        slots: MetricSlots,
        waiting: WaitingHalves,
        topics: TopicConfigManager,
        clock: Clock,
    ) -> None:
        self._slots = slots
        self._waiting = waiting
        self._topics = topics
        self._clock = clock
        self._shown: Collection[str] = ()
        """Topics with a row."""

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """Start sampling."""
        executor.schedule(
            "metrics-transactions", self.sample, first_delay_ms=SAMPLING_MS, period_ms=SAMPLING_MS
        )

    def sample(self) -> None:
        """Runs every second."""
        is_known = self._waiting.is_known
        rows = self._waiting.counts() if is_known else []
        if not rows and not self._shown:
            return
        by_topic = self._by_topic(rows) if is_known else {}
        self._shown = [topic for (topic,) in by_topic]
        set_series(self._slots, table.HALF_MESSAGES, by_topic)
        counts: dict[Labels, float] = {(row.topic, row.group): row.halves for row in rows}
        set_series(self._slots, table.WAITING_HALVES, counts)
        now_ms = self._clock.now_ms()
        ages: dict[Labels, float] = {
            (row.topic, row.group): max(now_ms - row.oldest_ms, 0) / 1000
            for row in rows
            if row.oldest_ms is not None
        }
        set_series(self._slots, table.OLDEST_HALF, ages, max)

    def _by_topic(self, rows: list[Waiting]) -> dict[Labels, float]:
        found: dict[Labels, float] = {
            (topic,): 0 for topic in self._shown if self._topics.find(topic) is not None
        }
        for row in rows:
            found[(row.topic,)] = found.get((row.topic,), 0) + row.halves
        return found
