"""TransactionalMessageCheckService: the thread of the rounds, every transactionCheckInterval.

Runs in `remoting`, on masters only. After its start it first learns which halves have ended; the
ends of transactions wait for that. Follows TransactionalMessageCheckService of the original, whose
first round comes after one interval too. What a round does is TransactionalMessageService's.
"""

from __future__ import annotations

from typing import Final

from broker.transaction.transactional_message_service import TransactionalMessageService
from ipc.clock import Clock
from ipc.service_thread import FailureHandler, ServiceThread

_DISPATCH_WAIT_MS: Final = 20
_FLUSH_WAIT_MS: Final = 1_000
"""Between two looks at what the store has dispatched, and at what is on disk."""


class TransactionalMessageCheckService(ServiceThread):
    """See the module. `wakeup`: a round now."""

    def __init__(
        self,
        service: TransactionalMessageService,
        check_interval_ms: int,
        clock: Clock,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        super().__init__("TransactionalMessageCheckService", on_failure=on_failure)
        self._service = service
        self._check_interval_ms = check_interval_ms
        self._clock = clock

    def step(self) -> None:
        """Wait, then a round."""
        if not self._service.recover():
            self.wait_for_running(_DISPATCH_WAIT_MS)
            return
        self._wait()
        if not self.stopped:
            self._service.check(lambda: self.stopped)

    def _wait(self) -> None:
        """Until the next round; the progress of the last ones is stored as soon as it may be."""
        due_ms = self._clock.monotonic_ms() + self._check_interval_ms
        while (left_ms := due_ms - self._clock.monotonic_ms()) > 0:
            settled = self._service.settle()
            if self.wait_for_running(left_ms if settled else min(left_ms, _FLUSH_WAIT_MS)):
                return

    def finish(self) -> None:
        """An orderly stop brings all of the log to disk."""
        self._service.settle(at_once=True)
