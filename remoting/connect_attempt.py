"""ConnectAttempt: a non-blocking connect to "host:port" on a SelectorLoop, optionally with TLS.

Tries the socket addresses that the name resolves to in order, each with its own timeout. A TLS
handshake has the same timeout, and a failed one ends the attempt. Runs on the loop's thread, except
`resolve`, which any thread may call. Knows no frame.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from remoting.connection import StreamSocket
from remoting.errors import RemotingConnectError
from remoting.selector_loop import EVENT_READ, EVENT_WRITE, SelectorLoop, TimerHandle

if TYPE_CHECKING:
    from remoting.tls_socket import TlsSocket


SocketTarget = tuple[int, int, int, str, Any]
"""One result of getaddrinfo."""


Wrap = Callable[[socket.socket], "TlsSocket"]
"""Takes ownership of a connected socket. Raises OSError."""


def resolve(address: str) -> list[SocketTarget]:
    """Resolve "host:port" or "[v6]:port" to socket addresses. May block on the resolver.

    Raises RemotingConnectError if the address is malformed or the name is unknown.
    """
    host, separator, port = address.rpartition(":")
    is_port = port.isdecimal() and len(port) <= 5 and int(port) <= 65535
    if not separator or not host or not is_port:
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
        """wrap: wraps a connected socket in TLS; None for a plain connection."""
        self._loop = loop
        self._address = address
        self._targets = targets
        self._timeout_ms = timeout_ms
        self._on_connected = on_connected
        self._on_failed = on_failed
        self._wrap = wrap
        self._sock: socket.socket | None = None
        self._secured: TlsSocket | None = None
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        """Start; a callback may run before this returns."""
        self._next_target(errno.EADDRNOTAVAIL)

    def cancel(self) -> None:
        """Cancel the attempt; on_failed is called if it was in progress."""
        self._targets = []
        self._end(errno.ECANCELED)
        self._end_handshake(os.strerror(errno.ECANCELED))

    def _next_target(self, code: int) -> None:
        """Try the next address; if none is left, the attempt fails with `code`."""
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
        """The current connect succeeded (code 0) or failed with an errno."""
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
            self._on_failed(RemotingConnectError(self._address, f"cannot use TLS: {error}"))
            return
        timeout_ms = self._timeout_ms
        reason = f"not completed within {timeout_ms} ms"
        self._timer = self._loop.call_later(timeout_ms, lambda: self._end_handshake(reason))
        self._loop.register(secured, EVENT_READ, lambda _events: self._go_on(secured))
        self._go_on(secured)

    def _go_on(self, secured: TlsSocket) -> None:
        """The next step of the handshake; a late event of a finished one is ignored."""
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
        """The handshake succeeded (None) or failed."""
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
                f"TLS handshake failed: {reason}; check that the peer has TLS enabled "
                "(tls.server.mode) and that the certificates match",
            )
        )


def _socket_error(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
