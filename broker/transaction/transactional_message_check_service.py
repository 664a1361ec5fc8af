"""TransactionalMessageCheckService: the thread that runs the check rounds, every
transactionCheckInterval.

Runs in `remoting`, on masters only. After its start it first reads which halves have ended; end
requests wait for that. Follows TransactionalMessageCheckService of RocketMQ, whose first round also
comes after one interval. TransactionalMessageService implements a round.
"""

from __future__ import annotations

from typing import Final

from broker.transaction.transactional_message_service import TransactionalMessageService
from ipc.clock import Clock
from ipc.service_thread import FailureHandler, ServiceThread

_DISPATCH_WAIT_MS: Final = 20
_FLUSH_WAIT_MS: Final = 1_000
"""Polling intervals of the store's dispatched and flushed offsets."""


class TransactionalMessageCheckService(ServiceThread):
    """See the module. `wakeup` starts a round immediately."""

    def __init__(
        self,
        service: TransactionalMessageService,
        check_interval_ms: int,
        clock: Clock,
        *,
        predecessor: TransactionalMessageCheckService | None = None,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """predecessor: of a time before in which this broker led; it was abandoned."""
        super().__init__("TransactionalMessageCheckService", on_failure=on_failure)
        self._service = service
        self._check_interval_ms = check_interval_ms
        self._clock = clock
        self._predecessor = predecessor
        self._is_abandoned = False

    def abandon(self) -> None:
        """This broker leads no more: end soon, and store nothing more. Any thread; does not
        wait."""
        self._is_abandoned = True
        self.request_stop()

    def begin(self) -> None:
        """Forget what a predecessor knew, once it has ended: another broker led meanwhile."""
        predecessor, self._predecessor = self._predecessor, None
        if predecessor is not None:
            while not predecessor.wait_stopped(_FLUSH_WAIT_MS):
                pass  # It was asked to stop; what it does at most waits some seconds for the loop.
            self._service.forget()

    def step(self) -> None:
        """Wait, then run a round."""
        if not self._service.recover(lambda: self.stopped):
            self.wait_for_running(_DISPATCH_WAIT_MS)
            return
        self._wait()
        if not self.stopped:
            self._service.check(lambda: self.stopped)

    def _wait(self) -> None:
        """Wait for the next round; store the progress of previous ones as soon as it is durable."""
        due_ms = self._clock.monotonic_ms() + self._check_interval_ms
        while (left_ms := due_ms - self._clock.monotonic_ms()) > 0:
            settled = self._service.settle()
            if self.wait_for_running(left_ms if settled else min(left_ms, _FLUSH_WAIT_MS)):
                return

    def finish(self) -> None:
        """Store all progress: an orderly shutdown has flushed the whole log."""
        if not self._is_abandoned:
            self._service.settle(at_once=True)
