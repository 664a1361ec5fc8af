"""MasterConnector: opens a slave's link to its master: resolve, connect, TLS, handshake.

Runs on HAClient's thread and never blocks it: every wait is a sleep of its ClientSelector, so a
stop or a changed address ends it early. Whom it connects to: with a secret or TLS anybody, who then
proves himself before a byte of the log is taken; otherwise an address that the operator named
(haMasterAddress, TrustedPeers). A name server's word is no proof. It knows no frames and no log.

Tested by tests/ha/test_repair_proof.py.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import socket
from typing import Any, Final, NamedTuple

from ha.client_selector import ClientSelector
from ha.ha_environment import LinkIdentity
from ha.handshake import HandshakeError, SlaveHandshake
from ha.link_errors import TLS_WAY_OUT, LinkClosedError
from ha.master_hello import MasterHello
from ha.own_end import own_end
from ha.refusals import RefusalReason
from ha.selector_factory import EVENT_READ, EVENT_WRITE
from ha.transport import Transport, open_transport
from ipc.clock import Clock

CONNECT_MS: Final = 5_000
"""Time for connect and handshakes together."""
_TIMEOUT_TEXT: Final = f"no connection within {CONNECT_MS} ms"
_NO_ANSWER_TEXT: Final = (
    f"the master did not answer the handshake within {CONNECT_MS} ms: a slave with "
    "haSharedSecretFile follows only a broker of this kind with the same secret"
)
_CLOSED_TEXT: Final = (
    "the master closed the connection during the handshake; its log says why (is "
    "haSharedSecretFile the same on both sides?)"
)


class Connected(NamedTuple):
    """A link that is ready for the first report."""

    transport: Transport
    hello: MasterHello
    is_checked: bool
    """Frames have the checked form (frame.py): there was a handshake."""
    report_key: bytes | None = None
    """For Reports; None: RocketMQ's form."""


def _is_port(text: str) -> bool:
    return text.isdecimal() and len(text) <= 5 and int(text) <= 65535  # int() refuses 4,301 digits.


class MasterConnector:
    """See the module. Owned by: HAClient's thread."""

    def __init__(
        self,
        selector: ClientSelector,
        clock: Clock,
        identity: LinkIdentity,
        named_address: str | None,
    ) -> None:
        """named_address: haMasterAddress."""
        self._selector = selector
        self._clock = clock
        self._tls = identity.tls
        self._own = identity.own
        self._trusted = identity.trusted
        self._named_address = named_address

    def connect(self, address: str, *, speaks_handshake: bool) -> Connected:
        """Connect to "ip:port"; speaks_handshake: whether the master there is known to. With a
        secret there is always a handshake. Raises LinkClosedError."""
        deadline_ms = self._clock.monotonic_ms() + CONNECT_MS
        try:
            sock = self._connect_socket(address, deadline_ms)
            transport = open_transport(sock, self._tls, server_side=False)
        except OSError as error:
            raise LinkClosedError(
                RefusalReason.NETWORK, f"cannot connect: {error.strerror or error}"
            ) from error
        try:
            self._shake_tls(transport, deadline_ms)
            if speaks_handshake or self._own.secret is not None:
                hello, report_key = self._shake_hands(transport, deadline_ms)
                return Connected(transport, hello, is_checked=True, report_key=report_key)
        except BaseException:
            transport.close()
            raise
        is_proved = self._tls is not None
        return Connected(transport, MasterHello(-1, -1, None, is_proved), is_checked=False)

    def _shake_tls(self, transport: Transport, deadline_ms: int) -> None:
        try:
            while event := transport.handshake():
                self._selector.wait_for(transport.fileno(), event, _TIMEOUT_TEXT, deadline_ms)
        except OSError as error:
            raise LinkClosedError(
                RefusalReason.TLS,
                f"TLS handshake failed: {getattr(error, 'reason', None) or error}; {TLS_WAY_OUT}",
            ) from error

    def _shake_hands(
        self, transport: Transport, deadline_ms: int
    ) -> tuple[MasterHello, bytes | None]:
        """What the master said, and the key of our reports."""
        try:
            handshake = SlaveHandshake(self._own)
            self._send(transport, handshake.hello, deadline_ms)
            while handshake.missing:
                data = self._receive(transport, handshake.missing, deadline_ms)
                self._send(transport, handshake.receive(data), deadline_ms)
        except HandshakeError as error:
            is_passing = error.reason is RefusalReason.BAD_CHECKSUM
            raise LinkClosedError(error.reason, str(error), is_passing=is_passing) from error
        except OSError as error:
            raise LinkClosedError(
                RefusalReason.NETWORK, f"{_CLOSED_TEXT}: {error.strerror or error}"
            ) from error
        hello = handshake.master
        assert hello is not None
        if self._tls is not None:
            hello = dataclasses.replace(hello, is_proved=True)
        return hello, handshake.report_key

    def _receive(self, transport: Transport, size: int, deadline_ms: int) -> bytes:
        while (data := transport.recv(size)) is None:
            self._selector.wait_for(transport.fileno(), EVENT_READ, _NO_ANSWER_TEXT, deadline_ms)
        if not data:
            raise LinkClosedError(RefusalReason.NETWORK, _CLOSED_TEXT)
        return data

    def _send(self, transport: Transport, data: bytes, deadline_ms: int) -> None:
        while data:
            taken = transport.send((data,))
            if not taken:
                fd = transport.fileno()
                self._selector.wait_for(fd, EVENT_WRITE, _NO_ANSWER_TEXT, deadline_ms)
            data = data[taken:]

    def _connect_socket(self, address: str, deadline_ms: int) -> socket.socket:
        family, target = self._resolve(address)
        self._check_trust(address, family, target)
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

    def _check_trust(self, address: str, family: int, target: Any) -> None:
        """Raises LinkClosedError: nobody vouches for the master at this address."""
        if self._own.secret is not None or self._tls is not None or address == self._named_address:
            return
        if self._trusted.is_trusted(str(target[0]), own_end(family, target)):
            return
        raise LinkClosedError(
            RefusalReason.UNKNOWN_PEER,
            "waiting: name servers say that the master is there, but anybody may register "
            "there, and nothing proves that it is ours; set haSharedSecretFile to the same secret "
            "on both sides, or name it in haMasterAddress or haTrustedAddresses",
        )

    def _resolve(self, address: str) -> tuple[int, Any]:
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not _is_port(port):
            raise LinkClosedError(None, f"{address[:80]!a} is not an address; expected ip:port")
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
