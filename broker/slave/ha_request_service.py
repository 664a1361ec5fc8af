"""HaRequestService: serves the commands that process `ha` sends to process `remoting`.

Threads of `remoting`. `ha` must not use the remoting protocol itself. Over the command channel it
asks for its master and for a comparison of the logs, for the brokers of its group, and for the
announcement of its link. A handler may block for seconds, so each command has a thread of its own:
inspecting a slow master does not delay the trust check of a connecting slave. It knows no
particular command.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Mapping
from typing import Final

from ipc.clock import Clock
from ipc.command_channel import CommandHandler, CommandRequest, CommandServer
from ipc.service_thread import FailureHandler, ServiceThread
from store.errors import StoreError

_LONGEST_SLEEP_MS: Final = 10_000
"""Maximum sleep of a thread that is woken for each request."""


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
        """sock: the server end of the channel ha->remoting."""
        super().__init__("HaRequestService", on_failure=on_failure)
        self._server = CommandServer(sock, handlers, clock, refusals=(StoreError,))
        self._commands = {name: _CommandThread(name, self._server, on_failure) for name in handlers}
        self._stop_lock: Final = threading.Lock()
        """Guards `_stop_fd`, which `finish` closes."""
        self._stop_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        for descriptor in (self._server.fileno(), self._stop_fd):
            self._poll.register(descriptor, select.POLLIN)

    def start(self) -> None:
        """Start the receiving thread and those of the commands, once."""
        for command in self._commands.values():
            command.start()
        super().start()

    def shutdown(self, timeout_ms: float = 5000) -> bool:
        """Stop receiving, and wait at most `timeout_ms` for each command in progress."""
        stopped = super().shutdown(timeout_ms)
        for command in self._commands.values():
            stopped = command.shutdown(timeout_ms) and stopped
        return stopped

    def interrupt(self) -> None:
        """It sleeps until something comes."""
        with self._stop_lock:
            if self._stop_fd >= 0:
                os.eventfd_write(self._stop_fd, 1)

    def finish(self) -> None:
        """Close what the constructor opened."""
        with self._stop_lock:
            os.close(self._stop_fd)
            self._stop_fd = -1

    def step(self) -> None:
        """Wait for one request and pass it to its thread."""
        self._poll.poll()
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
    """Serves the requests of one command sequentially."""

    def __init__(
        self, command: str, server: CommandServer, on_failure: FailureHandler | None
    ) -> None:
        super().__init__(f"HaRequest-{command}", on_failure=on_failure)
        self._server = server
        self._requests: deque[CommandRequest] = deque()
        """Filled by the receiving thread; a request whose deadline passes here is dropped."""

    def take(self, request: CommandRequest) -> None:
        """Queue a request."""
        self._requests.append(request)
        self.wakeup()

    def step(self) -> None:
        """Serve one request, or wait for one."""
        if self._requests:
            self._server.answer(self._requests.popleft())
        else:
            self.wait_for_running(_LONGEST_SLEEP_MS)
