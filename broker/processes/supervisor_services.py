"""SupervisorServices: the supervisor's other threads: /metrics, the metrics dump, its metric slots.

Made on the supervisor's main thread once all children have been started. Nothing that a child is
forked with imports this module, which is what keeps its modules (a web server, a metrics library)
out of the memory of every child. No policy.

Tested by tests/broker/test_memory_by_process.py.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from broker.metrics.kept_sends import KeptSends
from broker.metrics.member_facts import MemberFacts, find_member_facts
from broker.metrics.metrics_collector import BrokerCollector, StorageFacts, timer_sources
from broker.metrics.metrics_dump import MetricsDump, dump_settings
from broker.metrics.readiness import replicas_needed
from broker.metrics.replication_snapshot import ReplicationSnapshot
from broker.metrics.supervisor_metrics import SupervisorMetrics
from broker.metrics.supervisor_slots import SupervisorSlots
from broker.metrics.timer_facts import TimerFacts, TimerFiles
from broker.settings.changed_settings import ChangedSettings
from broker.settings.startup_options import StartupOptions
from broker.supervisor.child_state import ChildState
from broker.supervisor.supervisor import NUMPY_ENVIRONMENT
from ipc.clock import Clock, SystemClock
from ipc.clock_error import ClockError
from ipc.control_page import ControlPage
from ipc.metric_slots import MetricSlotsReader
from remoting.metrics.metrics_server import MetricsServer


class SupervisorServices:
    """See the module. Owned by: the supervisor's main thread."""

    def __init__(
        self,
        options: StartupOptions,
        *,
        page: ControlPage,
        children: Callable[[], list[ChildState]],
        clock: Clock,
        metrics_fd: int,
        changes_fd: int,
    ) -> None:
        """metrics_fd, changes_fd: shared with the children."""
        self._options = options
        self._page = page
        self._children = children
        self._clock = clock
        self._metrics_fd = metrics_fd
        self._changes_fd = changes_fd
        self._dump: MetricsDump | None = None
        self._metrics: MetricsServer | None = None
        self._slots: SupervisorSlots | None = None

    def begin(
        self, listening: socket.socket, kept: KeptSends, ended: dict[str, Any] | None
    ) -> None:
        """Start the threads. listening: the port of /metrics. kept: the page of this life's sends.
        ended: what was counted in the page of the life before."""
        os.environ.update(NUMPY_ENVIRONMENT)
        member = find_member_facts(self._options, self._page.counters, self._clock)
        collector = self._collector(member)
        self._begin_dump(collector, member, kept, ended)
        site = SupervisorMetrics(collector, self._options.broker)
        self._metrics = MetricsServer(listening, site)
        self._metrics.start()
        most = self._options.supervisor.metrics_max_series
        self._slots = SupervisorSlots(self._metrics_fd, most, collector.own_sources)
        self._slots.start()

    def end_dump(self, *, in_order: bool) -> None:
        """Stop the dump. At an orderly stop remoting has ended, so that the last line counts all
        that it has answered; ha runs, so that the line shows the replicas as they are."""
        if self._dump is not None:
            self._dump.shutdown(in_order=in_order)

    def end(self) -> None:
        """Stop all threads."""
        self.end_dump(in_order=False)
        for thread in (self._slots, self._metrics):
            if thread is not None:
                thread.shutdown()

    def _begin_dump(
        self,
        collector: BrokerCollector,
        member: MemberFacts | None,
        kept: KeptSends,
        ended: dict[str, Any] | None,
    ) -> None:
        settings = dump_settings(self._options)
        if settings is None:
            return
        changed, children = ChangedSettings(self._changes_fd), self._children
        snapshot = ReplicationSnapshot(
            self._options, changed, collector, self._page, children, self._clock, member
        )
        # A clock that is off for a test is held by nobody.
        error = ClockError().read_ms if type(self._clock) is SystemClock else lambda: None
        dump = MetricsDump(settings, snapshot.take, self._clock, error, ended, snapshot.find_id)
        kept.claim(dump.boot)
        collector.watch_dump(dump)
        dump.start()
        self._dump = dump

    def _collector(self, member: MemberFacts | None) -> BrokerCollector:
        options = self._options
        return BrokerCollector(
            MetricSlotsReader(self._metrics_fd),
            self._page,
            self._children,
            StorageFacts(options.store.root, options.store.log_directories),
            self._clock,
            replicas_needed=replicas_needed(options),
            dump_interval_s=options.supervisor.metrics_dump_interval_seconds,
            further=timer_sources(self._timer_facts()) | (member.sources() if member else {}),
        )

    def _timer_facts(self) -> TimerFacts:
        store = self._options.store
        files = TimerFiles(
            enabled=store.timer_wheel_enable,
            wheel=store.timer_wheel_path,
            metrics=store.timer_metrics_path,
            precision_ms=store.timer_precision_ms,
        )
        max_series = self._options.supervisor.metrics_max_series
        return TimerFacts(files, self._page, self._clock, max_series)
