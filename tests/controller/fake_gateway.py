"""A peer that is asked as an etcd would be, and does what a list says, one entry for each request.

One thread a connection. It judges nothing; what it was asked is kept in `asked`.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

Step = Callable[[socket.socket], bool]
"""Answers a request; whether the connection stays open."""


class Asked(NamedTuple):
    path: str
    body: Any
    token: str


def answer(status: int, text: str, kind: str = "application/json") -> Step:
    """A whole answer, after which the connection stays open."""
    data = text.encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"

    def give(connection: socket.socket) -> bool:
        connection.sendall(head.encode() + data)
        return True

    return give


def then_close(step: Step) -> Step:
    """The same, and then the connection is closed without a word about it."""

    def give(connection: socket.socket) -> bool:
        step(connection)
        return False

    return give


def close(_connection: socket.socket) -> bool:
    """No answer, as of a process that was killed."""
    return False


def raw(data: bytes) -> Step:
    """These bytes, and the end."""

    def give(connection: socket.socket) -> bool:
        connection.sendall(data)
        return False

    return give


class Gateway:
    """See the module."""

    def __init__(self, steps: Sequence[Step], context: ssl.SSLContext | None) -> None:
        self.asked: list[Asked] = []
        self.connections = 0
        self._steps = [*steps]
        self._context = context
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.ended = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        self.ended.set()
        self._listening.close()

    def hang(self, _connection: socket.socket) -> bool:
        """No answer, and the connection stays open, as of a process that stands still."""
        self.ended.wait(30)
        return False

    def drip(self, data: bytes, pause_s: float = 0.05) -> Step:
        """These bytes one by one, for ever."""

        def give(connection: socket.socket) -> bool:
            while not self.ended.wait(pause_s):
                for byte in data:
                    connection.sendall(bytes((byte,)))
                    if self.ended.wait(pause_s):
                        break
            return False

        return give

    def add(self, *steps: Step) -> None:
        self._steps += steps

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        connection = plain
        with suppress(OSError):
            if self._context is not None:
                connection = self._context.wrap_socket(plain, server_side=True)
            with connection.makefile("rb") as stream:
                while line := stream.readline():
                    if not self._take(connection, stream, line):
                        break
        connection.close()

    def _take(self, connection: socket.socket, stream: Any, line: bytes) -> bool:
        headers = {}
        while (header := stream.readline().strip()) != b"":
            name, _, value = header.decode().partition(": ")
            headers[name.lower()] = value
        body = json.loads(stream.read(int(headers["content-length"])))
        with self._lock:
            path = line.split()[1].decode()
            self.asked.append(Asked(path, body, headers.get("authorization", "")))
            step = self._steps.pop(0) if self._steps else close
        return step(connection)


@contextmanager
def gateway(*steps: Step, context: ssl.SSLContext | None = None) -> Iterator[Gateway]:
    """One, listening."""
    one = Gateway(steps, context)
    try:
        yield one
    finally:
        one.stop()
