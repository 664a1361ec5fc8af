"""SupervisorSlots: what only the supervisor knows, copied into its own region of the metric slots.

A thread of the supervisor. /metrics reads the sources themselves; process `remoting`, which answers
request 28913, finds there what it cannot know: which processes run, readiness, disk usage, the
timer wheel, what a member knows of its group. Every second; what is read from files every five.

Tested by tests/broker/metrics/test_supervisor_slots.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker.metrics import metrics_table as table
from broker.metrics.gauge_series import set_series
from ipc.control_page import ProcessIndex
from ipc.metric_slots import MetricSlots
from ipc.service_thread import ServiceThread
from remoting.metrics.metric import Metric, Rows
from store.errors import StoreError

log = logging.getLogger(__name__)

STEP_MS: Final = 1_000
FILES_STEPS: Final = 5
_OF_FILES: Final = frozenset(
    {
        table.STORE_DISK_USED,
        table.STORAGE_SIZE,
        table.STORAGE_MESSAGE_RESERVE_TIME,
        table.TIMER_DEQUEUE_LAG,
        table.TIMING_MESSAGES,
        table.TIMER_MESSAGE_SNAPSHOT,
    }
)


class SupervisorSlots(ServiceThread):
    """See the module. Owned by: its thread."""

    def __init__(
        self, slots_fd: int, max_series: int, sources: Mapping[Metric, Callable[[], Rows]]
    ) -> None:
        """slots_fd: from create_metric_slots. sources: BrokerCollector.own_sources."""
        super().__init__("SupervisorSlots")
        self._slots = MetricSlots(slots_fd, ProcessIndex.SUPERVISOR, max_series=max_series)
        self._sources = sources
        self._steps = 0

    def step(self) -> None:
        """Copy what is due."""
        with_files = self._steps % FILES_STEPS == 0
        self._steps += 1
        for metric, source in self._sources.items():
            if with_files or metric not in _OF_FILES:
                self._copy(metric, source)
        self.wait_for_running(STEP_MS)

    def _copy(self, metric: Metric, source: Callable[[], Rows]) -> None:
        rows: Rows = []
        try:
            rows = source()
        except (OSError, StoreError) as error:
            log.debug("%s: %s", metric.name, error)
        set_series(self._slots, metric, {labels: values[0] for labels, values in rows})
