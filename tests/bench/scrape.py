"""What metrics cost: the time of a scrape with many topics, and of counting.

    .venv/bin/python -m tests.bench.scrape [--topics 2000] [--scrapes 20]

The real HTTP server over slots that hold `topics` topics with one consumer group each (every
metric of a topic or group, ten request codes, two replicas); somebody counts between the scrapes.
Beside it: the same rows through prometheus_client's own encoders. No other process is started.
"""

from __future__ import annotations

import argparse
import functools
import http.client
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import Metric as Family
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from broker.metrics import metrics_table as table
from broker.metrics.supervisor_metrics import SupervisorMetrics
from broker.supervisor.listening_sockets import bind_listener, port_of
from remoting.metrics.metrics_server import MetricsServer
from remoting.metrics.metrics_text import family
from tests.broker.broker_fakes import CONFIG
from tests.broker.metrics_world import BASE, OPENMETRICS, MetricsWorld

_OF_A_TOPIC = (table.MESSAGES_IN, table.THROUGHPUT_IN)
_OF_A_GROUP = (
    table.MESSAGES_OUT,
    table.THROUGHPUT_OUT,
    table.CONSUMER_LAG_MESSAGES,
    table.CONSUMER_LAG_LATENCY,
    table.CONSUMER_CONNECTIONS,
)
_BY_LABEL = {"topic": "OrderTopic-{}", "consumer_group": "order-consumers-{}"}


def fill(world: MetricsWorld, topics: int) -> list[int]:
    """All series; their slots."""
    slots = []
    for number in range(topics):
        for metric in (*_OF_A_TOPIC, *_OF_A_GROUP):
            labels = tuple(_BY_LABEL.get(name, "value").format(number) for name in metric.labels)
            slots.append(world.slots.find(metric.name, labels))
    for code in range(10):
        metric = table.RPC_LATENCY
        labels = ("remoting", f"request_{code}", "success", "false", "success")
        first = world.slots.find(metric.name, labels, metric.size)
        slots += range(first, first + metric.size)
    for metric in table.METRICS:
        if metric.labels == table.REPLICA_LABELS:
            for replica in ("broker-a:1", "broker-a:2"):
                slots.append(world.ha_slots.find(metric.name, (replica, "SYNC_MASTER")))
    return slots


class _Families(Collector):
    def __init__(self, world: MetricsWorld) -> None:
        self._world = world

    def collect(self) -> Iterator[Family]:
        for metric, rows in self._world.collector.collect():
            yield family(metric, BASE, rows)


def get(port: int, headers: dict[str, str]) -> int:
    """One scrape; its size in bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/metrics", headers=headers)
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        return len(body)
    finally:
        connection.close()


def median_ms(action: Callable[[], object], between: Callable[[], None], count: int) -> float:
    """Median time of `action`; `between` is not measured."""
    times = []
    for _ in range(count):
        between()
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def counting_ns(world: MetricsWorld, slots: list[int]) -> float:
    """Time of one `values[slot] += 1`, that of the loop around it taken off."""
    values, turns = world.slots.values, 200

    def loop_only() -> None:
        for _ in range(turns):
            for _slot in slots:
                pass

    def count() -> None:
        for _ in range(turns):
            for slot in slots:
                values[slot] += 1

    def best(action: Callable[[], None]) -> float:
        return min(median_ms(action, lambda: None, 1) for _ in range(5))

    return (best(count) - best(loop_only)) * 1e6 / (turns * len(slots))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--scrapes", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        world = MetricsWorld(Path(root), max_series=100_000)
        slots = fill(world, options.topics)
        listening = bind_listener("127.0.0.1", 0, 5, "metricsPort")
        port = port_of(listening)
        server = MetricsServer(listening, SupervisorMetrics(world.collector, CONFIG))
        server.start()

        def count() -> None:
            for slot in slots:
                world.slots.values[slot] += 3

        print(f"{options.topics} topics x 1 group, {len(slots)} slots")
        began = time.perf_counter()
        get(port, {})
        print(f"first scrape                {(time.perf_counter() - began) * 1000:8.1f} ms")
        ways: dict[str, dict[str, str]] = {
            "text": {},
            "OpenMetrics": {"Accept": OPENMETRICS},
            "OpenMetrics, gzip": {"Accept": OPENMETRICS, "Accept-Encoding": "gzip"},
        }
        for name, headers in ways.items():
            took = median_ms(functools.partial(get, port, headers), count, options.scrapes)
            size = get(port, headers)
            print(f"scrape, {name:19} {took:8.1f} ms  {size / 1e6:6.2f} MB")
        took = median_ms(lambda: list(world.collector.collect()), count, options.scrapes)
        print(f"of it: reading the slots    {took:8.1f} ms")
        for name, encode in (("text", generate_latest), ("OpenMetrics", generate_openmetrics)):
            took = median_ms(functools.partial(encode, _Families(world)), count, 5)
            print(f"prometheus_client, {name:9}{took:8.1f} ms")
        print(f"values[slot] += 1           {counting_ns(world, slots[:1000]):8.1f} ns")
        server.shutdown()
        listening.close()


if __name__ == "__main__":
    main()
