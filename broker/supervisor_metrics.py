"""/metrics, /healthz and /readyz of the whole broker: the supervisor's small HTTP server.

Runs on threads of its own in the supervisor process; reads the control page at each request and
holds no state. A child that is down is a value, not an absence. The full table of metrics comes
with the metrics issue; these are what the control page knows by itself.
"""

from __future__ import annotations

import http.server
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from broker.broker_config import BrokerConfig
from broker.supervisor import ChildState
from ha.refusals import RefusalReason
from store.clock import Clock
from store.control_page import (
    DISPATCHED_OFFSET,
    FLUSHED_OFFSET,
    HA_REFUSALS,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    REMOTING_READY,
    REPLICA_COUNT,
    REPLICATED_OFFSET,
    RUNNING_FLAGS,
    SLAVE_SYNC_FAILURES,
    SLAVE_SYNC_SUCCESS,
    STORE_STATE,
    ControlPage,
    StoreState,
)

log = logging.getLogger(__name__)

_OFFSETS: Final = {
    "min": MIN_PHY_OFFSET,
    "max": MAX_PHY_OFFSET,
    "dispatched": DISPATCHED_OFFSET,
    "flushed": FLUSHED_OFFSET,
    "replicated": REPLICATED_OFFSET,
}
_LABELS: Final = ["cluster", "broker"]
_SYNC_KINDS: Final = ("topics", "consumer_offsets", "delay_offsets", "subscription_groups")
"""In the order of their slots."""
_REQUEST_TIMEOUT_S: Final = 10.0


class ControlPageCollector(Collector):
    """The control page and the children as metrics."""

    def __init__(
        self,
        page: ControlPage,
        children: Callable[[], Iterable[ChildState]],
        broker: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._counters = page.counters
        self._children = children
        self._clock = clock
        self._labels = [broker.broker_cluster_name, broker.broker_name]

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus_client at each scrape."""
        yield from self._store()
        yield from self._replication()
        yield from self._slave_sync()
        yield from self._processes()

    def _store(self) -> Iterator[Metric]:
        names = _LABELS
        offsets = GaugeMetricFamily(
            "rocketmq_store_offset_bytes", "positions in the commit log", labels=[*names, "kind"]
        )
        for kind, slot in _OFFSETS.items():
            offsets.add_metric([*self._labels, kind], self._counters[slot])
        yield offsets
        writable = GaugeMetricFamily(
            "rocketmq_store_writable", "1 while the store accepts writes", labels=names
        )
        writable.add_metric(self._labels, 0 if self._counters[RUNNING_FLAGS] else 1)
        yield writable

    def _replication(self) -> Iterator[Metric]:
        replicas = GaugeMetricFamily(
            "rocketmq_ha_replicas",
            "distinct slaves that are connected and not further back than haSlaveFallbehindMax",
            labels=_LABELS,
        )
        replicas.add_metric(self._labels, self._counters[REPLICA_COUNT])
        yield replicas
        refused = CounterMetricFamily(
            "rocketmq_ha_links_refused",
            "replication links refused or closed, by reason",
            labels=[*_LABELS, "reason"],
        )
        for reason in RefusalReason:
            count = self._counters[HA_REFUSALS + reason]
            refused.add_metric([*self._labels, reason.name.lower()], count)
        yield refused

    def _slave_sync(self) -> Iterator[Metric]:
        """Only what a slave has: before its first success a kind has no age."""
        names = [*_LABELS, "kind"]
        age = GaugeMetricFamily(
            "rocketmq_slave_sync_age_seconds",
            "time since a kind of metadata was last taken over from the master",
            labels=names,
        )
        failures = CounterMetricFamily(
            "rocketmq_slave_sync_failures", "failed takeovers of metadata", labels=names
        )
        for number, kind in enumerate(_SYNC_KINDS):
            last_ms = self._counters[SLAVE_SYNC_SUCCESS + number]
            if last_ms:
                age.add_metric([*self._labels, kind], (self._clock.now_ms() - last_ms) / 1000)
            failures.add_metric([*self._labels, kind], self._counters[SLAVE_SYNC_FAILURES + number])
        yield age
        yield failures

    def _processes(self) -> Iterator[Metric]:
        names = _LABELS
        up = GaugeMetricFamily("rocketmq_process_up", "1 while it runs", labels=[*names, "process"])
        restarts = CounterMetricFamily(
            "rocketmq_process_restarts", "restarts by the supervisor", labels=[*names, "process"]
        )
        for child in self._children():
            labels = [*self._labels, child.spec.name]
            up.add_metric(labels, 0 if child.process is None else 1)
            restarts.add_metric(labels, child.restarts)
        yield up
        yield restarts


class SupervisorMetrics:
    """The HTTP server. `start` and `shutdown` on the supervisor's main thread."""

    def __init__(
        self,
        listening: socket.socket,
        page: ControlPage,
        children: Callable[[], Iterable[ChildState]],
        broker: BrokerConfig,
        clock: Clock,
    ) -> None:
        registry = CollectorRegistry()
        registry.register(ControlPageCollector(page, children, broker, clock))
        counters = page.counters

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = _REQUEST_TIMEOUT_S

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                    self._send(200, content_type, encode(registry))
                elif path == "/healthz":
                    dead = [c.spec.name for c in children() if c.process is None]
                    text = f"down: {', '.join(dead)}\n" if dead else "ok\n"
                    self._send(503 if dead else 200, "text/plain", text.encode())
                elif path == "/readyz":
                    reason = _why_not_ready(counters)
                    text = f"{reason or 'ready'}\n"
                    self._send(503 if reason else 200, "text/plain", text.encode())
                else:
                    self._send(404, "text/plain", b"/metrics /healthz /readyz\n")

            def _send(self, status: int, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                log.debug("metrics: " + format, *args)

        listening.setblocking(True)
        self._server = http.server.ThreadingHTTPServer(("", 0), Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listening
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="MetricsServer", daemon=True
        )

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def shutdown(self) -> None:
        """Serve no more."""
        self._server.shutdown()


def _why_not_ready(counters: memoryview[int]) -> str:
    if counters[STORE_STATE] != StoreState.READY:
        return "the store is not ready"
    if not counters[REMOTING_READY]:
        return "remoting is not ready"
    if counters[RUNNING_FLAGS]:
        return "the store refuses writes"
    return ""
