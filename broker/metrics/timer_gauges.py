"""TimerGauges: how far process `store` is behind in entering timer messages, sampled.

Runs on the scheduled executor of `remoting`, the only writer of these series. What waits in the
wheel is timer_facts.py's.
"""

from __future__ import annotations

from broker.metrics import metrics_table as table
from broker.metrics.broker_gauges import SAMPLING_MS
from broker.store_access.store_access import StoreAccess
from broker.topic.system_topics import TIMER_TOPIC
from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.metric_slots import MetricSlots
from ipc.scheduled_executor import ScheduledExecutor
from remoting.metrics.metric import Metric
from store.errors import QueueDamagedError
from store.timer.timer_slots import TIMER_COMMIT_QUEUE_OFFSET, TIMER_OPENED


class TimerGauges:
    """See the module. Owned by: the scheduled executor."""

    def __init__(
        self, slots: MetricSlots, page: ControlPage, queues: StoreAccess, clock: Clock
    ) -> None:
        self._slots = slots
        self._counters = page.counters
        self._queues = queues
        self._clock = clock

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """Start sampling."""
        executor.schedule(
            "metrics-timers", self.sample, first_delay_ms=1_000, period_ms=SAMPLING_MS
        )

    def sample(self) -> None:
        """Runs every 5 s; nothing while the store recovers its timers."""
        if not self._counters[TIMER_OPENED]:
            return
        entered = self._counters[TIMER_COMMIT_QUEUE_OFFSET]
        low, high = self._queues.offsets(TIMER_TOPIC, 0)
        behind = max(high - max(entered, low), 0)
        self._set(table.TIMER_ENQUEUE_LAG, behind)
        age_ms = self._age_ms(max(entered, low)) if behind else 0
        self._set(table.TIMER_ENQUEUE_LATENCY, age_ms)

    def _age_ms(self, offset: int) -> int:
        try:
            unit = self._queues.unit_at(TIMER_TOPIC, 0, offset)
        except QueueDamagedError:
            # Reported where it was found; the next sample sees it rebuilt.
            unit = None
        stored_ms = 0 if unit is None else self._queues.store_timestamp_at(unit[0])
        return max(self._clock.now_ms() - stored_ms, 0) if stored_ms > 0 else 0

    def _set(self, metric: Metric, value: float) -> None:
        self._slots.values[self._slots.find(metric.name, table.STORAGE)] = value
