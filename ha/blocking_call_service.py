"""BlockingCallService: a service of process `ha` whose calls to other processes may block for long.

The base of GroupMembersService and ReplicaVerifier. An orderly stop does not wait for a pending
reply: `request_stop` first, `shutdown` with a small timeout when everything else has stopped; the
thread is a daemon and holds nothing but the call. It does not know what is called.
"""

from __future__ import annotations

import logging

from ipc.service_thread import ServiceThread

log = logging.getLogger(__name__)


class BlockingCallService(ServiceThread):
    """Subclasses implement `step`, as with ServiceThread, and start no call once `stopped`."""

    def shutdown(self, timeout_ms: float = 5000) -> bool:
        """Stop and wait; idempotent. False when a reply is still pending, which is not an error:
        the call ends with the process."""
        self.request_stop()
        stopped = self.wait_stopped(timeout_ms)
        if not stopped:
            log.info("%s: stopping without waiting for the pending reply", self.name)
        return stopped
