"""TransactionMetrics: what becomes of half messages: which wait, how many ended, and how fast.

In process `remoting`. The loop thread says what is stored and what ends; the thread of the checks
whom it asks, and what it gives up; each writes series of its own. TransactionGauges has the gauges.
Names, labels and buckets that 5.x has are its own (TransactionMetrics, EndTransactionProcessor,
BrokerMetricsManager of 5.3.3). What a client says is counted only as far as the broker has done
something about it, and times are those of the broker's own clock, not of born timestamps.

Tested by tests/broker/metrics/test_transaction_metrics.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import Final

from broker.metrics import metrics_table as table
from broker.metrics.waiting_halves import WaitingHalves
from ipc.metric_slots import MetricSlots
from remoting.metrics.metric import Metric
from store.message_properties import find_property

COMMIT: Final = "commit"
ROLLBACK: Final = "rollback"
UNKNOWN_TOPIC: Final = "unknown"
"""Of a half that does not say which topic it is for: it can only be rolled back."""
_GROUP: Final = b"PGROUP"
_COUNTERS: Final = {COMMIT: table.COMMIT_MESSAGES, ROLLBACK: table.ROLLBACK_MESSAGES}
_BY_TOPIC: Final = (
    *_COUNTERS.values(),
    table.TRANSACTION_CHECKS,
    table.HALVES_GIVEN_UP,
    table.FINISH_MESSAGE_LATENCY,
)
_MS_PER_S: Final = 1_000


class TransactionMetrics:
    """See the module. Owned by: the loop thread, except for `asked` and `given_up`."""

    def __init__(self, slots: MetricSlots) -> None:
        self._slots = slots
        self._values = slots.values
        finish = table.TRANSACTION_FINISH
        self._finish = {
            result: slots.find(finish.name, (result,), finish.size) for result in _COUNTERS
        }
        self.waiting: Final = WaitingHalves()

    # -- loop thread ---------------------------------------------------------------------------

    def stored(self, half: int, topic: str, properties: bytes, now_ms: int) -> None:
        """A half of a message for `topic` was stored at this place of the half queue."""
        self.waiting.add(half, topic, group_of(properties), now_ms)

    def ended(
        self, halves: Iterable[int], topic: str, result: str, now_ms: int, stored_ms: int | None
    ) -> None:
        """A half was ended: `halves` are it and its copies. stored_ms: that of the record that its
        end named; what is known here goes before it, since copies are younger."""
        for half in halves:
            first_ms = self.waiting.remove(half)
            stored_ms = stored_ms if first_ms is None else first_ms
        self._add(_COUNTERS[result], topic)
        if stored_ms is None:
            return
        waited_ms = max(now_ms - stored_ms, 0)
        self._observe(table.TRANSACTION_FINISH, self._finish[result], waited_ms / _MS_PER_S)
        if result == COMMIT:
            metric = table.FINISH_MESSAGE_LATENCY
            slot = self._slots.find(metric.name, (topic,), metric.size)
            self._observe(metric, slot, waited_ms // _MS_PER_S)

    def hide_gone(self, topics: Collection[str]) -> None:
        """Hide the series of deleted topics."""
        for metric in _BY_TOPIC:
            for labels in self._slots.series(metric.name):
                if labels[0] not in topics:
                    self._slots.hide(metric.name, labels)

    # -- thread of the checks ------------------------------------------------------------------

    def asked(self, topic: str) -> None:
        """A producer was asked about a half of `topic`."""
        self._add(table.TRANSACTION_CHECKS, topic)

    def given_up(self, topic: str) -> None:
        """A half of `topic` was put aside for good."""
        self._add(table.HALVES_GIVEN_UP, topic)

    # -- slots ---------------------------------------------------------------------------------

    def _add(self, metric: Metric, topic: str) -> None:
        self._values[self._slots.find(metric.name, (topic,))] += 1

    def _observe(self, metric: Metric, slot: int, value: float) -> None:
        bounds = metric.buckets
        self._values[slot + bisect_left(bounds, value)] += 1
        self._values[slot + len(bounds) + 1] += value


def group_of(properties: bytes) -> str:
    """The producer group of a half, as its sender wrote it."""
    group = find_property(properties, _GROUP)
    return "" if group is None else str(group, "utf-8", "replace")
