"""TimerCounts: timer messages that were entered into the wheel, or left it, by topic.

One object a process, for one metric: in `store` for those that are entered (thread of
TimerMessageStore), in `remoting` for those that are delivered (loop thread). It remembers the slot
of each topic, so nobody else may hide these series. `store` knows no topics and hides none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.metrics.metrics_table import STORAGE
from ipc.metric_slots import MetricSlots
from remoting.metrics.metric import Metric


class TimerCounts:
    """See the module. Owned by: the one thread that counts."""

    def __init__(self, slots: MetricSlots, metric: Metric) -> None:
        self._slots = slots
        self._name = metric.name
        self._found: dict[str, int] = {}

    def add(self, topic: str, count: int = 1) -> None:
        """`count` messages for `topic`, their real one; empty: it is not known."""
        slot = self._found.get(topic)
        if slot is None:
            slot = self._found[topic] = self._slots.find(self._name, (*STORAGE, topic))
        self._slots.values[slot] += count

    def add_all(self, counts: Mapping[str, int]) -> None:
        """The same for several topics."""
        for topic, count in counts.items():
            self.add(topic, count)

    def hide_gone(self, topics: Collection[str]) -> None:
        """Hide the series of deleted topics."""
        self._found.clear()
        for labels in self._slots.series(self._name):
            if labels[-1] not in topics:
                self._slots.hide(self._name, labels)
