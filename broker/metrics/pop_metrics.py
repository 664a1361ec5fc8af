"""PopMetrics: the metrics of pop: what goes into the revive topic and out of it, and the buffer.

Runs on the loop thread of `remoting`, the only writer of these series: counters where something
happens, gauges every few seconds (PopServices). Names, labels and their values follow
PopMetricsManager of RocketMQ 5.x. Knows no request.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import Final

from broker.metrics import metrics_table as table
from ipc.metric_slots import MetricSlots
from remoting.metrics.metric import Metric
from remoting.response_code import ResponseCode

_PUT_STATUS: Final = {
    ResponseCode.SUCCESS: "PUT_OK",
    ResponseCode.MESSAGE_ILLEGAL: "MESSAGE_ILLEGAL",
    ResponseCode.SERVICE_NOT_AVAILABLE: "SERVICE_NOT_AVAILABLE",
}
_UNKNOWN: Final = "UNKNOWN_ERROR"
_SCAN_BOUNDS: Final = table.POP_BUFFER_SCAN_TIME.buckets
_COUNTERS: Final = (table.POP_REVIVE_IN, table.POP_REVIVE_OUT, table.POP_REVIVE_RETRY)
"""Their first labels are group and topic."""


class PopMetrics:
    """See the module. Owned by: the loop thread."""

    def __init__(self, slots: MetricSlots) -> None:
        self._slots = slots
        self._found: dict[tuple[str, tuple[str, ...]], int] = {}
        metric = table.POP_BUFFER_SCAN_TIME
        self._scans = slots.find(metric.name, (), metric.size)

    # -- counters ------------------------------------------------------------------------------

    def scanned(self, elapsed_ms: float) -> None:
        """The buffer was looked through."""
        values = self._slots.values
        values[self._scans + bisect_left(_SCAN_BOUNDS, elapsed_ms)] += 1
        values[self._scans + len(_SCAN_BOUNDS) + 1] += elapsed_ms

    def stored(self, group: str, topic: str, kind: str, code: ResponseCode) -> None:
        """A record of `kind` (CK, ACK) was stored for the revive topic, or was not."""
        self._add(table.POP_REVIVE_IN, (group, topic, kind, _PUT_STATUS.get(code, _UNKNOWN)))

    def taken(self, group: str, topic: str, queue_id: int, kind: str) -> None:
        """A record of `kind` was read from a queue of the revive topic."""
        self._add(table.POP_REVIVE_OUT, (group, topic, str(queue_id), kind))

    def copied(self, group: str, topic: str, code: ResponseCode) -> None:
        """A message was copied to its retry topic, or the log did not take it."""
        self._add(table.POP_REVIVE_RETRY, (group, topic, _PUT_STATUS.get(code, _UNKNOWN)))

    def _add(self, metric: Metric, labels: tuple[str, ...]) -> None:
        slot = self._found.get((metric.name, labels))
        if slot is None:
            slot = self._found[metric.name, labels] = self._slots.find(metric.name, labels)
        self._slots.values[slot] += 1

    # -- gauges --------------------------------------------------------------------------------

    def sample(
        self, offsets: int, check_points: int, behind: Iterable[tuple[int, int, int]]
    ) -> None:
        """offsets: pops that the offset has not passed; check_points: that are buffered; behind:
        queue id, records, ms of each queue of the revive topic."""
        self._set(table.POP_OFFSET_BUFFER_SIZE, (), offsets)
        self._set(table.POP_CHECKPOINT_BUFFER_SIZE, (), check_points)
        for queue_id, records, age_ms in behind:
            self._set(table.POP_REVIVE_LAG, (str(queue_id),), records)
            self._set(table.POP_REVIVE_LATENCY, (str(queue_id),), age_ms)

    def _set(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        self._slots.values[self._slots.find(metric.name, labels)] = value

    def hide_gone(self, topics: Collection[str], groups: Collection[str]) -> None:
        """Hide the series of deleted topics and groups."""
        self._found.clear()
        for metric in _COUNTERS:
            for labels in self._slots.series(metric.name):
                if labels[0] not in groups or labels[1] not in topics:
                    self._slots.hide(metric.name, labels)
