"""ClientTls: the TLS context of a RemotingClient, shared by all its connections.

Runs on the client's loop; the context is created for the first connection. With invalid files each
connect fails with the reason, until they are fixed, since registrations are retried. (Java: the
sslContext of NettyRemotingClient.)
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from remoting.tls_config import CHUNK_SIZE, TlsConfig
from remoting.tls_connection import TlsConnection
from remoting.tls_context import TlsSettingError, make_client_context

if TYPE_CHECKING:
    import ssl

    from remoting.tls_socket import TlsSocket


class ClientTls:
    """Provides TLS to a RemotingClient. Owned by: the client's loop."""

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self._context: ssl.SSLContext | None = None
        self._receive = memoryview(bytearray(CHUNK_SIZE))

    def prepare(self) -> ssl.SSLContext:
        """Create the context if necessary. Call it before the first connection to detect errors
        early. Raises TlsSettingError."""
        if self._context is None:
            self._context = make_client_context(self._config)
        return self._context

    def wrap(self, sock: socket.socket) -> TlsSocket:
        """Wrap a connected socket in TLS and take ownership of it; the handshake is not started.

        Raises TlsError for invalid settings.
        """
        from remoting.tls_socket import TlsError, TlsSocket

        try:
            context = self.prepare()
        except TlsSettingError as error:
            raise TlsError(str(error)) from error
        return TlsSocket(sock, context, server_side=False, receive=self._receive)

    def connection(self, *arguments: Any, **settings: Any) -> TlsConnection:
        """A connection over a wrapped socket, with the arguments of Connection."""
        return TlsConnection(*arguments, **settings)
