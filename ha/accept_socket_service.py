"""AcceptSocketService: the HA port, and the pending connections that have not reported yet.

One thread of process `ha` with one selector: a pending connection costs a descriptor, no thread.
PendingPeer takes it through its steps: TLS if enabled, the handshake between ours, the first report
(a Java 4.9 slave sends it after 5-6 s); then `admit`. Who is served: a trusted address
(TrustedPeers), and whoever proves the secret or shows a certificate. Where nothing could prove a
stranger it is closed at once, else when PROOF_MS have passed without proof. The number of pending
connections is bounded, and the bound is fair: when it is reached, the address with the most pending
connections loses its oldest one, and no known peer is dropped while an unknown one is pending.
What happens to an admitted peer is not known here. Corresponds to HAService.AcceptSocketService of
RocketMQ, which starts two threads for every connection.
"""

from __future__ import annotations

import collections
import errno
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Final, Generic, NamedTuple

from ha.ha_environment import HaEnvironment, LinkIdentity
from ha.handshake import HandshakeError, SlaveHello
from ha.pending_peer import PROOF_MS, First, FormOf, PendingPeer, local_ip
from ha.refusal_log import RefusalLog
from ha.refusals import RefusalReason
from ha.selector_factory import EVENT_READ
from ha.transport import Transport, is_tls_error, open_transport
from ipc.service_thread import ServiceThread

log = logging.getLogger(__name__)

LOBBY_SIZE: Final = 128
_ACCEPTS_A_ROUND: Final = 64
_LONGEST_SLEEP_MS: Final = 1_000
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_NO_WAY_IN: Final = (
    "its address is not in haTrustedAddresses, and nothing else could prove that it belongs here; "
    "set haSharedSecretFile on both sides, or name a Java slave's address in haTrustedAddresses "
    "(haAllowAnyPeer=true serves everybody)"
)


class Objection(NamedTuple):
    """Why a peer is not admitted after its first report."""

    reason: RefusalReason
    text: str
    """The cause and the remedy."""


Admit = Callable[[Transport, First, str, SlaveHello | None], Objection | None]
"""(transport, first message, "ip:port", what it said in the handshake if there was one) -> None if
the transport was taken over, otherwise why not. Raises OSError if the peer cannot be served."""


class AcceptSocketService(ServiceThread, Generic[First]):
    """See the module. Its state is its thread's; others call `shutdown`."""

    def __init__(
        self,
        environment: HaEnvironment,
        listening: socket.socket,
        identity: LinkIdentity,
        refusals: RefusalLog,
        admit: Admit[First],
        form_of: FormOf[First],
        bounds: Callable[[], tuple[int, int]],
        *,
        lobby_size: int = LOBBY_SIZE,
    ) -> None:
        """`listening` stays the caller's and becomes non-blocking. `form_of`: what a slave says
        first (Reports; in controller mode another). `bounds` (the log's min and max phy offset
        now) is what our handshake tells, beside who we are."""
        super().__init__("AcceptSocketService", on_failure=environment.on_failure)
        listening.setblocking(False)
        self._listening = listening
        self._housekeeping_ms: Final = environment.config.ha_housekeeping_interval
        self._identity = identity
        self._refusals = refusals
        self._admit = admit
        self._form_of = form_of
        self._clock = environment.clock
        self._bounds = bounds
        self._lobby_size = lobby_size
        self._lobby: dict[PendingPeer[First], None] = {}
        """In order of arrival, oldest first."""
        self._accept_again_ms: int | None = None
        self._selector = environment.new_selector()
        self._selector.register(listening, EVENT_READ)
        self._wake_lock: Final = threading.Lock()
        """Guards `_wake_fd`, which `finish` closes."""
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake_fd, EVENT_READ)

    def interrupt(self) -> None:
        """It sleeps in its selector. Any thread."""
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    # -- the thread ----------------------------------------------------------------------------

    def step(self) -> None:
        """Sleep once and handle the events; pending connections before new ones."""
        somebody_knocks = False
        for key, _events in self._selector.select(self._sleep_ms() / 1000):
            if key.fd == self._listening.fileno():
                somebody_knocks = True
            elif key.fd == self._wake_fd:
                os.eventfd_read(self._wake_fd)
            else:
                self._go_on(key.data)
        if somebody_knocks:
            self._accept()
        self._look_around()

    def finish(self) -> None:
        """Close the pending connections and what the constructor opened."""
        for peer in list(self._lobby):
            self._leave(peer)
            peer.transport.close()
        self._selector.close()
        with self._wake_lock:
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_A_ROUND):
            try:
                sock, address = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    continue  # the peer has already gone (accept(2): treat like no connection)
                self._rest(error)
                return
            self._welcome(sock, address[0], f"{address[0]}:{address[1]}")

    def _rest(self, error: OSError) -> None:
        """No connection can be accepted: pause for a second instead of failing in a loop."""
        log.error(
            "HA port: cannot accept connections: %s; raise the limit of open files (ulimit -n)",
            error.strerror,
        )
        self._selector.unregister(self._listening)
        self._accept_again_ms = self._clock.monotonic_ms() + _LONGEST_SLEEP_MS

    def _welcome(self, sock: socket.socket, ip: str, remote: str) -> None:
        is_trusted = self._identity.trusted.is_trusted(ip, local_ip(sock))
        if not is_trusted and not self._identity.can_prove:
            self._refusals.refused(remote, RefusalReason.UNKNOWN_PEER, _NO_WAY_IN, at_the_door=True)
            sock.close()
            return
        try:
            transport = open_transport(sock, self._identity.tls, server_side=True)
        except OSError as error:
            text = f"connection lost: {error}"
            self._refusals.refused(remote, RefusalReason.NETWORK, text, at_the_door=True)
            sock.close()
            return
        peer = PendingPeer(
            transport,
            remote,
            self._identity.own,
            self._bounds,
            self._form_of,
            is_trusted=is_trusted,
            now_ms=self._clock.monotonic_ms(),
        )
        self._lobby[peer] = None
        self._go_on(peer)
        if len(self._lobby) > self._lobby_size:
            self._make_room()

    def _make_room(self) -> None:
        strangers = [peer for peer in self._lobby if not peer.is_known]
        who = "have proved nothing" if strangers else "have not reported yet"
        crowd = strangers or list(self._lobby)
        ip, count = collections.Counter(peer.ip for peer in crowd).most_common(1)[0]
        self._refuse(
            next(peer for peer in crowd if peer.ip == ip),
            RefusalReason.TOO_MANY_CONNECTIONS,
            f"{len(self._lobby)} connections wait to be served, {len(crowd)} of them {who}, and "
            f"{count} of those are of this address; find out what opens them",
        )

    def _go_on(self, peer: PendingPeer[First]) -> None:
        """Handshakes and first report, as far as they come."""
        if peer not in self._lobby:
            return
        try:
            event = peer.advance()
        except HandshakeError as error:
            self._refuse(peer, error.reason, str(error))
        except OSError as error:
            self._refuse_broken(peer, error)
        else:
            if event:
                self._watch(peer, event)
            else:
                self._present(peer)

    def _refuse_broken(self, peer: PendingPeer[First], error: OSError) -> None:
        if not is_tls_error(error):
            self._refuse(peer, RefusalReason.NETWORK, f"before its first report: {error.strerror}")
            return
        self._refuse(
            peer,
            RefusalReason.TLS,
            f"TLS failed: {error.reason or error}; haTlsEnable must be true on both sides, "
            "with certificates that the other side's haTlsTrustedCertificates accept",
        )

    def _watch(self, peer: PendingPeer[First], event: int) -> None:
        fd = peer.transport.fileno()
        if not peer.events:
            self._selector.register(fd, event, peer)
        elif peer.events != event:
            self._selector.modify(fd, event, peer)
        peer.events = event

    def _present(self, peer: PendingPeer[First]) -> None:
        """The first report has arrived: admit the peer or refuse it."""
        self._leave(peer)
        first_report = peer.first_report
        try:
            objection = self._admit(peer.transport, first_report, peer.remote, peer.slave)
        except OSError as error:
            text = f"cannot be served: {error.strerror}"
            self._refusals.refused(peer.remote, RefusalReason.NETWORK, text, at_the_door=True)
        else:
            if objection is None:
                return
            text = f"first report {first_report}: {objection.text}"
            self._refusals.refused(peer.remote, objection.reason, text, at_the_door=True)
        peer.transport.close()

    # -- dropping ------------------------------------------------------------------------------

    def _look_around(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._accept_again_ms is not None and now_ms >= self._accept_again_ms:
            self._accept_again_ms = None
            self._selector.register(self._listening, EVENT_READ)
        for peer in list(self._lobby):
            if now_ms < self._patience_ends_ms(peer):
                continue
            if peer.is_known:
                reason, what = RefusalReason.SILENT, "no first report"
                limit = f"{self._housekeeping_ms} ms (haHousekeepingInterval)"
            else:
                reason, what, limit = RefusalReason.NOT_PROVED, "no proof", f"{PROOF_MS} ms"
            self._refuse(peer, reason, f"{what} for {limit}")

    def _patience_ends_ms(self, peer: PendingPeer[First]) -> int:
        return peer.since_ms + (self._housekeeping_ms if peer.is_known else PROOF_MS)

    def _sleep_ms(self) -> int:
        ends = min(map(self._patience_ends_ms, self._lobby), default=None)
        if ends is None:
            return _LONGEST_SLEEP_MS
        return min(max(ends - self._clock.monotonic_ms(), 0), _LONGEST_SLEEP_MS)

    def _leave(self, peer: PendingPeer[First]) -> None:
        del self._lobby[peer]
        if peer.events:
            self._selector.unregister(peer.transport.fileno())

    def _refuse(self, peer: PendingPeer[First], reason: RefusalReason, text: str) -> None:
        self._leave(peer)
        self._refusals.refused(peer.remote, reason, text, at_the_door=True)
        peer.transport.close()
