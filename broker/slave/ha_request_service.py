"""HaRequestService: answers what process `ha` asks of process `remoting`.

Threads of `remoting`. `ha` may not speak the remoting protocol; it asks here, over the command
channel, who its master is and whether their logs belong together, who the brokers of its group
are, and to announce its link. A handler may block for seconds, so each command has a thread of its
own: the inspection of a slow master keeps no slave out whose address is asked for meanwhile. It
knows no command by itself.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections import deque
from collections.abc import Mapping
from typing import Final

from ipc.clock import Clock
from ipc.command_channel import CommandHandler, CommandRequest, CommandServer
from ipc.service_thread import FailureHandler, ServiceThread

_POLL_MS: Final = 200
_LONGEST_SLEEP_MS: Final = 10_000
"""Of a thread that is woken for each request."""


class HaRequestService(ServiceThread):
    """See the module; its own thread receives. Owned by: its thread, but for `shutdown`."""

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
        self._commands = {name: _CommandThread(name, self._server, on_failure) for name in handlers}
        self._poll = select.poll()
        self._poll.register(self._server.fileno(), select.POLLIN)

    def start(self) -> None:
        """Start its thread and those of the commands, once."""
        for command in self._commands.values():
            command.start()
        super().start()

    def shutdown(self, timeout_ms: float = 5000) -> bool:
        """Receive no more, and wait that long at most for each answer under way."""
        stopped = super().shutdown(timeout_ms)
        for command in self._commands.values():
            stopped = command.shutdown(timeout_ms) and stopped
        return stopped

    def step(self) -> None:
        """Wait for one request and hand it on."""
        if not self._poll.poll(_POLL_MS):
            return
        with contextlib.suppress(BlockingIOError):
            request = self._server.receive()
            if request is None:
                return
            command = self._commands.get(request.command)
            if command is None:
                self._server.answer(request)
            else:
                command.take(request)


class _CommandThread(ServiceThread):
    """Answers the requests of one command, one after the other."""

    def __init__(
        self, command: str, server: CommandServer, on_failure: FailureHandler | None
    ) -> None:
        super().__init__(f"HaRequest-{command}", on_failure=on_failure)
        self._server = server
        self._requests: deque[CommandRequest] = deque()
        """Appended to by the receiving thread; one whose deadline passes in here is dropped."""

    def take(self, request: CommandRequest) -> None:
        """Answer it when its turn comes."""
        self._requests.append(request)
        self.wakeup()

    def step(self) -> None:
        """Answer one, or wait for one."""
        if self._requests:
            self._server.answer(self._requests.popleft())
        else:
            self.wait_for_running(_LONGEST_SLEEP_MS)
