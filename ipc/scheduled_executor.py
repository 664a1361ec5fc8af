"""ScheduledExecutor: named periodic tasks on a few threads (registration, persistence, scans).

Java's BrokerController has a one-thread scheduler, so that a name server which does not answer
delays the saving of offsets. Here a handful of threads share one heap of due tasks. A task never
runs beside itself; a late one is not run twice to catch up. A task that raises is logged and
kept. Runs in the `remoting` process; knows nothing of what the tasks do.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from typing import Final

from ipc.clock import Clock

log = logging.getLogger(__name__)

DEFAULT_THREADS: Final = 3
"""One may wait for a name server and one for a disk, and the third still scans clients."""


class ScheduledTask:
    """One named task. Owned by: the executor's lock."""

    __slots__ = ("cancelled", "due_ms", "failures", "function", "name", "period_ms", "runs")

    def __init__(
        self, name: str, function: Callable[[], None], due_ms: int, period_ms: int | None
    ) -> None:
        self.name = name
        self.function = function
        self.due_ms = due_ms
        self.period_ms = period_ms
        self.cancelled = False
        self.runs = 0
        self.failures = 0

    def cancel(self) -> None:
        """Do not run again; a run under way ends by itself. Any thread."""
        self.cancelled = True

    def next_due_ms(self, now_ms: int) -> int | None:
        """The next moment on this task's grid that is after `now_ms`; None: never again."""
        if self.period_ms is None:
            return None
        missed = max(0, now_ms - self.due_ms) // self.period_ms
        return self.due_ms + (missed + 1) * self.period_ms


class ScheduledExecutor:
    """Runs tasks when they are due (monotonic time). Any thread schedules."""

    def __init__(
        self, clock: Clock, *, threads: int = DEFAULT_THREADS, name: str = "BrokerScheduled"
    ) -> None:
        self._clock = clock
        self._name = name
        self._thread_count = threads
        self._condition = threading.Condition()
        self._heap: list[tuple[int, int, ScheduledTask]] = []
        self._order = itertools.count()
        self._threads: list[threading.Thread] = []
        self._stopping = False

    def schedule(
        self,
        name: str,
        function: Callable[[], None],
        *,
        first_delay_ms: int,
        period_ms: int | None,
    ) -> ScheduledTask:
        """Run `function` after `first_delay_ms`, then every `period_ms` (None: once)."""
        if period_ms is not None and period_ms <= 0:
            raise ValueError(f"task {name}: a period of {period_ms} ms would never sleep")
        due_ms = self._clock.monotonic_ms() + max(0, first_delay_ms)
        task = ScheduledTask(name, function, due_ms, period_ms)
        self._push(task)
        return task

    def submit(self, name: str, function: Callable[[], None]) -> ScheduledTask:
        """Run `function` once, as soon as a thread is free."""
        return self.schedule(name, function, first_delay_ms=0, period_ms=None)

    def start(self) -> None:
        """Start the threads; tasks scheduled before are kept."""
        for number in range(self._thread_count):
            thread = threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def shutdown(self, timeout_ms: int) -> list[str]:
        """Start no further task and wait for the running ones; who did not stop, by name."""
        with self._condition:
            self._stopping = True
            self._heap.clear()
            self._condition.notify_all()
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        for thread in self._threads:
            thread.join(max(0, deadline_ms - self._clock.monotonic_ms()) / 1000)
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if late:
            log.error("scheduled tasks did not stop within %s ms: %s", timeout_ms, late)
        return late

    def run_due(self) -> int:
        """Run what is due now in the caller's thread, one after the other; how many ran.

        For tests and for the last round before a stop.
        """
        count = 0
        while (task := self._take_due()) is not None:
            self._run_task(task)
            count += 1
        return count

    def _push(self, task: ScheduledTask) -> None:
        with self._condition:
            if not self._stopping:
                heapq.heappush(self._heap, (task.due_ms, next(self._order), task))
                self._condition.notify()

    def _take_due(self) -> ScheduledTask | None:
        """The first due task, taken off the heap, or None."""
        with self._condition:
            while self._heap and self._heap[0][0] <= self._clock.monotonic_ms():
                task = heapq.heappop(self._heap)[2]
                if not task.cancelled:
                    return task
        return None

    def _wait_due(self) -> ScheduledTask | None:
        """Wait for the next due task; None when the executor stops."""
        while True:
            task = self._take_due()
            if task is not None:
                return task
            with self._condition:
                if self._stopping:
                    return None
                self._condition.wait(self._sleep_seconds())

    def _sleep_seconds(self) -> float | None:
        if not self._heap:
            return None
        return max(0, self._heap[0][0] - self._clock.monotonic_ms()) / 1000

    def _run(self) -> None:
        while (task := self._wait_due()) is not None:
            self._run_task(task)

    def _run_task(self, task: ScheduledTask) -> None:
        try:
            task.function()
        except Exception:
            # The service guard: one task must not stop the others.
            task.failures += 1
            log.exception("task %s failed; it will run again when it is due", task.name)
        task.runs += 1
        due_ms = task.next_due_ms(self._clock.monotonic_ms())
        if due_ms is not None and not task.cancelled:
            task.due_ms = due_ms
            self._push(task)
