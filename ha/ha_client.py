"""HAClient: the slave's thread that finds the master and follows its log.

Thread of process `ha` on a slave, owner of the ReplicaLog. A round: ask whether our log is a part
of the master's (MasterInspection), connect, report where to go on at once, then receive until the
link ends (master_link.py); now and then the open link's master is inspected again
(renewed_inspection.py). After a failure it rests for haReconnectInterval, after a link that worked
for that long, and while the master is silent, for a second at most: what the environment does (no
descriptor, a file that is gone) ends a round, never the process. It sleeps in one
selector, on the link, the process' bell and its own waiter, so that a changed address and the stop
are seen at once. It knows no remoting and no other process: those come as Protocols
(inspection.py). Follows HAClient / DefaultHAClient of the original.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import logging
import os
import selectors
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ha.ha_config import HaConfig
from ha.inspection import Inspection, LogBeginner, MasterInspection, ResyncRequester, Verdict
from ha.last_error import LastError, SeenError
from ha.master_link import TLS_WAY_OUT, LinkClosedError, MasterLink
from ha.question import Question
from ha.refusal_log import RefusalLog
from ha.refusals import RefusalReason
from ha.renewed_inspection import RenewedInspection
from ha.selector_factory import EVENT_WRITE, SelectorFactory
from ha.transport import Transport, open_transport
from ha.wait_notify_object import WaitNotifyObject
from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.service_thread import FailureHandler, ServiceThread
from store.errors import StoreError
from store.replica_log import ReplicaLog

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

CONNECT_MS: Final = 5_000
_NO_ADDRESS_MS: Final = 500
_BACK_SOON_MS: Final = 1_000
"""A master that was followed until now, or is known and silent, may be restarted: it is looked for
more often, so that sends that wait for this slave succeed soon after its start."""
_BEGIN_MS: Final = 5_000
_POLL_MS: Final = 5
_IDLE_MS: Final = 60_000
"""The waiter ends every sleep that matters sooner."""
_DIFFERENCES: Final = {
    Verdict.AHEAD: RefusalReason.AHEAD,
    Verdict.DIVERGED: RefusalReason.DIVERGED,
}


class HAClientState(enum.Enum):
    """What the client does now."""

    WAITING_FOR_ADDRESS = "waiting_for_address"
    INSPECTING = "inspecting"
    CONNECTING = "connecting"
    TRANSFER = "transfer"
    REFUSED = "refused"
    """Our log is no part of the master's: see last_error; asked again now and then."""
    RESTING = "resting"
    """After a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HAClientInfo:
    """A moment of the client. Times are wall clock ms, addresses "ip:port"."""

    state: HAClientState
    master_address: str | None
    """The master's HA port."""
    local_address: str | None
    """Our end of the open link."""
    max_offset: int
    last_read_ms: int
    last_write_ms: int
    bytes_per_second: int
    received: int
    """Log bytes over all links of this process."""
    connected_since_ms: int | None
    last_error: SeenError | None
    last_inspection: str | None
    last_inspection_ms: int | None


class HAClient(ServiceThread):
    """See the module. Others only call `update_master_address`, `snapshot` and `shutdown`."""

    def __init__(
        self,
        page: ControlPage,
        replica_log: ReplicaLog,
        config: HaConfig,
        clock: Clock,
        refusals: RefusalLog,
        wait_notify: WaitNotifyObject,
        *,
        inspect: MasterInspection,
        request_resync: ResyncRequester,
        begin_log: LogBeginner,
        tls: ssl.SSLContext | None,
        on_connected: Callable[[str, str], None],
        new_selector: SelectorFactory,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """replica_log: opened and closed by this thread. wait_notify: the one of the process.
        on_connected(our end, the master's HA address): on this thread, when a link was made; it
        must be quick and raise nothing."""
        super().__init__("HAClient", on_failure=on_failure)
        self._page = page
        self._log = replica_log
        self._config = config
        self._clock = clock
        self._refusals = refusals
        self._inspect_master = inspect
        self._request_resync = request_resync
        self._begin_in_store = begin_log
        self._tls = tls
        self._on_connected = on_connected
        self._selector = new_selector()
        self._waiter = wait_notify.new_waiter()
        self._waiter.register(self._selector)
        self._watched = 0
        self._closing = False
        self._told_address: str | None = None
        """What `update_master_address` said last."""
        self._changed = False
        """It was said since this round began."""
        self._state = HAClientState.WAITING_FOR_ADDRESS
        self._address: str | None = None
        self._link: MasterLink | None = None
        self._link_lasted = False
        """The last round's link lived for at least haReconnectInterval."""
        self._last_read_ms = self._last_write_ms = 0
        self._received = 0
        """Over the links that ended."""
        self._last_error = LastError(clock)
        self._last_inspection: str | None = None
        self._last_inspection_ms: int | None = None
        self._resync_trouble: str | None = None

    # -- for other threads ---------------------------------------------------------------------

    def update_master_address(self, address: str | None) -> None:
        """The master's HA port is "ip:port" now; a link to another one is closed, a rest ends.
        None, and what is known already, changes nothing."""
        if address is None or address in (self._told_address, self._address):
            return
        self._told_address = address
        self._changed = True
        self._waiter.wake()

    def snapshot(self) -> HAClientInfo:
        """What the client does now."""
        link = self._link
        return HAClientInfo(
            state=self._state,
            master_address=self._address,
            local_address=None if link is None else link.transport.local,
            max_offset=self._log.max_phy_offset,
            last_read_ms=self._last_read_ms if link is None else link.last_read_ms,
            last_write_ms=self._last_write_ms if link is None else link.last_write_ms,
            bytes_per_second=0 if link is None else link.bytes_per_second(),
            received=self._received if link is None else link.received,
            connected_since_ms=None if link is None else link.connected_since_ms,
            last_error=self._last_error.seen,
            last_inspection=self._last_inspection,
            last_inspection_ms=self._last_inspection_ms,
        )

    def shutdown(self, timeout_ms: float = 5000) -> bool:
        """Ask it to stop and wait; idempotent. False, with an error log, when it did not."""
        self._closing = True
        self._waiter.wake()
        return super().shutdown(timeout_ms)

    # -- the thread ----------------------------------------------------------------------------

    def step(self) -> None:
        """One round: inspect, connect, follow; then the rest that is due."""
        if self._closing:
            return
        self._changed = False
        rest_ms = self._round()
        deadline_ms = self._clock.monotonic_ms() + rest_ms
        while not self._is_interrupted() and (left_ms := self._left_ms(deadline_ms)) > 0:
            self._sleep(left_ms)

    def finish(self) -> None:
        """Let go of the log and the descriptors."""
        try:
            self._log.close()
        except StoreError as error:
            log.error("unpublished bytes stay behind the end of the log: %s", error)
        self._selector.close()
        self._waiter.close()

    def _round(self) -> int:
        """Returns how long to rest, in ms."""
        self._link_lasted = False
        try:
            self._log.open()
            found = self._inspect()
            if found is None:
                return 0
            address = found.ha_address or self._told_address
            if found.verdict is Verdict.WAIT or address is None:
                return self._wait_for_master(found, address)
            self._address = address
            if self._told_address in (None, address):
                self._changed = False  # It was told while it was found out.
            if self._may_follow(found):
                self._follow(address, found)
                return 0
        except LinkClosedError as error:
            self._note_end(error)
        except (StoreError, OSError) as error:
            self._note_end(LinkClosedError(None, f"replication stands still: {error}"))
        return self._soon_ms if self._link_lasted else self._config.ha_reconnect_interval

    @property
    def _soon_ms(self) -> int:
        return min(_BACK_SOON_MS, self._config.ha_reconnect_interval)

    def _inspect(self) -> Inspection | None:
        """None: the stop was asked for meanwhile. Raises LinkClosedError: nobody answers."""
        self._enter(HAClientState.INSPECTING)
        position, low = self._log.position, self._log.min_phy_offset
        try:
            found = self._ask(lambda: self._inspect_master(position, low))
        except StoreError as error:
            raise LinkClosedError(None, f"the master's log was not inspected: {error}") from error
        if found is not None:
            self._note_inspection(found, position)
        return found

    def _note_inspection(self, found: Inspection, position: int) -> None:
        text = f"{found.verdict.value}: {found.text}".removesuffix(": ")
        if text != self._last_inspection:
            log.info("inspection of the master at our end %s: %s", position, text)
        self._last_inspection, self._last_inspection_ms = text, self._clock.now_ms()

    def _wait_for_master(self, found: Inspection, address: str | None) -> int:
        self._enter(HAClientState.WAITING_FOR_ADDRESS)
        text = found.text or "the master's HA address is unknown"
        if self._last_error.note(text):
            log.warning("waiting for the master: %s", text)
        return _NO_ADDRESS_MS if address is None else self._soon_ms

    # -- the verdict ---------------------------------------------------------------------------

    def _may_follow(self, found: Inspection) -> bool:
        """Whether our log is a part of the master's; says so, and does what can be done, if not."""
        low = self._gone_until(found)
        if low is not None:
            text = f"{self._gone_text(low)}; starting over at {low}, the files move aside"
            self._refuse(RefusalReason.BEHIND_MASTER_MIN, text)
            self._resync("start_over", low, text)
            return False
        if found.verdict in _DIFFERENCES:
            self._judge_difference(found, _DIFFERENCES[found.verdict])
            return False
        return True

    def _gone_until(self, found: Inspection) -> int | None:
        """Where the master's log begins, when that is behind our end; else None."""
        if found.verdict is Verdict.BELOW_MIN:
            return found.master_min
        if found.verdict is Verdict.START_AT and not self._log.is_empty:
            return found.start_offset if found.start_offset > self._log.max_phy_offset else None
        return None

    def _gone_text(self, low: int) -> str:
        return (
            f"our log ends at {self._log.max_phy_offset}, the master's begins at {low}: what comes "
            "next is gone there"
        )

    def _difference_text(self, found: Inspection) -> str:
        return (
            f"our log ends at {self._log.max_phy_offset}, the master's at {found.master_max}; the "
            f"last common record ends at {found.common_offset}"
            + (f" ({found.text})" if found.text else "")
        )

    def _judge_difference(self, found: Inspection, reason: RefusalReason) -> None:
        text, common = self._difference_text(found), found.common_offset
        if not self._config.ha_truncate_diverged:
            self._refuse(
                reason,
                f"{text}: nothing is replicated. To give up what the master lacks set "
                "haTruncateDiverged=true and restart (a backup is made); if this broker has the "
                "better data, make it the master",
            )
            return
        self._refuse(reason, f"{text}: going back to there, since haTruncateDiverged=true")
        if common <= self._log.min_phy_offset:
            self._resync("start_over", found.master_min, text)
        else:
            self._resync("truncate", common, text)

    def _refuse(self, reason: RefusalReason, text: str) -> None:
        self._enter(HAClientState.REFUSED)
        self._last_error.note(text)
        self._refusals.refused(self._address or "?", reason, text)

    def _resync(self, action: str, offset: int, text: str) -> None:
        try:
            self._request_resync(action, offset, text)
        except StoreError as error:
            trouble = f"{text}; {action} cannot be prepared: {error}"
            self._last_error.note(trouble)
            if str(error) != self._resync_trouble:
                log.error("master %s: %s", self._address, trouble)
            self._resync_trouble = str(error)

    # -- one link ------------------------------------------------------------------------------

    def _follow(self, address: str, found: Inspection) -> None:
        """Connect and receive until the stop or a changed address. Raises LinkClosedError."""
        self._enter(HAClientState.CONNECTING)
        if found.verdict is Verdict.START_AT and self._log.is_empty:
            self._begin_history(found)
        transport = self._connect(address)
        try:
            link = MasterLink(
                transport, self._log, self._page, self._config, self._clock, self._begin_log
            )
            link.received = self._received
            self._link = link
            self._last_error.end()
            self._enter(HAClientState.TRANSFER)
            log.info("master %s: connected, going on at %s", address, self._log.position)
            self._on_connected(transport.local, address)
            began_ms = self._clock.monotonic_ms()
            try:
                self._transfer(link, self._renewed_inspection(found))
            finally:
                lasted_ms = self._clock.monotonic_ms() - began_ms
                self._link_lasted = lasted_ms >= self._config.ha_reconnect_interval
        finally:
            self._end_link(transport)

    def _transfer(self, link: MasterLink, renewed: RenewedInspection) -> None:
        def has_work() -> bool:
            return link.has_work() or renewed.is_answered

        trouble: str | None = None
        while not self._is_interrupted():
            self._look_again(renewed)
            if link.receive():
                continue
            if trouble is not None and not link.waits_for_file:
                trouble = None
                self._last_error.end()
                log.warning("replication goes on")
            self._watch(link.transport, link.interest)
            self._sleep(min(link.wait_ms(), renewed.wait_ms()), has_work)
            if link.waits_for_file and trouble is None and (trouble := link.trouble()):
                self._last_error.note(trouble)
                log.error("replication stands still: %s", trouble)

    def _renewed_inspection(self, first: Inspection) -> RenewedInspection:
        def ask() -> Question[Inspection]:
            position, low = self._log.max_phy_offset, self._log.min_phy_offset
            return Question(lambda: self._inspect_master(position, low), self._waiter.wake)

        interval_ms = 2 * self._config.ha_send_heartbeat_interval
        return RenewedInspection(first, self._log.max_phy_offset, interval_ms, self._clock, ask)

    def _look_again(self, renewed: RenewedInspection) -> None:
        """Raises LinkClosedError: our log is no part of the master's; the next round acts on it."""
        position = self._log.max_phy_offset
        found = renewed.step(position)
        if found is None:
            return
        self._note_inspection(found, position)
        low = self._gone_until(found)
        if low is not None and not renewed.has_moved(position):
            raise LinkClosedError(RefusalReason.BEHIND_MASTER_MIN, self._gone_text(low))
        if found.verdict in _DIFFERENCES:
            raise LinkClosedError(_DIFFERENCES[found.verdict], self._difference_text(found))

    def _end_link(self, transport: Transport) -> None:
        link = self._link
        if link is not None:
            self._last_read_ms, self._last_write_ms = link.last_read_ms, link.last_write_ms
            self._received = link.received
        self._link = None
        self._watch(transport, 0)
        transport.close()
        with contextlib.suppress(StoreError):  # The next round begins with it, and says what it is.
            self._log.discard()

    def _note_end(self, error: LinkClosedError) -> None:
        self._enter(HAClientState.RESTING)
        if self._closing:
            return
        text = str(error)
        is_new = self._last_error.note(text)
        if error.reason is not None:
            self._refusals.refused(self._address or "?", error.reason, text)
        elif is_new:
            log.warning("master %s: %s", self._address or "?", text)

    # -- where the log begins ------------------------------------------------------------------

    def _begin_history(self, found: Inspection) -> None:
        """The empty log begins where the master's does.

        A report of 0 would make a Java master send from its newest file only; 1 does not, and the
        byte before is always zero, since records are smaller than 16 MiB. A master without a
        record knows no offset 1: there 0 is right.
        """
        start = found.start_offset
        if start > 0:
            self._begin_log(start)
        elif found.master_max > 1:
            self._begin_log(0)
            self._log.room(1)[0] = 0
            self._log.advance(1)
            self._log.publish(1)
            self._log.ring()

    def _begin_log(self, phy_offset: int) -> None:
        """Begin the empty log there; its first file is allocated when this returns. Raises
        LinkClosedError."""
        size = self._log.file_size
        if phy_offset % size:
            raise LinkClosedError(
                RefusalReason.BAD_FRAME,
                f"the master's log begins at {phy_offset}, which is no start of a file here: "
                f"mappedFileSizeCommitLog is {size} here and another on the master; set the same",
            )
        if self._link is not None:
            self._watch(self._link.transport, 0)  # What comes must not wake us meanwhile.
        self._log.unbegin()
        try:
            self._ask(lambda: self._begin_in_store(phy_offset))
            if self._closing:
                raise LinkClosedError(None, "stopping")
            self._log.begin(phy_offset)
        except StoreError as error:
            raise LinkClosedError(None, f"the log cannot begin at {phy_offset}: {error}") from error
        log.info("the log begins at %s", phy_offset)
        deadline_ms = self._clock.monotonic_ms() + _BEGIN_MS
        while not self._log.has_room:
            if self._closing or self._left_ms(deadline_ms) <= 0:
                raise LinkClosedError(
                    None,
                    f"process store has made no commit log file for offset {phy_offset} within "
                    f"{_BEGIN_MS} ms: is the disk full? See store.log",
                )
            self._sleep(_POLL_MS, lambda: self._log.has_room, heeds_change=False)

    # -- connecting ----------------------------------------------------------------------------

    def _connect(self, address: str) -> Transport:
        """A connected transport, after its handshake. Raises LinkClosedError."""
        deadline_ms = self._clock.monotonic_ms() + CONNECT_MS
        try:
            sock = self._connect_socket(address, deadline_ms)
            transport = open_transport(sock, self._tls, server_side=False)
        except OSError as error:
            raise LinkClosedError(
                RefusalReason.NETWORK, f"cannot be connected to: {error.strerror or error}"
            ) from error
        try:
            while event := transport.handshake():
                self._wait_for(transport.fileno(), event, deadline_ms)
        except (OSError, LinkClosedError) as error:
            transport.close()
            if isinstance(error, LinkClosedError):
                raise
            raise LinkClosedError(
                RefusalReason.TLS,
                f"TLS handshake failed: {getattr(error, 'reason', None) or error}; {TLS_WAY_OUT}",
            ) from error
        return transport

    def _connect_socket(self, address: str, deadline_ms: int) -> socket.socket:
        family, target = self._resolve(address)
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            code = sock.connect_ex(target)
            if code == errno.EINPROGRESS:
                self._wait_for(sock.fileno(), EVENT_WRITE, deadline_ms)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
        except (OSError, LinkClosedError):
            sock.close()
            raise
        return sock

    def _resolve(self, address: str) -> tuple[int, Any]:
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise LinkClosedError(None, f"{address!r} is no address; ip:port is expected")
        try:
            found = self._ask(lambda: socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM))
        except (OSError, ValueError) as error:  # ValueError: no host's name at all
            raise LinkClosedError(
                RefusalReason.NETWORK,
                f"{host!r} cannot be resolved: {getattr(error, 'strerror', None) or error}",
            ) from error
        if found is None:
            raise LinkClosedError(None, "stopping")
        return found[0][0], found[0][4]

    def _wait_for(self, fd: int, event: int, deadline_ms: int) -> None:
        """Sleep until `event` comes. Raises LinkClosedError: it does not, or we stop."""
        self._selector.register(fd, event)
        came = False
        try:
            while not came:
                left_ms = self._left_ms(deadline_ms)
                if self._is_interrupted():
                    raise LinkClosedError(None, "given up: stopping, or the address has changed")
                if left_ms <= 0:
                    raise LinkClosedError(
                        RefusalReason.NETWORK, f"no connection within {CONNECT_MS} ms"
                    )
                came = any(key.fd == fd for key, _ in self._sleep(left_ms))
        finally:
            self._selector.unregister(fd)

    # -- sleeping ------------------------------------------------------------------------------

    def _sleep(
        self,
        timeout_ms: int,
        has_work: Callable[[], bool] = lambda: False,
        *,
        heeds_change: bool = True,
    ) -> list[tuple[selectors.SelectorKey, int]]:
        """Until the link, the bell or the waiter wakes us, has_work holds, or the time is over;
        not at all when stopping, or (heeds_change) when the master has moved."""
        waiter = self._waiter
        waiter.lie_down()
        # All reasons to be awake are looked at after lie_down: it forgets earlier wakes.
        awake = self._closing or (heeds_change and self._changed) or has_work()
        events = [] if awake else self._selector.select(timeout_ms / 1000)
        waiter.get_up(events)
        return events

    def _watch(self, transport: Transport, events: int) -> None:
        if events == self._watched:
            return
        if self._watched:
            self._watched = 0
            self._selector.unregister(transport.fileno())
        if events:
            self._selector.register(transport.fileno(), events)
            self._watched = events

    def _ask(self, function: Callable[[], Answer]) -> Answer | None:
        """`function`'s result, which may take seconds: on a thread of its own, so that the stop
        need not wait for it. None: the stop was asked for. Raises what it raises."""
        question = Question(function, self._waiter.wake)
        while not question.is_answered:
            if self._closing:
                return None
            self._sleep(_IDLE_MS, lambda: question.is_answered, heeds_change=False)
        return question.answer()

    def _left_ms(self, deadline_ms: int) -> int:
        return deadline_ms - self._clock.monotonic_ms()

    def _is_interrupted(self) -> bool:
        """Whether the stop was asked for, or the master has moved."""
        return self._closing or self._changed

    def _enter(self, state: HAClientState) -> None:
        self._state = state
