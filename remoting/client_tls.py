"""ClientTls: the TLS of a RemotingClient: one context for all its connections.

Runs on the client's loop; the context is made for the first connection. Files that cannot be used
fail each connect, with the reason, until they can: a registration is tried again and again. (Java:
the sslContext of NettyRemotingClient.)
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

from remoting.tls_config import TlsConfig
from remoting.tls_connection import TlsConnection
from remoting.tls_context import TlsSettingError, make_client_context
from remoting.tls_socket import CHUNK_SIZE, TlsError, TlsSocket


class ClientTls:
    """What a RemotingClient needs for TLS (ClientSecurity). Owned by: the client's loop."""

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._context: ssl.SSLContext | None = None
        self._receive = memoryview(bytearray(CHUNK_SIZE))

    def prepare(self) -> ssl.SSLContext:
        """The context, made now or before; who cannot try again calls it before the first
        connection. Raises TlsSettingError."""
        if self._context is None:
            self._context = make_client_context(self._config)
        return self._context

    def wrap(self, sock: socket.socket) -> TlsSocket:
        """TLS over a connected socket, which it takes over; the handshake is not begun.

        Raises TlsError for settings that cannot be used.
        """
        try:
            context = self.prepare()
        except TlsSettingError as error:
            raise TlsError(str(error)) from error
        return TlsSocket(sock, context, server_side=False, receive=self._receive)

    def connection(self, *arguments: Any, **settings: Any) -> TlsConnection:
        """A connection over a socket that `wrap` made, with the arguments of Connection."""
        return TlsConnection(*arguments, **settings)
