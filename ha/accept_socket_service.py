"""AcceptSocketService: the HA port, and the pending connections that have not reported yet.

One thread of process `ha` with one selector: a pending connection costs a descriptor, no thread. It
passes these steps: trust (TrustedPeers; an unknown peer waits 3 s for the group's members, and is
sent nothing), TLS handshake if enabled, first report (a Java 4.9 slave sends it after 5-6 s),
`admit`. The number of pending connections is bounded, and the bound is fair: when it is reached,
the address with the most pending connections loses its oldest one, and no trusted peer is dropped
while an untrusted one is pending. What happens to an admitted peer is not known here. Corresponds
to HAService.AcceptSocketService of RocketMQ, which starts two threads for every connection.
"""

from __future__ import annotations

import collections
import errno
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from ha.frame import REPORT
from ha.ha_config import HaConfig
from ha.refusal_log import RefusalLog
from ha.refusals import RefusalReason
from ha.selector_factory import EVENT_READ, SelectorFactory
from ha.transport import Transport, open_transport
from ha.trusted_peers import TrustedPeers
from ipc.clock import Clock
from ipc.service_thread import FailureHandler, ServiceThread

log = logging.getLogger(__name__)

LOBBY_SIZE: Final = 128
UNKNOWN_WAIT_MS: Final = 3_000
_ACCEPTS_A_ROUND: Final = 64
_LONGEST_SLEEP_MS: Final = 1_000
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Objection(NamedTuple):
    """Why a peer is not admitted after its first report."""

    reason: RefusalReason
    text: str
    """The cause and the remedy."""


Admit = Callable[[Transport, int, str], Objection | None]
"""(transport, first report, "ip:port") -> None if the transport was taken over, otherwise why not.
Raises OSError if the peer cannot be served."""


class _Peer:
    """A pending connection. Owned by: the accept thread."""

    __slots__ = (
        "events",
        "fd",
        "ip",
        "received",
        "remote",
        "shaken",
        "since_ms",
        "sock",
        "transport",
    )

    def __init__(self, sock: socket.socket, ip: str, port: int, now_ms: int) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.ip = ip
        self.remote = f"{ip}:{port}"
        self.since_ms = now_ms
        self.transport: Transport | None = None
        """Once it is known to be trusted."""
        self.shaken = False
        """The handshake is done."""
        self.received = b""
        self.events = 0
        """The events that the selector watches; 0 = not registered."""

    def close(self) -> None:
        if self.transport is None:
            self.sock.close()
        else:
            self.transport.close()


class AcceptSocketService(ServiceThread):
    """See the module. Its state is its thread's; others call `members_answered`, `shutdown`."""

    def __init__(
        self,
        listening: socket.socket,
        config: HaConfig,
        trusted: TrustedPeers,
        refusals: RefusalLog,
        admit: Admit,
        clock: Clock,
        tls: ssl.SSLContext | None,
        *,
        new_selector: SelectorFactory,
        request_members: Callable[[], None] = lambda: None,
        lobby_size: int = LOBBY_SIZE,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """`listening` stays the caller's and becomes non-blocking. `request_members` asks for the
        members of the group (GroupMembersService.request)."""
        super().__init__("AcceptSocketService", on_failure=on_failure)
        listening.setblocking(False)
        self._listening = listening
        self._housekeeping_ms: Final = config.ha_housekeeping_interval
        self._trusted = trusted
        self._refusals = refusals
        self._admit = admit
        self._clock = clock
        self._tls = tls
        self._request_members = request_members
        self._lobby_size = lobby_size
        self._lobby: dict[_Peer, None] = {}
        """In order of arrival, oldest first."""
        self._accept_again_ms: int | None = None
        self._selector = new_selector()
        self._selector.register(listening, EVENT_READ)
        self._wake_lock: Final = threading.Lock()
        """Guards `_wake_fd`, which `finish` closes."""
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake_fd, EVENT_READ)

    # -- for other threads ---------------------------------------------------------------------

    def members_answered(self) -> None:
        """The members may have changed: check the waiting peers again. Any thread."""
        with self._wake_lock:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def interrupt(self) -> None:
        """It sleeps in its selector."""
        self.members_answered()

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
            peer.close()
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
            self._welcome(_Peer(sock, address[0], address[1], self._clock.monotonic_ms()))

    def _rest(self, error: OSError) -> None:
        """No connection can be accepted: pause for a second instead of failing in a loop."""
        log.error(
            "HA port: cannot accept connections: %s; raise the limit of open files (ulimit -n)",
            error.strerror,
        )
        self._selector.unregister(self._listening)
        self._accept_again_ms = self._clock.monotonic_ms() + _LONGEST_SLEEP_MS

    def _welcome(self, peer: _Peer) -> None:
        self._lobby[peer] = None
        is_stranger = not self._recognise(peer)
        if len(self._lobby) > self._lobby_size:
            self._make_room()
        if is_stranger and peer in self._lobby:
            self._request_members()

    def _make_room(self) -> None:
        strangers = [peer for peer in self._lobby if peer.transport is None]
        who = "are not trusted" if strangers else "have not reported yet"
        crowd = strangers or list(self._lobby)
        ip, count = collections.Counter(peer.ip for peer in crowd).most_common(1)[0]
        self._refuse(
            next(peer for peer in crowd if peer.ip == ip),
            RefusalReason.TOO_MANY_CONNECTIONS,
            f"{len(self._lobby)} connections wait to be served, {len(crowd)} of them {who}, and "
            f"{count} of those are of this address; find out what opens them",
        )

    def _recognise(self, peer: _Peer) -> bool:
        """Let a trusted peer continue. False for an untrusted one."""
        if not self._trusted.is_trusted(peer.ip):
            return False
        try:
            peer.transport = open_transport(peer.sock, self._tls, server_side=True)
        except OSError as error:
            self._refuse(peer, RefusalReason.NETWORK, f"connection lost: {error}")
            return True
        self._go_on(peer)
        return True

    def _go_on(self, peer: _Peer) -> None:
        """Handshake and first report, as far as they come."""
        transport = peer.transport
        if transport is None or peer not in self._lobby:
            return
        try:
            event = self._receive(peer, transport)
        except ssl.SSLError as error:
            self._refuse(
                peer,
                RefusalReason.TLS,
                f"TLS failed: {error.reason or error}; haTlsEnable must be true on both sides, "
                "with certificates that the other side's haTlsTrustedCertificates accept",
            )
        except OSError as error:
            self._refuse(peer, RefusalReason.NETWORK, f"before its first report: {error.strerror}")
        else:
            if event:
                self._watch(peer, event)
            else:
                self._present(peer, transport)

    def _receive(self, peer: _Peer, transport: Transport) -> int:
        """The event it waits for; 0: the first report is complete."""
        if not peer.shaken:
            event = transport.handshake()
            if event:
                return event
            peer.shaken = True
        while len(peer.received) < REPORT.size:
            data = transport.recv(REPORT.size - len(peer.received))
            if data is None:
                return EVENT_READ
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "it closed the connection")
            peer.received += data
        return 0

    def _watch(self, peer: _Peer, event: int) -> None:
        if not peer.events:
            self._selector.register(peer.fd, event, peer)
        elif peer.events != event:
            self._selector.modify(peer.fd, event, peer)
        peer.events = event

    def _present(self, peer: _Peer, transport: Transport) -> None:
        """The first report has arrived: admit the peer or refuse it."""
        (first_report,) = REPORT.unpack(peer.received)
        self._leave(peer)
        try:
            objection = self._admit(transport, first_report, peer.remote)
        except OSError as error:
            text = f"cannot be served: {error.strerror}"
            self._refusals.refused(peer.remote, RefusalReason.NETWORK, text, at_the_door=True)
        else:
            if objection is None:
                return
            text = f"first report {first_report}: {objection.text}"
            self._refusals.refused(peer.remote, objection.reason, text, at_the_door=True)
        peer.close()

    # -- dropping ------------------------------------------------------------------------------

    def _look_around(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._accept_again_ms is not None and now_ms >= self._accept_again_ms:
            self._accept_again_ms = None
            self._selector.register(self._listening, EVENT_READ)
        for peer in list(self._lobby):
            if peer.transport is None and self._recognise(peer):
                continue
            if now_ms < self._patience_ends_ms(peer):
                continue
            if peer.transport is None:
                self._refuse(
                    peer,
                    RefusalReason.UNKNOWN_PEER,
                    "neither in haTrustedAddresses nor a registered broker of this group; add it "
                    "to haTrustedAddresses (haAllowAnyPeer=true serves every peer)",
                )
            else:
                self._refuse(
                    peer,
                    RefusalReason.SILENT,
                    f"no first report for {self._housekeeping_ms} ms (haHousekeepingInterval)",
                )

    def _patience_ends_ms(self, peer: _Peer) -> int:
        if peer.transport is None:
            return peer.since_ms + UNKNOWN_WAIT_MS
        return peer.since_ms + self._housekeeping_ms

    def _sleep_ms(self) -> int:
        ends = min(map(self._patience_ends_ms, self._lobby), default=None)
        if ends is None:
            return _LONGEST_SLEEP_MS
        return min(max(ends - self._clock.monotonic_ms(), 0), _LONGEST_SLEEP_MS)

    def _leave(self, peer: _Peer) -> None:
        del self._lobby[peer]
        if peer.events:
            self._selector.unregister(peer.fd)

    def _refuse(self, peer: _Peer, reason: RefusalReason, text: str) -> None:
        self._leave(peer)
        self._refusals.refused(peer.remote, reason, text, at_the_door=True)
        peer.close()
