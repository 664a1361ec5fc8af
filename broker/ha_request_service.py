"""HaRequestService: answers what process `ha` asks of process `remoting`.

Thread of `remoting`. `ha` may not speak the remoting protocol; it asks here, over the command
channel, who its master is and whether their logs belong together, who the brokers of its group
are, and to announce its link. Handlers may block for seconds: nothing on the request path waits
for this thread. It knows no command by itself.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping
from typing import Final

from broker.command_channel import CommandHandler, CommandServer
from store.clock import Clock
from store.service_thread import FailureHandler, ServiceThread

_POLL_MS: Final = 200


class HaRequestService(ServiceThread):
    """See the module. Owned by: its thread."""

    def __init__(
        self,
        sock: socket.socket,
        handlers: Mapping[str, CommandHandler],
        clock: Clock,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """sock: the answering end of the channel ha->remoting."""
        super().__init__("HaRequestService", on_failure=on_failure)
        self._server = CommandServer(sock, handlers, clock)
        self._poll = select.poll()
        self._poll.register(self._server.fileno(), select.POLLIN)

    def step(self) -> None:
        """Wait for one request and answer it."""
        if self._poll.poll(_POLL_MS):
            self._server.step()
