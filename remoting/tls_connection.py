"""TlsConnection: a connection that uses TLS, or may turn out to.

Runs on its SelectorLoop's thread. On a server it first peeks at the first byte: 0x16 is the start
of a TLS handshake, anything else a frame. From then on a plain connection works like any other
Connection. On a client it gets a socket with a completed handshake (connect_attempt.py).
ServerTls decides what is accepted (server_tls.py). (Java: the handshake handler of
NettyRemotingServer.)
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from remoting.connection import Connection, FrameSink, Phase
from remoting.receive_buffer import ReceiveBuffer
from remoting.selector_loop import EVENT_READ, SelectorLoop, TimerHandle

if TYPE_CHECKING:
    # 0.6 MiB in each process, most of which never speak TLS.
    import ssl

    from remoting.server_tls import ServerTls
    from remoting.tls_socket import TlsSocket

log = logging.getLogger(__name__)

HANDSHAKE_BYTE: Final = b"\x16"
HANDSHAKE_TIMEOUT_MS: Final = 10_000
"""The same as Netty's. It limits the whole handshake, so sending bytes slowly does not extend
it."""


class TlsConnection(Connection):
    """One peer, plain or TLS. Owned by: the loop's thread."""

    __slots__ = ("_plain", "_policy", "_reads_soon", "_timer", "_tls")

    def __init__(
        self,
        loop: SelectorLoop,
        sock: socket.socket | TlsSocket,
        sink: FrameSink,
        *,
        receive: ReceiveBuffer,
        flush_list: list[Connection],
        high_water: int,
        policy: ServerTls | None = None,
    ) -> None:
        """Without a policy the socket is a TlsSocket that has completed its handshake; for a plain
        one the `policy` decides."""
        super().__init__(
            loop,
            sock,
            sink,
            receive=receive,
            flush_list=flush_list,
            high_water=high_water,
        )
        self._policy = policy
        self._timer: TimerHandle | None = None
        self._reads_soon = False
        self._tls: TlsSocket | None = None
        self._plain: socket.socket | None = None
        if policy is None:
            self._tls = cast("TlsSocket", sock)
            self._on_event = self._handle_tls_event
        else:
            self._plain = cast("socket.socket", sock)
            self._on_event = self._handle_first_event

    def open(self) -> None:
        """Start reading; data received with the handshake is already available."""
        super().open()
        if self._tls is not None:
            self._read_soon()

    # -- the first byte ------------------------------------------------------------------------

    def _handle_first_event(self, events: int) -> None:
        sock, policy = self._plain, self._policy
        if self.phase is Phase.CLOSED or sock is None or policy is None:
            return
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._close(f"read failed: {error.strerror or error}")
            return
        reason = policy.why_closed(first) if first else None
        if reason is not None:
            # Received data stays unread, so that closing sends a reset: a Java client then
            # fails its pending calls at once, instead of waiting for their timeouts.
            self._refuse(reason)
        elif first == HANDSHAKE_BYTE:
            self._timer = self._loop.call_later(HANDSHAKE_TIMEOUT_MS, self._end_late_handshake)
            self._loop.unregister(sock)  # Nothing is read until the context is available.
            policy.with_context(self._begin_handshake)
        else:
            self._go_on(self._handle_event)
            self._handle_event(events)

    def _go_on(self, on_event: Callable[[int], None]) -> None:
        """Route the socket's events to `on_event` from now on."""
        self._on_event = on_event
        self._loop.modify(self._sock, self._interest, on_event)

    def _refuse(self, reason: str) -> None:
        if self._policy is not None:
            self._policy.refused(self.remote_address, reason)
        self._close(reason)

    # -- handshake -----------------------------------------------------------------------------

    def _begin_handshake(self, context: ssl.SSLContext | None) -> None:
        sock, policy = self._plain, self._policy
        if self.phase is Phase.CLOSED or sock is None or policy is None:
            return
        if context is None:
            self._refuse(
                "the client uses TLS and this server has no usable certificate, see its log"
            )
            return
        from remoting.tls_socket import TlsSocket

        self._tls = TlsSocket(sock, context, server_side=True, receive=policy.receive)
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
        """Not called for a completed handshake, which cancels the timer."""
        if self.phase is not Phase.CLOSED:
            self._refuse(f"TLS handshake not completed within {HANDSHAKE_TIMEOUT_MS} ms")

    # -- reading -------------------------------------------------------------------------------

    def _handle_tls_event(self, events: int) -> None:
        self._handle_event(events)
        self._read_soon()

    def _read_soon(self) -> None:
        """Read again in the next turn, if there is decrypted data without a socket event."""
        tls = self._tls
        is_open = self.phase is Phase.OPEN
        if is_open and tls is not None and tls.has_more and not self._reads_soon:
            self._reads_soon = True
            self._loop.call_soon_threadsafe(self._read_rest)

    def _read_rest(self) -> None:
        """Not while the peer does not read: `_set_interest` retries when it does."""
        self._reads_soon = False
        if self._interest & EVENT_READ:
            self._handle_tls_event(EVENT_READ)

    def _set_interest(self, wanted: int) -> None:
        if wanted == self._interest:
            return
        super()._set_interest(wanted)
        if wanted & EVENT_READ:
            self._read_soon()
