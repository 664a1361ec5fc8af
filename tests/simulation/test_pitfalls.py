"""The pitfalls of RocketMQ's controller mode that are schedules, each played with the cores. (Those
of one member alone: test_member_pitfalls.py.)

P1 … P37 are the numbers of docs/failover.md. The large group is `Schedule`'s; what a pitfall needs
to happen is done by hand, then everything is judged as in any other run.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.failover.messages import (
    CutLog,
    Step,
)
from controller.core import ControllerCore, ControllerSettings
from controller.election import Choice, Liveness, LogReport, choose_master
from controller.events import (
    Asked,
    ChannelClosed,
    LeadershipGranted,
    Loaded,
    Outcome,
    Reply,
    Stored,
    SwapEnded,
)
from controller.events import Ready as ControllerReady
from controller.events import Tick as ControllerTick
from controller.group_state import GroupState, Replica
from controller.lane import NO_TICKET
from controller.live_brokers import Heartbeat
from controller.requests import (
    AlterSyncStateSet,
    Answer,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    GetNextBrokerId,
    GetReplicaInfo,
    RegisterBroker,
    Request,
)
from controller.state_machine import decide
from ha.epochs import CutStep, EpochEntry, clamped_consumer_offsets
from remoting.response_code import ResponseCode
from tests.simulation.brokers import Broker, Link
from tests.simulation.judge import Record
from tests.simulation.schedule import Schedule, Shape

SAFE = Shape(
    brokers=3,
    controllers=1,
    all_ack=True,
    min_in_sync=2,
    in_sync=1,
    sync_flush=False,
    self_fence=False,
    unclean=False,
    faults=0,
)


class Played(Schedule):
    """A group in which only goes wrong what the test does."""

    def __init__(self, shape: Shape = SAFE, seed: int = 5) -> None:
        super().__init__(seed, shape=shape)
        self._next = 0
        self.world.run(4_000)

    @property
    def master(self) -> Broker:
        """Whoever leads the newest epoch."""
        return max(self.brokers, key=lambda one: one.open_epoch)

    def put(self, broker: Broker, count: int = 1) -> int:
        """How many of `count` were taken."""
        return sum(broker.put(self.world.number()) for _ in range(count))

    def wait(self, ms: int = 6_000) -> None:
        self.world.run(self.world.now + ms)

    def isolate(self, broker: Broker, ms: int) -> None:
        for other in (*self.brokers, *self.controllers):
            if other is not broker:
                self.world.cut(broker.name, other.name, ms)
                self.world.cut(other.name, broker.name, ms)

    def slaves(self) -> list[Broker]:
        return [one for one in self.brokers if one is not self.master]

    def check(self) -> None:
        """Heal, calm down, judge."""
        self._heal()
        self.wait(9_000)
        assert self.put(self.master) == 1
        self.quiet = True
        self.wait(3_000)
        assert self._is_whole(), self._state()
        self.judge.ended({one.name: one.log for one in self.brokers})

    def _is_whole(self) -> bool:
        self.namesrv.master = self.master
        return super()._is_whole()


def _parted(group: Played) -> Broker:
    """The old master, with a tail that nobody else has, while another one leads."""
    old = group.master
    assert group.put(old, 3) == 3
    group.wait(500)
    group.isolate(old, 9_000)
    assert group.put(old, 2) == 2
    group.wait(6_000)
    assert group.master is not old
    assert group.put(group.master, 4) == 4
    group.wait(500)
    return old


@pytest.mark.parametrize("window", range(1, 9))
def test_p1_a_slave_dies_in_each_window_of_a_cut(window: int) -> None:
    group = Played()
    old = _parted(group)
    old.steps_to_crash = window
    group.wait(5_000)
    group.check()


def test_p1_a_slave_dies_after_a_cut_before_all_is_overwritten() -> None:
    group = Played()
    old = _parted(group)
    old.dies_after_cut = True
    group.wait(5_000)
    assert old.life > 1 or not old.dies_after_cut
    group.check()


def test_p2_three_elections_without_a_message_between_them() -> None:
    group = Played()
    group.put(group.master, 2)
    group.wait(500)
    for _ in range(3):
        group.master.kill(500)
        group.wait(4_000)
    assert group.master.core.epochs.last_epoch >= 4
    assert group.put(group.master, 2) == 2
    group.check()


def test_p3_p4_a_restart_with_records_behind_the_confirm_offset() -> None:
    group = Played()
    master = group.master
    group.put(master, 2)
    group.wait(1_500)
    for slave in group.slaves():
        slave.stop(60_000)
    group.put(master, 3)
    group.wait(200)
    assert master.core.confirm_offset < len(master.log)
    master.kill(100)
    group.wait(150)
    assert master.core.confirm_offset <= 2, "readers see what was confirmed"
    assert master.next_queue_offset == 5, "queue offsets go on behind all of it"
    group.check()


def test_p5_p7_a_cut_off_master_answers_nothing_and_loses_nothing_answered() -> None:
    group = Played()
    old = group.master
    group.put(old, 3)
    group.wait(500)
    answered = set(group.judge.answered)
    assert len(answered) == 3
    group.isolate(old, 9_000)
    assert group.put(old, 2) == 2, "taken, as it knows of nothing"
    group.wait(6_000)
    assert group.judge.answered == answered, "and never answered"
    group.check()


def test_p5_a_stopped_master_goes_on_with_a_producer_attached() -> None:
    group = Played()
    old = group.master
    group.put(old, 2)
    group.wait(500)
    old.stop(6_000)
    group.wait(5_900)
    assert group.master is not old
    group.wait(101)
    group.put(old, 3)
    group.wait(1_000)
    group.check()


def test_p5_the_self_fence_closes_before_another_leads() -> None:
    fenced = replace(SAFE, all_ack=False, min_in_sync=1, self_fence=True)
    group = Played(fenced)
    old = group.master
    group.isolate(old, 9_000)
    group.wait(2_900)
    group.put(old)
    group.wait(200)
    assert group.put(old) == 0
    group.wait(4_000)
    assert group.put(group.master) == 1
    group.check()


def test_p9_both_slaves_lost_at_once_leave_the_set_together() -> None:
    group = Played()
    master = group.master
    for slave in group.slaves():
        slave.kill(20_000)
    group.wait(1_500)
    assert master.core.sync_state_set == {master.core.broker_id}


def test_p10_p11_a_master_that_hangs_with_its_connection_open_is_replaced() -> None:
    group = Played()
    old = group.master
    old.stop(20_000)
    group.wait(5_000)
    assert group.master is not old


def test_p26_half_a_record_at_the_end_of_a_new_master() -> None:
    group = Played()
    old = group.master
    slave = group.slaves()[0]
    group.put(old, 3)
    group.wait(500)
    slave.kill(200, torn=True)
    group.wait(2_000)
    old.kill(9_000)
    for other in group.slaves():
        if other is not slave:
            other.kill(9_000)
    group.wait(5_000)
    group.check()


def test_p8_committed_offsets_are_clamped_before_the_first_new_byte() -> None:
    group = Played()
    old = _parted(group)
    end = len(old.log)
    committed, at_first_byte = {("T", 0): end}, [-1]
    persist, append = old._persist, old._append

    def cut(step: Step) -> None:
        nonlocal committed
        persist(step)
        if isinstance(step, CutLog) and step.step is CutStep.CUT_QUEUES:
            committed = clamped_consumer_offsets(committed, {("T", 0): len(old.log)})

    def first(record: Record) -> None:
        at_first_byte.append(committed["T", 0] - len(old.log))
        append(record)

    old._persist, old._append = cut, first  # type: ignore[method-assign]
    group.wait(5_000)
    assert at_first_byte[1] == 0, "nobody has consumed what comes now"
    group.check()


def test_p24_labels_of_the_next_epoch_change_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a Java master writes them on an epoch's last frame."""
    group = Played()
    group.put(group.master, 3)
    group.wait(500)
    behind = group.slaves()[0]
    behind.kill(9_000)
    group.wait(1_500)
    for _ in range(2):
        group.put(group.master, 2)
        group.wait(500)
        group.master.kill(300)
        group.wait(4_000)
    frame = Broker._frame

    def mislabelled(
        master: Broker, link: Link, offset: int, records: list[Record], label: EpochEntry
    ) -> None:
        later = [one for one in master.core.epochs.entries if one.epoch > label.epoch]
        frame(master, link, offset, records, later[0] if later else label)

    monkeypatch.setattr(Broker, "_frame", mislabelled)
    group.wait(9_000)
    assert len(behind.core.epochs.entries) >= 3
    group.check()
    assert behind.core.epochs == group.master.core.epochs


@pytest.mark.parametrize("left", [b"", b"2\n0\n1-0\n2-"])
def test_p25_a_master_without_its_list_of_epochs_is_replaced_and_costs_nobody_a_log(
    left: bytes,
) -> None:
    """It comes back before its absence is seen, and is elected again, in a new epoch."""
    group = Played(replace(SAFE, self_fence=True))
    damaged = group.master
    assert group.put(damaged, 4) == 4
    group.wait(1_000)
    damaged.kill(200)
    damaged.disk.epoch_file = left
    group.wait(1_500)
    assert "elected and cannot lead" in (damaged.core.trouble or "")
    group.wait(9_000)
    assert group.master is not damaged
    assert group.put(group.master) == 1
    group.wait(1_000)
    lengths = {one is damaged: len(one.log) for one in group.brokers}
    assert lengths == {True: 4, False: 5}, "its log is not touched"
    assert len(group.master.core.sync_state_set) == 2
    assert not damaged.core.is_master


# The controller alone


class Brain:
    """One controller with an embedded store."""

    def __init__(self, **settings: int | bool) -> None:
        self.core = ControllerCore(ControllerSettings(warm_up_ms=10_000, **settings))  # type: ignore[arg-type]
        self.now = 100_000
        self.stored: dict[str, Stored] = {}
        self.notices = 0
        self.core.step(LeadershipGranted(1, self.now, {}), self.now)
        self._ticket = 0
        for _ in range(6):
            self.tick(2_000)

    def do(self, ready: ControllerReady) -> list[Answer]:
        answers = [one.answer for one in ready.sends if isinstance(one, Reply)]
        self.notices += len(ready.sends) - len(answers)
        for swap in ready.swaps:
            version = self.stored.get(swap.broker_name, Stored(0, None)).version + 1
            self.stored[swap.broker_name] = Stored(version, swap.group)
            ended = SwapEnded(swap.broker_name, swap.number, Outcome.DONE, version)
            answers += self.do(self.core.step(ended, self.now))
        return answers

    def ask(self, request: Request) -> Answer:
        self._ticket += 1
        (answer,) = self.do(self.core.step(Asked(self._ticket, request), self.now))
        return answer

    def beat(self, broker_id: int, channel: int, max_offset: int = 0, timeout: int = 3_000) -> None:
        beat = Heartbeat(
            "cb", broker_id, f"b{broker_id}", channel, timeout, LogReport(1, max_offset)
        )
        self.core.step(beat, self.now)

    def tick(self, ms: int) -> None:
        self.now += ms
        self.do(self.core.step(ControllerTick(), self.now))

    @property
    def group(self) -> GroupState:
        group = self.stored["cb"].group
        assert group is not None
        return group

    def grow(self, count: int) -> None:
        """`count` brokers, 1 is master, all in the set."""
        for number in range(1, count + 1):
            self.ask(ApplyBrokerId("C", "cb", number, f"b{number};1"))
            self.beat(number, number)
        assert self.ask(ElectMaster("C", "cb", 1)).code == ResponseCode.SUCCESS
        members = frozenset(range(1, count + 1))
        assert self.ask(AlterSyncStateSet("C", "cb", 1, 1, members, 1)).code == 0


def test_p12_offsets_further_apart_than_2_gib() -> None:
    group = _group(master=None)
    alive = {1: LogReport(1, 100), 2: LogReport(1, 3_000_000_100)}
    choice = choose_master(group, ElectMaster("C", "cb", -1), Liveness(alive), unclean=False)
    assert choice == Choice(elected=2)


def _group(master: int | None) -> GroupState:
    replicas = {number: Replica(f"b{number}", "x") for number in (1, 2)}
    return GroupState("C", "cb", replicas, 3, master, 4, frozenset((1, 2)), 4)


def test_p13_a_stranger_is_not_elected() -> None:
    brain = Brain()
    brain.ask(ApplyBrokerId("C", "cb", 1, "b1;1"))
    refused = brain.ask(ElectMaster("C", "cb", 99))
    assert refused.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert brain.group.master_broker_id is None


def test_p14_the_end_of_an_older_connection_evicts_nobody() -> None:
    brain = Brain()
    brain.grow(2)
    brain.beat(1, channel=11)
    brain.notices = 0
    brain.do(brain.core.step(ChannelClosed(1), brain.now))
    assert brain.group.master_broker_id == 1
    brain.do(brain.core.step(ChannelClosed(11), brain.now))
    assert brain.group.master_broker_id == 2, "the newest one counts"
    assert brain.notices == 1, "to the living one"


def test_p15_a_heartbeat_counts_as_it_is_also_when_it_falls() -> None:
    brain = Brain()
    brain.grow(3)
    brain.beat(2, 2, max_offset=900)
    brain.beat(3, 3, max_offset=500)
    brain.beat(2, 2, max_offset=400)
    brain.do(brain.core.step(ChannelClosed(1), brain.now))
    assert brain.group.master_broker_id == 3


def test_p16_ids_are_never_given_twice() -> None:
    brain = Brain()
    brain.grow(3)
    brain.tick(60_000)
    brain.now += 11_000
    brain.beat(1, 1)
    cleaned = brain.ask(CleanBrokerData("C", "cb", frozenset((2,))))
    assert cleaned.code == ResponseCode.SUCCESS
    assert brain.ask(GetNextBrokerId("C", "cb")).next_broker_id == 4
    assert brain.ask(ApplyBrokerId("C", "cb", 2, "new;1")).code == 2014
    assert brain.ask(ApplyBrokerId("C", "cb", 4, "new;1")).code == 0
    assert brain.ask(ApplyBrokerId("C", "cb", 4, "new;1")).code == 0, "its answer was lost"


def test_p17_one_loss_counts_once() -> None:
    brain = Brain()
    brain.grow(2)
    for _ in range(12):
        brain.tick(2_000)
    assert (brain.group.master_broker_id, brain.group.master_epoch) == (None, 2)
    assert brain.group.sync_state_set == {1, 2}


def test_p18_a_repeated_1001_is_answered() -> None:
    brain = Brain()
    brain.grow(2)
    again = AlterSyncStateSet("C", "cb", 1, 1, frozenset((1, 2)), 1)
    answer = brain.ask(again)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.group is not None
    assert (answer.group.sync_state_set_epoch, brain.group.sync_state_set_epoch) == (2, 2)
    wrong = brain.ask(again._replace(master_broker_id=2))
    assert wrong.code == ResponseCode.CONTROLLER_INVALID_MASTER


def test_p29_without_election_on_close_only_silence_counts() -> None:
    brain = Brain(elect_on_channel_closed=False)
    brain.grow(2)
    brain.do(brain.core.step(ChannelClosed(1), brain.now))
    assert brain.group.master_broker_id == 1
    for _ in range(3):
        brain.tick(2_500)
        brain.beat(2, 2)
    brain.tick(1_000)
    assert brain.group.master_broker_id == 2


def test_p31_a_group_without_master_gets_one_when_a_member_is_back() -> None:
    brain = Brain()
    brain.grow(2)
    for _ in range(5):
        brain.tick(2_500)
    assert brain.group.master_broker_id is None
    brain.beat(2, 22, timeout=9_000)
    brain.tick(5_000)
    assert brain.group.master_broker_id == 2


@pytest.mark.parametrize(("lacking", "most"), [(2, 2), (3, 4)])
def test_a_record_that_ends_every_store_does_not_have_all_of_them_elected(
    lacking: int, most: int
) -> None:
    """Every leader hands over, and whom it has elected lacks its own `store`. Who has just led is
    not asked again, so that the third one leads soon, or all of them wait."""
    group = Played()
    first = group.master
    epoch = first.open_epoch
    for broker in (first, *group.slaves())[:lacking]:
        broker.lack("store", 8_000, hangs=False)
    group.wait(2_000)
    assert group.master.lacking == ("store" if lacking == len(group.brokers) else "")
    group.wait(6_000)
    assert group.master.open_epoch <= epoch + most
    group.check()


def test_p34_ids_count_and_living_brokers_are_not_cleaned_by_the_way() -> None:
    brain = Brain()
    brain.grow(3)
    assert brain.ask(CleanBrokerData("C", "cb", frozenset(), True)).code == 2009
    assert brain.ask(CleanBrokerData("C", "cb", frozenset((3,)))).code == 2009
    assert brain.ask(CleanBrokerData("C", "cb", frozenset((3,)), True)).code == 0
    assert brain.group.replicas.keys() == {1, 2}


def test_p37_nothing_depends_on_the_askers_clock() -> None:
    assert "invoke_time" not in str([one._fields for one in (ElectMaster, RegisterBroker)])
    brain = Brain()
    brain.grow(2)
    assert brain.ask(ElectMaster("C", "cb", 2)).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST


def test_a_write_without_an_answer_cannot_come_later() -> None:
    """Whatever is answered after it has been decided on a version that it does not know."""
    brain = Brain()
    brain.grow(2)
    apply = Asked(77, ApplyBrokerId("C", "cb", 3, "b3;1"))
    (lost,) = brain.core.step(apply, brain.now).swaps
    unknown = SwapEnded("cb", lost.number, Outcome.UNKNOWN)
    assert brain.core.step(unknown, brain.now).loads == ("cb",)
    ready = brain.core.step(Loaded("cb", brain.stored["cb"]), brain.now)
    (barrier,) = ready.swaps
    assert (barrier.group, ready.sends) == (brain.group, ()), "first the same, under a new version"
    brain.do(ready)
    assert lost.version < brain.stored["cb"].version
    assert 3 in brain.group.replicas, "then the request again"


@pytest.mark.parametrize("fence", [1, 2])
def test_a_grant_that_comes_twice_or_late_takes_nothing_back(fence: int) -> None:
    """The groups were again as they had been then, and who waited for an answer got none."""
    brain = Brain(lease_ms=60_000)
    old = dict(brain.stored)
    brain.core.step(LeadershipGranted(2, brain.now, old), brain.now)
    brain.tick(4_000)
    brain.tick(4_000)
    brain.tick(4_000)
    brain.grow(2)
    (swap,) = brain.core.step(Asked(7, ApplyBrokerId("C", "cb", 3, "b3;1")), brain.now).swaps
    brain.core.step(LeadershipGranted(fence, brain.now - 20_000, old), brain.now)
    assert brain.core.is_leader(brain.now)
    brain.stored["cb"] = Stored(swap.version + 1, swap.group)
    ended = SwapEnded("cb", swap.number, Outcome.DONE, swap.version + 1)
    assert [one.code for one in brain.do(brain.core.step(ended, brain.now))] == [0]
    known = brain.ask(GetReplicaInfo("C", "cb")).group
    assert known is not None
    assert (known.master_broker_id, known.replicas.keys()) == (1, {1, 2, 3})


def test_a_controller_that_was_stopped_judges_nobody_by_its_sleep() -> None:
    brain = Brain()
    brain.grow(2)
    brain.tick(30_000)
    assert brain.group.master_broker_id == 1
    assert NO_TICKET == -1


def test_not_leader_answers_nothing_else() -> None:
    core = ControllerCore(ControllerSettings(lease_ms=3_000))
    (reply,) = core.step(Asked(1, GetReplicaInfo("C", "cb")), 5).sends
    assert isinstance(reply, Reply)
    assert reply.answer.code == ResponseCode.CONTROLLER_NOT_LEADER
    core.step(LeadershipGranted(1, 10, {}), 1_000)
    assert core.is_leader(2_009)
    assert not core.is_leader(2_010), "from when the request left, less the margin"


def test_alter_of_a_deposed_master_is_refused() -> None:
    group = _group(master=2)
    live = Liveness({1: LogReport(1, 0), 2: LogReport(1, 0)})
    late = AlterSyncStateSet("C", "cb", 1, 3, frozenset((1,)), 4)
    assert decide(group, late, live).answer.code == ResponseCode.CONTROLLER_INVALID_MASTER
