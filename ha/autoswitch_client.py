"""AutoSwitchClient: the thread that follows the master of a group with a controller.

Thread of process `ha`, owner of the ReplicaLog while a master is followed. One round: connect
(master_connector.py: who is it, and can it prove that?), shake hands, tell what the master said,
wait for the decision (`decide`), take frames until the link is closed. No master is
asked before the decision on the last answer has come: it would be taken for one on the new answer.
After a failure it tries again soon. Failures of the environment end a round, never the process.
`stop` returns when the thread touches neither log nor network any more. It knows neither epochs nor
controllers. Corresponds to AutoSwitchHAClient of RocketMQ.

Tested by tests/ha/test_autoswitch_ha_service.py.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ha.autoswitch_link import AutoSwitchLink
from ha.client_selector import ClientSelector
from ha.follow_orders import FollowOrders, MasterToFollow
from ha.ha_client_info import HAClientInfo, HAClientState
from ha.ha_environment import HaEnvironment, LinkIdentity
from ha.link_errors import LinkClosedError
from ha.link_record import LinkRecord
from ha.master_connector import Connected, MasterConnector
from ha.member_events import MemberEvents
from ha.refusal_log import RefusalLog
from ha.refusals import RefusalReason
from ha.replica_log_start import ReplicaLogStart
from ha.wait_notify_object import WaitNotifyObject
from ipc.service_thread import ServiceThread
from store.errors import StoreError
from store.replica_log import ReplicaLog

if TYPE_CHECKING:
    from ha.record_validator import RecordValidators

log = logging.getLogger(__name__)

_IDLE_MS: Final = 1_000
_RETRY_SOON_MS: Final = 1_000
"""A new master may not lead yet when it is known, and one that was followed may be restarting."""
_STOPPED: Final = "stopping"
_NO_ADDRESS: Final = "no name server has said yet where its HA port is"


class AutoSwitchClient(ServiceThread):
    """See the module. Others only call what is under "for other threads"."""

    def __init__(
        self,
        environment: HaEnvironment,
        replica_log: ReplicaLog,
        identity: LinkIdentity,
        refusals: RefusalLog,
        wait_notify: WaitNotifyObject,
        begin_log: Callable[[int], None],
        new_validators: Callable[[], RecordValidators],
        events: MemberEvents,
    ) -> None:
        """replica_log: opened and closed by this thread. begin_log: OtherProcesses' one."""
        super().__init__("AutoSwitchClient", on_failure=environment.on_failure)
        self._log = replica_log
        self._config = environment.config
        self._clock = environment.clock
        self._identity = identity
        self._refusals = refusals
        self._begin_log = begin_log
        self._new_validators = new_validators
        self._events = events
        self._orders: Final = FollowOrders()
        self._selector = ClientSelector(
            wait_notify,
            environment.clock,
            new_selector=environment.new_selector,
            is_stopping=lambda: self.stopped or self._orders.is_new,
        )
        self._log_start: ReplicaLogStart | None = None
        self._connector: MasterConnector | None = None
        self._validators: RecordValidators | None = None
        self._record: Final = LinkRecord(replica_log, refusals, environment.clock)
        self._linked_address: str | None = None
        self._retry_ms: Final = min(_RETRY_SOON_MS, self._config.ha_reconnect_interval)
        self._passing_at = -1
        """Where our log ended when the last link closed that was opened anew at once."""

    # -- for other threads ---------------------------------------------------------------------

    def follow(self, order: MasterToFollow, address: str | None) -> None:
        """Follow the master whose HA port is at "ip:port", once that is known. None: it may be, in
        the same epoch."""
        self._orders.give(order, address)
        self._selector.wake()

    def update_master_address(self, address: str | None) -> None:
        """The master's HA port is there now; a link to another one is closed, a rest ends. None,
        and an address that is already known, change nothing."""
        if self._orders.move(address):
            self._selector.note_master_moved()

    def decide(self, *, transfers: bool) -> None:
        """Take the frames of the master whose answer was told last; or close the link, and try
        again after a pause."""
        self._orders.decide(transfers=transfers)
        self._selector.wake()

    def stop_following(self) -> None:
        """Close the link, and return when nobody touches the log for it any more; what was not
        published is zeroed by then."""
        self._orders.withdraw()
        self._selector.wake()
        self._orders.wait_until_idle(lambda: self.is_alive)

    @property
    def is_transferring(self) -> bool:
        """A link is open, and its frames are taken. Any thread."""
        return self._record.state is HAClientState.TRANSFER

    def snapshot(self) -> HAClientInfo:
        """What the client is doing now. Any thread."""
        return self._record.snapshot(self._linked_address or self._orders.address)

    def interrupt(self) -> None:
        """It sleeps in its selector."""
        self._selector.wake()

    # -- the thread ----------------------------------------------------------------------------

    def step(self) -> None:
        """Take the order that is there, and one round of it; then the rest that is due."""
        order = self._orders.take(self._begin_order)
        if order is None:
            self._selector.sleep(_IDLE_MS, lambda: self._orders.has_order)
            return
        self._selector.master_moved = False
        self._selector.rest(self._round(order))

    def finish(self) -> None:
        """Close the log and the descriptors."""
        self._let_go()
        self._orders.let_go()
        self._selector.close()

    def _begin_order(self, order: MasterToFollow | None) -> None:
        """A new one begins with nothing of the last one left open."""
        self._let_go()
        self._record.state = HAClientState.WAITING_FOR_ADDRESS
        if order is None:
            return
        own = dataclasses.replace(self._identity.own, broker_id=order.handshake.broker_id)
        identity = dataclasses.replace(self._identity, own=own)
        self._connector = MasterConnector(
            self._selector, self._clock, identity, self._config.ha_master_address
        )
        self._log_start = ReplicaLogStart(
            self._log,
            self._selector,
            self._clock,
            partial(self._orders.run, order, self._begin_log),
        )
        self._validators = self._new_validators()

    def _let_go(self) -> None:
        try:
            self._log.close()
        except StoreError as error:
            log.error("unpublished bytes remain after the end of the log: %s", error)

    def _round(self, order: MasterToFollow) -> int:
        """Returns how long to rest, in ms."""
        address = self._orders.address
        if address is None and self._record.last_error.note(_NO_ADDRESS):
            log.info("waiting for the master: %s", _NO_ADDRESS)
        if address is None or self._orders.is_undecided:
            self._selector.sleep(_IDLE_MS, lambda: self._orders.may_connect)
            return 0
        self._linked_address = address
        try:
            self._log.open()
            self._follow(order, address)
        except LinkClosedError as error:
            self._note_closed(error)
            if error.is_passing:
                before, self._passing_at = self._passing_at, self._log.max_phy_offset
                return 0 if before != self._passing_at else self._retry_ms
        except (StoreError, OSError) as error:
            self._note_closed(LinkClosedError(None, f"replication stalled: {error}"))
        return self._retry_ms

    # -- one link ------------------------------------------------------------------------------

    def _follow(self, order: MasterToFollow, address: str) -> None:
        """Connect and receive until a stop or a changed address. Raises LinkClosedError."""
        self._record.state = HAClientState.CONNECTING
        assert self._connector is not None
        assert self._validators is not None
        # Whoever has a certificate is one of ours: Java's HA connections know no TLS.
        is_ours = self._identity.tls is not None
        connected = self._connector.connect(address, speaks_handshake=is_ours)
        try:
            self._check(connected)
            link = AutoSwitchLink(
                connected,
                order.handshake,
                self._log,
                self._config,
                self._clock,
                self._validators,
                self._events.frame_taken,
            )
            self._record.hello = connected.hello
            self._record.opened(link)
            self._shake_hands(link, order, connected)
            self._record.last_error.end()
            self._record.state = HAClientState.TRANSFER
            log.info("master %s: connected, continuing at %s", address, self._log.position)
            link.follow()
            self._transfer(link)
        finally:
            self._end_link(connected)

    def _check(self, connected: Connected) -> None:
        """Frames of a master of ours are never taken without their checksums and seals."""
        if connected.is_checked and connected.report_key is None:
            raise LinkClosedError(
                RefusalReason.BAD_HANDSHAKE,
                "its version of the handshake seals no reports; bring both brokers to the same "
                "version",
            )

    def _shake_hands(
        self, link: AutoSwitchLink, order: MasterToFollow, connected: Connected
    ) -> None:
        """The master's answer, and the decision on it. Raises LinkClosedError: hung up."""
        self._wait(link, lambda: link.hello is not None)
        hello = link.hello
        assert hello is not None
        self._record.state = HAClientState.INSPECTING
        if not self._orders.ask(order):
            raise LinkClosedError(None, _STOPPED)
        epoch = hello.last_epoch if connected.is_checked else order.master_epoch
        self._events.master_hello(epoch, hello.epochs, hello.max_offset)
        self._wait(link, lambda: not self._orders.is_undecided)
        if not self._orders.transfers:
            raise LinkClosedError(None, "the group's member does not follow this master now")

    def _wait(self, link: AutoSwitchLink, is_over: Callable[[], bool]) -> None:
        """Until the condition holds. Raises LinkClosedError: the link has ended, or shall."""
        while not is_over():
            if self._selector.is_interrupted:
                moved = "the master's address has changed"
                raise LinkClosedError(None, moved if self._selector.master_moved else _STOPPED)
            if link.receive():
                continue
            self._selector.watch(link.transport.fileno(), link.interest)
            self._selector.sleep(link.wait_ms(), lambda: is_over() or link.has_work())

    def _transfer(self, link: AutoSwitchLink) -> None:
        while not self._selector.is_interrupted:
            if not self._orders.transfers:
                raise LinkClosedError(None, "hung up by the group's member")
            more = link.receive()
            if link.start_offset is not None:
                self._selector.watch(link.transport.fileno(), 0)  # New bytes must not wake us.
                assert self._log_start is not None
                self._log_start.start_at(link.start_offset)
                link.log_started()
                continue
            if more:
                continue
            self._record.note_progress(link)
            self._selector.watch(link.transport.fileno(), link.interest)
            self._selector.sleep(
                link.wait_ms(), lambda: link.has_work() or not self._orders.transfers
            )
            self._record.note_stall(link)

    def _end_link(self, connected: Connected) -> None:
        self._linked_address = None
        self._record.state = HAClientState.RESTING
        self._record.end(self._selector, connected.transport)

    def _note_closed(self, error: LinkClosedError) -> None:
        self._record.state = HAClientState.RESTING
        if not self._selector.is_stopping:
            self._record.note_closed(error, self._orders.address)
