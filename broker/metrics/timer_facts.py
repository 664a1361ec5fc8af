"""TimerFacts: what waits in the timer wheel, for /metrics.

Any thread of the supervisor, at each scrape: a look through the wheel takes 8 ms of processor time,
which nobody who serves messages has to wait for here. A wheel in whose file nothing was ever
written is not looked through, and numpy, which nothing else in the supervisor needs, is imported
for one that holds something. Reads the files that process `store` writes, and the control page.
Names, labels and bounds follow TimerMetrics and DefaultStoreMetricsManager of RocketMQ 5.x.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.metrics.metrics_table import STORAGE
from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.metric_slots import OVERFLOW
from remoting.metrics.metric import Rows
from store.errors import StoreError
from store.timer.timer_metrics import load_timer_metrics
from store.timer.timer_slots import TIMER_OPENED, TIMER_READ_TIME_MS

if TYPE_CHECKING:
    from store.timer.timer_wheel import TimerWheelReader

log = logging.getLogger(__name__)

BOUNDS_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFiles:
    """Where the timers are; enabled: timerWheelEnable."""

    enabled: bool
    wheel: Path
    metrics: Path
    precision_ms: int


class TimerFacts:
    """See the module. Each method gives no rows with timerWheelEnable=false, and while the wheel is
    not to be read."""

    def __init__(self, files: TimerFiles, page: ControlPage, clock: Clock, max_series: int) -> None:
        """max_series: topics beyond are shown as one."""
        self._files = files
        self._counters = page.counters
        self._clock = clock
        self._max_series = max_series

    def waiting(self) -> Rows:
        """How many messages the wheel holds."""
        return self._look(self._all, [(STORAGE, [0.0])])

    def behind_ms(self) -> Rows:
        """How far the delivery is behind the clock."""
        if not self._is_readable:
            return []
        behind_ms = self._clock.now_ms() - self._counters[TIMER_READ_TIME_MS]
        return [(STORAGE, [float(max(behind_ms, 0))])]

    def by_topic(self) -> Rows:
        """How many messages wait for each topic."""
        if not self._is_readable:
            return []
        topics = sorted(load_timer_metrics(self._files.metrics).topics.items())
        shown, rest = topics[: self._max_series], topics[self._max_series :]
        rows: Rows = [((*STORAGE, topic), [float(found.count)]) for topic, found in shown]
        if rest:
            count = sum(found.count for _, found in rest)
            rows.append(((OVERFLOW,) * (len(STORAGE) + 1), [float(count)]))
        return rows

    def by_bound(self) -> Rows:
        """How many messages are due within each bound, and not within the one before."""
        return self._look(self._each_bound, [((*STORAGE, str(bound)), [0.0]) for bound in BOUNDS_S])

    @property
    def _is_readable(self) -> bool:
        counters = self._counters
        return self._files.enabled and bool(counters[TIMER_OPENED] and counters[TIMER_READ_TIME_MS])

    def _look(self, read: Callable[[TimerWheelReader], Rows], of_none: Rows) -> Rows:
        """The wheel is opened each time: the store may have been replaced since the last scrape.
        of_none: what `read` would give of an empty wheel."""
        if not self._is_readable:
            return []
        if not _holds_data(self._files.wheel):
            return of_none
        from store.timer.timer_wheel import TimerWheelReader

        wheel = TimerWheelReader(self._files.wheel, self._files.precision_ms)
        try:
            return read(wheel)
        except StoreError as error:
            log.debug("%s", error)
            return []
        finally:
            wheel.close()

    def _all(self, wheel: TimerWheelReader) -> Rows:
        return [(STORAGE, [float(wheel.all_num(self._counters[TIMER_READ_TIME_MS]))])]

    def _each_bound(self, wheel: TimerWheelReader) -> Rows:
        from store.timer.timer_wheel import SLOT_COUNT

        precision_ms = self._files.precision_ms
        ends = [min(bound * 1_000 // precision_ms, SLOT_COUNT) for bound in BOUNDS_S]
        nums = wheel.nums(self._clock.now_ms(), ends[-1])
        return [
            ((*STORAGE, str(bound)), [float(nums[start:end].sum())])
            for bound, start, end in zip(BOUNDS_S, [0, *ends[:-1]], ends, strict=True)
        ]


def _holds_data(path: Path) -> bool:
    """Whether anything was ever written to the file; a file system that keeps no holes says so of
    each that is not empty."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.lseek(fd, 0, os.SEEK_DATA) >= 0
        finally:
            os.close(fd)
    except OSError:  # ENXIO: it is one hole.
        return False
