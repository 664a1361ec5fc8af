"""AskingService: a service of process `ha` that asks other processes and may wait long for them.

The base of GroupMembersService and ReplicaVerifier. An orderly stop does not wait for an answer:
`begin_stop` first, `shutdown` with a small timeout when everything else has stopped; the thread is
a daemon and holds nothing but the question. It knows no question.
"""

from __future__ import annotations

import logging
import threading

from ipc.service_thread import ServiceThread

log = logging.getLogger(__name__)


class AskingService(ServiceThread):
    """Subclasses implement `step`, as with ServiceThread, and ask nothing once `stopped`."""

    def begin_stop(self) -> None:
        """Ask nothing more; a question that is open may be answered. Does not wait. Any thread."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def shutdown(self, timeout_ms: float = 5000) -> bool:
        """Stop and wait; idempotent. False when it still waits for an answer, which is no error:
        that ends with the process."""
        self.begin_stop()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_ms / 1000)
        if thread.is_alive():
            log.info("%s: the answer that it waits for is not waited for any longer", self.name)
        return not thread.is_alive()
