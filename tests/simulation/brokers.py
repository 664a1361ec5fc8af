"""A broker around the member's core: disk, HA connections, puts and reads."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from broker.failover.member import MemberCore, Stage
from broker.failover.messages import (
    Answered,
    Ask,
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
    Moved,
    NameServersAnswered,
    Ready,
    RegisterAtNameServers,
    ReplicaConnected,
    ReplicaGone,
    ReplicaReported,
    Role,
    RoleNotified,
    Send,
    SendHeartbeat,
    Step,
    StopReplication,
    Tick,
    Transfer,
    WriteEpochs,
    WriteIdentity,
    WriteTemporaryIdentity,
)
from broker.failover.settings import MemberSettings
from controller.election import LogReport
from controller.live_brokers import Heartbeat
from controller.requests import (
    AlterSyncStateSet,
    Answer,
    ApplyBrokerId,
    ElectMaster,
    GetNextBrokerId,
    GetReplicaInfo,
    RegisterBroker,
    Request,
)
from ha.autoswitch_master import CONFIRM_DELAY_MS
from ha.epoch_file import encode_epochs
from ha.epochs import EpochEntry, EpochList, frame_label
from remoting.request_code import RequestCode
from tests.simulation.controllers import view_of
from tests.simulation.disk import TORN, Disk, recovered
from tests.simulation.judge import Judge, Record
from tests.simulation.world import Call, Node, World

if TYPE_CHECKING:
    from tests.simulation.controllers import Controller

GROUP = "cb"
CLUSTER = "C"
SILENCE_MS = 4_000
"""After which an end of an HA connection gives it up."""
PUT_TIMEOUT_MS = 3_000
SEEN_AFTER_MS = LOOK_MS = 200
"""That a process has ended; that one stands still shows after the heartbeat timeout."""
MAX_FRAME_RECORDS = 8


@dataclass(eq=False)
class Link:
    """One HA connection: in order in both directions, dead for good when something is lost."""

    number: int
    slave: Broker
    master: Broker
    slave_life: int
    master_life: int
    position: int | None = None
    """The next offset that the master sends; None before the first report."""
    told_confirm: int = -1
    """What the last frame said is confirmed."""
    broken: bool = False
    master_closed: bool = False
    heard_by_master: int = 0
    heard_by_slave: int = 0
    last_down: int = 0
    last_up: int = 0


class CrashedError(Exception):
    """The process died in the middle of a step."""


class NameServer(Node):
    """Takes the registration with the larger version."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "namesrv")
        self.master: Broker | None = None
        self.version = 0

    def register(self, broker: Broker, life: int, what: RegisterAtNameServers) -> None:
        """103."""
        if what.state_version >= self.version:
            self.version = what.state_version
            if what.broker_id == 0:
                self.master = broker
            elif self.master is broker:
                self.master = None
        self.world.send(self.name, broker, broker.registered, what.state_version, life)


class Broker(Node):
    """One broker, over all its lives."""

    def __init__(
        self,
        world: World,
        name: str,
        settings: MemberSettings,
        *,
        sync_flush: bool,
        judge: Judge,
        namesrv: NameServer,
    ) -> None:
        super().__init__(world, name)
        self.settings = settings
        self.sync_flush = sync_flush
        self.judge = judge
        self.namesrv = namesrv
        self.disk = Disk()
        self.controllers: list[Controller] = []
        self.brokers: dict[str, Broker] = {}
        self.life = 0
        self.steps_to_crash = -1
        self.dies_after_cut = False
        self.start()

    # Lives

    def start(self) -> None:
        """A new process."""
        if self.up and self.life:
            return
        self.up, self.life = True, self.life + 1
        found = recovered(self.disk, CLUSTER, GROUP)
        self.log: list[Record] = found.log
        self.next_queue_offset = found.next_queue_offset
        self.shown = 0
        self.channel = self.world.number()
        self.core = MemberCore(
            self.settings, found.found, f"{self.name};{self.world.now}{self.life}"
        )
        self.leader: Controller | None = None
        self.master_to_follow: Follow | None = None
        self.link: Link | None = None
        self.links: list[Link] = []
        self.puts: deque[tuple[int, int, int]] = deque()
        self.open_epoch = 0
        self.role_epoch = 0
        self.lacking = ""
        """The process that has ended or stands still."""
        self.lack_number = 0
        self._rest: Ready | None = None
        """What is done once `remoting` carries orders out again; nothing else is until then."""
        self._flush_due = self._confirm_due = self.slow_disk = False
        if self.sync_flush:
            # A recovery flushes what it takes over, or it would not count.
            self.disk.synced = len(self.log)
        self.world.say(f"{self.name} starts with {len(self.log)} records")
        self._tick(self.life)

    def kill(self, ms: int, *, power: bool = False, torn: bool = False) -> None:
        """The process dies, with its machine if `power`; it starts again after a while."""
        if not self.up:
            return
        how = "loses power" if power else "is killed"
        self.world.say(f"{self.name} {how} for {ms} ms")
        self.up = False
        self._rest = None
        self.drop_waiting()
        if power:
            self.disk.lose_power(self.world.rng)
        elif torn and self.disk.cells and len(self.disk.cells) == len(self.log):
            self.disk.tear()
        if not power:
            for controller in self.controllers:
                closed = controller.closed
                self.world.send(self.name, controller, closed, self.channel)
            self._close_all()
        self.world.after(ms, self._start_again, self.life)

    def kill_ha(self, ms: int) -> None:
        """Only the process that is the member dies: `remoting` goes on taking what it may take in
        its last order, and its word on what may be read stays. Nothing of it is answered."""
        if not self.up:
            return
        leads = bool(self.open_epoch)
        self.disk.confirm_offset = self.core.confirm_offset
        self.kill(ms)
        for _ in range(self.world.rng.randrange(4) if leads else 0):
            self.world.after(self.world.rng.randrange(ms), self._put_without_ha, self.life)

    def _put_without_ha(self, life: int) -> None:
        if life != self.life or self.up or self.core.puts.find_refusal(self.clock()) is not None:
            return
        self.judge.put_taken(self.open_epoch)
        self._append((self.world.number(), self.next_queue_offset))
        self.next_queue_offset += 1

    def _start_again(self, life: int) -> None:
        if life == self.life:
            self.start()

    def lack(self, process: str, ms: int, *, hangs: bool) -> None:
        """Its `remoting` or `store` ends, or stands still, and its `ha` goes on."""
        if not self.up or self.lacking:
            return
        self.world.say(f"{self.name} lacks its {process} for {ms} ms, hangs: {hangs}")
        self.lacking = process
        self.lack_number = self.world.number()
        seen_ms = self.settings.controller_heartbeat_timeout_ms if hangs else SEEN_AFTER_MS
        if seen_ms < ms:
            self.world.after(seen_ms, self._see_lack, self.lack_number)
        self.world.after(ms, self.has_all_again, self.lack_number)

    def _see_lack(self, number: int) -> None:
        if self.lacking and number == self.lack_number:
            self.take(self.step, (Fitness(self.lacking),))
            self.world.after(LOOK_MS, self._look_again, number)

    def _look_again(self, number: int) -> None:
        if self.lacking and number == self.lack_number:
            self.take(self.step, (Moved(),))
            self.world.after(LOOK_MS, self._look_again, number)

    def has_all_again(self, number: int) -> None:
        """All its processes are there and get on; an order that waits is carried out. number: of
        the lack that ends."""
        if number != self.lack_number or not self.up or not self.lacking:
            return
        self.world.say(f"{self.name} lacks no process")
        self.lacking = ""
        rest, self._rest = self._rest, None
        if rest is not None:
            try:
                self._do(rest)
            except CrashedError:
                return
            self.go_on()
        self.take(self.step, (Fitness(""),))

    def go_on(self) -> None:
        """As any process; but whoever waits for `remoting` does so all the same."""
        if self._rest is None:
            super().go_on()

    def _wait_for_remoting(self, rest: Ready) -> None:
        self.world.say(f"{self.name} waits for its remoting")
        self._rest, self.stopped = rest, True

    def new_channel(self) -> None:
        """Its connections to the controllers are made anew; the end of the old ones comes late."""
        if self.up:
            self.world.say(f"{self.name} reconnects")
            for controller in self.controllers:
                self.world.after(
                    self.world.rng.randrange(3_000),
                    controller.take,
                    controller.closed,
                    (self.channel,),
                )
            self.channel = self.world.number()

    def ends(self) -> LogEnds:
        """The log's."""
        end = len(self.log)
        return LogEnds(end, min(self.disk.synced, end) if self.sync_flush else end)

    def _tick(self, life: int) -> None:
        if life != self.life or not self.up:
            return
        self.world.after(1_000, self._tick, life)
        if self.stopped:
            return
        self.step(Tick())
        if self.life != life or not self.is_up():
            return
        self._look_after_links()
        self._drop_late_puts()
        self.disk.confirm_offset = self.core.confirm_offset

    # The core

    def step(self, event: Event) -> None:
        """One event, and what follows."""
        core = self.core
        ready = core.step(event, self.clock(), self.ends())
        if ready.steps or ready.role is not None or ready.sends:
            try:
                self._do(ready)
            except CrashedError:
                return
        if core.is_master:
            self._answer_puts()
            self._tell_confirm_soon()
        self.show()

    def _do(self, ready: Ready) -> None:
        has_remoting = self.lacking != "remoting"
        for at, step in enumerate(ready.steps):
            if self.steps_to_crash >= 0:
                self._count_down()
            is_fenced = isinstance(step, StopReplication) and bool(self.open_epoch)
            self._persist(step)
            if is_fenced and not has_remoting:
                self._wait_for_remoting(replace(ready, steps=ready.steps[at + 1 :]))
                return
        if isinstance(ready.role, Lead | Follow | Fenced) and not has_remoting:
            self._wait_for_remoting(replace(ready, steps=()))
            return
        if ready.role is not None:
            self._take_role(ready.role)
        for one in ready.sends:
            self._send(one)

    def _count_down(self) -> None:
        self.steps_to_crash -= 1
        if self.steps_to_crash < 0:
            power = self.sync_flush and self.world.rng.random() < 0.5
            self.kill(self.world.rng.randrange(200, 3_000), power=power)
            raise CrashedError

    def _persist(self, step: Step) -> None:
        disk = self.disk
        match step:
            case WriteTemporaryIdentity():
                disk.temporary = step.data
            case WriteIdentity():
                disk.identity, disk.temporary = step.data, None
            case StopReplication():
                self.open_epoch = 0
                self.puts.clear()
                self._close_all()
                self.master_to_follow = None
            case CutHalfRecord():
                disk.cut_half_record()
            case FlushLog():
                disk.synced = len(self.log)
            case WriteEpochs():
                disk.epoch_file = encode_epochs(step.epochs)
            case CutLog():
                disk.do_cut(step.step, step.cut_to, step.epochs)
                del self.log[step.cut_to :]
                self.next_queue_offset = min(self.next_queue_offset, step.cut_to)
                self.shown = min(self.shown, step.cut_to)

    def _take_role(self, role: Role) -> None:
        match role:
            case Lead():
                self.world.say(f"{self.name} leads epoch {role.master_epoch} at {len(self.log)}")
                self._enter(role.master_epoch)
                self.judge.led(self.name, self.life, role.master_epoch)
                self.open_epoch = role.master_epoch
                self.next_queue_offset = max(self.next_queue_offset, len(self.log))
            case Follow():
                self.world.say(f"{self.name} follows {role.master_address}")
                self._enter(role.master_epoch)
                self.master_to_follow = role
                self._connect()
            case Fenced():
                self.world.say(f"{self.name} knows no master")
            case Transfer():
                self._report()
            case HangUp():
                if self.link is not None:
                    self._close(self.link, by_master=False)

    def _enter(self, epoch: int) -> None:
        self.judge.took_role(self.name, self.role_epoch, epoch)
        self.role_epoch = epoch

    def _send(self, one: Send) -> None:
        world = self.world
        if isinstance(one, SendHeartbeat):
            beat = self._heartbeat(one)
            for controller in self.controllers:
                world.send(self.name, controller, controller.heartbeat, beat, once=False)
        elif isinstance(one, Ask):
            if self.leader is not None:
                leader = self.leader
                beat_before = None if one.beat is None else self._heartbeat(one.beat)
                args = self, self.life, one.ticket, self._request(one), beat_before
                world.send(self.name, leader, leader.ask, *args)
        elif isinstance(one, FindLeader):
            for controller in self.controllers:
                world.send(self.name, controller, controller.find_leader, self, self.life)
        else:
            world.send(self.name, self.namesrv, self.namesrv.register, self, self.life, one)

    def _heartbeat(self, beat: SendHeartbeat) -> Heartbeat:
        report = LogReport(beat.epoch, beat.max_offset)
        return Heartbeat(GROUP, beat.broker_id, self.name, self.channel, 3_000, report)

    def _request(self, ask: Ask) -> Request:
        match ask.code:
            case RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
                return GetNextBrokerId(CLUSTER, GROUP)
            case RequestCode.CONTROLLER_APPLY_BROKER_ID:
                return ApplyBrokerId(CLUSTER, GROUP, ask.broker_id, ask.register_check_code)
            case RequestCode.CONTROLLER_REGISTER_BROKER:
                return RegisterBroker(CLUSTER, GROUP, ask.broker_id, self.name)
            case RequestCode.CONTROLLER_ELECT_MASTER:
                return ElectMaster(CLUSTER, GROUP, ask.broker_id, ask.designate_elect)
            case RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
                return AlterSyncStateSet(
                    CLUSTER,
                    GROUP,
                    ask.broker_id,
                    ask.master_epoch,
                    ask.sync_state_set,
                    ask.sync_state_set_epoch,
                )
        return GetReplicaInfo(CLUSTER, GROUP)

    # What controllers and name servers send

    def answered(self, ticket: int, answer: Answer, life: int) -> None:
        """The answer to an `Ask`."""
        if life == self.life:
            view = view_of(answer.group) if answer.group is not None else None
            self.step(Answered(ticket, answer.code, view, answer.next_broker_id))

    def notified(self, view: GroupView) -> None:
        """1008."""
        self.step(RoleNotified(view))

    def leader_named(self, name: str, life: int) -> None:
        """The answer to 1005."""
        if life == self.life:
            (self.leader,) = (one for one in self.controllers if one.name == name)
            self.step(LeaderNamed(name))

    def registered(self, version: int, life: int) -> None:
        """The answer to 103."""
        if life == self.life:
            self.step(NameServersAnswered(version))

    # Puts and reads

    def put(self, number: int) -> bool:
        """A client's message; whether it was taken."""
        if self.lacking == "remoting" or self.core.puts.find_refusal(self.clock()) is not None:
            return False
        self.judge.put_taken(self.open_epoch)
        if not self.open_epoch:
            raise AssertionError(f"{self.name} takes puts before its log is open")
        self._append((number, self.next_queue_offset))
        self.next_queue_offset += 1
        self.puts.append((len(self.log), number, self.world.now))
        if self.sync_flush:
            self._flush_soon()
        else:
            self.step(Moved())
        self._pump_all()
        return True

    def _append(self, record: Record) -> None:
        self.disk.take(len(self.log), record)
        self.log.append(record)

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            ms = self.world.rng.randrange(2, 40) + (40 if self.slow_disk else 0)
            self.world.after(ms, self._flush, self.life)

    def _flush(self, life: int) -> None:
        if life != self.life or not self.up:
            return
        if self.lacking == "store":
            self.world.after(SEEN_AFTER_MS, self._flush, life)
            return
        self._flush_due = False
        self.disk.synced = len(self.log)
        if self.stopped:
            return
        self.step(Moved())
        if not self.core.is_master:
            self._report()

    def _answer_puts(self) -> None:
        puts, done = self.puts, self.core.acknowledged_offset
        while puts and puts[0][0] <= done:
            _, number, _ = puts.popleft()
            self.judge.answered.add(number)

    def _drop_late_puts(self) -> None:
        while self.puts and self.world.now - self.puts[0][2] > PUT_TIMEOUT_MS:
            self.puts.popleft()

    def show(self) -> None:
        """What consumers can read now."""
        end = self.core.confirm_offset
        if end > self.shown:
            self.judge.showed(self.name, self.log, self.shown, end)
            self.shown = end

    # HA connections

    def _connect(self) -> None:
        follow = self.master_to_follow
        if follow is None or self.link is not None:
            return
        master = self.brokers[follow.master_address]
        link = Link(self.world.number(), self, master, self.life, master.life)
        link.heard_by_slave = self.world.now
        self.link = link
        self._up(link, master._shake_hands, link)

    def _up(self, link: Link, call: Call, *args: object) -> None:
        link.last_up = self._on_link(link, self, link.master, link.last_up, call, args)

    def _down(self, link: Link, call: Call, *args: object) -> None:
        link.last_down = self._on_link(link, self, link.slave, link.last_down, call, args)

    def _on_link(
        self,
        link: Link,
        source: Node,
        target: Node,
        last: int,
        call: Call,
        args: tuple[object, ...],
    ) -> int:
        world = self.world
        delay = world.delay()
        if delay < 0 or (source.name, target.name) in world.cuts:
            link.broken = True
        if link.broken:
            return last
        at = max(last, world.now + delay)
        world.after(at - world.now, target.take, call, args)
        return at

    def _shake_hands(self, link: Link) -> None:
        """The master's end of a new connection."""
        if link.broken or link.master_life != self.life or not self.open_epoch:
            self._close(link, by_master=True)
            return
        link.heard_by_master = self.world.now
        self.links.append(link)
        core = self.core
        assert link.slave.core.broker_id is not None
        self.step(ReplicaConnected(link.number, link.slave.core.broker_id))
        hello = core.master_epoch, core.epochs, len(self.log)
        self._down(link, link.slave._greeted, link, *hello)

    def _greeted(self, link: Link, epoch: int, epochs: EpochList, end: int) -> None:
        if link is self.link and link.slave_life == self.life:
            link.heard_by_slave = self.world.now
            before = self.log[:]
            self.step(MasterHello(epoch, epochs, end))
            if link is self.link and self.up and link.master.open_epoch == epoch:
                self.judge.joined(self.name, before, self.log, link.master.log)
                if self.dies_after_cut and len(self.log) < len(before):
                    self.dies_after_cut = False
                    self.world.after(self.world.rng.randrange(800), self.kill, 500)

    def _report(self) -> None:
        link = self.link
        if link is not None and link.slave_life == self.life:
            end = self.ends().counted_end
            self._up(link, link.master._reported, link, end, len(self.log))

    def _reported(self, link: Link, ack: int, end: int) -> None:
        if link.master_closed or link.master_life != self.life:
            return
        link.heard_by_master = self.world.now
        self.step(ReplicaReported(link.number, ack))
        if link.position is None:
            link.position = end
        if self.up and not link.master_closed:
            self._pump(link)

    def _pump_all(self) -> None:
        for link in self.links:
            if link.position is not None:
                self._pump(link)

    def _pump(self, link: Link, *, even_empty: bool = False) -> None:
        """Send what there is, within an epoch."""
        position, end = link.position, len(self.log)
        assert position is not None
        epochs = self.core.epochs
        while position < end:
            label = frame_label(epochs, position)
            stop = min(end, epochs.end_of(label.epoch, end), position + MAX_FRAME_RECORDS)
            self._frame(link, position, self.log[position:stop], label)
            position = stop
            even_empty = False
        if even_empty:
            self._frame(link, position, [], EpochEntry(0, 0))
        link.position = position

    def _tell_confirm_soon(self) -> None:
        """A frame without bytes, unless others carry it before."""
        if self._confirm_due or all(self._knows_confirm(link) for link in self.links):
            return
        self._confirm_due = True
        self.world.after(CONFIRM_DELAY_MS, self._tell_confirm, self.life)

    def _knows_confirm(self, link: Link) -> bool:
        return link.position is None or link.told_confirm >= self.core.confirm_offset

    def _tell_confirm(self, life: int) -> None:
        if life != self.life or not self.up:
            return
        self._confirm_due = False
        if self.stopped:
            return
        for link in self.links:
            if not self._knows_confirm(link):
                self._pump(link, even_empty=True)

    def _frame(self, link: Link, offset: int, records: list[Record], label: EpochEntry) -> None:
        confirm = link.told_confirm = self.core.confirm_offset
        self._down(link, link.slave._framed, link, offset, records, confirm, label)

    def _framed(
        self, link: Link, offset: int, records: list[Record], confirm: int, label: EpochEntry
    ) -> None:
        if link is not self.link or link.slave_life != self.life:
            return
        link.heard_by_slave = self.world.now
        if offset != len(self.log):
            self._close(link, by_master=False)
            return
        self.labelled(label, len(records))
        for record in records:
            self._append(record)
        self.next_queue_offset = len(self.log)
        self.step(FrameTaken(confirm))
        if records and self.sync_flush:
            self._flush_soon()
        else:
            self._report()

    def labelled(self, label: EpochEntry, count: int) -> None:
        """A frame's label; it counts for nothing."""

    def _look_after_links(self) -> None:
        now = self.world.now
        for link in list(self.links):
            if now - link.heard_by_master > SILENCE_MS:
                self._close(link, by_master=True)
            elif link.position is not None and now - link.heard_by_master > SILENCE_MS // 4:
                self._pump(link, even_empty=True)
        link_up = self.link
        if link_up is not None and now - link_up.heard_by_slave > SILENCE_MS:
            self._close(link_up, by_master=False)
        self._connect()

    def _close(self, link: Link, *, by_master: bool) -> None:
        """One end closes; the other one learns of it, if the network lets it."""
        if by_master:
            if link in self.links:
                self.links.remove(link)
            if not link.master_closed:
                link.master_closed = True
                self._down(link, link.slave._other_closed, link)
                if self.up:
                    self.step(ReplicaGone(link.number))
        elif self.link is link:
            self.link = None
            self._up(link, link.master._master_hears_close, link)

    def _other_closed(self, link: Link) -> None:
        if self.link is link:
            self.link = None

    def _master_hears_close(self, link: Link) -> None:
        if not link.master_closed and link.master_life == self.life:
            link.master_closed = True
            if link in self.links:
                self.links.remove(link)
            self.step(ReplicaGone(link.number))

    def _close_all(self) -> None:
        for link in list(self.links):
            self.links.remove(link)
            link.master_closed = True
            self._down(link, link.slave._other_closed, link)
        if self.link is not None:
            self._close(self.link, by_master=False)

    @property
    def running(self) -> bool:
        """Whether it has a role."""
        return self.up and not self.stopped and self.core.stage is Stage.RUNNING


__all__ = ["TORN", "Broker", "NameServer"]
