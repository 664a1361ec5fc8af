"""Formats rows of metrics as Prometheus text: its own format and OpenMetrics.

Any thread; one text at a time. prometheus_client formats each line only once: the
part before the value (name, labels, escapes) is cached for as long as the series exists, since the
library takes 8 µs a line (11 in OpenMetrics), which is 0.1 s for 2,000 topics. No `_created` lines:
they would double the number of series, and counters are never reset silently here.

Tested by tests/broker/metrics/test_metrics_collector.py.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import Metric as Family
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import (
    CONTENT_TYPE_PLAIN_0_0_4,
    generate_latest,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from remoting.metrics.http_accept import parse_accepted
from remoting.metrics.metric import Kind, Labels, Metric, Rows

_HEAD_LINES: Final = 2
"""Number of header lines (HELP and TYPE)."""
_END: Final = "# EOF\n"
_number: Callable[[float], str] = floatToGoString
_OPENMETRICS: Final = "application/openmetrics-text"
_VERSIONS: Final = ("", "1.0.0")
"""OpenMetrics versions served: that of openmetrics.CONTENT_TYPE_LATEST, or none requested."""
_PLAIN_RANGES: Final = ("text/plain", "text/*", "*/*")
"""Media ranges for plain text; the most specific one present decides."""


def accepts_openmetrics(accept: str) -> bool:
    """Whether to serve OpenMetrics for this Accept header: only if the client lists it and does not
    prefer plain text. All others get plain text, which every client can read."""
    openmetrics_quality = 0.0
    plain: dict[str, float] = {}
    for name, parameters, quality in parse_accepted(accept):
        if name == _OPENMETRICS and parameters.get("version", "") in _VERSIONS:
            openmetrics_quality = max(openmetrics_quality, quality)
        elif name in _PLAIN_RANGES:
            plain[name] = max(plain.get(name, 0.0), quality)
    plain_quality = next((plain[name] for name in _PLAIN_RANGES if name in plain), 0.0)
    return openmetrics_quality > 0 and openmetrics_quality >= plain_quality


class _Families(Collector):
    """A registry for prometheus_client's encoders."""

    def __init__(self, *families: Family) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def family(metric: Metric, base: Mapping[str, str], rows: Rows) -> Family:
    """Rows as a metric family of prometheus_client; base: labels on each. Raises ValueError for a
    series whose labels do not match the metric's."""
    for labels, _ in rows:
        if len(labels) != len(metric.labels):
            raise ValueError(f"{metric.name}: {labels!r} for the labels {metric.labels!r}")
    names = (*base, *metric.labels)
    name = metric.name.removesuffix("_total")
    if metric.kind is Kind.HISTOGRAM:
        bounds = [*(_number(bound) for bound in metric.buckets), "+Inf"]
        histogram = HistogramMetricFamily(name, metric.help, labels=names)
        for labels, values in rows:
            counts = itertools.accumulate(values[:-1])
            buckets = list(zip(bounds, counts, strict=True))
            histogram.add_metric([*base.values(), *labels], buckets, values[-1])
        return histogram
    is_counter = metric.kind is Kind.COUNTER
    single = (CounterMetricFamily if is_counter else GaugeMetricFamily)(
        name, metric.help, labels=names
    )
    for labels, values in rows:
        single.add_metric([*base.values(), *labels], values[0])
    return single


class MetricsText:
    """Builds the text. Guarded by: its lock."""

    def __init__(self, base: Mapping[str, str]) -> None:
        """base: labels that every series has before its own."""
        self._base = base
        self._lock = threading.Lock()
        self._heads: dict[tuple[Metric, bool], str] = {}
        self._beginnings: dict[Metric, dict[Labels, list[str]]] = {}

    def encode(self, collected: Iterable[tuple[Metric, Rows]], accept: str) -> tuple[bytes, str]:
        """The text and its content type, for an HTTP client's Accept header."""
        is_openmetrics = accepts_openmetrics(accept)
        with self._lock:
            parts: list[str] = []
            for metric, rows in collected:
                parts.append(self._head(metric, is_openmetrics))
                self._add_lines(parts, metric, rows)
        if is_openmetrics:
            parts.append(_END)
            return "".join(parts).encode(), openmetrics.CONTENT_TYPE_LATEST
        return "".join(parts).encode(), CONTENT_TYPE_PLAIN_0_0_4

    def _head(self, metric: Metric, is_openmetrics: bool) -> str:
        key = (metric, is_openmetrics)
        if key not in self._heads:
            encode = openmetrics.generate_latest if is_openmetrics else generate_latest
            text = encode(_Families(family(metric, self._base, []))).decode()
            self._heads[key] = text.removesuffix(_END)
        return self._heads[key]

    def _add_lines(self, parts: list[str], metric: Metric, rows: Rows) -> None:
        known = self._beginnings.setdefault(metric, {})
        new = [row for row in rows if row[0] not in known]
        if new:
            known.update(self._written(metric, new))
        if len(known) > len(rows):
            known = {labels: known[labels] for labels, _ in rows}
            self._beginnings[metric] = known
        if metric.kind is Kind.HISTOGRAM:
            for labels, values in rows:
                counts = list(itertools.accumulate(values[:-1]))
                numbers = (*counts, counts[-1], values[-1])
                for beginning, number in zip(known[labels], numbers, strict=True):
                    parts.append(f"{beginning}{_number(number)}\n")
        else:
            for labels, values in rows:
                parts.append(f"{known[labels][0]}{_number(values[0])}\n")

    def _written(self, metric: Metric, rows: Rows) -> dict[Labels, list[str]]:
        """The lines of each series without their values: buckets, count and sum of a histogram, one
        line for other metrics. The same in both formats."""
        text = generate_latest(_Families(family(metric, self._base, rows))).decode()
        lines = text.split("\n")[_HEAD_LINES:-1]
        count, rest = divmod(len(lines), len(rows))
        assert rest == 0
        beginnings = [line[: line.rindex(" ") + 1] for line in lines]
        return {
            labels: beginnings[number * count : (number + 1) * count]
            for number, (labels, _) in enumerate(rows)
        }
