"""ConnectAttempt: a non-blocking connect to "host:port" on a SelectorLoop, with TLS if wanted.

Tries the socket addresses that the name stands for, one after the other, each with its own
time-out; a TLS handshake has the same time again, and one that fails ends the attempt. Runs on the
loop's thread, but for `resolve`, which any thread may call. Knows no frame.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import Any, Protocol

from remoting.connection import StreamSocket
from remoting.errors import RemotingConnectError
from remoting.selector_loop import EVENT_READ, EVENT_WRITE, SelectorLoop, TimerHandle

SocketTarget = tuple[int, int, int, str, Any]
"""One result of getaddrinfo."""


class HandshakingSocket(StreamSocket, Protocol):
    """A socket that must agree with its peer before bytes can go (TlsSocket)."""

    def handshake(self) -> int:
        """Go on: 0 when it is done, else the event that it waits for. Raises OSError."""


Wrap = Callable[[socket.socket], HandshakingSocket]
"""Takes over a connected socket. Raises OSError."""


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
        on_connected: Callable[[StreamSocket], None],
        on_failed: Callable[[RemotingConnectError], None],
        wrap: Wrap | None = None,
    ) -> None:
        """wrap: makes a TLS socket of a connected one; None: the connection is plain."""
        self._loop = loop
        self._address = address
        self._targets = targets
        self._timeout_ms = timeout_ms
        self._on_connected = on_connected
        self._on_failed = on_failed
        self._wrap = wrap
        self._sock: socket.socket | None = None
        self._secured: HandshakingSocket | None = None
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        """Begin; the outcome may be told before this returns."""
        self._next_target(errno.EADDRNOTAVAIL)

    def cancel(self) -> None:
        """Give up; on_failed is called if the attempt was under way."""
        self._targets = []
        self._end(errno.ECANCELED)
        self._end_handshake(os.strerror(errno.ECANCELED))

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
        elif self._wrap is None:
            self._on_connected(sock)
        else:
            self._begin_handshake(sock, self._wrap)

    def _begin_handshake(self, sock: socket.socket, wrap: Wrap) -> None:
        try:
            self._secured = secured = wrap(sock)
        except OSError as error:
            sock.close()
            self._on_failed(RemotingConnectError(self._address, f"no TLS: {error}"))
            return
        timeout_ms = self._timeout_ms
        reason = f"no end within {timeout_ms} ms"
        self._timer = self._loop.call_later(timeout_ms, lambda: self._end_handshake(reason))
        self._loop.register(secured, EVENT_READ, lambda _events: self._go_on(secured))
        self._go_on(secured)

    def _go_on(self, secured: HandshakingSocket) -> None:
        """The next step of the handshake; a late event of one that has ended is none."""
        if self._secured is not secured:
            return
        try:
            wanted = secured.handshake()
        except OSError as error:
            self._end_handshake(error.strerror or str(error))
            return
        if wanted:
            self._loop.modify(secured, wanted, lambda _events: self._go_on(secured))
        else:
            self._end_handshake(None)

    def _end_handshake(self, reason: str | None) -> None:
        """The handshake under way succeeded (None) or failed."""
        secured, timer = self._secured, self._timer
        if secured is None or timer is None:
            return
        self._secured = self._timer = None
        timer.cancel()
        self._loop.unregister(secured)
        if reason is None:
            self._on_connected(secured)
            return
        secured.close()
        self._on_failed(
            RemotingConnectError(
                self._address,
                f"TLS handshake failed: {reason}; is TLS switched on there (tls.server.mode), and "
                "do the certificates fit?",
            )
        )


def _socket_error(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
