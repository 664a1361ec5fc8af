"""ServiceThread: a named thread whose run() is a loop over step() until it is stopped.

Corresponds to org.apache.rocketmq.common.ServiceThread. `step` does one round and sleeps with
`wait_for_running`; any thread may call `wakeup` and `shutdown`. An exception that leaves `step`
ends the thread: it is logged once, kept in `failure` and handed to `on_failure`, through which
the process' composition root stops the process, so that the supervisor restarts it and recovery
repairs. It knows nothing of what its subclasses do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

FailureHandler = Callable[["ServiceThread", Exception], None]


class ServiceThread:
    """Subclasses implement `step`, and `begin` and `finish` where something is due before the first
    or after the last one."""

    def __init__(self, name: str, *, on_failure: FailureHandler | None = None) -> None:
        """`on_failure` runs on the dying thread."""
        self.name = name
        self.failure: Exception | None = None
        self._on_failure = on_failure
        self._condition = threading.Condition()
        self._notified = False
        self._stopped = False
        self._thread: threading.Thread | None = None

    # -- for subclasses ------------------------------------------------------------------------

    def begin(self) -> None:
        """Before the first step, on the service's thread."""

    def step(self) -> None:
        """One round of the service."""
        raise NotImplementedError

    def finish(self) -> None:
        """After the last step of an orderly stop, on the service's thread."""

    def interrupt(self) -> None:
        """Called when `stopped` was set, by the thread that requested the stop: end any sleep
        other than `wait_for_running`. It may be called again, and after `finish`."""

    @property
    def stopped(self) -> bool:
        """Whether a stop was requested."""
        return self._stopped

    def wait_for_running(self, interval_ms: float) -> bool:
        """Sleep until woken, stopped, or `interval_ms` are over. True when woken or stopped."""
        with self._condition:
            if not self._notified and not self._stopped:
                self._condition.wait(interval_ms / 1000)
            woken = self._notified or self._stopped
            self._notified = False
            return woken

    # -- for any thread ------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is not None:
            raise RuntimeError(f"{self.name} was started before")
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def wakeup(self) -> None:
        """End the current or the next `wait_for_running` early."""
        with self._condition:
            self._notified = True
            self._condition.notify_all()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def request_stop(self) -> None:
        """Ask it to stop after the current step, without waiting. Idempotent, any thread."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()
        self.interrupt()

    def wait_stopped(self, timeout_ms: float) -> bool:
        """Wait for the thread to end; True at once on the service's own thread, and when it was
        never started."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_ms / 1000)
        return not thread.is_alive()

    def shutdown(self, timeout_ms: float = 5000) -> bool:
        """Ask it to stop and wait; idempotent. False, with an error log, when it did not."""
        self.request_stop()
        stopped = self.wait_stopped(timeout_ms)
        if not stopped:
            log.error("%s did not stop within %s ms", self.name, timeout_ms)
        return stopped

    def _run(self) -> None:
        log.info("%s started", self.name)
        try:
            self.begin()
            while not self._stopped:
                self.step()
            self.finish()
        except Exception as error:
            # The service guard (docs/STYLE.md, 8): the process ends, recovery repairs.
            log.critical("%s failed", self.name, exc_info=True)
            self.failure = error
            if self._on_failure is not None:
                self._on_failure(self, error)
        else:
            log.info("%s ended", self.name)
