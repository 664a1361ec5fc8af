"""HAConnection: one served slave; HAConnections: all of them, and which ones are admitted.

A connection is two threads (ReadSocketService, WriteSocketService) on one transport. When one ends,
it ends the other; the last one closes the socket and reports the end, once. AcceptSocketService
calls `admit`. Corresponds to HAConnection and HAService of RocketMQ. SlaveProgress decides about
reports, GroupTransferService about replicas.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ha.accept_socket_service import Objection
from ha.flow_monitor import FlowMonitor
from ha.ha_environment import HaEnvironment
from ha.handshake import SlaveHello
from ha.lendable_link import LendableLink
from ha.link_lender import Lendable, LinkLender
from ha.read_socket_service import ReadSocketService
from ha.reader_pause import ReaderPause
from ha.refusal_log import RefusalLog
from ha.refusals import RefusalReason
from ha.replica_verifier import Answer, ReplicaVerifier
from ha.report_ceiling import ReportCeiling
from ha.reports import Reports
from ha.served_link import ServedLink
from ha.slave_progress import SlaveProgress, first_report_objection, start_offset_for
from ha.source_files import LogSource
from ha.transport import PlainTransport, Transport
from ha.wait_notify_object import WaitNotifyObject
from ha.write_socket_service import WriteSocketService
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET

if TYPE_CHECKING:
    from ha.group_transfer_service import GroupTransferService

log = logging.getLogger(__name__)


_WAY_OUT: Final[dict[RefusalReason, str]] = {
    RefusalReason.NEGATIVE: "it is negative: the peer is not a slave",
    RefusalReason.BEYOND_MAX: "it is beyond the end of this log: the peer holds what this master "
    "lacks, or is not a slave (or speaks TLS, which is off here: haTlsEnable); see "
    "haTruncateDiverged",
    RefusalReason.BELOW_MIN: "what it requests was deleted here: it must start over, with an empty "
    "store",
}
_UNPROVEN: Final[dict[Answer, str]] = {
    Answer.PENDING: "its records are being compared with ours; if they match, it is served "
    "when it reconnects",
    Answer.UNKNOWN: "its records could not be compared with ours; retrying: it must "
    "be registered as a slave of this group with that address and answer at its own port; or "
    "start it with an empty store",
    Answer.OTHER: "its records are not ours: they come from another time or master; start it "
    "with an empty store",
}


class HAConnection:
    """One slave. Guarded by: its lock."""

    def __init__(self, transport: Transport, progress: SlaveProgress) -> None:
        """`attach` and `start` follow."""
        self.transport: Final = transport
        self.progress: Final = progress
        self.reason: RefusalReason | None = None
        """Why it ended; None after an orderly stop, and while it is open."""
        self.text = ""
        self._lock: Final = threading.Lock()
        self._ended = False
        self._threads_left = 2
        self._reader: ReadSocketService | None = None
        self._writer: WriteSocketService | None = None
        self._gone: Callable[[HAConnection], None] = lambda _connection: None

    def start(
        self,
        reader: ReadSocketService,
        writer: WriteSocketService,
        gone: Callable[[HAConnection], None],
    ) -> None:
        """Start both; `gone` is called once, after both have ended and the socket is closed."""
        self._reader, self._writer, self._gone = reader, writer, gone
        reader.start()
        writer.start()

    def end(self, reason: RefusalReason | None, text: str) -> None:
        """End it, whatever it is doing; the first reason is kept. Any thread; does not wait."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self.reason, self.text = reason, text
        self.transport.shutdown()
        if self._writer is not None:
            self._writer.wake()

    def thread_finished(self) -> None:
        """Called by each of the two services as its last action."""
        with self._lock:
            self._threads_left -= 1
            if self._threads_left:
                return
        self.end(None, "stopped")
        self.transport.close()
        self._gone(self)

    def join(self, timeout_ms: float) -> bool:
        """Wait for both threads, after `end`. False, with an error log, when one did not stop."""
        services = [service for service in (self._reader, self._writer) if service is not None]
        stopped = [service.shutdown(timeout_ms) for service in services]
        return all(stopped)


class HAConnections:
    """All served slaves, at most haMaxConnections. Guarded by: its lock; any thread may call."""

    def __init__(
        self,
        environment: HaEnvironment,
        source: LogSource,
        group_transfer: GroupTransferService,
        wait_notify: WaitNotifyObject,
        refusals: RefusalLog,
        verifier: ReplicaVerifier,
        *,
        name_link: Callable[[str, SlaveHello], None] = lambda _remote, _slave: None,
        lender: LinkLender | None = None,
    ) -> None:
        """The store is ready. `name_link("ip:port", what the slave said)` is called before it is
        served. lender: None: no connection is ever lent."""
        self._environment = environment
        self._source = source
        self._counters = source.page.counters
        self._group_transfer = group_transfer
        self._wait_notify = wait_notify
        self._flow = FlowMonitor(environment.config.ha_flow_control)
        self._report_ceiling = ReportCeiling(source.page)
        self._refusals = refusals
        self._verifier = verifier
        self._name_link = name_link
        self._lender = lender
        self._lock: Final = threading.Lock()
        self._connections: list[HAConnection] = []
        self._closed = False

    def admit(
        self,
        transport: Transport,
        first_report: int,
        remote: str,
        slave: SlaveHello | None = None,
    ) -> Objection | None:
        """Serve the slave whose first report is `first_report`, taking over the transport.

        slave: what it said in the handshake; it gets frames in the checked form then, and seals its
        reports if it knows that. Otherwise returns why not, or raises OSError (no descriptors
        left), and the transport stays the caller's.
        """
        low, high = self._counters[MIN_PHY_OFFSET], self._counters[MAX_PHY_OFFSET]
        reason = first_report_objection(first_report, low, high)
        if reason is not None:
            return Objection(reason, _WAY_OUT[reason])
        progress = SlaveProgress(
            remote,
            first_report,
            start_offset_for(first_report, low),
            now_ms=self._environment.clock.monotonic_ms(),
            wall_ms=self._environment.clock.now_ms(),
            reports_flushed=slave is not None and slave.reports_flushed,
        )
        objection = self._unproven(progress.ip, first_report)
        if objection is not None:
            return objection
        connection = HAConnection(transport, progress)
        with self._lock:
            if (
                self._closed
                or len(self._connections) >= self._environment.config.ha_max_connections
            ):
                return Objection(
                    RefusalReason.TOO_MANY_CONNECTIONS,
                    "too many slaves at once; raise haMaxConnections if they are yours",
                )
            self._connections.append(connection)
        try:
            reader, writer = self._services_of(connection, slave)
        except OSError:
            with self._lock:
                self._connections.remove(connection)
            raise
        if slave is not None:
            self._name_link(remote, slave)
        # Added before it runs, so that one that fails immediately is removed afterwards.
        self._group_transfer.add(progress)
        connection.start(reader, writer, self._gone)
        return None

    def _unproven(self, ip: str, first_report: int) -> Objection | None:
        """The objection to a report above the ceiling, unless its records equal ours."""
        report_ceiling = self._report_ceiling.of(ip)
        if first_report <= report_ceiling:
            return None
        answer = self._verifier.find_out(ip, first_report)
        if answer is Answer.SAME:
            return None
        return Objection(
            RefusalReason.BEYOND_MAX,
            f"it is beyond {report_ceiling}, the end of this log when it was opened or what was "
            f"sent to this address since: {_UNPROVEN[answer]}",
        )

    def _services_of(
        self, connection: HAConnection, slave: SlaveHello | None
    ) -> tuple[ReadSocketService, WriteSocketService]:
        link = ServedLink(
            connection.transport, connection.progress, connection.end, connection.thread_finished
        )
        pause = ReaderPause()
        try:
            reader = ReadSocketService(
                self._environment,
                link,
                Reports(None if slave is None else slave.report_key),
                pause,
                acknowledged=self._group_transfer.notify_transfer_some,
                log_end=lambda: self._source.page.counters[MAX_PHY_OFFSET],
            )
            writer = WriteSocketService(
                self._environment,
                link,
                self._source,
                self._flow,
                self._wait_notify,
                self._report_ceiling,
                is_checked=slave is not None,
                loan=self._loan_of(connection, slave, pause),
            )
        except OSError:
            pause.close()
            raise
        return reader, writer

    def _loan_of(
        self, connection: HAConnection, slave: SlaveHello | None, pause: ReaderPause
    ) -> LendableLink | None:
        """None: this connection is never lent. Reports that say "on disk" are counted apart, and
        nobody waits for microseconds there."""
        lender, transport, progress = self._lender, connection.transport, connection.progress
        if lender is None or self._flow.is_limited or progress.reports_flushed:
            return None
        if not isinstance(transport, PlainTransport):
            return None
        link = Lendable(
            transport,
            progress,
            is_checked=slave is not None,
            report_key=None if slave is None else slave.report_key,
            sent=self._report_ceiling.sent,
        )
        environment = self._environment
        heartbeat_ms = environment.config.ha_send_heartbeat_interval
        return LendableLink(
            lender, link, pause, environment.clock, environment.new_selector, heartbeat_ms
        )

    def close_all(self, timeout_ms: float = 5000) -> bool:
        """Refuse new ones, end all, wait for their threads. False if one did not stop."""
        with self._lock:
            self._closed = True
            connections = list(self._connections)
        for connection in connections:
            connection.end(None, "this broker stops replication")
        stopped = [connection.join(timeout_ms) for connection in connections]
        return all(stopped)

    def _gone(self, connection: HAConnection) -> None:
        with self._lock:
            self._connections.remove(connection)
        if connection.reason is not None:
            self._refusals.refused(connection.progress.remote, connection.reason, connection.text)
        self._group_transfer.remove(connection.progress, connection.reason, connection.text)
