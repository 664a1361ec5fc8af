"""What a metric is: name, kind, help, labels; and the rows of its series.

Plain data of those who count and of those who show.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

Labels = tuple[str, ...]
Rows = list[tuple[Labels, list[float]]]
"""Label values (without the base labels) to values, for each series of a metric; a histogram has as
many as `Metric.size` says."""


class Kind(enum.StrEnum):
    """Metric type in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `name` is the exposed one, with `_total` for counters; `labels` without the base
    labels; `buckets`: upper bounds of a histogram, +Inf not included."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        """Values per series. A histogram has its bucket counts (not cumulative, +Inf last), then
        the sum of its observations."""
        return len(self.buckets) + 2 if self.kind is Kind.HISTOGRAM else 1


def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Metric:
    """A value that goes up and down."""
    return Metric(name, Kind.GAUGE, text, labels)


def histogram(name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> Metric:
    """Observations by size."""
    return Metric(name, Kind.HISTOGRAM, text, labels, buckets)


def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Metric:
    """A count that only grows."""
    return Metric(name, Kind.COUNTER, text, labels)
