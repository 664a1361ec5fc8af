"""The metrics collector: every metric of broker/metrics/metrics_table.py that has a source, as
rows.

Any thread of the supervisor, at each scrape. Most rows come from the metric slots that the
processes write; the rest from control page, children and the store's partition. A process that is
down is shown as a value, not as a missing series. Knows no HTTP and no text format.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.metrics import metrics_table as table
from broker.metrics.page_metrics import page_sources
from broker.metrics.readiness import ready_reason
from broker.metrics.replica_view import ReplicaView, ReplicaViewSnapshot
from broker.supervisor.child_state import ChildState
from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.metric_slots import MetricSlotsReader
from remoting.metrics.metric import Metric, Rows
from store.control_slots import (
    FENCE_COUNT,
    FENCED_BYTES,
    LIGHT_QUEUES_UNWRITABLE,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    PUT_ASIDE,
    PUT_OFF,
    QUEUES_REBUILDING,
    PutOffBy,
)
from store.disk_space import least_used_ratio, used_ratio
from store.log_directories import LogDirectories
from store.message_codec import fixed_size, read_store_timestamp
from store.put_aside import ReadBy

if TYPE_CHECKING:
    from broker.metrics.metrics_dump import MetricsDump
    from broker.metrics.timer_facts import TimerFacts

log = logging.getLogger(__name__)

_STORAGE: Final = table.STORAGE
_SMALLEST_RECORD: Final = fixed_size(0)
"""Bytes; the store timestamp is within the first 76."""


class StorageFacts:
    """Facts from the store's files: disk usage, and when the first message was stored."""

    def __init__(self, root: Path, log: Path | LogDirectories) -> None:
        self._root = root
        self._log = LogDirectories.of(log)
        self._oldest = (-1, 0)

    def used_bytes(self) -> int | None:
        """Used space of the store's partition; None if it cannot be determined."""
        try:
            return shutil.disk_usage(self._root).used
        except OSError as error:
            log.debug("%s: %s", self._root, error)
            return None

    def used_ratios(self) -> dict[str, float]:
        """Used share of the partition of each directory that may have its own, 0.0 to 1.0, as
        retention sees it (of several of the log the least); without those that cannot be
        determined."""
        log_used = least_used_ratio(self._log.writable)
        found = {"commitlog": log_used, "store": used_ratio(self._root)}
        return {name: ratio for name, ratio in found.items() if ratio >= 0}

    def oldest_message_ms(self, min_phy_offset: int) -> int | None:
        """Wall clock ms at which the oldest file's first record was stored; None if there is none.
        Read once per file, without mapping it: a mapping would keep the space of a deleted file in
        use."""
        known_offset, stored_ms = self._oldest
        if known_offset != min_phy_offset:
            stored_ms = self._read_stored_ms(min_phy_offset)
            if stored_ms:
                self._oldest = (min_phy_offset, stored_ms)
        return stored_ms or None

    def _read_stored_ms(self, min_phy_offset: int) -> int:
        path = self._log.path_of(min_phy_offset)
        try:
            with path.open("rb") as file:
                head = os.pread(file.fileno(), _SMALLEST_RECORD, 0)
        except OSError as error:
            log.debug("%s: %s", path, error)
            return 0
        return read_store_timestamp(memoryview(head), 0) if len(head) == _SMALLEST_RECORD else 0


class BrokerCollector:
    """Collects the rows of every metric. Any thread."""

    def __init__(
        self,
        reader: MetricSlotsReader,
        page: ControlPage,
        children: Callable[[], Iterable[ChildState]],
        storage: StorageFacts,
        clock: Clock,
        *,
        replicas_needed: int = 0,
        dump_interval_s: float,
        further: Mapping[Metric, Callable[[], Rows]] | None = None,
    ) -> None:
        """replicas_needed: number of in-sync replicas required for readiness. dump_interval_s:
        interval of the metrics dump, if one is attached. further: metrics with a source."""
        self._page = page
        self._counters = page.counters
        self._children = children
        self._storage = storage
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._replicas_needed = replicas_needed
        self._replica_view = ReplicaView(reader, page, children, clock)
        self._dump: MetricsDump | None = None
        self.own_sources: Final[Mapping[Metric, Callable[[], Rows]]] = {
            table.STORE_DISK_USED: lambda: [
                ((name,), [ratio]) for name, ratio in self._storage.used_ratios().items()
            ],
            table.STORAGE_SIZE: self._storage_size,
            table.STORAGE_MESSAGE_RESERVE_TIME: self._reserve_time,
            table.PROCESS_UP: self._processes_up,
            table.PROCESS_RESTARTS: self._process_restarts,
            table.DUMP_LINES: lambda: self._of_dump(lambda dump: dump.lines),
            table.DUMP_FAILURES: lambda: self._of_dump(lambda dump: dump.failures),
            table.DUMP_INTERVAL: lambda: self._of_dump(lambda _: dump_interval_s),
            table.PROCESS_START: lambda: _one(self._started_ms / 1000),
            table.READY: lambda: _one(0 if self.ready_reason() else 1),
            **(further or {}),
        }
        """Of the metrics that only this process knows."""
        self._sources: Mapping[Metric, Callable[[], Rows]] = {
            **page_sources(page.counters, clock),
            table.HA_REPLICAS: lambda: _one(self._replica_view.replica_count()),
            **self.own_sources,
        }

    def collect(self) -> Iterator[tuple[Metric, Rows]]:
        """Each metric that currently has series, in the order of the table."""
        snapshot = self.look()
        for metric in table.METRICS:
            if metric not in table.NOT_SHOWN:
                source = self._sources.get(metric)
                rows = snapshot.read(metric.name) if source is None else source()
                if rows:
                    yield metric, rows

    def watch_dump(self, dump: MetricsDump) -> None:
        """Also show the counters of `dump`. Call before the first scrape."""
        self._dump = dump

    def look(self) -> ReplicaViewSnapshot:
        """The current contents of the metric slots, with replica values corrected for display."""
        return self._replica_view.look()

    def processes_down(self) -> list[str]:
        """Names of the processes that are not running."""
        return [child.spec.name for child in self._children() if child.process is None]

    def ready_reason(self) -> str:
        """Why the broker is not ready; empty if it is."""
        return ready_reason(
            self._page,
            self._children(),
            self._clock.monotonic_ms(),
            replicas=self._replicas_in_sync() if self._replicas_needed else 0,
            replicas_needed=self._replicas_needed,
        )

    def damage(self) -> str:
        """What of the store cannot be read; empty if nothing is known to be damaged."""
        count = self._counters[FENCE_COUNT]
        if not count:
            return ""
        size = self._counters[FENCED_BYTES]
        return f"{count} damaged ranges of the commit log ({size} bytes) cannot be read: store.log"

    def _replicas_in_sync(self) -> int:
        """In-sync replicas as in rocketmq_ha_replica_in_sync; two connections that may belong to
        one replica count as one copy."""
        shown = self.look().read(table.HA_REPLICA_IN_SYNC.name)
        return min(sum(values[0] > 0 for _, values in shown), self._replica_view.replica_count())

    def _of_dump(self, value: Callable[[MetricsDump], float]) -> Rows:
        return [] if self._dump is None else _one(value(self._dump))

    # -- control page, files, children ---------------------------------------------------------

    def ready_detail(self) -> str:
        """What a ready broker cannot do fully now; empty if there is nothing."""
        queues = self._counters[QUEUES_REBUILDING]
        parts = [f"{queues} consume queues are being rebuilt"] if queues else []
        if queues := self._counters[LIGHT_QUEUES_UNWRITABLE]:
            parts.append(f"{queues} light queues cannot be written: store.log names their files")
        if records := sum(self._counters[PUT_ASIDE + by] for by in ReadBy):
            parts.append(f"{records} records cannot be read and are put aside: putaside.*.jsonl")
        if times := sum(self._counters[PUT_OFF + by] for by in PutOffBy):
            parts.append(f"due messages wait for room in the queue table: put off {times} times")
        return "; ".join(parts)

    def _storage_size(self) -> Rows:
        used = self._storage.used_bytes()
        return [] if used is None else [(_STORAGE, [float(used)])]

    def _reserve_time(self) -> Rows:
        low = self._counters[MIN_PHY_OFFSET]
        if low >= self._counters[MAX_PHY_OFFSET]:
            return []
        stored_ms = self._storage.oldest_message_ms(low)
        if stored_ms is None:
            return []
        return [(_STORAGE, [float(max(0, self._clock.now_ms() - stored_ms))])]

    def _processes_up(self) -> Rows:
        return [((c.spec.name,), [0.0 if c.process is None else 1.0]) for c in self._children()]

    def _process_restarts(self) -> Rows:
        return [((c.spec.name,), [float(c.restarts)]) for c in self._children()]


def timer_sources(timers: TimerFacts) -> dict[Metric, Callable[[], Rows]]:
    """The metrics of timer messages."""
    return {
        table.TIMER_DEQUEUE_LAG: timers.waiting,
        table.TIMER_DEQUEUE_LATENCY: timers.behind_ms,
        table.TIMING_MESSAGES: timers.by_topic,
        table.TIMER_MESSAGE_SNAPSHOT: timers.by_bound,
    }


def _one(value: float) -> Rows:
    return [((), [float(value)])]
