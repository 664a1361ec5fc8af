"""Command channel: small requests between the broker's processes, with responses and deadlines.

The supervisor creates a pair of SOCK_SEQPACKET sockets for each pair of processes and keeps both
ends open, so that a restarted process gets its end back. A message is one packet of JSON. Message
bodies of clients never travel here: processes share those through the mapped files.

    request   {"id": int, "command": str, "deadline_ms": monotonic int, "arguments": {...}}
    answer    {"id": int, "result": {...}} or {"id": int, "error": str}

A request whose deadline has passed when it is received is dropped, since the caller has given up.
Several requests may be in flight at once, and may be answered out of order.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from ipc.clock import Clock

log = logging.getLogger(__name__)

MAX_PACKET: Final = 256 << 10
"""Bytes. HA status, the longest response, takes about 800 for each replica. A packet has to fit
into a socket buffer: 416 KiB on Linux unless net.core.wmem_max was lowered."""
Arguments = dict[str, Any]
CommandHandler = Callable[[Arguments], Arguments]
ResultT = TypeVar("ResultT")


class CommandError(Exception):
    """The other process rejected the command, failed or timed out; says which process and why."""


class CommandRequest(msgspec.Struct):
    """One request in flight; times are monotonic ms."""

    id: int
    command: str
    deadline_ms: int
    arguments: dict[str, Any]


class _Answer(msgspec.Struct):
    id: int
    result: dict[str, Any] = {}
    error: str | None = None


# Made at import, by one thread: remoting/shared_decoders.py says why.
_read_request: Final = msgspec.json.Decoder(CommandRequest).decode
_read_answer: Final = msgspec.json.Decoder(_Answer).decode


def create_channel() -> tuple[socket.socket, socket.socket]:
    """(client end, server end), inherited by the two processes."""
    asking, answering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (asking, answering):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_PACKET)
    return asking, answering


class CommandClient:
    """The client end. Any thread may call; a slow response does not block other calls.

    A waiting thread that finds no other thread receiving receives on behalf of all of them. Guarded
    by: `_changed`.
    """

    def __init__(self, sock: socket.socket, peer: str, clock: Clock) -> None:
        self._sock = sock
        self._peer = peer
        self._clock = clock
        self._changed = threading.Condition()
        self._answers: dict[int, _Answer | None] = {}
        """Responses by call id; None for a call that is still in flight."""
        self._receiving = False
        # A restarted process must not accept a response meant for its predecessor.
        self._next_id = int.from_bytes(os.urandom(5), "big") << 16
        sock.setblocking(False)

    def call(self, command: str, timeout_ms: int, **arguments: Any) -> Arguments:
        """Call the peer and wait. Raises CommandError naming the peer and the command."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        with self._changed:
            self._next_id += 1
            request = CommandRequest(self._next_id, command, deadline_ms, arguments)
            self._answers[request.id] = None
        try:
            answer = self._exchange(request)
        finally:
            with self._changed:
                del self._answers[request.id]
        if answer.error is not None:
            raise CommandError(f"{command}: process {self._peer}: {answer.error}")
        return answer.result

    def _exchange(self, request: CommandRequest) -> _Answer:
        packet = msgspec.json.encode(request)
        if len(packet) > MAX_PACKET:
            raise CommandError(f"{request.command}: request of {len(packet)} bytes is too large")
        try:
            self._when(select.POLLOUT, lambda: self._sock.send(packet), request)
            return self._await(request)
        except OSError as error:
            raise CommandError(
                f"{request.command}: no response from process {self._peer}: {error or 'timeout'}"
            ) from error
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise CommandError(
                f"{request.command}: malformed response from process {self._peer}: {error}"
            ) from error

    def _await(self, request: CommandRequest) -> _Answer:
        """The response, received by this thread or by another one that waits for its own."""
        while True:
            with self._changed:
                while self._receiving and self._answers[request.id] is None:
                    self._changed.wait(self._left_ms(request) / 1000)
                answer = self._answers[request.id]
                if answer is not None:
                    return answer
                self._receiving = True
            received = None
            try:
                found = self._when(select.POLLIN, lambda: self._sock.recv(MAX_PACKET), request)
                received = _read_answer(found)
            finally:
                with self._changed:
                    self._receiving = False
                    if received is not None and received.id in self._answers:
                        self._answers[received.id] = received
                    self._changed.notify_all()

    def _when(
        self, event: int, function: Callable[[], ResultT], request: CommandRequest
    ) -> ResultT:
        """Wait until the socket is ready, then call `function`. Raises TimeoutError."""
        poll = select.poll()
        poll.register(self._sock.fileno(), event)
        while True:
            poll.poll(self._left_ms(request))
            try:
                return function()
            except BlockingIOError:
                continue

    def _left_ms(self, request: CommandRequest) -> int:
        left_ms = request.deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError("timeout")
        return left_ms


class CommandServer:
    """The server end. `step` runs on the thread that owns the state that the commands use. If
    commands have threads of their own, one thread calls `receive` and each of them calls
    `answer`."""

    def __init__(
        self,
        sock: socket.socket,
        handlers: Mapping[str, CommandHandler],
        clock: Clock,
        *,
        refusals: tuple[type[Exception], ...] = (),
    ) -> None:
        """refusals: what handlers may raise, besides OSError, ValueError, LookupError and
        RuntimeError, to have its text sent as the answer."""
        self._refusals: tuple[type[Exception], ...] = (
            OSError,
            ValueError,
            LookupError,
            RuntimeError,
            *refusals,
        )
        self._sock = sock
        self._handlers = handlers
        self._clock = clock
        sock.setblocking(False)

    def fileno(self) -> int:
        """For a selector or poll: readable when a request is pending."""
        return self._sock.fileno()

    def step(self) -> bool:
        """Receive and serve one pending request; False if there is none."""
        try:
            request = self.receive()
        except BlockingIOError:
            return False
        if request is not None:
            self.answer(request)
        return True

    def receive(self) -> CommandRequest | None:
        """Receive one pending request; None for a malformed packet. Raises BlockingIOError if
        nothing is pending."""
        packet = self._sock.recv(MAX_PACKET)
        if not packet:
            raise BlockingIOError("the client end is closed")
        try:
            return _read_request(packet)
        except (msgspec.MsgspecError, UnicodeError) as error:
            log.error("dropped malformed command: %s", error)
            return None

    def answer(self, request: CommandRequest) -> None:
        """Run the request's handler and send its result. Any thread."""
        if request.deadline_ms <= self._clock.monotonic_ms():
            log.warning("command %s: dropped, its deadline has passed", request.command)
            return
        packet = msgspec.json.encode(self._answer(request))
        try:
            if len(packet) > MAX_PACKET:
                raise OSError(errno.EMSGSIZE, f"response of {len(packet)} bytes is too large")
            self._sock.send(packet)
        except OSError as error:
            log.error("command %s: sending the response failed: %s", request.command, error)
            if error.errno == errno.EMSGSIZE:
                self._send_error(request, f"{error.strerror} ({len(packet)} bytes)")

    def _send_error(self, request: CommandRequest, text: str) -> None:
        try:
            self._sock.send(msgspec.json.encode(_Answer(request.id, error=text)))
        except OSError as error:
            log.error(
                "command %s: sending the error response also failed: %s", request.command, error
            )

    def _answer(self, request: CommandRequest) -> _Answer:
        handler = self._handlers.get(request.command)
        if handler is None:
            return _Answer(request.id, error=f"unknown command {request.command}")
        try:
            return _Answer(request.id, result=handler(request.arguments))
        except self._refusals as error:
            log.exception("command %s failed", request.command)
            return _Answer(request.id, error=f"{type(error).__name__}: {error}")
