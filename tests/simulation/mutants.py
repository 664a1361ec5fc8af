"""Bugs, put into the cores one at a time: each has to be found, or the simulation proves little.

A mutant patches functions for the time of a `with`. docs/failover.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import controller.core
import controller.election
import controller.state_machine
from broker.failover import masters_word, member
from broker.failover.asking import Asking
from broker.failover.hand_over import HandOver
from broker.failover.member import MemberCore
from broker.failover.messages import Ask, Lead, LogEnds, MasterHello, ReplicaConnected, WriteEpochs
from broker.failover.self_fence import SelfFence
from broker.failover.sync_state import SyncState
from controller.core import ControllerCore
from controller.election import Choice, Liveness
from controller.events import Outcome, Stored, Swap, SwapEnded
from controller.group_state import GroupState, Replica
from controller.requests import CONTROLLER_ITSELF, Answer, ElectMaster
from controller.state_machine import Decision
from ha.epoch_file import encode_epochs
from ha.epochs import CutStep, EpochEntry, EpochList, RecoveredBounds, TruncationPlan
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tests.simulation import brokers, disk
from tests.simulation.brokers import Broker
from tests.simulation.controllers import Store
from tests.simulation.disk import TORN, Disk
from tests.simulation.judge import Record

Patches = Callable[[], list[Any]]
MUTANTS: dict[str, Patches] = {}
"""By what the bug is."""


def mutant(text: str) -> Callable[[Patches], Patches]:
    """Enter it into the table."""

    def enter(patches: Patches) -> Patches:
        assert text not in MUTANTS
        MUTANTS[text] = patches
        return patches

    return enter


@contextmanager
def mutated(text: str) -> Iterator[None]:
    """The bug is there."""
    with ExitStack() as stack:
        for patch in MUTANTS[text]():
            stack.enter_context(patch)
        yield


def _on(owner: object, name: str, new: object) -> Any:
    return mock.patch.object(owner, name, new)


# The controller


@mutant("elects whoever is alive, in the set or not")
def _unclean() -> list[Any]:
    decide = controller.state_machine.decide
    return [_on(controller.core, "decide", lambda *args, **_: decide(*args, unclean=True))]


@mutant("an election keeps the epoch")
def _no_epoch() -> list[Any]:
    original = GroupState.with_master

    def with_master(self: GroupState, broker_id: int) -> GroupState:
        return replace(original(self, broker_id), master_epoch=max(1, self.master_epoch))

    return [_on(GroupState, "with_master", with_master)]


@mutant("1001 is taken from whoever sends it")
def _any_master() -> list[Any]:
    def alter(group: GroupState | None, request: Any, liveness: Liveness) -> Any:
        assert group is not None
        changed = group.with_sync_state_set(request.sync_state_set)
        return Decision(changed, Answer(ResponseCode.SUCCESS, changed))

    return [_on(controller.state_machine, "_alter", alter)]


@mutant("every vain election raises the epoch (P17)")
def _every_loss() -> list[Any]:
    original = controller.state_machine._elect

    def elect(group: GroupState | None, request: ElectMaster, *args: Any, **more: Any) -> Any:
        decision = original(group, request, *args, **more)
        vain = decision.group is group and request.broker_id == CONTROLLER_ITSELF
        if vain and group and decision.answer.code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE:
            return decision._replace(group=group.without_master())
        return decision

    return [_on(controller.state_machine, "_elect", elect)]


@mutant("the scan for dead masters never runs (P10, P11)")
def _no_scan() -> list[Any]:
    return [_on(ControllerCore, "_scan", lambda *_: None)]


@mutant("a stranger's id is elected (P13)")
def _stranger() -> list[Any]:
    def choose(group: GroupState, request: ElectMaster, *args: Any, **more: Any) -> Choice:
        if not group.sync_state_set and request.broker_id != CONTROLLER_ITSELF:
            return Choice(elected=request.broker_id)
        return original(group, request, *args, **more)

    def elect(group: GroupState | None, request: ElectMaster, *args: Any, **more: Any) -> Any:
        asker = request if group is None or request.broker_id in group.replicas else None
        if asker is None and group is not None and request.broker_id != CONTROLLER_ITSELF:
            return original_elect(
                replace(group, replicas={**group.replicas, request.broker_id: _NOBODY}),
                request,
                *args,
                **more,
            )._replace(group=group.with_master(request.broker_id))
        return original_elect(group, request, *args, **more)

    original = controller.election.choose_master
    original_elect = controller.state_machine._elect
    return [
        _on(controller.state_machine, "choose_master", choose),
        _on(controller.state_machine, "_elect", elect),
    ]


_NOBODY = Replica("", "")


@mutant("writes are not fenced: any leader overwrites any version")
def _no_fence() -> list[Any]:
    original = Store.swap

    def swap(self: Store, swap: Swap) -> SwapEnded:
        stored = self.groups.get(swap.broker_name, Stored(0, None))
        return original(self, swap._replace(fence=self.fence, version=stored.version))

    return [_on(Store, "swap", swap)]


@mutant("a write without an answer is taken for done")
def _unknown_is_done() -> list[Any]:
    original = ControllerCore._swap_ended

    def ended(self: ControllerCore, event: SwapEnded, *args: Any) -> None:
        if event.outcome is Outcome.UNKNOWN:
            lane = self._lanes.get(event.broker_name)
            version = lane.stored.version + 1 if lane else 0
            event = event._replace(outcome=Outcome.DONE, version=version)
        original(self, event, *args)

    return [_on(ControllerCore, "_swap_ended", ended)]


@mutant("a deposed leader goes on answering")
def _no_lease() -> list[Any]:
    return [_on(ControllerCore, "is_leader", lambda self, now_ms: self._fence is not None)]


@mutant("a new leader knows only what it knew before")
def _stale_leader() -> list[Any]:
    original = ControllerCore._granted
    kept: WeakKeyDictionary[ControllerCore, Any] = WeakKeyDictionary()

    def granted(self: ControllerCore, event: Any, now_ms: int) -> None:
        old = kept.setdefault(self, dict(event.groups))
        newest = {
            name: Stored(stored.version, old.get(name, stored).group)
            for name, stored in event.groups.items()
        }
        original(self, event._replace(groups=newest), now_ms)

    return [_on(ControllerCore, "_granted", granted)]


@mutant("notices (1008) and polls (1004) of an election are the only ones; 1002 names nobody")
def _elect_names_nobody() -> list[Any]:
    original = MemberCore._told

    def told(self: MemberCore, ask: Ask, event: Any, *args: Any) -> None:
        if ask.code == RequestCode.CONTROLLER_ELECT_MASTER:
            event = event._replace(view=None)
        original(self, ask, event, *args)

    poll = MemberCore._consider

    def consider(self: MemberCore, view: Any, *args: Any) -> None:
        if view.master_epoch > self.master_epoch and self.stage is member.Stage.RUNNING:
            return
        poll(self, view, *args)

    return [_on(MemberCore, "_told", told), _on(MemberCore, "_consider", consider)]


# The member


@mutant("a restarted master goes on in its old epoch")
def _same_epoch() -> list[Any]:
    original = MemberCore._consider

    def consider(self: MemberCore, view: Any, *args: Any) -> None:
        mine = view.master_broker_id == self.broker_id
        if mine and view.master_epoch == self.epochs.last_epoch > self.master_epoch:
            self.epochs = EpochList(self.epochs.entries[:-1])
        original(self, view, *args)

    return [_on(MemberCore, "_consider", consider)]


@mutant("an older epoch changes the role")
def _older_epoch() -> list[Any]:
    original = MemberCore._consider

    def consider(self: MemberCore, view: Any, *args: Any) -> None:
        if view.master_epoch < self.master_epoch and view.master_broker_id is not None:
            self._follow(view, args[-1])
        else:
            original(self, view, *args)

    return [_on(MemberCore, "_consider", consider)]


@mutant("a master that was replaced goes on as master")
def _no_step_down() -> list[Any]:
    original = MemberCore._follow

    def follow(self: MemberCore, view: Any, doing: Any) -> None:
        if self.is_master:
            return
        original(self, view, doing)

    return [_on(MemberCore, "_follow", follow)]


@mutant("a set that was asked for does not count before the answer (P6)")
def _no_union() -> list[Any]:
    return [_on(SyncState, "all_members", lambda self: self.members)]


@mutant("a wanted set counts as in force at once")
def _wanted_at_once() -> list[Any]:
    def asked(self: SyncState, ticket: int, wanted: frozenset[int]) -> None:
        self.members = wanted

    return [_on(SyncState, "asked", asked)]


@mutant("a slave joins the set before it has what was confirmed")
def _joins_early() -> list[Any]:
    return [_on(SyncState, "_may_join", lambda *_: True)]


@mutant("acks of those who left still count")
def _acks_stay() -> list[Any]:
    original = SyncState.gone

    def gone(self: SyncState, connection: int) -> None:
        kept = dict(self.acks)
        original(self, connection)
        self.acks.update(dict.fromkeys(kept, 1 << 40))

    return [_on(SyncState, "gone", gone)]


@mutant("one slave's ack is enough for SEND_OK")
def _any_ack() -> list[Any]:
    def all_have(self: SyncState, log: LogEnds, previous: int) -> int:
        if len(self.all_members()) == 1:
            return max(previous, log.counted_end)
        return max(previous, min(log.counted_end, max(self.acks.values(), default=0)))

    return [_on(SyncState, "_all_have", all_have)]


@mutant("SEND_OK does not wait for the set at all")
def _no_ack() -> list[Any]:
    return [_on(SyncState, "acknowledged_offset", lambda self, log, previous: log.end)]


@mutant("a slave reports what it has not flushed")
def _unflushed_report() -> list[Any]:
    def report(self: Broker) -> None:
        link = self.link
        if link is not None and link.slave_life == self.life:
            self._up(link, link.master._reported, link, len(self.log), len(self.log))

    flush_soon = Broker._flush_soon

    def early(self: Broker) -> None:
        flush_soon(self)
        if not self.core.is_master:
            report(self)

    return [_on(Broker, "_report", report), _on(Broker, "_flush_soon", early)]


@mutant("the master's own copy counts before it is flushed")
def _unflushed_master() -> list[Any]:
    return [_on(Broker, "ends", lambda self: LogEnds(len(self.log), len(self.log)))]


@mutant("a request to change the set is waited for without end (P19)")
def _waits_for_ever() -> list[Any]:
    return [_on(Asking, "forget_late", lambda *_: False)]


@mutant("103 is sent once, and not again if it is lost (P36)")
def _registers_once() -> list[Any]:
    original = MemberCore._register

    def register(self: MemberCore, doing: Any) -> None:
        before = len(doing.sends)
        original(self, doing)
        if len(doing.sends) > before:
            self._registered_version = self.master_epoch

    return [_on(MemberCore, "_register", register)]


@mutant("the self-fence never closes")
def _fence_open() -> list[Any]:
    return [_on(SelfFence, "until_ms", property(lambda _self: 1 << 62))]


@mutant("any answer renews the self-fence, whoever is named")
def _fence_any() -> list[Any]:
    original = MemberCore._answered

    def answered(self: MemberCore, event: Any, now_ms: int, doing: Any) -> None:
        original(self, event, now_ms, doing)
        self._fence.confirmed(now_ms + 3_000)

    return [_on(MemberCore, "_answered", answered)]


@mutant("a leader that lacks a process keeps its lead")
def _no_hand_over() -> list[Any]:
    return [_on(HandOver, "is_wanted", lambda *_: False)]


@mutant("a leader that hands over keeps its lease")
def _lease_stays() -> list[Any]:
    original = MemberCore._look_for_heir

    def look(self: MemberCore, *args: Any) -> None:
        fence = self._fence
        original(self, *args)
        self._fence, self._hand_over.is_on = fence, False

    return [_on(MemberCore, "_look_for_heir", look)]


@mutant("a follower that lacks a process is elected like any other")
def _lame_heir() -> list[Any]:
    original = MemberCore._heartbeat

    def heartbeat(self: MemberCore, *args: Any) -> None:
        lacking = self._hand_over.lacking
        if not self.is_master:
            self._hand_over.lacking = ""
        original(self, *args)
        self._hand_over.lacking = lacking

    return [_on(MemberCore, "_heartbeat", heartbeat)]


# The log


@mutant("epochs come from the labels of frames (P24)")
def _labels() -> list[Any]:
    """With the master's habit of RocketMQ: the last frame of an epoch has the next one's label."""

    def label(epochs: EpochList, offset: int) -> EpochEntry:
        return epochs.entries[-1]

    def labelled(self: Broker, label: EpochEntry, count: int) -> None:
        if count and label.epoch > self.core.epochs.last_epoch:
            self.core.epochs = EpochList((*self.core.epochs.entries, label))
            self.disk.epoch_file = encode_epochs(self.core.epochs)

    return [
        _on(brokers, "frame_label", label),
        _on(Broker, "labelled", labelled),
        _on(member, "adopted", lambda own, _: own),
    ]


@mutant("logs are compared by length only")
def _by_length() -> list[Any]:
    def plan(own: EpochList, own_end: int, master: EpochList, end: int, **_: int) -> TruncationPlan:
        cut = min(own_end, end)
        return TruncationPlan(cut, own.cut(cut), tuple(CutStep) if cut < own_end else ())

    return [_on(member, "plan_truncation", plan)]


@mutant("nothing is cut when logs have parted")
def _no_cut() -> list[Any]:
    def plan(own: EpochList, own_end: int, *_: Any, **__: int) -> TruncationPlan:
        return TruncationPlan(own_end, own, ())

    return [_on(member, "plan_truncation", plan)]


@mutant("the tail behind a cut is not zeroed (P1)")
def _no_zeroes() -> list[Any]:
    original = Disk.do_cut

    def do_cut(self: Disk, step: CutStep, cut_to: int, epochs: EpochList) -> None:
        if step is not CutStep.ZERO_TAIL:
            original(self, step, cut_to, epochs)

    return [_on(Disk, "do_cut", do_cut)]


@mutant("a slave's list of epochs is not written before its first frame")
def _list_late() -> list[Any]:
    original = MemberCore._hello

    def hello(self: MemberCore, event: MasterHello, doing: Any) -> None:
        original(self, event, doing)
        doing.steps = [one for one in doing.steps if not isinstance(one, WriteEpochs)]

    return [_on(MemberCore, "_hello", hello)]


@mutant("a new master's epoch is not written before its first put")
def _epoch_late() -> list[Any]:
    original = MemberCore._lead

    def lead(self: MemberCore, view: Any, now_ms: int, doing: Any) -> None:
        original(self, view, now_ms, doing)
        doing.steps = [one for one in doing.steps if not isinstance(one, WriteEpochs)]

    return [_on(MemberCore, "_lead", lead)]


@mutant("an epoch without a message swallows the next one (P2)")
def _empty_epoch() -> list[Any]:
    def begun(self: EpochList, epoch: int, log_end: int) -> EpochList:
        kept = EpochList(tuple(one for one in self.entries if one.start_offset <= log_end))
        if kept.entries and kept.entries[-1].start_offset == log_end:
            return kept
        return kept.appended(epoch, log_end)

    return [_on(EpochList, "begun", begun)]


@mutant("consumers read up to the log's end")
def _dirty_reads() -> list[Any]:
    def confirm(own_end: int, acks: Mapping[int, int], others: Set[int], previous: int) -> int:
        return own_end

    def taken(self: SyncState, log: LogEnds, previous: int) -> int:
        return log.end

    return [_on(SyncState, "confirm_offset", taken)]


@mutant("a slave lets read what is not confirmed")
def _dirty_slave() -> list[Any]:
    return [_on(masters_word, "slave_confirm_offset", lambda _, own_end, __: own_end)]


@mutant("a start lets read everything that it finds (P4)")
def _dirty_start() -> list[Any]:
    def bounds(stored: int, min_offset: int, log_end: int) -> RecoveredBounds:
        return RecoveredBounds(log_end, log_end)

    return [_on(disk, "recovered_bounds", bounds)]


@mutant("queue offsets are counted up to the confirm offset only (P3)")
def _queue_offsets() -> list[Any]:
    def bounds(stored: int, min_offset: int, log_end: int) -> RecoveredBounds:
        confirmed = max(min_offset, min(stored, log_end))
        return RecoveredBounds(confirmed, confirmed)

    def lead_keeps(self: Broker, role: Any) -> None:
        kept = self.next_queue_offset
        original(self, role)
        if isinstance(role, Lead):
            self.next_queue_offset = kept

    original = Broker._take_role
    return [_on(disk, "recovered_bounds", bounds), _on(Broker, "_take_role", lead_keeps)]


@mutant("half a record stays, and the log goes on behind it (P26)")
def _half_record() -> list[Any]:
    original = Disk.take

    def take(self: Disk, at: int, record: Record) -> None:
        if self.cells and TORN in self.cells:
            self.cells.append(record)
        else:
            original(self, at, record)

    return [
        _on(Disk, "cut_half_record", lambda *_: None),
        _on(Disk, "take", take),
    ]


__all__ = ["MUTANTS", "ReplicaConnected", "mutated"]
