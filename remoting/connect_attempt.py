"""ConnectAttempt: a non-blocking connect to "host:port" on a SelectorLoop.

Tries the socket addresses that the name stands for, one after the other, each with its own
time-out. Runs on the loop's thread, but for `resolve`, which any thread may call. Knows no frame.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import Any

from remoting.errors import RemotingConnectError
from remoting.selector_loop import EVENT_WRITE, SelectorLoop, TimerHandle

SocketTarget = tuple[int, int, int, str, Any]
"""One result of getaddrinfo."""


def resolve(address: str) -> list[SocketTarget]:
    """The socket addresses that "host:port" or "[v6]:port" stands for. May ask the resolver.

    Raises RemotingConnectError when it is no such text or the name is unknown.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise RemotingConnectError(address, 'not an address of the form "host:port"')
    try:
        return [*socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError) as error:
        raise RemotingConnectError(address, f"cannot resolve the host: {error}") from error


class ConnectAttempt:
    """One connect; exactly one of `on_connected` and `on_failed` is called. Owned by: the loop."""

    def __init__(
        self,
        loop: SelectorLoop,
        address: str,
        targets: list[SocketTarget],
        timeout_ms: int,
        *,
        on_connected: Callable[[socket.socket], None],
        on_failed: Callable[[RemotingConnectError], None],
    ) -> None:
        self._loop = loop
        self._address = address
        self._targets = targets
        self._timeout_ms = timeout_ms
        self._on_connected = on_connected
        self._on_failed = on_failed
        self._sock: socket.socket | None = None
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        """Begin; the outcome may be told before this returns."""
        self._next_target(errno.EADDRNOTAVAIL)

    def cancel(self) -> None:
        """Give up; on_failed is called if the attempt was under way."""
        self._targets = []
        self._end(errno.ECANCELED)

    def _next_target(self, code: int) -> None:
        """Try what is left; with nothing left, `code` is why the attempt failed."""
        while self._targets:
            try:
                self._begin(self._targets.pop(0))
                return
            except OSError as error:
                code = error.errno or 0
        reason = f"connect failed: {os.strerror(code)}"
        self._on_failed(RemotingConnectError(self._address, reason))

    def _begin(self, target: SocketTarget) -> None:
        """Raises OSError when the connect fails at once."""
        sock = socket.socket(*target[:3])
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = sock.connect_ex(target[4])
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        except OSError:
            sock.close()
            raise
        self._sock = sock
        self._timer = self._loop.call_later(self._timeout_ms, lambda: self._end(errno.ETIMEDOUT))
        self._loop.register(sock, EVENT_WRITE, lambda _events: self._end(_socket_error(sock)))

    def _end(self, code: int) -> None:
        """The connect under way succeeded (code 0) or failed with an errno."""
        sock, timer = self._sock, self._timer
        if sock is None or timer is None:
            return
        self._sock = self._timer = None
        timer.cancel()
        self._loop.unregister(sock)
        if code:
            sock.close()
            self._next_target(code)
        else:
            self._on_connected(sock)


def _socket_error(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
