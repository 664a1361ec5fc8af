"""What a supervisor's metrics are made of, without processes: page, slots, children, clock."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from broker.metrics.metrics_collector import BrokerCollector, StorageFacts
from ipc.control_page import ProcessIndex
from ipc.metric_slots import MetricSlots, MetricSlotsReader, create_metric_slots
from remoting.metrics.metric import Metric
from remoting.metrics.metrics_text import MetricsText
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import close_page, fresh_page

BASE = {"cluster": "GoldenCluster", "node_type": "broker", "node_id": "broker-g"}
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


def child(name: str, *, process: object = "runs", restarts: int = 0, started_ms: int = 0) -> Any:
    """As ChildState, of a child that beats."""
    spec = SimpleNamespace(name=name, index=ProcessIndex[name.upper()])
    return SimpleNamespace(
        spec=spec,
        process=process,
        restarts=restarts,
        started_ms=started_ms,
        last_beat=-1,
        has_beaten=True,
        beat_at_ms=started_ms,
    )


class MetricsWorld:
    def __init__(self, root: Path, *, replicas_needed: int = 0, max_series: int = 10_000) -> None:
        self.root = root
        self.page = fresh_page()
        self.clock = ManualClock(monotonic_ms=50_000)
        self.children: list[Any] = [child("store"), child("ha"), child("remoting")]
        self.slots_fd = create_metric_slots()
        self.slots = MetricSlots(self.slots_fd, ProcessIndex.REMOTING, max_series=max_series)
        self.ha_slots = MetricSlots(self.slots_fd, ProcessIndex.HA)
        self.reader = MetricSlotsReader(self.slots_fd)
        self.collector = BrokerCollector(
            self.reader,
            self.page,
            lambda: self.children,
            StorageFacts(root, root / "commitlog"),
            self.clock,
            replicas_needed=replicas_needed,
            dump_interval_s=5,
        )
        self._text = MetricsText(BASE)

    def set(self, metric: Metric, value: float, *labels: str, ha: bool = False) -> None:
        slots = self.ha_slots if ha else self.slots
        slots.values[slots.find(metric.name, labels, metric.size)] = value

    def text(self, accept: str = "") -> str:
        return self._text.encode(self.collector.collect(), accept)[0].decode()

    def samples(self, accept: str = "") -> dict[str, dict[tuple[str, ...], float]]:
        """Name to label values (base labels checked and left out, in the table's order)."""
        return samples_of(self.text(accept), is_openmetrics="openmetrics" in accept)

    def close(self) -> None:
        for mapping in (self.slots, self.ha_slots, self.reader):
            mapping.close()
        os.close(self.slots_fd)
        close_page(self.page)


def families_of(text: str, *, is_openmetrics: bool = False) -> list[Family]:
    parse = parse_openmetrics if is_openmetrics else parse_text
    return list(parse(text))


def samples_of(
    text: str, *, is_openmetrics: bool = False, base: Mapping[str, str] = BASE
) -> dict[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in families_of(text, is_openmetrics=is_openmetrics):
        for sample in family.samples:
            own = tuple(_own_labels(sample.labels, base))
            assert own not in found.get(sample.name, {}), f"{sample.name} {own} is there twice"
            found.setdefault(sample.name, {})[own] = sample.value
    return found


def _own_labels(labels: Mapping[str, str], base: Mapping[str, str]) -> Iterator[str]:
    assert {name: labels[name] for name in base} == base
    for name, value in labels.items():  # Sorted by name, as they are written.
        if name not in base:
            yield value
