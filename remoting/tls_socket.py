"""TlsSocket: TLS over a non-blocking socket, with a socket's interface.

Runs on its connection's loop; never blocks: like a socket, it raises BlockingIOError instead. Many
TLS records are received or sent with one system call. The TLS state is that of
ipc/tls_channel.py. Knows bytes, but no frames and no settings.

    recv_into, send, sendmsg   as a socket's; at most CHUNK_SIZE bytes are encrypted by one call
    has_more                   recv_into gives bytes that the socket's readiness does not announce
    recv_into                  reads the socket once at most: a peer that only sends TLS's own
                               messages (key updates) holds up nobody, and is closed soon
    after BlockingIOError      the next send must offer the same bytes again: they are encrypted,
                               and count as sent when the last of them has left
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Any, Final

from ipc.tls_channel import TlsChannel, TlsFloodError
from remoting.tls_config import CHUNK_SIZE

_OVERHEAD: Final = 2
"""Records have 29 bytes and more, and no client has shorter frames."""

Buffer = bytes | memoryview


class TlsError(OSError):
    """The peer violated the TLS protocol or rejected the connection; the text says how."""


class TlsSocket:
    """One peer's TLS state. Owned by: the loop's thread. Takes ownership of a connected socket."""

    __slots__ = ("_channel", "_sock", "has_more")

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        receive: memoryview,
    ) -> None:
        """receive: buffer for received encrypted bytes, shared by the connections of a loop."""
        self._sock = sock
        self._channel: Final = TlsChannel(
            sock,
            context,
            receive,
            server_side=server_side,
            chunk_size=CHUNK_SIZE,
            overhead=_OVERHEAD,
        )
        self.has_more = False

    # -- socket interface -------------------------------------------------------------------------

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._sock.fileno()

    def getpeername(self) -> Any:
        """The peer's address."""
        return self._sock.getpeername()

    def getsockname(self) -> Any:
        """The local address."""
        return self._sock.getsockname()

    def recv_into(self, view: memoryview, /) -> int:
        """Fill `view` from its start; returns the number of bytes, 0 if the peer has closed.

        Raises BlockingIOError, TlsError, OSError.
        """
        channel = self._channel
        self.has_more = False
        try:
            count, received = self._decrypt(view), 0
            if not count and not channel.ended:
                found = channel.receive()
                if found is None:
                    raise BlockingIOError
                received = found
                count = self._decrypt(view)
            channel.push()  # TLS's own messages, such as the response to a key update.
            channel.judge(received, count)
        except ssl.SSLError as error:
            raise TlsError(explain(error)) from error
        except TlsFloodError as error:
            raise TlsError(error.strerror) from error
        if not count and not channel.ended:
            raise BlockingIOError
        self.has_more = channel.ended or count == len(view)
        return count

    def send(self, data: Buffer, /) -> int:
        """`sendmsg` of one piece."""
        return self.sendmsg((data,))

    def sendmsg(self, pieces: Sequence[Buffer], /) -> int:
        """Encrypt and send up to CHUNK_SIZE bytes from the start of the pieces; returns the number
        of bytes accepted.

        Raises BlockingIOError, TlsError, OSError.
        """
        channel = self._channel
        if not channel.is_sending:
            try:
                channel.encrypt(_beginning(pieces))
            except ssl.SSLError as error:
                raise TlsError(explain(error)) from error
        sent = channel.sent()
        if channel.is_sending:
            raise BlockingIOError
        return sent

    def close(self) -> None:
        """Send a close notification if the socket accepts it at once, and close the socket."""
        self._channel.say_goodbye()
        self._sock.close()

    def handshake(self) -> int:
        """Continue the handshake: 0 when it is done, else the event it waits for. Raises TlsError,
        OSError.

        Afterwards `recv_into` may have data immediately.
        """
        try:
            event = self._channel.handshake()
        except ssl.SSLError as error:
            raise TlsError(explain(error)) from error
        except ConnectionResetError as error:
            raise TlsError(error.strerror or str(error)) from error
        self.has_more = not event
        return event

    def _decrypt(self, view: memoryview) -> int:
        """Many records, as long as there is room."""
        channel, filled, size = self._channel, 0, len(view)
        while filled < size:
            count = channel.read(view[filled:])
            if count is None:
                break
            if not count:  # the peer's close notification
                channel.ended = True
                break
            filled += count
        return filled


def _beginning(pieces: Sequence[Buffer]) -> memoryview:
    """The first CHUNK_SIZE bytes, copied only if they span several pieces."""
    if len(pieces) == 1:
        return memoryview(pieces[0])[:CHUNK_SIZE]
    parts, left = [], CHUNK_SIZE
    for piece in pieces:
        parts.append(memoryview(piece)[:left])
        left -= len(parts[-1])
        if not left:
            break
    return memoryview(b"".join(parts))


def explain(error: ssl.SSLError) -> str:
    """OpenSSL's reason as text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not accepted: {error.verify_message}"
    return str(error.reason or error).replace("_", " ").lower()
