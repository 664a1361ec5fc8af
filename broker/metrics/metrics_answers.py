"""MetricsAnswers: the current metrics for request 28913, by the beginnings of their names.

Threads of a request pool in process `remoting`. Shows what the metric slots of all processes and
the control page tell, as /metrics does; what only the supervisor knows (its children, disk usage,
the timer wheel) it copies into slots of its own (SupervisorSlots). Knows no request.

Tested by tests/broker/metrics/test_metrics_answers.py.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final

from broker.metrics import metrics_table as table
from broker.metrics.page_metrics import page_sources
from broker.metrics.replica_view import ReplicaView
from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.metric_slots import MetricSlotsReader
from remoting.body.metrics_answer import MetricsAnswer
from remoting.metrics.metric import Kind, Metric, Rows

MAX_SERIES: Final = 10_000
"""Of one answer; each bucket of a histogram is one."""

Series = tuple[dict[str, str], float]


class MetricsAnswers:
    """See the module. Any thread: what it reads has locks of its own."""

    def __init__(self, slots_fd: int, page: ControlPage, clock: Clock) -> None:
        """slots_fd: from create_metric_slots; mapped at the first request."""
        self._slots_fd = slots_fd
        self._page = page
        self._clock = clock
        self._sources = page_sources(page.counters, clock)

    @functools.cached_property
    def _view(self) -> ReplicaView:
        # Without the supervisor's list of children a dead `ha` shows by its silence, 2 s later.
        return ReplicaView(MetricSlotsReader(self._slots_fd), self._page, lambda: (), self._clock)

    def answer(self, beginnings: Sequence[str]) -> MetricsAnswer:
        """All series of the metrics whose names begin like that, as far as there is room."""
        found: dict[str, list[Series]] = {}
        samples = self._samples(tuple(beginnings))
        for name, series in itertools.islice(samples, MAX_SERIES):
            found.setdefault(name, []).append(series)
        is_cut = next(samples, None) is not None
        return MetricsAnswer(timestamp=self._clock.now_ms(), cut=is_cut, metrics=found)

    def _samples(self, beginnings: tuple[str, ...]) -> Iterator[tuple[str, Series]]:
        snapshot = self._view.look()
        for metric in table.METRICS:
            if metric in table.NOT_SHOWN or not metric.name.startswith(beginnings):
                continue
            source = self._sources.get(metric)
            if source is not None:
                rows = source()
            elif metric is table.HA_REPLICAS:
                rows = [((), [float(self._view.replica_count())])]
            else:
                rows = snapshot.read(metric.name)
            yield from _samples_of(metric, rows)


def _samples_of(metric: Metric, rows: Rows) -> Iterator[tuple[str, Series]]:
    """With the names and labels that /metrics gives them."""
    for label_values, values in rows:
        labels = dict(zip(metric.labels, label_values, strict=True))
        if not all(map(math.isfinite, values)):
            continue  # JSON has no such number; none of ours becomes that.
        if metric.kind is not Kind.HISTOGRAM:
            yield metric.name, (labels, values[0])
            continue
        bounds = [*map(str, map(float, metric.buckets)), "+Inf"]
        counts = list(itertools.accumulate(values[:-1]))
        for bound, count in zip(bounds, counts, strict=True):
            yield f"{metric.name}_bucket", ({**labels, "le": bound}, count)
        yield f"{metric.name}_count", (labels, counts[-1])
        yield f"{metric.name}_sum", (labels, values[-1])
