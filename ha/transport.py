"""Transports: one HA connection's socket, plain or TLS, the same to master and slave.

Never blocks: a call that would says so. One thread may read and another write at the same time
(ReadSocketService and WriteSocketService of the master; HAClient of the slave does both). Knows
bytes, files and certificates, no frames and no offsets.

    nothing now         send, send_file: 0      recv, recv_into: None   handshake: what to wait for
    the peer has ended  -                       recv, recv_into: b"", 0
    it broke            OSError from every call (ssl.SSLError is one)

The end has two steps: `shutdown` (any thread, any time) makes every later call fail and wakes
selectors that watch the socket; `close` gives the descriptor back, once no thread uses it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeGuard

from ha.ha_config import HaConfig

if TYPE_CHECKING:
    # 0.6 MiB in each process, most of which never speak TLS.
    import ssl

_TLS_CHUNK: Final = 128 << 10
"""Most bytes encrypted in one call: the other thread's calls wait for it."""
_TLS_RECORD: Final = 16 << 10
"""Most bytes of data in one record."""
_TLS_READ: Final = 64 << 10
"""Most encrypted bytes received at once: some records, so that a frame needs few calls."""
_OVERHEAD: Final = 10
"""A report alone in its record has 8 bytes of data in 30 (TLS 1.3), up to 69 in TLS 1.2's."""


class HaTlsError(Exception):
    """A TLS setting cannot be used: the text names the key, the path and the way out."""


class Transport(Protocol):
    """What PlainTransport and TlsTransport share; see the module for the results."""

    remote: str
    """The peer, "ip:port"."""
    local: str
    """Our end, "ip:port"."""

    @property
    def is_shut(self) -> bool:
        """Whether `shutdown` was called."""

    @property
    def has_pending(self) -> bool:
        """Whether `recv` gives bytes that the socket's readiness does not announce."""

    def fileno(self) -> int:
        """The socket's descriptor, for selectors."""

    def handshake(self) -> int:
        """Go on with it: 0 when it is done, else the event (EVENT_READ, EVENT_WRITE) it needs."""

    def send(self, parts: Sequence[bytes | bytearray | memoryview], *, more: bool = False) -> int:
        """Send one or two parts; how many bytes were taken. `more`: the next call follows at once.

        After 0 the next call must offer the same bytes again (TLS has begun to encrypt them).
        """

    def send_file(self, fd: int, position: int, count: int) -> int:
        """Send up to `count` bytes of a file from `position`; how many were taken."""

    def recv(self, size: int) -> bytes | None:
        """Up to `size` bytes."""

    def recv_into(self, view: memoryview) -> int | None:
        """Fill `view` from its start; how many bytes."""

    def shutdown(self) -> None:
        """End both directions and wake the threads that wait for the socket. Idempotent."""

    def close(self) -> None:
        """`shutdown`, and give the descriptor back. Idempotent."""


class _SocketEnd:
    """The socket itself and its two-step end."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # no TCP socket: tests, or already reset
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.remote: str = _name_of(sock, peer=True)
        self.local: str = _name_of(sock, peer=False)
        self._socket = sock
        self._fd = sock.fileno()
        self._shut = False

    @property
    def is_shut(self) -> bool:
        """Whether `shutdown` was called."""
        return self._shut

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._fd

    def shutdown(self) -> None:
        """End both directions; selectors that watch the socket wake up."""
        self._shut = True
        with contextlib.suppress(OSError):  # the peer was faster
            # The method of the plain socket: TLS's own would drop its state under the other thread.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the descriptor back; no other thread may be in a call."""
        self.shutdown()
        self._socket.close()
        self._fd = -1


class PlainTransport(_SocketEnd):
    """The socket as it is: frames go to Java and from Java. See Transport."""

    has_pending: Final = False

    def __init__(self, sock: socket.socket) -> None:
        """Takes over a connected socket and makes it non-blocking."""
        super().__init__(sock)
        self._sendmsg = sock.sendmsg

    def handshake(self) -> int:
        """There is none."""
        return 0

    def send(self, parts: Sequence[bytes | bytearray | memoryview], *, more: bool = False) -> int:
        """One sendmsg, with MSG_MORE when `more`."""
        try:
            return self._sendmsg(parts, (), socket.MSG_MORE if more else 0)
        except BlockingIOError:
            return 0

    def send_file(self, fd: int, position: int, count: int) -> int:
        """One sendfile: the bytes never pass through Python. Raises OSError: the file is short."""
        try:
            sent = os.sendfile(self._fd, fd, position, count)
        except BlockingIOError:
            return 0
        if not sent:
            raise _short_file(fd, position)
        return sent

    def recv(self, size: int) -> bytes | None:
        """One recv."""
        try:
            return self._socket.recv(size)
        except BlockingIOError:
            return None

    def recv_into(self, view: memoryview) -> int | None:
        """One recv_into."""
        try:
            return self._socket.recv_into(view)
        except BlockingIOError:
            return None


class TlsTransport(_SocketEnd):
    """TLS over the socket (ipc/tls_channel.py). Guarded by: a lock around each call, as one TLS
    state must be. Each call reads the socket once at most."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server_side: bool) -> None:
        """Takes over a connected socket; nothing is sent before `handshake`."""
        from ipc.tls_channel import TlsChannel

        super().__init__(sock)
        self._channel = TlsChannel(
            sock,
            context,
            memoryview(bytearray(_TLS_READ)),
            server_side=server_side,
            chunk_size=_TLS_CHUNK,
            overhead=_OVERHEAD,
        )
        self._lock = threading.Lock()
        self._may_have_more = False

    @property
    def has_pending(self) -> bool:
        """Received bytes may lie here that no call has found to be nothing yet."""
        return self._may_have_more

    def handshake(self) -> int:
        """One step. Raises ssl.SSLError: the peer speaks no TLS, or has no good certificate."""
        with self._lock:
            event = self._channel.handshake()
            self._may_have_more = not event
            return event

    def send(self, parts: Sequence[bytes | bytearray | memoryview], *, more: bool = False) -> int:
        """Up to 128 KiB of the parts; without effect: `more`."""
        with self._lock:
            if not self._channel.is_sending:
                self._channel.encrypt(parts[0] if len(parts) == 1 else b"".join(parts))
            return self._channel.sent()

    def send_file(self, fd: int, position: int, count: int) -> int:
        """Read and write up to 128 KiB of the file. Raises OSError: the file is short."""
        with self._lock:
            if not self._channel.is_sending:
                data = os.pread(fd, min(count, _TLS_CHUNK), position)
                if not data:
                    raise _short_file(fd, position)
                self._channel.encrypt(data)
            return self._channel.sent()

    def recv(self, size: int) -> bytes | None:
        """At most one TLS record."""
        data = bytearray(min(size, _TLS_RECORD))
        count = self.recv_into(memoryview(data))
        return None if count is None else bytes(data[:count])

    def recv_into(self, view: memoryview) -> int | None:
        """At most one TLS record (16 KiB)."""
        channel = self._channel
        with self._lock:
            count, received = channel.read(view), 0
            if count is None and not channel.ended:
                received = channel.receive() or 0
                count = channel.read(view)
            channel.push()  # TLS's own messages, such as the answers to key updates.
            channel.judge(received, count or 0)
            if count is None and channel.ended:
                count = 0
            self._may_have_more = count is not None and channel.has_received
            return count


def is_tls_error(error: OSError) -> TypeGuard[ssl.SSLError]:
    """Whether TLS raised it. Without TLS its module is not loaded, and need not be: there may be
    no descriptor left to load it with."""
    loaded = sys.modules.get("ssl")
    return loaded is not None and isinstance(error, loaded.SSLError)


def open_transport(
    sock: socket.socket, tls: ssl.SSLContext | None, *, server_side: bool
) -> PlainTransport | TlsTransport:
    """The transport of a connected socket, which it takes over: TLS when a context is given."""
    if tls is None:
        return PlainTransport(sock)
    return TlsTransport(sock, tls, server_side=server_side)


def make_tls_context(config: HaConfig, *, server_side: bool) -> ssl.SSLContext | None:
    """The context for this end of HA connections; None when haTlsEnable is false.

    Both sides show a certificate and ask for the peer's; names are not compared (addresses come
    and go), the authority in haTlsTrustedCertificates is the secret. Raises HaTlsError.
    """
    if not config.ha_tls_enable:
        return None
    import ssl

    certificate = _pem("haTlsCertificate", config.ha_tls_certificate)
    private_key = _pem("haTlsPrivateKey", config.ha_tls_private_key)
    trusted = _pem("haTlsTrustedCertificates", config.ha_tls_trusted_certificates)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server_side else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.options |= ssl.OP_NO_RENEGOTIATION
    if server_side:
        context.num_tickets = 0
    try:
        context.load_cert_chain(certificate, private_key, _refuse_password)
    except ssl.SSLError as error:
        raise HaTlsError(
            f"haTlsCertificate {certificate} and haTlsPrivateKey {private_key} cannot be used: "
            f"{error.reason or error}; both must be PEM files and belong together"
        ) from error
    try:
        context.load_verify_locations(trusted)
    except ssl.SSLError as error:
        raise HaTlsError(
            f"haTlsTrustedCertificates {trusted} cannot be used: {error.reason or error}; "
            "it must be a PEM file with the certificates of the authorities"
        ) from error
    return context


def _pem(key: str, path: str | None) -> str:
    if not path:
        raise HaTlsError(
            f"haTlsEnable=true needs {key}: set it to a PEM file, or unset haTlsEnable"
        )
    try:
        with Path(path).open("rb"):
            return path
    except OSError as error:
        raise HaTlsError(
            f"{key} {path} cannot be read: {error.strerror}; set {key} to a PEM file that this "
            "user may read, or unset haTlsEnable"
        ) from error


def _refuse_password() -> str:
    raise HaTlsError("haTlsPrivateKey is encrypted: store it without a passphrase")


def _short_file(fd: int, position: int) -> OSError:
    return OSError(f"descriptor {fd}: the file ends at or before byte {position}")


def _name_of(sock: socket.socket, *, peer: bool) -> str:
    try:
        address = sock.getpeername() if peer else sock.getsockname()
    except OSError:
        return "?:0"
    return f"{address[0]}:{address[1]}"
