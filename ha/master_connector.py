"""MasterConnector: opens a slave's connection to its master: resolve, connect, TLS handshake.

Runs on HAClient's thread and never blocks it: every wait is a sleep of its ClientSelector, so a
stop or a changed address ends it early. It knows no frames and no log.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from typing import Any, Final

from ha.client_selector import ClientSelector
from ha.link_errors import TLS_WAY_OUT, LinkClosedError
from ha.refusals import RefusalReason
from ha.selector_factory import EVENT_WRITE
from ha.transport import Transport, open_transport
from ipc.clock import Clock

CONNECT_MS: Final = 5_000
"""Time for connect and handshake together."""
_TIMEOUT_TEXT: Final = f"no connection within {CONNECT_MS} ms"


class MasterConnector:
    """See the module. Owned by: HAClient's thread."""

    def __init__(self, selector: ClientSelector, clock: Clock, tls: ssl.SSLContext | None) -> None:
        """tls: None for plain connections."""
        self._selector = selector
        self._clock = clock
        self._tls = tls

    def connect(self, address: str) -> Transport:
        """A connected transport to "ip:port", handshake done. Raises LinkClosedError."""
        deadline_ms = self._clock.monotonic_ms() + CONNECT_MS
        try:
            sock = self._connect_socket(address, deadline_ms)
            transport = open_transport(sock, self._tls, server_side=False)
        except OSError as error:
            raise LinkClosedError(
                RefusalReason.NETWORK, f"cannot connect: {error.strerror or error}"
            ) from error
        try:
            while event := transport.handshake():
                self._selector.wait_for(transport.fileno(), event, _TIMEOUT_TEXT, deadline_ms)
        except (OSError, LinkClosedError) as error:
            transport.close()
            if isinstance(error, LinkClosedError):
                raise
            raise LinkClosedError(
                RefusalReason.TLS,
                f"TLS handshake failed: {getattr(error, 'reason', None) or error}; {TLS_WAY_OUT}",
            ) from error
        return transport

    def _connect_socket(self, address: str, deadline_ms: int) -> socket.socket:
        family, target = self._resolve(address)
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            code = sock.connect_ex(target)
            if code == errno.EINPROGRESS:
                self._selector.wait_for(sock.fileno(), EVENT_WRITE, _TIMEOUT_TEXT, deadline_ms)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
        except (OSError, LinkClosedError):
            sock.close()
            raise
        return sock

    def _resolve(self, address: str) -> tuple[int, Any]:
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise LinkClosedError(None, f"{address!r} is not an address; expected ip:port")
        try:
            found = self._selector.call(
                lambda: socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
            )
        except (OSError, ValueError) as error:  # ValueError: not a valid host name
            raise LinkClosedError(
                RefusalReason.NETWORK,
                f"{host!r} cannot be resolved: {getattr(error, 'strerror', None) or error}",
            ) from error
        if found is None:
            raise LinkClosedError(None, "stopping")
        return found[0][0], found[0][4]
