"""BrokerMemberHost: the log, the roles and the HA connections of one broker, for its member.

Runs in process `ha`, on the member's thread. What the member decides it shows in the control page,
where processes `remoting` and `store` read it, and it orders `remoting` to take its role
(MemberOrders). The bytes of the log come and go through `Replication`. A cut of what
nobody was shown is done at once (store/log_cut.py). Any other one, which only a closed store
allows, ends this process: the supervisor has the store opened anew, process `store` cuts before it
recovers, and the member goes on from its files.

Tested by tests/broker/failover/test_member_host.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from broker.failover.member_files import MemberFiles
from broker.failover.member_orders import MemberOrders
from broker.failover.member_service import CutRefusedError, MemberStatus, MemberStoppedError
from broker.failover.messages import (
    CutHalfRecord,
    CutLog,
    Fenced,
    FlushLog,
    Follow,
    HangUp,
    Lead,
    LogEnds,
    RegisterAtNameServers,
    Role,
    Step,
    StopReplication,
    Transfer,
)
from broker.failover.role_log import RoleLog
from ha.control_slots import (
    MASTER_BROKER_ID,
    MEMBER_ID,
    PUTS_REFUSED,
    PUTS_UNTIL_MS,
    REPLICATED_OFFSET,
    SYNC_STATE_SET_SIZE,
    TWO_MASTERS_SEEN,
    MemberRole,
)
from ha.epochs import CutStep, EpochList
from store.control_slots import (
    CONFIRM_OFFSET,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    NO_BOUND,
)
from store.errors import StoreError
from store.resync_request import ResyncAction

log = logging.getLogger(__name__)


class Replication(Protocol):
    """The HA connections of this broker, in both directions (AutoSwitchHAService). Called by the
    member's thread."""

    def stop(self) -> None:
        """Close every connection; nothing is written to the log, or acknowledged, any more."""

    def cut_half_record(self) -> None:
        """Zero what lies behind the last whole record, durably."""

    def lead(
        self,
        epochs: EpochList,
        master_epoch: int,
        confirm: Callable[[], int],
        *,
        tells_growth: bool = True,
    ) -> None:
        """Serve slaves. confirm: up to where consumers may read; any thread. tells_growth: whether
        Moved is wanted."""

    def follow(self, broker_id: int, master_epoch: int, master_ha_address: str | None) -> None:
        """Connect to the master as soon as its HA address is known, under this id."""

    def transfer(self) -> None:
        """The log is the beginning of the connected master's: take its frames."""

    def hang_up(self) -> None:
        """Close the connection to the master, and try again later."""

    def note_sync_state_set(self, broker_ids: frozenset[int]) -> None:
        """On a leader, for its status."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What the host must know of the settings."""

    all_ack_in_sync_state_set: bool
    in_sync_replicas: int
    sync_flush: bool


class OrderedRole(NamedTuple):
    """What process `remoting` needs beside the order's slot."""

    order: int
    role: MemberRole
    broker_id: int | None
    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int = 0


class _ShownGroup(NamedTuple):
    broker_id: int | None
    master_broker_id: int | None
    set_size: int
    two_masters_seen: int


def _shown_of(status: MemberStatus) -> _ShownGroup:
    return _ShownGroup(
        status.broker_id,
        status.master_broker_id,
        len(status.sync_state_set),
        status.two_masters_seen,
    )


class Actions(NamedTuple):
    """What the host has others do."""

    ring_store: Callable[[], None]
    ring_remoting: Callable[[], None]
    sync_log: Callable[[int, int], None]
    """Have these bytes of the log on disk when it returns. Raises FlushFailedError."""
    request_resync: Callable[[ResyncAction, int, str], None]
    """Write down what shall be done to the store when it is opened next, durably."""
    cut_tail: Callable[[int], bool]
    """Cut the log while the store is open, as the request says. False: open the store anew."""
    reopen: Callable[[], None]
    """End this process, and have the store opened anew."""
    register: Callable[[RegisterAtNameServers, str | None], None]
    """Register soon; the address of the master that is followed. Does not block."""


class BrokerMemberHost:
    """See the module. `ordered` is read by the thread that serves commands."""

    def __init__(
        self,
        counters: memoryview[int],
        orders: MemberOrders,
        replication: Replication,
        files: MemberFiles,
        settings: HostSettings,
        actions: Actions,
        role_log: RoleLog,
    ) -> None:
        self._counters = counters
        self._orders = orders
        self._replication = replication
        self._files = files
        self._settings: Final = settings
        self._actions: Final = actions
        self._role_log: Final = role_log
        self._status: MemberStatus | None = None
        self._follows: str | None = None
        """The service address of the master that is followed."""
        self._shown_set: frozenset[int] = frozenset()
        self._shown_group = _ShownGroup(-1, None, 0, 0)
        self._was_cut = False
        """Since the last answer of the master, whose link is closed: another one begins."""
        self.ordered = OrderedRole(0, MemberRole.FENCED, None)

    def begin(self) -> None:
        """Whatever a predecessor has ordered: nobody writes the log until a role was taken. Before
        the member starts; does not wait."""
        self._order(MemberRole.FENCED)

    # MemberHost

    def log_ends(self) -> LogEnds:
        """The log now."""
        end = self._counters[MAX_PHY_OFFSET]
        if not self._settings.sync_flush:
            return LogEnds(end, end)
        return LogEnds(end, min(self._counters[FLUSHED_OFFSET], end))

    def do(self, step: Step) -> None:
        """One step, durable when this returns. Raises MemberStoppedError, CutRefusedError,
        StoreError, OSError."""
        match step:
            case StopReplication():
                self._stop_replication()
            case CutHalfRecord():
                self._replication.cut_half_record()
            case FlushLog():
                counters = self._counters
                self._actions.sync_log(counters[FLUSHED_OFFSET], counters[MAX_PHY_OFFSET])
            case CutLog():
                self._cut(step)
            case _:
                raise ValueError(f"no step with the log: {step}")

    def show(self, status: MemberStatus) -> None:
        """Show it to the other processes."""
        self._status = status
        counters, puts = self._counters, status.puts
        self._show_group(status)
        refusal = 0 if puts.refusal is None else int(puts.refusal.code)
        until_ms = NO_BOUND if puts.until_ms is None else max(puts.until_ms, 0)
        if counters[PUTS_REFUSED] != refusal:
            counters[PUTS_REFUSED] = refusal
        if counters[PUTS_UNTIL_MS] != until_ms:
            counters[PUTS_UNTIL_MS] = until_ms
        if status.sync_state_set != self._shown_set:
            self._shown_set = status.sync_state_set
            self._replication.note_sync_state_set(status.sync_state_set)
        bound = status.confirm_offset
        if status.is_master and not self._settings.all_ack_in_sync_state_set:
            bound = NO_BOUND  # No hop of each message through this process.
        if counters[CONFIRM_OFFSET] != bound:
            counters[CONFIRM_OFFSET] = bound
            self._actions.ring_store()
        if counters[REPLICATED_OFFSET] != status.acknowledged_offset:
            counters[REPLICATED_OFFSET] = status.acknowledged_offset
            self._actions.ring_remoting()

    def _show_group(self, status: MemberStatus) -> None:
        shown = _shown_of(status)
        if shown == self._shown_group:
            return
        counters, before = self._counters, self._shown_group
        counters[MEMBER_ID] = status.broker_id or 0
        counters[MASTER_BROKER_ID] = status.master_broker_id or 0
        counters[SYNC_STATE_SET_SIZE] = len(status.sync_state_set)
        counters[TWO_MASTERS_SEEN] += shown.two_masters_seen - before.two_masters_seen
        self._shown_group = shown

    def take_role(self, role: Role) -> None:
        """Lead, follow, or wait for a master. Raises MemberStoppedError."""
        status = self._status
        assert status is not None
        match role:
            case Lead():
                self._order(MemberRole.LEAD)
                self._lead(status)
                self._orders.wait_taken()
                self._note_role(MemberRole.LEAD, status)
            case Follow():
                self._order(MemberRole.FOLLOW, role.master_address)
                self._orders.wait_taken()
                assert status.broker_id is not None
                self._replication.follow(status.broker_id, role.master_epoch, None)
                self._note_role(MemberRole.FOLLOW, status)
            case Fenced():
                self._order(MemberRole.FENCED)
                self._orders.wait_taken()
                self._note_role(MemberRole.FENCED, status)
            case Transfer() if self._was_cut:
                self._was_cut = False
                assert status.broker_id is not None
                self._replication.follow(status.broker_id, status.master_epoch, None)
            case Transfer():
                self._replication.transfer()
            case HangUp():
                self._replication.hang_up()

    def _note_role(self, role: MemberRole, status: MemberStatus) -> None:
        self._role_log.took(role, status.master_epoch, status.taken)

    def register(self, registration: RegisterAtNameServers) -> None:
        """Whoever registers delivers NameServersAnswered. Does not block."""
        self._actions.register(registration, self._follows)

    # How

    def _stop_replication(self) -> None:
        """First the acknowledgements end, so that no SEND_OK rests on this time as master that was
        not given before; then process `remoting` puts nothing any more."""
        self._replication.stop()
        if self._orders.role is MemberRole.LEAD:
            self._order(MemberRole.FENCED)
        self._orders.wait_taken()

    def _order(self, role: MemberRole, follows: str | None = None) -> None:
        """What belongs to an order is there before the order is."""
        status = self._status
        self._follows = follows
        epoch = 0 if status is None else status.master_epoch
        self.ordered = OrderedRole(
            self._orders.next_order(role),
            role,
            None if status is None else status.broker_id,
            None if status is None or role is MemberRole.FENCED else status.master_broker_id,
            follows,
            epoch,
        )
        self._orders.give(role, epoch)

    def _lead(self, status: MemberStatus) -> None:
        settings, counters = self._settings, self._counters
        self._replication.lead(
            status.epochs,
            status.master_epoch,
            lambda: min(counters[CONFIRM_OFFSET], counters[MAX_PHY_OFFSET]),
            tells_growth=settings.all_ack_in_sync_state_set or settings.in_sync_replicas > 1,
        )

    def _cut(self, cut: CutLog) -> None:
        """The marker is the request to process `store`, which keeps a copy of what it cuts off; the
        steps behind the shorter list are its recovery's."""
        match cut.step:
            case CutStep.WRITE_MARKER:
                begin, end = self._counters[MIN_PHY_OFFSET], self._counters[MAX_PHY_OFFSET]
                is_whole = cut.cut_to <= begin
                action = ResyncAction.START_OVER if is_whole else ResyncAction.TRUNCATE
                reason = f"the log of {end} bytes is its master's up to {cut.cut_to}"
                try:
                    self._actions.request_resync(action, cut.cut_to, reason)
                except StoreError as error:
                    raise CutRefusedError(str(error)) from error
            case CutStep.WRITE_EPOCHS:
                self._files.write_epochs(cut.epochs)
            case CutStep.ZERO_TAIL:
                # The link may publish what it has until it is closed.
                self._replication.stop()
                self._was_cut = self._may_cut_now and self._actions.cut_tail(cut.cut_to)
                if not self._was_cut:
                    self._actions.reopen()
                    raise MemberStoppedError
            case CutStep.CUT_QUEUES | CutStep.REMOVE_MARKER:
                assert self._was_cut

    @property
    def _may_cut_now(self) -> bool:
        """Where a leader shows what is not confirmed, process `store` may yet be at work on it."""
        return self._settings.all_ack_in_sync_state_set
