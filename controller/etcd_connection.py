"""One HTTP connection to one endpoint of etcd: a request out, an answer in, until a deadline.

Used by one thread. Every wait ends with the deadline of its exchange, however slowly the peer
sends, and an answer has a largest size. Knows paths and bytes, nothing of etcd.

Tested by tests/controller/test_etcd_client.py.
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import time
from typing import Any, Final, NamedTuple

from controller.etcd_config import Endpoint

MOST_ANSWER_BYTES: Final = 64 << 20
_CHUNK: Final = 1 << 20


class HttpAnswer(NamedTuple):
    """What has come back."""

    status: int
    content_type: str
    body: bytes


class TooLargeError(Exception):
    """The answer has more bytes than any that is expected."""


class EtcdConnection:
    """See the module. Errors of its methods: OSError, http.client.HTTPException, TooLargeError."""

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        self.endpoint = endpoint
        self._context = context if endpoint.uses_tls else None
        self._http: http.client.HTTPConnection | None = None
        self._sock: _DeadlineSocket | None = None

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and the peer has not ended it meanwhile: a request that nobody reads
        would have an unknown end."""
        if self._sock is None:
            return False
        poll = select.poll()
        poll.register(self._sock.fileno(), select.POLLIN)
        return not poll.poll(0)

    def open(self, deadline: float) -> None:
        """Connect anew. deadline: of time.monotonic."""
        self.close()
        endpoint = self.endpoint
        sock: socket.socket = socket.create_connection(
            (endpoint.host, endpoint.port), _left(deadline)
        )
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                sock.settimeout(_left(deadline))
                sock = self._context.wrap_socket(sock, server_hostname=endpoint.host)
        except BaseException:
            sock.close()
            raise
        self._sock = _DeadlineSocket(sock)
        self._http = http.client.HTTPConnection(endpoint.host, endpoint.port)
        # What it needs of a socket is sendall, makefile and close.
        self._http.sock = self._sock

    def exchange(
        self, path: str, body: bytes, headers: dict[str, str], deadline: float
    ) -> HttpAnswer:
        """POST. Afterwards the connection is open for the next one, or closed."""
        connection, sock = self._http, self._sock
        assert connection is not None
        assert sock is not None
        sock.deadline = deadline
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            content = _read(response)
            if response.will_close:
                self.close()
        except ValueError as error:
            # As http.client says, too, that a chunk's size is no size.
            self.close()
            raise http.client.HTTPException(str(error)) from error
        except BaseException:
            self.close()
            raise
        return HttpAnswer(response.status, response.headers.get_content_type(), content)

    def close(self) -> None:
        """Idempotent."""
        connection, self._http = self._http, None
        sock, self._sock = self._sock, None
        if connection is not None:
            connection.close()
        if sock is not None:
            sock.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _read(response: http.client.HTTPResponse) -> bytes:
    if response.length is not None and response.length > MOST_ANSWER_BYTES:
        raise TooLargeError(f"{response.length} bytes announced")
    parts, size = [], 0
    while part := response.read(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > MOST_ANSWER_BYTES:
            raise TooLargeError(f"more than {MOST_ANSWER_BYTES} bytes")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)


class _DeadlineSocket:
    """A connected socket whose every wait ends at `deadline`, one of time.monotonic."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.deadline = 0.0

    def fileno(self) -> int:
        return self._sock.fileno()

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(_left(self.deadline))
        self._sock.sendall(data)

    def receive_into(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self.deadline))
        return self._sock.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self))

    def close(self) -> None:
        self._sock.close()


class _Incoming(io.RawIOBase):
    """What http.client reads an answer from. Closing it leaves the socket open for the next one."""

    def __init__(self, sock: _DeadlineSocket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._sock.receive_into(buffer)
