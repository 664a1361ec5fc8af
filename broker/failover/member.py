"""A member of a group without sockets, clock or files: events in, `Ready` out. One thread.

From a start without identity to RUNNING: 1012, 1013, 1003, 1002 if no master is named, then a role.
Until then, and whenever no master is known, everything is refused. A role is only taken in an epoch
newer than the one held, and never in an epoch older than the log's. Nobody leads twice in one
epoch: what was not flushed may be gone, and other bytes would take its place under the same epoch.
A master that finds its own, older mandate after a restart asks to be elected anew.

Tested by tests/simulation/test_pitfalls.py.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from broker.failover.asking import Asking
from broker.failover.doing import Doing
from broker.failover.hand_over import HandOver
from broker.failover.identity import Identity, encode_identity, identity_of
from broker.failover.masters_word import MastersWord
from broker.failover.messages import (
    NOTHING_TAKEN,
    Answered,
    Ask,
    Cause,
    CutHalfRecord,
    CutLog,
    Event,
    Fenced,
    FindLeader,
    Fitness,
    FlushLog,
    Follow,
    FrameTaken,
    GroupView,
    HangUp,
    Lead,
    LeaderNamed,
    LogEnds,
    MasterHello,
    NameServersAnswered,
    Ready,
    RegisterAtNameServers,
    ReplicaConnected,
    ReplicaGone,
    ReplicaReported,
    RoleNotified,
    SendHeartbeat,
    StopReplication,
    Taken,
    Tick,
    Transfer,
    WriteEpochs,
    WriteIdentity,
    WriteTemporaryIdentity,
    cause_of,
)
from broker.failover.puts import HANDING_OVER, NOT_MASTER, TOO_FEW_MEMBERS, Puts
from broker.failover.self_fence import SelfFence
from broker.failover.settings import MemberSettings
from broker.failover.sync_state import SyncState, confirms_master, is_twin, twin_trouble
from ha.epochs import (
    NO_EPOCH,
    EpochList,
    EpochOrderError,
    StaleMasterError,
    UnknownEpochsError,
    adopted,
    plan_truncation,
)
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

MASTER_ID: Final = 0
"""A master's brokerId at the name servers and for clients."""
REFUSED_IDS_BEFORE_ALARM: Final = 3
REFUSED_IDS_BEFORE_PAUSE: Final = 10


class Stage(Enum):
    """How far a member has come."""

    ASKING_ID = "has no id"
    APPLYING = "has written the temporary identity"
    REGISTERING = "has an id"
    FINDING_MASTER = "knows no master"
    RUNNING = "has a role"


class Found(NamedTuple):
    """What a start found on disk."""

    temporary: Identity | None
    identity: Identity | None
    epochs: EpochList
    confirm_offset: int
    list_is_old: bool = False
    """`epochs` is the list before the last one, which is damaged: it may lack an epoch that this
    broker has led."""


class MemberCore:
    """Owned by one thread, which gives it one event after the other."""

    def __init__(self, settings: MemberSettings, found: Found, register_check_code: str) -> None:
        """register_check_code: address;ms, made at this start, for an id that has to be asked."""
        self._settings = settings
        self._check_code = register_check_code
        self._identity = found.identity
        self._offered = 0
        self._refused_ids = 0
        if found.identity is not None:
            self.stage = Stage.REGISTERING
        elif found.temporary is not None:
            self.stage = Stage.APPLYING
            self._offered = found.temporary.broker_id
            self._check_code = found.temporary.register_check_code
        else:
            self.stage = Stage.ASKING_ID
        self.asking = Asking(settings.request_timeout_ms)
        self._leader_known = False
        self._silent = self._unfit = False
        """Unfit: it was elected and cannot lead. Without heartbeats, another one is."""
        self._hand_over = HandOver(settings.controller_heartbeat_timeout_ms)
        self._master = MastersWord()
        self._polled_ms: int | None = None
        self._checked_ms: int | None = None
        self._registered_version = 0
        self._sync_state: SyncState | None = None
        self._fence = SelfFence(settings.controller_heartbeat_timeout_ms)
        self._list_is_old = found.list_is_old
        self._led_up_to = NO_EPOCH
        """With an old list: this broker may have led up to this epoch."""
        self.epochs = found.epochs
        self.confirm_offset = found.confirm_offset
        """Consumers read up to here (bytes)."""
        self.acknowledged_offset = 0
        """In this time as master, sends up to here are answered SEND_OK (bytes)."""
        self.master_epoch = 0
        """The newest epoch taken in this process."""
        self.master_broker_id: int | None = None
        self.trouble: str | None = None
        """What an operator has to know, if the member does not get on."""
        self.taken = NOTHING_TAKEN
        """How the newest role came about."""
        self.two_masters_seen = 0
        """How often another master was named in the epoch in which this broker leads."""

    # What others ask

    @property
    def broker_id(self) -> int | None:
        """The id that the controller gave; None before."""
        return self._identity.broker_id if self._identity else None

    @property
    def is_master(self) -> bool:
        """Whether this broker leads, as far as it knows."""
        return self._sync_state is not None

    @property
    def sync_state_set(self) -> frozenset[int]:
        """On a master, whoever may be in the set in force; else empty."""
        return self._sync_state.all_members() if self._sync_state else frozenset()

    @property
    def puts(self) -> Puts:
        """Whether messages are taken, and until when."""
        state = self._sync_state
        if state is None:
            return Puts(NOT_MASTER, None)
        if self._hand_over.is_on:
            return Puts(HANDING_OVER, None)
        until_ms = self._fence.until_ms if self._settings.self_fence else None
        return Puts(None if state.enough_members() else TOO_FEW_MEMBERS, until_ms)

    def step(self, event: Event, now_ms: int, log: LogEnds) -> Ready:
        """Take one event. What `Ready` says is done before the next one is given."""
        doing = Doing(log)
        match event:
            case Tick():
                self._tick(now_ms, doing)
            case ReplicaReported() if self._sync_state is not None:
                self._sync_state.reported(event.connection, event.ack_offset, now_ms, log)
                self._grow(now_ms, doing)
            case ReplicaConnected() if self._sync_state is not None:
                self.trouble = self._sync_state.connected(event, now_ms, log) or self.trouble
            case ReplicaGone() if self._sync_state is not None:
                self._sync_state.gone(event.connection)
                self._check_set(now_ms, doing)
            case FrameTaken():
                self._master.told(event.confirm_offset)
            case MasterHello():
                self._hello(event, doing)
            case Answered():
                self._answered(event, now_ms, doing)
            case Fitness():
                self._hand_over.lacking, self._polled_ms = event.lacking, None
                self._heartbeat(doing)
                if self._leader_known:
                    self._ask_for_stage(now_ms, doing)
            case RoleNotified():
                if self.stage in (Stage.FINDING_MASTER, Stage.RUNNING):
                    self._consider(event.view, Cause.NOTIFIED, now_ms, doing)
            case LeaderNamed():
                self._leader_known = event.address is not None
                if self._leader_known:
                    self._ask_for_stage(now_ms, doing)
            case NameServersAnswered():
                self._registered_version = max(self._registered_version, event.state_version)
        self._move_offsets(log)
        self._look_for_heir(now_ms, doing)
        return doing.ready()

    # Time

    def _tick(self, now_ms: int, doing: Doing) -> None:
        self.asking.ticked()
        self._hand_over.ticked(now_ms)
        if self.asking.forget_late(now_ms):
            self._leader_known = False
        self._heartbeat(doing)
        if self._leader_known:
            self._ask_for_stage(now_ms, doing)
        else:
            doing.sends.append(FindLeader())
        self._register(doing)
        period = self._settings.check_sync_state_set_period_ms
        if self._checked_ms is None or now_ms - self._checked_ms >= period:
            self._checked_ms = now_ms
            self._check_set(now_ms, doing)

    def _heartbeat(self, doing: Doing) -> None:
        if (beat := self._beat(doing.log)) is not None:
            doing.sends.append(beat)

    def _beat(self, log: LogEnds) -> SendHeartbeat | None:
        is_silent = self._silent or self._unfit or self._hand_over.is_wanted(self._sync_state)
        if self.broker_id is None or is_silent:
            return None
        epoch, end, confirm_offset = self.epochs.epoch_at(log.end), log.end, self.confirm_offset
        if self._hand_over.lacking and not self.is_master:
            epoch, end, confirm_offset = 0, 0, 0  # Of all members it is the last to be elected.
        return SendHeartbeat(self.broker_id, epoch, end, confirm_offset)

    def _register(self, doing: Doing) -> None:
        """Again until it was taken: a route that was lost would hide the new master."""
        if self.stage is not Stage.RUNNING or self._registered_version >= self.master_epoch:
            return
        role_id = MASTER_ID if self.is_master else self.broker_id or MASTER_ID
        doing.sends.append(RegisterAtNameServers(role_id, self.master_epoch))

    # Asking the controller

    def _ask_for_stage(self, now_ms: int, doing: Doing) -> None:
        match self.stage:
            case Stage.ASKING_ID:
                self._ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, now_ms, doing)
            case Stage.APPLYING:
                self._ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, now_ms, doing)
            case Stage.REGISTERING:
                self._ask(RequestCode.CONTROLLER_REGISTER_BROKER, now_ms, doing)
            case Stage.FINDING_MASTER if self._hand_over.lacking:
                self._ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, now_ms, doing)
            case Stage.FINDING_MASTER:
                self._ask(RequestCode.CONTROLLER_ELECT_MASTER, now_ms, doing)
            case Stage.RUNNING:
                period = self._settings.sync_broker_metadata_period_ms
                if self._polled_ms is None or now_ms - self._polled_ms >= period:
                    self._polled_ms = now_ms
                    self._ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, now_ms, doing)

    def _ask(
        self, code: RequestCode, now_ms: int, doing: Doing, *, designate: int | None = None
    ) -> int | None:
        """The request's ticket; None: it is not sent now."""
        if self.asking.has_to_wait or self.asking.waits_for(code):
            return None
        ask = Ask(
            self.asking.next_ticket(),
            code,
            designate or self.broker_id or self._offered,
            self._check_code,
            designate_elect=designate is not None,
        )
        self._send(ask, now_ms, doing)
        return ask.ticket

    def _send(self, ask: Ask, now_ms: int, doing: Doing) -> None:
        if self._settings.self_fence:
            ask = ask._replace(beat=self._beat(doing.log))
        self.asking.sent(ask, now_ms)
        doing.sends.append(ask)

    def _answered(self, event: Answered, now_ms: int, doing: Doing) -> None:
        asked = self.asking.take(event.ticket)
        if asked is None:
            return
        ask, sent_ms = asked
        if event.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._leader_known = False
            doing.sends.append(FindLeader())
            return
        match ask.code:
            case RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
                self._offered_id(event, now_ms, doing)
            case RequestCode.CONTROLLER_APPLY_BROKER_ID:
                self._applied(event, now_ms, doing)
            case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
                self._altered(ask, event, now_ms, doing)
            case _:
                self._told(ask, event, now_ms, doing)
        own = self.broker_id, self.master_epoch, self._settings.broker_address
        if self.is_master and confirms_master(ask, event, *own):
            self._fence.confirmed(sent_ms)

    # Identity

    def _offered_id(self, event: Answered, now_ms: int, doing: Doing) -> None:
        if self.stage is not Stage.ASKING_ID or event.code != ResponseCode.SUCCESS:
            return
        self._offered = event.next_broker_id
        self.stage = Stage.APPLYING
        named = identity_of(self._settings, self._offered, self._check_code)
        doing.steps.append(WriteTemporaryIdentity(encode_identity(named)))
        self._ask_for_stage(now_ms, doing)

    def _applied(self, event: Answered, now_ms: int, doing: Doing) -> None:
        if self.stage is not Stage.APPLYING:
            return
        if event.code == ResponseCode.SUCCESS:
            self._identity = identity_of(self._settings, self._offered)
            self.stage = Stage.REGISTERING
            doing.steps.append(WriteIdentity(encode_identity(self._identity)))
        elif event.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            self.stage = Stage.ASKING_ID
            self._refused_ids += 1
            if self._refused_ids >= REFUSED_IDS_BEFORE_ALARM:
                self.trouble = f"the controller offers ids and refuses them: {self._offered}"
            if self._refused_ids >= REFUSED_IDS_BEFORE_PAUSE:
                return  # Each offer is a file written and synced: from now on one a tick.
        self._ask_for_stage(now_ms, doing)

    # Roles

    def _told(self, ask: Ask, event: Answered, now_ms: int, doing: Doing) -> None:
        """An answer to 1002, 1003 or 1004."""
        registering = ask.code == RequestCode.CONTROLLER_REGISTER_BROKER
        names_itself = ask.designate_elect and ask.broker_id == self.broker_id
        if event.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST and names_itself:
            # A Java controller gives a living master no new epoch: let it take this one for dead.
            self._silent = True
        elif event.view is not None:
            self._consider(event.view, cause_of(ask, self.broker_id), now_ms, doing)
            if registering and self.stage is Stage.RUNNING:
                # Before it joins a set, where a member that is not alive is refused.
                self._heartbeat(doing)
        elif registering and event.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            self.trouble = f"the controller does not know broker id {self.broker_id}"
        elif event.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
            self.trouble = f"the controller does not know {self._settings.broker_name}"
        elif event.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED:
            self._silent = False
        if registering and event.code == ResponseCode.SUCCESS and self.stage is Stage.REGISTERING:
            self.stage = Stage.FINDING_MASTER
            self._heartbeat(doing)
            self._ask_for_stage(now_ms, doing)

    def _consider(self, view: GroupView, cause: Cause, now_ms: int, doing: Doing) -> None:
        """What a controller says of the group: another role, another set, or nothing new."""
        if view.master_epoch <= self.master_epoch:
            if view.master_epoch == self.master_epoch and self._sync_state is not None:
                self.trouble = self._sync_state.told(view)
                own = self.broker_id, self._settings.broker_address
                self.two_masters_seen += view.master_broker_id != own[0] or is_twin(view, *own)
            return
        if view.master_epoch < self.epochs.last_epoch:
            self.trouble = (
                f"the controller is at epoch {view.master_epoch}, "
                f"this log at {self.epochs.last_epoch}: it is not touched"
            )
            return
        if self._list_is_old:
            self._list_is_old, self._led_up_to = False, view.master_epoch
        taken = Taken(
            cause if self.master_epoch else Cause.START,
            self.master_epoch,
            self.master_broker_id,
            view.sync_state_set,
            min(self.confirm_offset, doing.log.end),
            doing.log.end,
        )
        if view.master_broker_id is None or view.master_address is None:
            self._lose_master(view, now_ms, doing)
        elif is_twin(view, self.broker_id, self._settings.broker_address):
            # Who has just registered asks on: a Java controller's answer has the address before.
            if self.stage is Stage.RUNNING:
                self._lose_master(view, now_ms, doing)
            self.trouble = twin_trouble(view)
        elif view.master_broker_id != self.broker_id:
            self._follow(view, doing)
        elif view.master_epoch > max(self.epochs.last_epoch, self._led_up_to):
            self._lead(view, now_ms, doing)
        else:
            designate = RequestCode.CONTROLLER_ELECT_MASTER
            self.stage = Stage.FINDING_MASTER
            self._ask(designate, now_ms, doing, designate=self.broker_id)
        if self.master_epoch == view.master_epoch:
            self.taken = taken
            self._hand_over.led(taken.old_master, now_ms)

    def _take(self, view: GroupView, stage: Stage, doing: Doing) -> None:
        self.stage = stage
        self.master_epoch = view.master_epoch
        self.master_broker_id = view.master_broker_id
        self.trouble = None
        self._silent = False
        self._master.end()
        self._sync_state = None
        self.acknowledged_offset = 0
        doing.steps += [StopReplication(), CutHalfRecord()]

    def _lose_master(self, view: GroupView, now_ms: int, doing: Doing) -> None:
        self._take(view, Stage.FINDING_MASTER, doing)
        doing.role = Fenced()
        self._ask_for_stage(now_ms, doing)

    def _follow(self, view: GroupView, doing: Doing) -> None:
        self._take(view, Stage.RUNNING, doing)
        assert view.master_broker_id is not None
        assert view.master_address is not None
        doing.role = Follow(view.master_broker_id, view.master_address, view.master_epoch)
        self._register(doing)

    def _lead(self, view: GroupView, now_ms: int, doing: Doing) -> None:
        """The list is durable before the first put; the tail that nobody may have acknowledged
        stays, as in RocketMQ: it may have been answered in a weaker mode."""
        try:
            epochs = self.epochs.begun(view.master_epoch, doing.log.end)
        except (EpochOrderError, UnknownEpochsError) as error:
            self.trouble, self._unfit = f"it is elected and cannot lead: {error}", True
            return
        self._take(view, Stage.RUNNING, doing)
        self.epochs = epochs
        doing.steps += [FlushLog(), WriteEpochs(self.epochs)]
        assert self.broker_id is not None
        self._sync_state = SyncState(self._settings, self.broker_id, doing.log.end)
        self._sync_state.learned(view.sync_state_set, view.sync_state_set_epoch)
        self._fence = SelfFence(self._settings.controller_heartbeat_timeout_ms)
        self._checked_ms = now_ms
        doing.role = Lead(view.master_epoch)
        if self._settings.self_fence:
            self._ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, now_ms, doing)
        self._register(doing)

    # The log of a slave

    def _hello(self, event: MasterHello, doing: Doing) -> None:
        doing.role = HangUp()
        self._master.end()
        if self.is_master or event.master_epoch != self.master_epoch:
            return
        try:
            plan = plan_truncation(
                self.epochs,
                doing.log.end,
                event.epochs,
                event.max_offset,
                master_epoch=event.master_epoch,
            )
        except (StaleMasterError, UnknownEpochsError) as error:
            self.trouble = str(error)
            return
        if plan.starts_over:
            self.trouble = (
                f"no epoch in common with the master: {list(map(tuple, self.epochs.entries))} "
                f"and {list(map(tuple, event.epochs.entries))}; starting over from {plan.cut_to}"
            )
        doing.steps += [CutLog(step, plan.cut_to, plan.epochs) for step in plan.steps]
        self.epochs = adopted(plan.epochs, event.epochs)
        doing.steps.append(WriteEpochs(self.epochs))
        self.confirm_offset = min(self.confirm_offset, plan.cut_to)
        doing.role = Transfer()
        self._master.begin()

    # The end of a lead

    def _look_for_heir(self, now_ms: int, doing: Doing) -> None:
        """A leader that cannot go on has one elected who has all that it has."""
        state, hand_over = self._sync_state, self._hand_over
        is_asked = hand_over.ticket is not None and self.asking.knows(hand_over.ticket)
        is_wanted = self._leader_known and hand_over.is_wanted(state)
        if hand_over.turn(now_ms, on=state is not None and (is_asked or is_wanted)):
            self._polled_ms = None  # Who leads now it hears at the next tick.
        if state is None or not hand_over.is_on:
            return
        # What was confirmed before says nothing any more.
        self._fence = SelfFence(self._settings.controller_heartbeat_timeout_ms, since_ms=now_ms)
        heir = hand_over.find_heir(state, doing.log, now_ms)
        if is_wanted and heir is not None and hand_over.may_ask and not is_asked:
            hand_over.may_ask = False
            elect = RequestCode.CONTROLLER_ELECT_MASTER
            hand_over.ticket = self._ask(elect, now_ms, doing, designate=heir)

    # The set of a master

    def _grow(self, now_ms: int, doing: Doing) -> None:
        """A slave that has got everything joins at once, others leave at the next check."""
        state = self._sync_state
        if state is None or len(state.acks) < len(state.members):
            return
        if state.wanted(now_ms, doing.log, self.confirm_offset, tries_again=False) > state.members:
            self._check_set(now_ms, doing)

    def _check_set(self, now_ms: int, doing: Doing) -> None:
        state = self._sync_state
        alter = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
        if state is None or self.asking.waits_for(alter):
            return
        if self.asking.has_to_wait:
            self._checked_ms = None
            return
        wanted = state.wanted(now_ms, doing.log, self.confirm_offset, tries_again=True)
        if wanted == state.members and not state.unsettled:
            return
        ask = Ask(
            self.asking.next_ticket(),
            alter,
            self.broker_id or MASTER_ID,
            master_epoch=self.master_epoch,
            sync_state_set=wanted,
            sync_state_set_epoch=state.epoch,
        )
        state.asked(ask.ticket, wanted)
        self._send(ask, now_ms, doing)

    def _altered(self, ask: Ask, event: Answered, now_ms: int, doing: Doing) -> None:
        """A refusal settles the request; what is in force then is asked, as a first answer may have
        been lost (a Java controller refuses the repetition with 2013)."""
        if self._sync_state is None or ask.master_epoch != self.master_epoch:
            return
        if event.code == ResponseCode.SUCCESS and event.view is not None:
            view = event.view
            self._sync_state.learned(view.sync_state_set, view.sync_state_set_epoch)
        else:
            self._sync_state.failed(ask.ticket, event.code)
            self._ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, now_ms, doing)

    def _move_offsets(self, log: LogEnds) -> None:
        state = self._sync_state
        if state is not None:
            self.confirm_offset = state.confirm_offset(log, self.confirm_offset)
            self.acknowledged_offset = state.acknowledged_offset(log, self.acknowledged_offset)
        else:
            self.confirm_offset = self._master.confirm_offset(log, self.confirm_offset)
