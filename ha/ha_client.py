"""HAClient: the slave's thread that finds the master and follows its log.

Thread of process `ha` on a slave, owner of the ReplicaLog. One round: check whether our log is a
prefix of the master's (inspect_master), connect (master_connector.py: who is it, and can it prove
that?), report at once where to continue, then receive until the link is closed (master_link.py);
from time to time the master is inspected again while the link is open (renewed_inspection.py).
After a failure it waits for haReconnectInterval, but for a second at most after a link that lasted
that long and while the master is silent. Failures of the environment (no descriptors, a missing
file) end a round, never the process. All sleeps are in client_selector.py. It knows no remoting
protocol and no other process: it asks OtherProcesses. Corresponds to HAClient / DefaultHAClient of
RocketMQ.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ha.async_call import AsyncCall
from ha.client_selector import ClientSelector
from ha.divergence import Divergence, LogEnds, find_divergence
from ha.ha_client_info import HAClientInfo, HAClientState
from ha.ha_environment import HaEnvironment, LinkIdentity
from ha.inspection import Inspection, Verdict
from ha.link_errors import LinkClosedError
from ha.link_record import LinkRecord
from ha.master_connector import MasterConnector
from ha.master_hello import MasterHello
from ha.master_link import MasterLink
from ha.other_processes import OtherProcesses
from ha.refusal_log import RefusalLog
from ha.refusals import RefusalReason
from ha.renewed_inspection import RenewedInspection
from ha.repair_proof import RepairProof, UnprovedError
from ha.replica_log_start import ReplicaLogStart, as_master_says
from ha.transport import Transport
from ha.uncompared_end import UncomparedEnd
from ha.wait_notify_object import WaitNotifyObject
from ipc.service_thread import ServiceThread
from store.errors import StoreError
from store.replica_log import ReplicaLog

if TYPE_CHECKING:
    from ha.record_validator import RecordValidators

log = logging.getLogger(__name__)

_NO_ADDRESS_MS: Final = 500
_RETRY_SOON_MS: Final = 1_000
"""A master that was followed until now, or is known and silent, may be restarting: it is tried
more often, so that sends waiting for this slave succeed soon after its start."""


@dataclass(frozen=True, slots=True)
class MasterChecks:
    """How what a master sends is judged."""

    validators: RecordValidators
    uncompared: UncomparedEnd


class HAClient(ServiceThread):
    """See the module. Others only call `update_master_address`, `snapshot`, `named_broker` and
    `shutdown`.
    """

    def __init__(
        self,
        environment: HaEnvironment,
        replica_log: ReplicaLog,
        identity: LinkIdentity,
        refusals: RefusalLog,
        wait_notify: WaitNotifyObject,
        others: OtherProcesses,
        checks: MasterChecks,
        link_changed: Callable[[], None],
    ) -> None:
        """replica_log: opened and closed by this thread. wait_notify: the one of the process.
        link_changed: on this thread, when a link was opened or `named_broker` has changed; it must
        be quick and not raise."""
        super().__init__("HAClient", on_failure=environment.on_failure)
        self._log = replica_log
        self._config = environment.config
        self._clock = environment.clock
        self._refusals = refusals
        self._others = others
        self._link_changed = link_changed
        self._checks = checks
        self._selector = ClientSelector(
            wait_notify,
            environment.clock,
            new_selector=environment.new_selector,
            is_stopping=lambda: self.stopped,
        )
        self._connector = MasterConnector(
            self._selector, environment.clock, identity, self._config.ha_master_address
        )
        self._proof = RepairProof(self._connector, identity.trusted)
        self._log_start = ReplicaLogStart(
            replica_log, self._selector, environment.clock, others.begin_log
        )
        self._updated_address: str | None = None
        """The last one given to `update_master_address`."""
        self._record: Final = LinkRecord(replica_log, refusals, environment.clock)
        self._address: str | None = None
        self._named_broker: str | None = None
        self._link_lasted = False
        """The last round's link was open for at least haReconnectInterval."""
        self._checked_address: str | None = None
        """The HA port of a master of ours: one that cannot be asked is taken for the same, and its
        frames are checked, until it says that it is none."""
        self._uncompared = checks.uncompared
        self._asked = 0
        """Which end of ours the inspection is about that is under way beside the link."""
        self._passing_at = -1
        """Where our log ended when the last link closed that was opened anew at once."""
        self._last_inspection: str | None = None
        self._last_inspection_ms: int | None = None
        self._resync_trouble: str | None = None
        self._ignored_word: str | None = None
        """Why an inspection did not count, when that was logged last."""

    # -- for other threads ---------------------------------------------------------------------

    def update_master_address(self, address: str | None) -> None:
        """The master's HA port is "ip:port" now; a link to another one is closed, a rest ends.
        None, and an address that is already known, change nothing."""
        if address is None or address in (self._updated_address, self._address):
            return
        self._updated_address = address
        self._selector.note_master_moved()

    @property
    def named_broker(self) -> str | None:
        """The remoting port "ip:port" that the last master named in its hello, whether or not its
        log was followed then; None: none has. Any thread."""
        return self._named_broker

    def snapshot(self) -> HAClientInfo:
        """What the client is doing now."""
        return self._record.snapshot(self._address, self._last_inspection, self._last_inspection_ms)

    def interrupt(self) -> None:
        """It sleeps in its selector."""
        self._selector.wake()

    # -- the thread ----------------------------------------------------------------------------

    def step(self) -> None:
        """One round: inspect, connect, follow; then the rest that is due."""
        self._selector.master_moved = False
        self._selector.rest(self._round())

    def finish(self) -> None:
        """Close the log and the descriptors."""
        try:
            self._log.close()
        except StoreError as error:
            log.error("unpublished bytes remain after the end of the log: %s", error)
        self._selector.close()

    def _round(self) -> int:
        """Returns how long to rest, in ms."""
        self._link_lasted = False
        try:
            self._log.open()
            found = self._inspect()
            if found is None:
                return 0
            address = found.ha_address or self._updated_address
            if found.verdict is Verdict.WAIT or address is None:
                return self._wait_for_master(found, address)
            self._address = address
            if self._updated_address in (None, address):
                self._selector.master_moved = False  # The update came during the inspection.
            divergence = find_divergence(found, self._log_ends())
            if divergence is None:
                self._follow(address, found)
                return 0
            self._refuse(divergence, found, address)
        except LinkClosedError as error:
            self._note_closed(error)
            if error.is_passing:
                before, self._passing_at = self._passing_at, self._log.max_phy_offset
                return self._retry_soon_ms if before == self._passing_at else 0
        except (StoreError, OSError) as error:
            self._note_closed(LinkClosedError(None, f"replication stalled: {error}"))
        return self._retry_soon_ms if self._link_lasted else self._config.ha_reconnect_interval

    @property
    def _retry_soon_ms(self) -> int:
        return min(_RETRY_SOON_MS, self._config.ha_reconnect_interval)

    def _log_ends(self) -> LogEnds:
        return LogEnds(self._log.min_phy_offset, self._log.max_phy_offset, self._log.is_empty)

    # -- inspections ---------------------------------------------------------------------------

    def _inspect(self) -> Inspection | None:
        """None: a stop was requested meanwhile. Raises LinkClosedError: no reply."""
        self._record.state = HAClientState.INSPECTING
        position, low = self._log.position, self._log.min_phy_offset
        self._uncompared.begin()
        is_anothers = False
        while True:
            # Another one's word on each of the places would not count.
            asked = position if is_anothers else self._uncompared.question(position, low)
            try:
                found = self._selector.call(partial(self._others.inspect_master, asked, low))
            except StoreError as error:
                text = f"could not inspect the master's log: {error}"
                raise LinkClosedError(None, text) from error
            if found is None:
                return None
            self._note_inspection(found, asked)
            if not self._uncompared.note(found, asked, position, goes_on=True):
                return found
            hello, address = self._record.hello, self._address
            if hello is not None and address is not None and found.ha_address == address:
                is_anothers = self._proof.find_objection(found, address, hello) is not None

    def _note_inspection(self, found: Inspection, position: int) -> None:
        text = f"{found.verdict.value}: {found.text}".removesuffix(": ")
        if text != self._last_inspection:
            log.info("inspection of the master at our end %s: %s", position, text)
        self._last_inspection, self._last_inspection_ms = text, self._clock.now_ms()

    def _wait_for_master(self, found: Inspection, address: str | None) -> int:
        self._record.state = HAClientState.WAITING_FOR_ADDRESS
        text = found.text or "the master's HA address is unknown"
        if self._record.last_error.note(text):
            log.warning("waiting for the master: %s", text)
        return _NO_ADDRESS_MS if address is None else self._retry_soon_ms

    def _refuse(self, divergence: Divergence, found: Inspection, address: str) -> None:
        """Do not follow; request the repair if it may be done. Raises LinkClosedError."""
        may_repair = not divergence.loses_data or self._config.ha_truncate_diverged
        try:
            if may_repair or found.ha_protocol > 0:
                self._note_hello(hello := self._proof.fetch_hello(address, found))
            if may_repair:
                own = self._log_ends()
                self._repair(self._proof.prove(divergence, found, address, hello, own))
                return
        except UnprovedError as error:
            if may_repair:
                self._report_refusal(
                    error.reason,
                    f"{divergence.text}: nothing is replicated, and our log stays as it is, since "
                    f"this is not known to be our master's word: {error}",
                )
                return
        self._report_refusal(
            divergence.reason,
            f"{divergence.text}: nothing is replicated. To give up what the master lacks set "
            "haTruncateDiverged=true and restart (a backup is made); if this broker has the "
            "better data, make it the master",
        )

    def _repair(self, proved: Divergence) -> None:
        text, repair = proved.text, proved.repair
        if proved.loses_data:
            shown = f"{text}: truncating to there because haTruncateDiverged=true"
        else:
            text = shown = f"{text}; starting over at {repair.offset}, the files are moved aside"
        self._report_refusal(proved.reason, shown)
        self._resync(repair.action, repair.offset, text)

    def _report_refusal(self, reason: RefusalReason, text: str) -> None:
        self._record.state = HAClientState.REFUSED
        self._record.last_error.note(text)
        self._refusals.refused(self._address or "?", reason, text)

    def _resync(self, action: str, offset: int, text: str) -> None:
        try:
            self._others.request_resync(action, offset, text)
        except StoreError as error:
            trouble = f"{text}; {action} cannot be prepared: {error}"
            self._record.last_error.note(trouble)
            if str(error) != self._resync_trouble:
                log.error("master %s: %s", self._address, trouble)
            self._resync_trouble = str(error)

    # -- one link ------------------------------------------------------------------------------

    def _follow(self, address: str, found: Inspection) -> None:
        """Connect and receive until a stop or a changed address. Raises LinkClosedError."""
        self._record.state = HAClientState.CONNECTING
        if found.master_max >= 0 and found.ha_protocol == 0:
            self._checked_address = None
        speaks_handshake = found.ha_protocol > 0 or address == self._checked_address
        connected = self._connector.connect(address, speaks_handshake=speaks_handshake)
        transport = connected.transport
        if connected.is_checked:
            self._checked_address = address
        try:
            if found.verdict is Verdict.START_AT and self._log.is_empty:
                self._log_start.start_like(as_master_says(found, connected.hello))
            link = MasterLink(
                transport,
                self._log,
                self._config,
                self._clock,
                self._checks.validators,
                is_checked=connected.is_checked,
                report_key=connected.report_key,
            )
            self._note_hello(connected.hello)
            self._settle(found, address, connected.hello)
            self._record.opened(link)
            self._record.last_error.end()
            self._record.state = HAClientState.TRANSFER
            log.info("master %s: connected, continuing at %s", address, self._log.position)
            self._link_changed()
            began_ms = self._clock.monotonic_ms()
            try:
                self._transfer(link, self._renewed_inspection(found))
            finally:
                lasted_ms = self._clock.monotonic_ms() - began_ms
                self._link_lasted = lasted_ms >= self._config.ha_reconnect_interval
        finally:
            self._end_link(transport)

    def _settle(self, found: Inspection, address: str, hello: MasterHello) -> None:
        """Before the first byte: whether the comparison was with the log that is followed now."""
        if found.verdict is not Verdict.GO or found.master_max < 0:
            return
        objection = self._proof.find_objection(found, address, hello)
        self._uncompared.settle(self._log.position, is_masters_word=objection is None)
        if objection is not None:
            self._ignore(f"keeping the link to {address} without a comparison: {objection}")

    def _ignore(self, text: str) -> None:
        if text != self._ignored_word:
            log.warning("%s", text)
        self._ignored_word = text

    def _note_hello(self, hello: MasterHello) -> None:
        self._record.hello = hello
        if hello.broker_address is not None and hello.broker_address != self._named_broker:
            self._named_broker = hello.broker_address
            self._link_changed()

    def _transfer(self, link: MasterLink, renewed: RenewedInspection) -> None:
        def has_work() -> bool:
            return link.has_work() or renewed.has_result

        while not self._selector.is_interrupted:
            self._inspect_again(renewed)
            outcome = link.receive()
            if outcome.start_offset is not None:
                self._selector.watch(link.transport.fileno(), 0)  # New bytes must not wake us.
                self._log_start.start_at(outcome.start_offset)
                link.log_started()
                continue
            if outcome.has_more:
                continue
            self._record.note_progress(link)
            self._selector.watch(link.transport.fileno(), link.interest)
            self._selector.sleep(min(link.wait_ms(), renewed.wait_ms()), has_work)
            self._record.note_stall(link)

    def _renewed_inspection(self, first: Inspection) -> RenewedInspection:
        def inspect() -> AsyncCall[Inspection]:
            low = self._log.min_phy_offset
            asked = self._asked = self._uncompared.question(self._log.max_phy_offset, low)
            return AsyncCall(lambda: self._others.inspect_master(asked, low), self._selector.wake)

        interval_ms = 2 * self._config.ha_send_heartbeat_interval
        return RenewedInspection(first, self._log.max_phy_offset, interval_ms, self._clock, inspect)

    def _inspect_again(self, renewed: RenewedInspection) -> None:
        """Raises LinkClosedError: our log is not a prefix of the master's; the next round acts."""
        position = self._log.max_phy_offset
        found = renewed.step(position)
        if found is None:
            return
        self._note_inspection(found, self._asked)
        divergence = find_divergence(found, self._log_ends())
        hello, address = self._record.hello, self._address
        assert hello is not None, "a link is open"
        assert address is not None
        objection = self._proof.find_objection(found, address, hello)
        if objection is not None and (found.master_max >= 0 or divergence is not None):
            if divergence is not None:
                self._ignore(f"keeping the link to {address}: {objection}")
            return
        if self._uncompared.note(found, self._asked, position, goes_on=False):
            renewed.ask_again()
            return
        if divergence is None:
            return
        if divergence.loses_data or not renewed.has_moved(position):
            raise LinkClosedError(divergence.reason, divergence.text)

    def _end_link(self, transport: Transport) -> None:
        self._record.end(self._selector, transport)
        with contextlib.suppress(StoreError):  # The next round starts with it and reports it.
            self._log.discard()

    def _note_closed(self, error: LinkClosedError) -> None:
        self._record.state = HAClientState.RESTING
        if not self.stopped:
            self._record.note_closed(error, self._address)
