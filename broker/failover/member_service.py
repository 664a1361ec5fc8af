"""MemberService: the thread of a member of a group with a controller.

It gives MemberCore one event after the other, with the time and the log's ends, and does what
`Ready` says in its order: steps, each durable before the next, the role, requests. Any thread
delivers events. What the log, the roles and the name servers are it does not know: `MemberHost`
does. A step that fails ends the process, as any service that fails does; its start goes on where
the files say. One that lacks room on the disk is tried until there is some: no role is taken
before, and without heartbeats the controllers have another broker lead.

Tested by tests/broker/failover/test_member_service.py.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple, Protocol

from broker.failover.controller_client import ControllerClient
from broker.failover.event_queue import EventQueue
from broker.failover.member import MemberCore, Stage
from broker.failover.member_files import MemberFiles
from broker.failover.messages import (
    Answered,
    Ask,
    Cause,
    CutHalfRecord,
    Event,
    Fenced,
    FindLeader,
    GroupView,
    LogEnds,
    RegisterAtNameServers,
    Role,
    RoleNotified,
    Send,
    SendHeartbeat,
    Step,
    StopReplication,
    Taken,
    Tick,
    WriteEpochs,
    WriteIdentity,
    WriteTemporaryIdentity,
)
from broker.failover.puts import Puts
from ha.epochs import EpochList
from ipc.clock import Clock
from ipc.service_thread import FailureHandler, ServiceThread
from store.mapped_file import NO_SPACE

log = logging.getLogger(__name__)

MAX_TICK_MS: Final = 1_000
_TRY_AGAIN_MS: Final = 1_000


class MemberHost(Protocol):
    """The broker around the member. Called by the member's thread."""

    def log_ends(self) -> LogEnds:
        """The own log now."""

    def do(self, step: Step) -> None:
        """One step with the log or the connections, durable when this returns."""

    def show(self, status: MemberStatus) -> None:
        """How the member stands after an event: its steps are done, its role is not taken yet."""

    def take_role(self, role: Role) -> None:
        """Lead, follow, or wait for a master."""

    def register(self, registration: RegisterAtNameServers) -> None:
        """Register soon; whoever does it delivers NameServersAnswered. Does not block."""


class MemberStoppedError(Exception):
    """The process is stopping: what a step waits for may never come."""


class CutRefusedError(Exception):
    """The store does not allow what has to be cut off, and would not the next time; says why."""


class MemberStatus(NamedTuple):
    """How the member stands; replaced as a whole with each event, before its role is taken."""

    stage: Stage
    broker_id: int | None
    is_master: bool
    master_broker_id: int | None
    master_epoch: int
    sync_state_set: frozenset[int]
    """On a master: whoever may be in it."""
    confirm_offset: int
    acknowledged_offset: int
    """SEND_OK up to here."""
    puts: Puts
    epochs: EpochList
    trouble: str | None
    taken: Taken
    """How the newest role came about."""
    two_masters_seen: int


class MemberTimes(NamedTuple):
    """Periods in ms."""

    tick_ms: int
    """Between heartbeats (brokerHeartbeatInterval); at most MAX_TICK_MS."""
    find_leader_ms: int
    """Between questions for the leader, while one is known (syncControllerMetadataPeriod)."""


class MemberService(ServiceThread):
    """See the module. Any thread reads `status` and calls `deliver`."""

    def __init__(
        self,
        core: MemberCore,
        host: MemberHost,
        files: MemberFiles,
        clock: Clock,
        times: MemberTimes,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        super().__init__("MemberService", on_failure=on_failure)
        self._core = core
        self._host = host
        self._files = files
        self._clock = clock
        self._tick_ms = min(times.tick_ms, MAX_TICK_MS)
        self._find_leader_ms = times.find_leader_ms
        self._client: ControllerClient | None = None
        self._events = EventQueue()
        self._next_tick_ms = 0
        self._asked_leader_ms = clock.monotonic_ms()
        self._has_given_up = False
        self.status = self._status()

    def start_with(self, client: ControllerClient) -> None:
        """Start the thread. client: its answers are delivered to this service."""
        self._client = client
        self.start()

    def deliver(self, event: Event) -> None:
        """One more event. Any thread; does not block."""
        self._events.put(event)
        self.wakeup()

    def notified(self, notice: RoleNotified, remote: str) -> None:
        """1008 came from `remote` ("ip:port"). Any thread; does not block.

        Anybody may have sent it, so that it changes no role: the leader is asked, at once instead
        of at the next poll, and its answer counts.
        """
        epoch = notice.view.master_epoch
        client = self._client
        if client is None or epoch <= self.status.master_epoch:
            return
        if client.look_at_roles():
            log.info("member of the group: %s says that epoch %s has begun", remote, epoch)

    def step(self) -> None:
        """One event. A tick that is due comes behind those that are there, as an answer that waits
        is not late, and before those that come later: heartbeats leave, however many there are."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_tick_ms:
            self._next_tick_ms = now_ms + self._tick_ms
            self._events.put(Tick())
        event = self._events.take()
        if self._has_given_up:
            event = None
        if event is None:
            self.wait_for_running(max(self._next_tick_ms - self._clock.monotonic_ms(), 1))
            return
        try:
            self._take(event)
        except MemberStoppedError:
            self.request_stop()
            return
        except CutRefusedError as error:
            self._give_up(str(error))
            return
        if isinstance(event, Tick) and now_ms - self._asked_leader_ms >= self._find_leader_ms:
            self._send(FindLeader())

    def _take(self, event: Event) -> None:
        is_still = self._may_change_role(event)
        if is_still:
            # The new epoch begins at the log's end: nobody writes any more when it is read.
            self._host.do(StopReplication())
            self._host.do(CutHalfRecord())
        ready = self._core.step(event, self._clock.monotonic_ms(), self._host.log_ends())
        for step in ready.steps:
            if not (is_still and isinstance(step, StopReplication | CutHalfRecord)):
                self._do(step)
        before, self.status = self.status, self._status()
        self._host.show(self.status)
        if ready.role is not None:
            self._host.take_role(ready.role)
        for send in ready.sends:
            self._send(send)
        _log_change(before, self.status)

    def _give_up(self, why: str) -> None:
        """No role and no heartbeat until a start: the core believes that the log was cut."""
        self._has_given_up = True
        log.critical("member of the group: it takes no part any more until it is started: %s", why)
        taken = self.status.taken._replace(cause=Cause.CUT_REFUSED)
        self.status = self.status._replace(trouble=why, taken=taken)
        self._host.show(self.status)
        self._host.do(StopReplication())
        self._host.take_role(Fenced())

    def _may_change_role(self, event: Event) -> bool:
        core = self._core
        match event:
            case Answered(view=GroupView() as view) if core.asking.knows(event.ticket):
                return view.master_epoch > core.master_epoch
            case RoleNotified() if core.stage in (Stage.FINDING_MASTER, Stage.RUNNING):
                return event.view.master_epoch > core.master_epoch
        return False

    def _do(self, step: Step) -> None:
        """Raises MemberStoppedError, CutRefusedError, StoreError, OSError."""
        is_waiting = False
        while True:
            try:
                self._do_once(step)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                if not is_waiting:
                    self._say_full(step, error)
                is_waiting = True
                self._wait_for_room()
            else:
                break
        if is_waiting:
            log.warning("member of the group: there is room again, it goes on")

    def _say_full(self, step: Step, error: OSError) -> None:
        why = (
            f"{error.filename or type(step).__name__}: cannot be written ({error.strerror}): free "
            "space on the partition of the store; until then this broker takes no role and sends "
            "no heartbeats"
        )
        log.critical("member of the group: %s", why)
        self.status = self.status._replace(trouble=why)

    def _wait_for_room(self) -> None:
        until_ms = self._clock.monotonic_ms() + _TRY_AGAIN_MS
        while (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
            self.wait_for_running(left_ms)
            if self.stopped:
                raise MemberStoppedError

    def _do_once(self, step: Step) -> None:
        match step:
            case WriteTemporaryIdentity():
                self._files.write_temporary_identity(step.data)
            case WriteIdentity():
                self._files.write_identity(step.data)
            case WriteEpochs():
                self._files.write_epochs(step.epochs)
            case _:
                self._host.do(step)

    def _send(self, send: Send) -> None:
        client = self._client
        assert client is not None
        match send:
            case Ask():
                client.ask(send)
            case SendHeartbeat():
                client.send_heartbeat(send)
            case FindLeader():
                self._asked_leader_ms = self._clock.monotonic_ms()
                client.find_leader()
            case RegisterAtNameServers():
                self._host.register(send)

    def _status(self) -> MemberStatus:
        core = self._core
        return MemberStatus(
            core.stage,
            core.broker_id,
            core.is_master,
            core.master_broker_id,
            core.master_epoch,
            core.sync_state_set,
            core.confirm_offset,
            core.acknowledged_offset,
            core.puts,
            core.epochs,
            core.trouble,
            core.taken,
            core.two_masters_seen,
        )


def _log_change(before: MemberStatus, now: MemberStatus) -> None:
    if before.trouble != now.trouble and now.trouble is not None:
        log.error("member of the group: %s", now.trouble)
    if (before.stage, before.master_epoch) != (now.stage, now.master_epoch):
        log.info(
            "member of the group: id %s, %s; master %s in epoch %s",
            now.broker_id,
            now.stage.value,
            now.master_broker_id,
            now.master_epoch,
        )
    if before.sync_state_set != now.sync_state_set and now.is_master:
        log.info("member of the group: SyncStateSet %s", sorted(now.sync_state_set))
