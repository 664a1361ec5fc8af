"""Command channel: small requests between our processes, with answers and deadlines.

The supervisor makes a pair of SOCK_SEQPACKET sockets for each pair of processes and keeps both
ends, so that a restarted process finds its end again. A message is one packet of JSON. No message
body of a client ever travels here (design.md, rule 2).

    request   {"id": int, "command": str, "deadline_ms": monotonic int, "arguments": {...}}
    answer    {"id": int, "result": {...}} or {"id": int, "error": str}

A request whose deadline has passed when it is read is dropped: who asked has given up.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from store.clock import Clock
from store.errors import StoreError

log = logging.getLogger(__name__)

MAX_PACKET: Final = 128 << 10
Arguments = dict[str, Any]
CommandHandler = Callable[[Arguments], Arguments]


class CommandError(Exception):
    """The other process refused, failed or did not answer in time; says which and why."""


class _Request(msgspec.Struct):
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
    """The asking end. Any thread; one call at a time, the others wait their turn."""

    def __init__(self, sock: socket.socket, peer: str, clock: Clock) -> None:
        self._sock = sock
        self._peer = peer
        self._clock = clock
        self._lock = threading.Lock()
        # A restarted process must not take the answer to its predecessor's question.
        self._next_id = int.from_bytes(os.urandom(5), "big") << 16

    def call(self, command: str, timeout_ms: int, **arguments: Any) -> Arguments:
        """Ask the peer and wait. Raises CommandError naming the peer and the command."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        if not self._lock.acquire(timeout=timeout_ms / 1000):
            raise CommandError(f"{command}: process {self._peer} is busy with another request")
        try:
            self._next_id += 1
            request = _Request(self._next_id, command, deadline_ms, arguments)
            return self._exchange(request)
        finally:
            self._lock.release()

    def _exchange(self, request: _Request) -> Arguments:
        packet = msgspec.json.encode(request)
        if len(packet) > MAX_PACKET:
            raise CommandError(f"{request.command}: request of {len(packet)} bytes is too large")
        try:
            self._sock.settimeout(self._left_s(request))
            self._sock.send(packet)
            while True:
                self._sock.settimeout(self._left_s(request))
                answer = msgspec.json.decode(self._sock.recv(MAX_PACKET), type=_Answer)
                if answer.id == request.id:
                    break
        except OSError as error:
            raise CommandError(
                f"{request.command}: no answer from process {self._peer}: {error or 'timeout'}"
            ) from error
        if answer.error is not None:
            raise CommandError(f"{request.command}: process {self._peer}: {answer.error}")
        return answer.result

    def _left_s(self, request: _Request) -> float:
        left_ms = request.deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError("timeout")
        return left_ms / 1000


class CommandServer:
    """The answering end. `step` runs on the thread that owns what the commands touch."""

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
        """Answer one waiting request, if there is one."""
        try:
            packet = self._sock.recv(MAX_PACKET)
        except BlockingIOError:
            return False
        if not packet:
            return False
        try:
            request = msgspec.json.decode(packet, type=_Request)
        except (msgspec.MsgspecError, UnicodeError) as error:
            log.error("a command that is none was dropped: %s", error)
            return True
        if request.deadline_ms <= self._clock.monotonic_ms():
            log.warning("command %s: dropped, its deadline has passed", request.command)
            return True
        answer = msgspec.json.encode(self._answer(request))
        try:
            self._sock.send(answer)
        except OSError as error:
            log.error("command %s: its answer was not taken: %s", request.command, error)
        return True

    def _answer(self, request: _Request) -> _Answer:
        handler = self._handlers.get(request.command)
        if handler is None:
            return _Answer(request.id, error=f"unknown command {request.command}")
        try:
            return _Answer(request.id, result=handler(request.arguments))
        except (StoreError, OSError, ValueError, LookupError, RuntimeError) as error:
            log.exception("command %s failed", request.command)
            return _Answer(request.id, error=f"{type(error).__name__}: {error}")
