"""ElectionRun: one seed on a group with controllers: load, break, heal, and judge what is left.

One thread leads; producers, consumers and the other loads have their own. The group runs already
and goes on afterwards: each seed has topics of its own. The order: first answers, the faults, heal,
everybody in the SyncStateSet, the clients end, everything is read, logs and epochs are compared. A
violation is a sentence; none is the verdict "held".

Tested by tests/tools/chaos/test_election_run.py.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from remoting.request_code import RequestCode
from tools.chaos import checks
from tools.chaos.ack_log import SEND_OK, Ack
from tools.chaos.chasing_load import ChasingProducers, MemberReaders
from tools.chaos.election_faults import ElectionFaults
from tools.chaos.election_judge import (
    Epochs,
    different_epochs,
    different_logs,
    judge_history,
    masters_of_epochs,
    measure_gaps,
    rate_of,
)
from tools.chaos.election_loads import ElectionLoads
from tools.chaos.election_options import ElectionOptions, ElectionResult, FaultOutcome
from tools.chaos.election_schedule import ElectionFault, PlannedFault, plan_faults
from tools.chaos.frame_client import FrameClient
from tools.chaos.group_view import Address, GroupView, epochs_of
from tools.chaos.history import Append, History
from tools.chaos.honesty import HonestyJudge
from tools.chaos.member_group import BROKERS, HEARTBEAT_TIMEOUT_S, MemberGroup
from tools.chaos.network import NetworkError
from tools.chaos.promotion import OFFSETS_S, offset_violations
from tools.chaos.queue_reading import gaps, queue_ends, read_queues
from tools.chaos.scratch_group import ScratchBroker
from tools.chaos.scratch_process import ChaosError, wait_for
from tools.chaos.workload import QUEUES

_FIRST_S: Final = 60.0
_ASK_S: Final = 8.0
_AGAIN_S: Final = 30.0
"""So long a group that lost one member of three may take until it takes messages, on a busy
machine; more is a violation."""
_EQUAL_S: Final = 30.0
_KNOWN: Final = frozenset((SEND_OK, 19))
"""Codes of a pull from a queue that is there; 19: PULL_NOT_FOUND."""
_NEEDED: Final = 2
"""Brokers that have what was answered SEND_OK."""
_LOOKED_AT: Final = 8
"""Of so many answers the brokers' logs are looked at for one."""
_NOBODY_LEADS: Final = frozenset((ElectionFault.KILL_ALL, ElectionFault.KILL_SLAVES))
_ENDS_BY_ITSELF: Final = frozenset(
    (
        *(ElectionFault.STOP_MASTER, ElectionFault.STOP_SLAVE, ElectionFault.STOP_PROCESS),
        *(ElectionFault.STOP_SLAVE_PROCESS, ElectionFault.CUT_MASTER, ElectionFault.CUT_SLAVE),
        *(ElectionFault.CUT_CONTROLLERS, ElectionFault.CUT_LINK, ElectionFault.ONE_WAY),
        *(ElectionFault.STOP_CONTROLLER, ElectionFault.CUT_CONTROLLER, ElectionFault.ELECT),
        *(ElectionFault.KILL_CONTROLLER, ElectionFault.RESTART_NAMESRV, ElectionFault.CLOCK_JUMP),
        ElectionFault.FULL_DISK,
        *(ElectionFault.KILL_ETCD, ElectionFault.STOP_ETCD, ElectionFault.CUT_ETCD),
    )
)
"""These have no length after their begin."""
Say = Callable[[str], None]


class ElectionRun:
    """See the module. Used once."""

    def __init__(
        self, group: MemberGroup, directory: Path, seed: int, options: ElectionOptions, say: Say
    ) -> None:
        """group: it runs. directory: exists, gets the run's files. say: takes a line of progress.
        Raises ValueError: no kind of fault is left."""
        self._group = group
        self._directory = directory
        self._seed = seed
        self._options = options
        self._say = say
        self._plan = plan_faults(seed, options.faults, options.usable_kinds(), HEARTBEAT_TIMEOUT_S)
        self._topic = f"Chaos{seed}"
        self._history = History()
        self._view = GroupView(group)
        self._faults = ElectionFaults(group, self._view)
        self._honesty = HonestyJudge(lambda: group.brokers, _NEEDED)
        self._producers = ChasingProducers(
            self._master,
            self._history,
            self._topic,
            count=options.producers,
            rate=options.rate,
            size=options.message_size,
            on_stored=self._look_at,
        )
        members = [self._member(broker) for broker in group.brokers]
        self._readers = MemberReaders(members, self._history, self._topic, seed)
        self._loads = ElectionLoads(
            self._where,
            self._topic,
            lambda: self._readers.position(0),
            self._view.epoch,
            jumps=any(fault.kind is ElectionFault.CLOCK_JUMP for fault in self._plan),
        )
        flush = str(options.shape(seed).settings["flushDiskType"])
        self._result = ElectionResult(seed, flush)
        self._began_s = 0.0
        self._whole_s: float | None = None
        """Since when everybody was seen in the SyncStateSet, and nothing is broken."""
        self._promised = 0
        """A committed offset that every member had time to copy."""

    def run(self) -> ElectionResult:
        """The result, also in result.json of the directory; the history is in history.jsonl."""
        self._began_s = time.monotonic()
        self._view.start()
        try:
            self._lead()
        except (ChaosError, NetworkError, OSError, subprocess.SubprocessError) as error:
            self._result.violations.append(f"the run ended early: {type(error).__name__}: {error}")
            with contextlib.suppress(ChaosError, OSError):
                self._count(self._faults.targets.master())
        finally:
            self._view.stop()
        self._result.seconds = round(time.monotonic() - self._began_s, 1)
        text = json.dumps(self._result.as_json(), indent=2)
        (self._directory / "result.json").write_text(text + "\n")
        return self._result

    # -- who is asked --------------------------------------------------------------------------

    def _master(self, age_s: float) -> Address | None:
        return self._view.master_before(age_s) if age_s else self._view.master

    def _where(self) -> Address:
        address = self._view.master
        if address is None:
            raise ConnectionError("the name server names no master")
        return address

    @staticmethod
    def _member(broker: ScratchBroker) -> Callable[[], Address]:
        return lambda: broker.address

    def _look_at(self, ack: Ack, body: bytes) -> None:
        if ack.sequence % _LOOKED_AT == 0:
            self._honesty.answered(ack, body)

    # -- the course of a run -------------------------------------------------------------------

    def _lead(self) -> None:
        wait_for(lambda: self._view.master, _FIRST_S, "a master")
        wait_for(self._is_whole, _FIRST_S, "all brokers in the SyncStateSet")
        self._make_topics()
        self._producers.start()
        self._readers.start()
        self._loads.start()
        try:
            wait_for(lambda: len(self._history.acknowledged()) > 100, _FIRST_S, "the first SEND_OK")
            self._break_things()
            self._loads.stop_sending()
            self._heal()
            self._loads.healed()
        finally:
            if not self._producers.stop():
                self._result.violations.append("a producer hangs: an answer never came")
        self._keep_promise()
        violations, self._result.mixed = self._loads.finish()
        self._readers.stop()
        self._result.violations += violations + self._readers.violations
        self._judge()

    def _make_topics(self) -> None:
        """On every member before anything is broken: one that was made since slaves copied the
        tables last is lost with its master (docs/failover.md)."""
        topics = ElectionLoads.topics(self._topic)
        fields = {"defaultTopic": "TBW102", "readQueueNums": QUEUES, "writeQueueNums": QUEUES}
        fields |= {"perm": 6, "topicFilterType": "SINGLE_TAG"}

        def are_made() -> bool:
            with contextlib.suppress(OSError), FrameClient(self._where(), _ASK_S) as client:
                code = RequestCode.UPDATE_AND_CREATE_TOPIC
                answers = [client.call(code, {**fields, "topic": topic}) for topic in topics]
                return all(answer.code == SEND_OK for answer in answers)
            return False

        def are_known() -> bool:
            with contextlib.suppress(OSError):
                return all(_knows(broker.address, topics) for broker in self._group.brokers)
            return False

        wait_for(are_made, _FIRST_S, "the topics")
        wait_for(are_known, _FIRST_S, "the topics on every member", poll_s=0.2)

    def _break_things(self) -> None:
        for planned in self._plan:
            threading.Event().wait(planned.pause_s)
            outcome = self._begin(planned)
            self._result.faults.append(outcome)
            self._wait_for_answers(planned, outcome)
            if planned.kind not in _ENDS_BY_ITSELF:
                threading.Event().wait(planned.lasts_s)
            outcome.undone_s = self._now()
            self._faults.undo()
            self._wait_until_it_serves()
            self._judge_offsets()
            gap = self._history.longest_gap(outcome.begun_s + self._began_s)
            self._say(f"{outcome.begun_s:7.2f} s  {outcome.planned}: {outcome.hit}; {gap:.2f} s")
        threading.Event().wait(0.5)
        self._end_last_fault()

    def _begin(self, planned: PlannedFault) -> FaultOutcome:
        if planned.waits:
            with contextlib.suppress(ChaosError):
                wait_for(self._is_whole, self._group.whole_s, "the set")
        was_whole = self._is_whole()
        self._keep_promise()
        self._whole_s = None
        self._end_last_fault()
        outcome = FaultOutcome(planned.kind, planned.text(), "", was_whole, self._now())
        self._loads.disturb()
        outcome.hit = self._faults.begin(planned)
        return outcome

    def _wait_for_answers(self, planned: PlannedFault, outcome: FaultOutcome) -> None:
        """Until somebody answers SEND_OK to what is sent after the fault. A new master that is
        killed before a slave has caught up was alone in the set: nobody is owed then."""
        if planned.kind in _NOBODY_LEADS:
            return
        begun_s = time.monotonic()
        is_owed = outcome.was_whole and planned.kind is not ElectionFault.ELECT_KILL
        limit_s = _AGAIN_S if is_owed else HEARTBEAT_TIMEOUT_S + 2
        try:
            wait_for(lambda: self._history.has_answer_since(begun_s), limit_s, "SEND_OK")
        except ChaosError:
            if is_owed:
                self._result.violations.append(
                    f"{outcome.planned}, {outcome.hit}: nobody answered SEND_OK for "
                    f"{limit_s:.0f} s, and everybody had been in the SyncStateSet"
                )

    def _wait_until_it_serves(self) -> None:
        begun_s = time.monotonic()

        def serves() -> bool:
            self._group.tend(self._view.in_sync(), self._view.master)
            return self._history.has_answer_since(begun_s)

        wait_for(serves, self._group.healed_s, "SEND_OK after a fault's end", poll_s=0.1)
        self._loads.disturb()

    def _end_last_fault(self) -> None:
        """Its gaps are looked for until now."""
        if self._result.faults:
            self._result.faults[-1].over_s = self._now()

    def _heal(self) -> None:
        self._faults.undo()
        self._result.violations += self._faults.violations
        what = "all brokers in the SyncStateSet after healing"
        wait_for(self._is_whole, self._group.healed_s, what)

    def _now(self) -> float:
        return round(time.monotonic() - self._began_s, 3)

    # -- the set, and what was promised of offsets ---------------------------------------------

    def _is_whole(self) -> bool:
        in_sync = self._view.in_sync()
        self._group.tend(in_sync, self._view.master)
        whole = len(in_sync) == BROKERS
        if not whole:
            self._whole_s = None
        elif self._whole_s is None:
            self._whole_s = time.monotonic()
        return whole

    def _keep_promise(self) -> None:
        """A follower that was there for so long has the offsets of that time."""
        now_s = time.monotonic()
        if self._whole_s is not None and now_s - self._whole_s > OFFSETS_S:
            self._promised = max(self._promised, self._loads.offsets.as_of(now_s - OFFSETS_S))

    def _judge_offsets(self) -> None:
        with contextlib.suppress(OSError):
            broker = self._faults.targets.master()
            who = f"{broker.name}, the master"
            self._result.violations += offset_violations(broker, self._promised, who, self._topic)

    # -- the judge -----------------------------------------------------------------------------

    def _count(self, master: ScratchBroker) -> Mapping[int, list[bytes]]:
        """The figures, also of a run that ended early; what is in the queues. Raises OSError."""
        result, history = self._result, self._history
        acknowledged = history.acknowledged()
        _wait_for_queues(master, acknowledged, self._topic)
        queues, stopped = read_queues(master.address, self._topic, QUEUES)
        history.write(self._directory / "history.jsonl", queues)
        result.violations += checks.shortened([*stopped, *gaps(queues)])
        result.sent, result.codes = len(history.appends), history.codes()
        result.rate = round(rate_of(acknowledged))
        result.read = sum(len(read.bodies) for read in history.reads)
        result.stored = sum(map(len, queues.values()))
        result.lost = len(checks.lost((each.as_ack() for each in acknowledged), queues))
        result.doubled = len(checks.repeated(queues))
        result.looked_at = self._honesty.looked_at
        epochs = epochs_of(master.address)
        measure_gaps(result.faults, acknowledged, epochs, self._began_s)
        result.epochs = len({epoch for epoch, _begin in epochs})
        return queues

    def _judge(self) -> None:
        result, history = self._result, self._history
        master = self._faults.targets.master()
        queues = self._count(master)
        result.violations += checks.shortened(self._honesty.violations)
        result.violations += judge_history(history, self._readers.seen(), queues)
        lists: dict[str, Epochs] = {b.name: epochs_of(b.address) for b in self._group.brokers}
        result.violations += different_epochs(lists)
        result.violations += masters_of_epochs(history.acknowledged(), lists[master.name])
        result.violations += _differences(self._group)
        for broker in self._group.brokers:
            result.violations += offset_violations(broker, self._promised, broker.name, self._topic)


def _knows(address: Address, topics: list[str]) -> bool:
    """Whether a member has the last queue of each. Raises OSError."""
    with FrameClient(address, _ASK_S) as client:
        return all(client.pull(topic, QUEUES - 1, 0).code in _KNOWN for topic in topics)


def _wait_for_queues(master: ScratchBroker, acknowledged: list[Append], topic: str) -> None:
    """Dispatch comes after the answers; what is lost is said by the judge."""
    ends = [0] * QUEUES
    for append in acknowledged:
        ends[append.queue_id] = max(ends[append.queue_id], append.queue_offset + 1)

    def shows_all() -> bool:
        with contextlib.suppress(OSError):
            now = queue_ends(master.address, topic, QUEUES)
            return all(end <= at for end, at in zip(ends, now, strict=True))
        return False

    with contextlib.suppress(ChaosError):
        wait_for(shows_all, _EQUAL_S / 3, "the master's queues")


def _differences(group: MemberGroup) -> list[str]:
    """Of the logs, once they are at rest; what is left when they do not become equal."""
    deadline = time.monotonic() + _EQUAL_S
    while True:
        found = different_logs({broker.name: broker.log_files() for broker in group.brokers})
        if not found or time.monotonic() > deadline:
            return checks.shortened(found)
        threading.Event().wait(0.3)
