"""TlsConnection: a connection that speaks TLS, or may turn out to.

Runs on its SelectorLoop's thread. A server's begins with a look at the first byte: 0x16 is the
begin of a TLS handshake, anything else a frame; nobody looks again, and a plain connection works
from then on as one that never could be TLS. A client's gets a socket whose handshake is done
(connect_attempt.py). What is allowed is the door's business (server_tls.py). (Java: the handshake
handler of NettyRemotingServer.)
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from remoting.connection import Connection, FrameSink, Phase, ReceiveBuffer
from remoting.selector_loop import EVENT_READ, SelectorLoop, TimerHandle
from remoting.tls_socket import TlsSocket

log = logging.getLogger(__name__)

HANDSHAKE_BYTE: Final = b"\x16"
HANDSHAKE_TIMEOUT_MS: Final = 10_000
"""As Netty's. A peer that trickles its bytes gains nothing."""


class TlsDoor(Protocol):
    """Who lets a server's connections in."""

    receive: memoryview
    """Where encrypted bytes are read to."""

    def why_closed(self, first_byte: bytes) -> str | None:
        """Why a peer that begins so is not served; None lets it in."""

    def with_context(self, then: Callable[[ssl.SSLContext | None], None]) -> None:
        """Call `then` on the loop's thread, now or later, with what a handshake needs."""

    def refused(self, address: str, reason: str) -> None:
        """A peer was turned away: tell the operator, but not of each of thousands."""


class TlsConnection(Connection):
    """One peer, plain or TLS. Owned by: the loop's thread."""

    __slots__ = ("_door", "_plain", "_reads_soon", "_timer", "_tls")

    def __init__(
        self,
        loop: SelectorLoop,
        sock: socket.socket | TlsSocket,
        sink: FrameSink,
        *,
        receive: ReceiveBuffer,
        flush_list: list[Connection],
        high_water: int,
        door: TlsDoor | None = None,
    ) -> None:
        """With a TlsSocket its handshake is done; with a plain one the `door` decides."""
        super().__init__(
            loop,
            sock,
            sink,
            receive=receive,
            flush_list=flush_list,
            high_water=high_water,
        )
        self._door = door
        self._timer: TimerHandle | None = None
        self._reads_soon = False
        self._tls: TlsSocket | None = None
        self._plain: socket.socket | None = None
        if isinstance(sock, TlsSocket):
            self._tls = sock
            self._on_event = self._handle_tls_event
        else:
            self._plain = sock
            self._on_event = self._handle_first_event

    def open(self) -> None:
        """Start to read; what came with the handshake is there already."""
        super().open()
        if self._tls is not None:
            self._read_soon()

    # -- the first byte ------------------------------------------------------------------------

    def _handle_first_event(self, events: int) -> None:
        sock, door = self._plain, self._door
        if self.phase is Phase.CLOSED or sock is None or door is None:
            return
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._close(f"read failed: {error.strerror or error}")
            return
        reason = door.why_closed(first) if first else None
        if reason is not None:
            # What came stays unread, so that the close is a reset: at one a Java client fails its
            # waiting calls, at an orderly end they wait until their time is over.
            self._refuse(reason)
        elif first == HANDSHAKE_BYTE:
            self._timer = self._loop.call_later(HANDSHAKE_TIMEOUT_MS, self._end_late_handshake)
            self._loop.unregister(sock)  # Nothing is read until the context is there.
            door.with_context(self._begin_handshake)
        else:
            self._go_on(self._handle_event)
            self._handle_event(events)

    def _go_on(self, on_event: Callable[[int], None]) -> None:
        """From now on the socket's events go to `on_event`."""
        self._on_event = on_event
        self._loop.modify(self._sock, self._interest, on_event)

    def _refuse(self, reason: str) -> None:
        if self._door is not None:
            self._door.refused(self.remote_address, reason)
        self._close(reason)

    # -- handshake -----------------------------------------------------------------------------

    def _begin_handshake(self, context: ssl.SSLContext | None) -> None:
        sock, door = self._plain, self._door
        if self.phase is Phase.CLOSED or sock is None or door is None:
            return
        if context is None:
            self._refuse("it wants TLS and this server has no usable certificate, see its log")
            return
        self._tls = TlsSocket(sock, context, server_side=True, receive=door.receive)
        self._sock = self._tls
        self._on_event = self._handle_handshake_event
        self._loop.register(self._sock, EVENT_READ, self._on_event)
        self._handle_handshake_event(EVENT_READ)

    def _handle_handshake_event(self, _events: int) -> None:
        tls = self._tls
        if self.phase is Phase.CLOSED or tls is None:
            return
        try:
            wanted = tls.handshake()
        except OSError as error:
            self._refuse(f"TLS handshake failed: {error.strerror or error}")
            return
        if wanted:
            self._set_interest(wanted)
            return
        if self._timer is not None:
            self._timer.cancel()
        self._set_interest(EVENT_READ)
        self._go_on(self._handle_tls_event)
        self._read_soon()

    def _end_late_handshake(self) -> None:
        """Never reached by a handshake that was done: it cancels the timer."""
        if self.phase is not Phase.CLOSED:
            self._refuse(f"TLS handshake not done within {HANDSHAKE_TIMEOUT_MS} ms")

    # -- reading -------------------------------------------------------------------------------

    def _handle_tls_event(self, events: int) -> None:
        self._handle_event(events)
        self._read_soon()

    def _read_soon(self) -> None:
        """Read again in the next turn, if there is more that no event tells of."""
        tls = self._tls
        is_open = self.phase is Phase.OPEN
        if is_open and tls is not None and tls.has_more and not self._reads_soon:
            self._reads_soon = True
            self._loop.call_soon_threadsafe(self._read_rest)

    def _read_rest(self) -> None:
        """Not while the peer does not read: `_set_interest` asks again when it does."""
        self._reads_soon = False
        if self._interest & EVENT_READ:
            self._handle_tls_event(EVENT_READ)

    def _set_interest(self, wanted: int) -> None:
        if wanted == self._interest:
            return
        super()._set_interest(wanted)
        if wanted & EVENT_READ:
            self._read_soon()
