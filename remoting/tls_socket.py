"""TlsSocket: TLS over a non-blocking socket, with a socket's interface.

Runs on its connection's loop; never blocks: like a socket, it raises BlockingIOError instead. Many
TLS records are received or sent with one system call. Knows bytes, but no frames and no settings.

    recv_into, send, sendmsg   as a socket's; at most CHUNK_SIZE bytes are encrypted by one call
    has_more                   recv_into gives bytes that the socket's readiness does not announce
    recv_into                  reads the socket once at most: a peer that only sends TLS's own
                               messages (key updates) holds up nobody, and is closed soon
    after BlockingIOError      the next send must offer the same bytes again: they are encrypted,
                               and count as sent when the last of them has left
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Final

from remoting.selector_loop import EVENT_READ, EVENT_WRITE

CHUNK_SIZE: Final = 64 << 10
"""Four full records, so that a large response needs few calls. Limits the size of a copy; a busy
connection keeps buffers of about this size in each direction."""
_IDLE_LIMIT: Final = 64 << 10
"""Encrypted bytes beyond twice the decrypted ones. Records of 29 bytes and more, and no client has
shorter frames, stay within twice; what does not is key updates, which cost 40 us each."""
_OWN_LIMIT: Final = 2 * CHUNK_SIZE
"""Bytes that wait behind those that the socket did not accept: the caller's, once, and TLS's own
messages. The latter are not counted by anybody else."""

Buffer = bytes | memoryview


class TlsError(OSError):
    """The peer violated the TLS protocol or rejected the connection; the text says how."""


class TlsSocket:
    """One peer's TLS state. Owned by: the loop's thread. Takes ownership of a connected socket."""

    __slots__ = (
        "_ended",
        "_idle",
        "_incoming",
        "_outgoing",
        "_receive",
        "_sock",
        "_taken",
        "_tls",
        "_unsent",
        "has_more",
    )

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
        self._receive = receive
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        # Any: typeshed does not know that read(size, buffer) returns a count.
        self._tls: Any = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._unsent: Buffer = b""
        """Encrypted bytes that the socket did not accept."""
        self._taken = 0
        """Number of the caller's bytes that are encrypted but not reported as sent."""
        self._ended = False
        self._idle = 0
        """Encrypted bytes beyond twice the decrypted ones, lately."""
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
        self.has_more = False
        count, received = self._decrypt(view), 0
        if not count and not self._ended:
            received = self._receive_more()
            count = self._decrypt(view)
        self._push()  # TLS's own messages, such as the response to a key update.
        self._judge(received, count)
        if not count and not self._ended:
            raise BlockingIOError
        self.has_more = self._ended or count == len(view)
        return count

    def _judge(self, received: int, decrypted: int) -> None:
        """Raises TlsError: the peer sends TLS's own messages without end, or reads none of ours."""
        self._idle = max(self._idle + received - 2 * decrypted, 0)
        if self._idle > _IDLE_LIMIT:
            raise TlsError("the peer sends key updates or empty records in place of data")
        if self._outgoing.pending > _OWN_LIMIT:
            raise TlsError("the peer does not read the answers to its key updates")

    def send(self, data: Buffer, /) -> int:
        """`sendmsg` of one piece."""
        return self.sendmsg((data,))

    def sendmsg(self, pieces: Sequence[Buffer], /) -> int:
        """Encrypt and send up to CHUNK_SIZE bytes from the start of the pieces; returns the number
        of bytes accepted.

        Raises BlockingIOError, TlsError, OSError.
        """
        if not self._taken:
            self._taken = self._encrypt(_beginning(pieces))
        if not self._push():
            raise BlockingIOError
        taken, self._taken = self._taken, 0
        return taken

    def close(self) -> None:
        """Send a close notification if the socket accepts it at once, and close the socket."""
        with contextlib.suppress(
            OSError
        ):  # includes ssl.SSLError: no response yet, or no handshake
            self._tls.unwrap()
        with contextlib.suppress(OSError):  # the peer has already closed
            self._push()
        self._sock.close()

    # -- handshake -----------------------------------------------------------------------------

    def handshake(self) -> int:
        """Continue the handshake: 0 when it is done, else the event it waits for. Raises TlsError,
        OSError.

        Afterwards `recv_into` may have data immediately.
        """
        while True:
            try:
                self._tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                is_done = False
            except ssl.SSLError as error:
                with contextlib.suppress(OSError):
                    self._push()  # Sends the alert to the peer.
                raise TlsError(explain(error)) from error
            if not self._push():
                return EVENT_WRITE
            if is_done:
                self.has_more = True
                return 0
            try:
                self._receive_more()
            except (BlockingIOError, InterruptedError):
                return EVENT_READ
            if self._ended:
                raise TlsError("the peer closed the connection")

    # -- internals --------------------------------------------------------------------------------

    def _receive_more(self) -> int:
        count = self._sock.recv_into(self._receive)
        if count:
            self._incoming.write(self._receive[:count])
        else:
            # Also without a close notification: frames have a length, so truncation is detected.
            self._ended = True
        return count

    def _decrypt(self, view: memoryview) -> int:
        filled, size = 0, len(view)
        try:
            while filled < size:
                count = self._tls.read(size - filled, view[filled:])
                if not count:  # the peer's close notification
                    self._ended = True
                    break
                filled += count
        except ssl.SSLWantReadError:
            return filled
        except ssl.SSLError as error:
            raise TlsError(explain(error)) from error
        return filled

    def _encrypt(self, data: memoryview) -> int:
        done = 0
        try:
            while done < len(data):
                done += self._tls.write(data[done:])
        except ssl.SSLError as error:
            raise TlsError(explain(error)) from error
        return done

    def _push(self) -> bool:
        """Send the encrypted bytes; True if all of them were sent."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return True
                self._unsent = memoryview(self._outgoing.read())
            try:
                sent = self._sock.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return False
            self._unsent = self._unsent[sent:]


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
