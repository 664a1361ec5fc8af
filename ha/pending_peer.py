"""PendingPeer: one connection at the HA port, from accept to its first report.

Owned by the accept thread; never blocks. The steps: TLS handshake if enabled; then the first 8
bytes decide. RocketMQ's first message (a report; in controller mode a handshake) is taken from a
peer that needs no proof; MAGIC begins our handshake (handshake.py), whose proof makes the peer
known, and the first message follows that. Before it is known a peer is sent nothing but the
master's hello. It knows no selector, no list of others and no log.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from ha.handshake import MAGIC, HandshakeError, MasterHandshake, OwnIdentity, SlaveHello
from ha.refusals import RefusalReason
from ha.reports import DamagedReportError
from ha.selector_factory import EVENT_READ, EVENT_WRITE
from ha.transport import TlsTransport, Transport

PROOF_MS: Final = 5_000
"""How long a peer may take to prove itself."""

First = TypeVar("First")
_FirstT_co = TypeVar("_FirstT_co", covariant=True)


class MessageForm(Protocol[_FirstT_co]):
    """How a peer's first message is read."""

    @property
    def size(self) -> int:
        """Its bytes, MAGIC's at least."""

    def take(self, data: bytes) -> tuple[Sequence[_FirstT_co], bytes]:
        """All whole messages in `data`, and the rest. Raises DamagedReportError, HandshakeError."""


FormOf = Callable[[bytes | None], MessageForm[First]]
"""By the key that the handshake made; None: there was none, or one of version 1."""


class PendingPeer(Generic[First]):
    """See the module."""

    __slots__ = (
        "_bounds",
        "_first",
        "_form_of",
        "_handshake",
        "_own",
        "_received",
        "_shaken",
        "_unsent",
        "events",
        "form",
        "ip",
        "is_known",
        "remote",
        "since_ms",
        "transport",
    )

    def __init__(
        self,
        transport: Transport,
        remote: str,
        own: OwnIdentity,
        bounds: Callable[[], tuple[int, int]],
        form_of: FormOf[First],
        *,
        is_trusted: bool,
        now_ms: int,
    ) -> None:
        """remote: "ip:port". is_trusted: its address needs no proof. bounds: the log's min and
        max phy offset now. form_of: what a slave says first."""
        self.transport: Final = transport
        self.remote: Final = remote
        self.ip: Final = remote.rpartition(":")[0]
        self.since_ms: Final = now_ms
        self.is_known = is_trusted
        """It needs no proof, or has given it."""
        self._form_of = form_of
        self.form = form_of(None)
        """Of its messages, the first one too."""
        self._first: First | None = None
        self.events = 0
        """For the owner: the events that the selector watches; 0 = not registered."""
        self._own = own
        self._bounds = bounds
        self._shaken = False
        """The TLS handshake, if any, is done."""
        self._handshake: MasterHandshake | None = None
        self._received = b""
        self._unsent = b""

    @property
    def slave(self) -> SlaveHello | None:
        """What it said of itself, after a handshake: it takes the checked form of frames."""
        return None if self._handshake is None else self._handshake.slave

    @property
    def first_report(self) -> First:
        """Its first message, once `advance` has returned 0."""
        assert self._first is not None
        return self._first

    def advance(self) -> int:
        """Go on as far as it comes: the event that it waits for; 0: the first message is there.

        Raises HandshakeError, OSError (ssl.SSLError is one).
        """
        transport = self.transport
        if not self._shaken:
            event = transport.handshake()
            if event:
                return event
            self._shaken = True
            # Its certificate is proof enough, unless there is a secret besides.
            if isinstance(transport, TlsTransport) and self._own.secret is None:
                self.is_known = True
        while self._unsent or self._missing:
            if self._unsent:
                taken = transport.send((self._unsent,))
                if not taken:
                    return EVENT_WRITE
                self._unsent = self._unsent[taken:]
                continue
            data = transport.recv(self._missing)
            if data is None:
                return EVENT_READ
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "it closed the connection")
            self._take(data)
        return 0

    @property
    def _missing(self) -> int:
        """How many bytes may be read: not one that belongs to what comes later."""
        handshake = self._handshake
        if handshake is not None and handshake.missing:
            return handshake.missing
        undecided = handshake is None and len(self._received) < len(MAGIC)
        return (len(MAGIC) if undecided else self.form.size) - len(self._received)

    def _take(self, data: bytes) -> None:
        handshake = self._handshake
        if handshake is not None and handshake.missing:
            self._unsent = handshake.receive(data)
            if handshake.slave is not None:
                self.is_known = True
                self.form = self._form_of(handshake.slave.report_key)
            return
        self._received += data
        if handshake is None and self._received == MAGIC:
            self._received = b""
            self._handshake = MasterHandshake(self._own, self._bounds, must_prove=not self.is_known)
            self._handshake.receive(MAGIC)
            return
        if len(self._received) < self.form.size:
            return
        if not self.is_known:
            raise HandshakeError(
                RefusalReason.NOT_PROVED,
                "it speaks RocketMQ's protocol, which has no proof, and haSharedSecretFile is set; "
                "set it there, too, or name a Java slave's address in haTrustedAddresses",
            )
        try:
            (self._first,), _ = self.form.take(self._received)
        except DamagedReportError as error:
            raise HandshakeError(RefusalReason.BAD_CHECKSUM, str(error)) from error


def local_ip(sock: socket.socket) -> str:
    """Our end of a connection; empty when it is gone."""
    try:
        return str(sock.getsockname()[0])
    except OSError:
        return ""
