"""The series of a gauge, replaced as a whole by what is found now.

Any process, on the one thread that writes the gauge. Knows no metric by name; imported by the
supervisor before it forks, so nothing here may import numpy.

Tested by tests/broker/metrics/test_broker_gauges.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from ipc.metric_slots import OVERFLOW, MetricSlots
from remoting.metrics.metric import Metric

Labels = tuple[str, ...]


def set_series(
    slots: MetricSlots,
    metric: Metric,
    found: Mapping[Labels, float],
    merge: Callable[[float, float], float] = operator.add,
) -> None:
    """Replace the series of a gauge. `merge` combines two values that go into __overflow__."""
    overflow = (OVERFLOW,) * len(metric.labels)
    for labels in slots.series(metric.name).keys() - found.keys() - {overflow}:
        slots.hide(metric.name, labels)
    values: dict[int, float] = {}
    for labels, value in found.items():
        slot = slots.find(metric.name, labels)
        values[slot] = merge(values[slot], value) if slot in values else value
    for slot, value in values.items():
        slots.values[slot] = value
    if slots.series(metric.name).get(overflow) not in values:
        slots.hide(metric.name, overflow, is_gauge=True)
