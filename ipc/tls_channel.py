"""TlsChannel: the TLS state of one connection between memory buffers, for whoever owns its socket.

remoting/tls_socket.py and ha/transport.py say what their callers see of it. Never blocks; not
thread-safe: the owner's loop, or its lock. OpenSSL does not read the socket itself: it would go on
for as long as a peer sends nothing but TLS's own messages (key updates). Here each call of
`receive` reads the socket once, and `judge` ends a connection whose peer sends such messages in
place of data, or does not read the answers to them. Knows bytes, no frames, no settings and no
certificates.

Tested by tests/ha/test_accept_socket_service.py.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, Final

Buffer = bytes | bytearray | memoryview

_IDLE_LIMIT: Final = 64 << 10
"""Encrypted bytes beyond `overhead` times the decrypted ones. Each of a peer's key updates costs 40
us, and has 27 bytes at least."""


class TlsFloodError(OSError):
    """The peer sends TLS's own messages in place of data (EPROTO)."""


class TlsChannel:
    """See the module. Errors are OSError; ssl.SSLError is one."""

    __slots__ = (
        *("_chunk_size", "_idle", "_incoming", "_outgoing", "_overhead", "_receive"),
        *("_sock", "_taken", "_tls", "_unsent", "ended"),
    )

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        receive: memoryview,
        *,
        server_side: bool,
        chunk_size: int,
        overhead: int,
    ) -> None:
        """receive: for encrypted bytes; channels of one thread may share it. chunk_size: the most
        bytes that one call encrypts. overhead: encrypted bytes for each one of data, at most, in
        what honest peers send."""
        self._sock = sock
        self._receive = receive
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        # Any: typeshed does not know that read(size, buffer) returns a count.
        self._tls: Any = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._chunk_size = chunk_size
        self._overhead = overhead
        self._unsent: Buffer = b""
        """Encrypted bytes that the socket did not take."""
        self._taken = 0
        """How many of the caller's bytes are encrypted, but not reported as sent."""
        self._idle = 0
        """Encrypted bytes beyond `overhead` times the decrypted ones, lately."""
        self.ended = False
        """Nothing more will come."""

    # -- handshake -----------------------------------------------------------------------------

    def handshake(self) -> int:
        """Go on with it: 0 when it is done, else the event that it waits for. Raises OSError: the
        peer speaks no TLS, shows no good certificate, or has left."""
        while True:
            try:
                self._tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                is_done = False
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self.push()  # The alert that tells the peer why.
                raise
            if not self.push():
                return EVENT_WRITE
            if is_done:
                return 0
            if self.receive() is None:
                return EVENT_READ
            if self.ended:
                raise ConnectionResetError(errno.ECONNRESET, "the peer closed the connection")

    # -- receiving -----------------------------------------------------------------------------

    @property
    def has_received(self) -> bool:
        """Whether bytes lie here that `read` has not looked at."""
        return bool(self._tls.pending() or self._incoming.pending)

    def receive(self) -> int | None:
        """Read the socket once; how many encrypted bytes it had, None: it has nothing now."""
        try:
            count = self._sock.recv_into(self._receive)
        except (BlockingIOError, InterruptedError):
            return None
        if count:
            self._incoming.write(self._receive[:count])
        else:
            # Also without TLS's own end: frames have sizes, so a cut is seen.
            self.ended = True
        return count

    def read(self, view: memoryview) -> int | None:
        """Fill `view` from its start with the data of one record, 16 KiB at most; None: no whole
        record is here. 0: the peer has ended."""
        try:
            return int(self._tls.read(len(view), view))
        except ssl.SSLWantReadError:
            return None

    def judge(self, received: int, decrypted: int) -> None:
        """Of one read of the socket. Raises TlsFloodError: the peer sends TLS's own messages
        without end, or reads none of ours."""
        self._idle = max(self._idle + received - self._overhead * decrypted, 0)
        if self._idle > _IDLE_LIMIT:
            text = "the peer sends key updates or empty records in place of data"
            raise TlsFloodError(errno.EPROTO, text)
        # Beside one call's bytes these are TLS's own messages, which nobody else counts.
        if self._outgoing.pending > 2 * self._chunk_size:
            text = "the peer does not read the answers to its key updates"
            raise TlsFloodError(errno.EPROTO, text)

    # -- sending -------------------------------------------------------------------------------

    @property
    def is_sending(self) -> bool:
        """Whether bytes are encrypted that were not reported as sent: the caller offers the same
        ones again, and `encrypt` is not called."""
        return self._taken > 0

    def encrypt(self, data: Buffer) -> None:
        """Take chunk_size bytes at most from the start of `data`."""
        part = memoryview(data)[: self._chunk_size]
        while self._taken < len(part):
            self._taken += self._tls.write(part[self._taken :])

    def sent(self) -> int:
        """Send: how many of the caller's bytes have left, all that were taken or 0."""
        if not self.push():
            return 0
        taken, self._taken = self._taken, 0
        return taken

    def push(self) -> bool:
        """Send encrypted bytes, TLS's own messages among them; True if all of them have left."""
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

    def say_goodbye(self) -> None:
        """Send TLS's own end, if the socket takes it at once."""
        with contextlib.suppress(OSError):  # No answer to it yet, or no handshake; the peer left.
            self._tls.unwrap()
        with contextlib.suppress(OSError):
            self.push()
