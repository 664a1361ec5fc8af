"""Command channel: small requests between our processes, with answers and deadlines.

The supervisor makes a pair of SOCK_SEQPACKET sockets for each pair of processes and keeps both
ends, so that a restarted process finds its end again. A message is one packet of JSON. No message
body of a client ever travels here (design.md, rule 2).

    request   {"id": int, "command": str, "deadline_ms": monotonic int, "arguments": {...}}
    answer    {"id": int, "result": {...}} or {"id": int, "error": str}

A request whose deadline has passed when its turn comes is dropped: who asked has given up.
Several requests may be under way at once, and be answered in another order.
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
from store.errors import StoreError

log = logging.getLogger(__name__)

MAX_PACKET: Final = 256 << 10
"""Bytes. HA status, the longest answer, takes some 800 for each replica. A packet has to fit into a
socket buffer: Linux gives 416 KiB unless net.core.wmem_max was lowered."""
Arguments = dict[str, Any]
CommandHandler = Callable[[Arguments], Arguments]
ResultT = TypeVar("ResultT")


class CommandError(Exception):
    """The other process refused, failed or did not answer in time; says which and why."""


class CommandRequest(msgspec.Struct):
    """One request on its way; times are monotonic ms."""

    id: int
    command: str
    deadline_ms: int
    arguments: dict[str, Any]


class _Answer(msgspec.Struct):
    id: int
    result: dict[str, Any] = {}
    error: str | None = None


def create_channel() -> tuple[socket.socket, socket.socket]:
    """(asking end, answering end), inherited by the two processes."""
    asking, answering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (asking, answering):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_PACKET)
    return asking, answering


class CommandClient:
    """The asking end. Any thread; a slow answer keeps nobody from asking something else.

    Whoever waits and finds nobody receiving receives, for all that wait. Guarded by: `_changed`.
    """

    def __init__(self, sock: socket.socket, peer: str, clock: Clock) -> None:
        self._sock = sock
        self._peer = peer
        self._clock = clock
        self._changed = threading.Condition()
        self._answers: dict[int, _Answer | None] = {}
        """By the ids of the calls under way; None: not answered yet."""
        self._receiving = False
        # A restarted process must not take the answer to its predecessor's question.
        self._next_id = int.from_bytes(os.urandom(5), "big") << 16
        sock.setblocking(False)

    def call(self, command: str, timeout_ms: int, **arguments: Any) -> Arguments:
        """Ask the peer and wait. Raises CommandError naming the peer and the command."""
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
                f"{request.command}: no answer from process {self._peer}: {error or 'timeout'}"
            ) from error
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise CommandError(
                f"{request.command}: an answer from process {self._peer} is not understood: {error}"
            ) from error

    def _await(self, request: CommandRequest) -> _Answer:
        """The answer, received by this thread or by another one that waits for its own."""
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
                received = msgspec.json.decode(found, type=_Answer)
            finally:
                with self._changed:
                    self._receiving = False
                    if received is not None and received.id in self._answers:
                        self._answers[received.id] = received
                    self._changed.notify_all()

    def _when(
        self, event: int, function: Callable[[], ResultT], request: CommandRequest
    ) -> ResultT:
        """What `function` returns once the socket is ready for it. Raises TimeoutError."""
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
    """The answering end. `step` runs on the thread that owns what the commands touch; where
    commands have threads of their own one receives and each answers."""

    def __init__(
        self, sock: socket.socket, handlers: Mapping[str, CommandHandler], clock: Clock
    ) -> None:
        self._sock = sock
        self._handlers = handlers
        self._clock = clock
        sock.setblocking(False)

    def fileno(self) -> int:
        """For a selector or poll: readable when a request waits."""
        return self._sock.fileno()

    def step(self) -> bool:
        """Take one waiting packet, if there is one, and answer it."""
        try:
            request = self.receive()
        except BlockingIOError:
            return False
        if request is not None:
            self.answer(request)
        return True

    def receive(self) -> CommandRequest | None:
        """One waiting request; None for a packet that is none. Raises BlockingIOError: nothing
        waits."""
        packet = self._sock.recv(MAX_PACKET)
        if not packet:
            raise BlockingIOError("the asking end is closed")
        try:
            return msgspec.json.decode(packet, type=CommandRequest)
        except (msgspec.MsgspecError, UnicodeError) as error:
            log.error("a command that is none was dropped: %s", error)
            return None

    def answer(self, request: CommandRequest) -> None:
        """Run the request's handler and send what it says. Any thread."""
        if request.deadline_ms <= self._clock.monotonic_ms():
            log.warning("command %s: dropped, its deadline has passed", request.command)
            return
        packet = msgspec.json.encode(self._answer(request))
        try:
            if len(packet) > MAX_PACKET:
                raise OSError(errno.EMSGSIZE, f"answer of {len(packet)} bytes is too large")
            self._sock.send(packet)
        except OSError as error:
            log.error("command %s: its answer was not taken: %s", request.command, error)
            if error.errno == errno.EMSGSIZE:
                self._send_error(request, f"{error.strerror} ({len(packet)} bytes)")

    def _send_error(self, request: CommandRequest, text: str) -> None:
        try:
            self._sock.send(msgspec.json.encode(_Answer(request.id, error=text)))
        except OSError as error:
            log.error("command %s: this was not taken, either: %s", request.command, error)

    def _answer(self, request: CommandRequest) -> _Answer:
        handler = self._handlers.get(request.command)
        if handler is None:
            return _Answer(request.id, error=f"unknown command {request.command}")
        try:
            return _Answer(request.id, result=handler(request.arguments))
        except (StoreError, OSError, ValueError, LookupError, RuntimeError) as error:
            log.exception("command %s failed", request.command)
            return _Answer(request.id, error=f"{type(error).__name__}: {error}")
