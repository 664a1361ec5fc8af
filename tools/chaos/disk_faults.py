"""DiskBreaker: commits the disk faults of a schedule, and says what they may have cost.

The thread that leads the run. Whatever takes bytes from a master holds producers and consumer until
it serves again, so that what it has then is known before anything new gets the same queue offsets.
The slave, which may have more than such a master, is told that the master is right
(haTruncateDiverged): the operator's choice, docs/replication.md. Before that it has to show that it
has every message that a SYNC_MASTER answered SEND_OK.

What a power cut may cost (docs/durability.md): with ASYNC_FLUSH what was answered in the last
seconds before it; with SYNC_FLUSH nothing that was answered SEND_OK. Where slaves are promoted, so
it is with a cut of the slave: it had what was answered SEND_OK, not on its disk unless
haAckLevel=flushed, and is perhaps promoted before it has everything again. So whoever is cut and
promoted, nothing is lost that was answered longer before a cut than that. Counted, never forgotten.

Tested by tests/tools/chaos/test_checks.py.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.chaos import checks
from tools.chaos.ack_log import SEND_OK, Ack, read_body
from tools.chaos.chaos_options import ChaosOptions
from tools.chaos.honesty import HonestyJudge
from tools.chaos.log_damage import flip_bit, tear_tail
from tools.chaos.power_cut import cut_power
from tools.chaos.queue_reading import GAP, have_same_ends, queue_ends, read_queues
from tools.chaos.schedule import BOTH, POWER_CUTS, Fault, FaultKind
from tools.chaos.scratch_disk import ScratchDisk
from tools.chaos.scratch_group import ScratchBroker, ScratchGroup
from tools.chaos.scratch_process import ChaosError, wait_for
from tools.chaos.workload import QUEUES, TOPIC, Follower, Producers

_EXIT_FLUSH_FAILED: Final = 4
_SOON_S: Final = 60.0
_SYNC_COMES_S: Final = 15.0
"""Within this a broker under load syncs its log, its queues and its checkpoint."""
_UNFLUSHED_S: Final = 5.0
"""ASYNC_FLUSH: flushIntervalCommitLog (500 ms), and what a loaded machine adds to it."""
_UNANSWERED_S: Final = 30.0
"""SYNC_FLUSH: how long ago a message may have been answered "stored, but" that is not on disk."""


@dataclass(frozen=True, slots=True)
class PowerCut:
    """A power cut of the master, or of both."""

    at_s: float
    takes_all: bool
    """ASYNC_FLUSH: SEND_OK is no promise about it."""

    def may_cost(self, ack: Ack) -> bool:
        """Whether the message of this answer may be lost."""
        return self.may_take(ack.answered_s, ack.code)

    def may_take(self, answered_s: float, code: int) -> bool:
        """The same by when it was answered, and how."""
        age_s = self.at_s - answered_s
        if self.takes_all and 0 <= age_s <= _UNFLUSHED_S:
            return True
        return code != SEND_OK and 0 <= age_s <= _UNANSWERED_S


@dataclass(slots=True)
class DiskLosses:
    """What was lost and may be."""

    cuts: list[PowerCut] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    """Lost answers by code."""
    may_have_gaps: bool = False
    """Whether a master's log may have damage with whole records behind it for good."""

    def may_take(self, answered_s: float, code: int) -> bool:
        """MayBeLost: whether a cut may have taken what was answered then."""
        return any(cut.may_take(answered_s, code) for cut in self.cuts)

    def without_lost(self, acks: Sequence[Ack], is_lost: Callable[[Ack], bool]) -> list[Ack]:
        """The answers but for those whose message is lost and may be."""
        kept = []
        for ack in acks:
            if is_lost(ack) and any(cut.may_cost(ack) for cut in self.cuts):
                self.codes[ack.code] += 1
            else:
                kept.append(ack)
        return kept


class DiskBreaker:
    """See the module."""

    def __init__(
        self,
        group: ScratchGroup,
        producers: Producers,
        follower: Callable[[], Follower],
        options: ChaosOptions,
        *,
        seed: int,
        honesty: HonestyJudge | None,
        on_other_log: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        """follower: there is another one after a promotion. on_other_log: a master that was cut or
        torn serves again. say: takes a line of progress."""
        self._group = group
        self._acks = producers.acks
        self._producers = producers
        self._find_follower = follower
        self._draw = random.Random(seed).random
        self._is_sync_flush = options.flush == "sync"
        self._is_sync_master = options.replication == "sync"
        self._ack_level = options.ack_level
        self._changes_roles = options.promotes
        self._honesty = honesty
        self._on_other_log = on_other_log
        self._say = say
        self._slave_cuts: list[float] = []
        self.losses = DiskLosses()
        self.violations: list[str] = []

    @property
    def _follower(self) -> Follower:
        return self._find_follower()

    def commit(self, fault: Fault) -> None:
        """The fault, and its end. Raises ChaosError, OSError."""
        if fault.kind in POWER_CUTS:
            self._cut_power(fault)
        elif fault.kind is FaultKind.FSYNC_ERROR:
            self._fail_sync(fault)
        elif fault.kind is FaultKind.SLOW_FSYNC:
            self._misbehave(fault, "slow_fsync", float(fault.detail))
        elif fault.kind is FaultKind.FULL_DISK:
            self._misbehave(fault, fault.detail, 0.0)
        elif fault.kind is FaultKind.TORN_TAIL:
            self._tear(fault)
        else:
            self._rot(fault)

    def promised(self, queues: Mapping[int, Sequence[bytes]]) -> list[Ack]:
        """The answers that have to be in these queues: all but those that fell into a hole which a
        power cut may have left."""

        def is_in_gap(ack: Ack) -> bool:
            bodies = queues[ack.queue_id]
            return ack.queue_offset < len(bodies) and bodies[ack.queue_offset] == GAP

        return self.losses.without_lost(self._acks.acks, is_in_gap)

    def forget_lost(self, queues: Mapping[int, Sequence[bytes]]) -> None:
        """A promoted slave serves, with these queues: what an earlier power cut took from it is
        lost for good."""

        def is_lost(ack: Ack) -> bool:
            place = queues[ack.queue_id][ack.queue_offset : ack.queue_offset + 1]
            return not place or read_body(place[0]) != (ack.producer, ack.sequence)

        acks = list(self._acks.acks)
        kept = frozenset(self.losses.without_lost(acks, is_lost))
        self._acks.forget([ack for ack in acks if ack not in kept])

    # -- faults that last --------------------------------------------------------------------------

    def _misbehave(self, fault: Fault, kind: str, delay_s: float) -> None:
        disk = _disk(self._broker(fault))
        disk.set_fault(kind, delay_s=delay_s)
        _pause(fault.lasts_s)
        disk.heal()

    # -- a sync that fails -------------------------------------------------------------------------

    def _fail_sync(self, fault: Fault) -> None:
        broker = self._broker(fault)
        disk = _disk(broker)
        disk.arm_error(fault.detail)
        try:
            wait_for(lambda: disk.failed_at() is not None, _SYNC_COMES_S, "a sync")
        except ChaosError:
            disk.heal()
            if disk.failed_at() is None:
                self._say(f"           no file of {fault.detail} was synced")
                return
        failed_s = disk.failed_at()
        assert failed_s is not None
        code = broker.wait_ended()
        if code != _EXIT_FLUSH_FAILED:
            self.violations.append(f"{broker.name}: a failed sync ended it with {code}, not with 4")
        if broker is self._group.master and self._is_sync_flush and fault.detail == "/commitlog/":
            late = [a for a in self._acks.acks if a.sent_s > failed_s and a.code == SEND_OK]
            if late:
                text = f"{len(late)} messages that were sent after a failed sync: SEND_OK"
                self.violations.append(text)
        disk.heal()
        _pause(fault.lasts_s)
        broker.start()

    # -- faults that take bytes --------------------------------------------------------------------

    def _cut_power(self, fault: Fault) -> None:
        group = self._group
        brokers = group.brokers if fault.broker == BOTH else [self._broker(fault)]
        for broker in brokers:
            self._excuse(broker)
            broker.kill_all()
        cut_s = time.monotonic()
        if group.slave in brokers:
            self._slave_cuts.append(cut_s)
            if self._changes_roles:
                # A slave that is promoted before it has everything again is the only copy then.
                takes_all = self._ack_level != "flushed"
                self.losses.cuts.append(PowerCut(cut_s, takes_all=takes_all))
        if group.master in brokers:
            self._hold_clients()
        for broker in brokers:
            is_scattered = fault.kind is FaultKind.SCATTERED_CUT
            durable = _disk(broker).durable
            loss = cut_power(broker.store, durable, self._draw, is_scattered=is_scattered)
            self._say(f"           {broker.name}: {loss.text()}")
        _pause(fault.lasts_s)
        if group.master not in brokers:
            brokers[0].start()
            return
        self.losses.cuts.append(PowerCut(cut_s, takes_all=not self._is_sync_flush))
        if group.slave is not None and group.slave in brokers:
            group.slave.start()
        self._judge_slave(both=fault.broker == BOTH)
        self._bring_master_back()

    def _tear(self, fault: Fault) -> None:
        broker = self._broker(fault)
        self._excuse(broker)
        broker.kill_all()
        is_master = broker is self._group.master
        if is_master:
            self._hold_clients()
        promised = {(ack.producer, ack.sequence) for ack in list(self._acks.acks)}
        done = tear_tail(broker.store, fault.detail, promised, self._draw)
        self._say(f"           {broker.name}: {done}")
        _pause(fault.lasts_s)
        if is_master:
            self._bring_master_back()
        else:
            broker.start()

    def _rot(self, fault: Fault) -> None:
        broker = self._broker(fault)
        other = self._group.slave if broker is self._group.master else self._group.master
        assert other is not None
        self._excuse(broker)
        broker.kill_all()
        self._follower.hold()
        flipped = flip_bit(broker.store, other.store, self._draw)
        self._follower.release([len(self._follower.seen[q]) for q in range(QUEUES)])
        _pause(fault.lasts_s)
        broker.start()
        if flipped is None:
            self._say(f"           {broker.name}: no record that both have")
            return
        path, at, good = flipped
        self._say(f"           {broker.name}: a bit of byte {at} of {path.name}")
        try:
            wait_for(lambda: _byte_at(path, at) == good, _SOON_S, "the repair")
        except (ChaosError, OSError) as error:
            text = f"{broker.name}: {path.name}, byte {at}: a flipped bit stays: {error}"
            self.violations.append(text)

    def _hold_clients(self) -> None:
        if not self._producers.hold() or not self._follower.hold():
            raise ChaosError("a client has something under way though the broker is dead")

    def kept_by_slave(self, acks: Sequence[Ack]) -> list[Ack]:
        """The answers whose messages the slave has, whatever its own power cuts took."""
        cuts = [] if self._ack_level == "flushed" else self._slave_cuts
        return [
            ack for ack in acks if not any(0 <= at - ack.answered_s <= _UNFLUSHED_S for at in cuts)
        ]

    def _judge_slave(self, *, both: bool) -> None:
        """What a SYNC_MASTER answered SEND_OK is on its slave, which an operator may promote. With
        another haAckLevel than flushed not what a power cut took from the slave, which may not have
        it again yet: two losses, and one copy more than none (inSyncReplicas=2)."""
        slave = self._group.slave
        if slave is None or not self._is_sync_master:
            return
        if both and self._ack_level != "flushed":
            return
        promised = self.kept_by_slave(self._acks.acks)
        missing: list[str] = []

        def has_all() -> bool:
            queues, _stopped = read_queues(slave.address, TOPIC, QUEUES)
            missing[:] = checks.lost(promised, queues, only_ok=True)
            return not missing

        try:
            wait_for(has_all, _SOON_S / 6, "the slave's queues")
        except ChaosError:
            found = checks.shortened(missing)
            self.violations += [f"slave, after the master's power cut: {text}" for text in found]

    def _bring_master_back(self) -> None:
        """Start it, note what it lacks, tell the slave that it is right, let the clients go on."""
        group = self._group
        group.master.start()
        self.losses.may_have_gaps = True
        ends = queue_ends(group.address, TOPIC, QUEUES)
        self._acks.acks[:] = self.losses.without_lost(
            self._acks.acks, lambda ack: ack.queue_offset >= ends[ack.queue_id]
        )
        slave = group.slave
        if slave is not None:
            slave.configure(haTruncateDiverged="true")
            code = slave.stop()
            if code != 0:
                self.violations.append(f"slave: an orderly stop ended with {code}")
            slave.start()
            self._wait_for(slave)
        self._follower.release(ends)
        self._on_other_log()
        self._producers.release()

    def _wait_for(self, slave: ScratchBroker) -> None:
        """Until it has given up what the master lacks, and has all that the master has."""
        both = (slave.address, self._group.address)
        try:
            wait_for(
                lambda: have_same_ends(both, TOPIC, QUEUES),
                _SOON_S,
                "the slave's queues as long as the master's",
            )
        except ChaosError as error:
            self.violations.append(f"slave, after the master lost its tail: {error}")

    def _excuse(self, broker: ScratchBroker) -> None:
        if self._honesty is not None:
            self._honesty.excuse(broker)

    def _broker(self, fault: Fault) -> ScratchBroker:
        slave = self._group.slave
        return slave if fault.broker == "slave" and slave is not None else self._group.master


def _disk(broker: ScratchBroker) -> ScratchDisk:
    assert broker.disk is not None
    return broker.disk


def _byte_at(path: Path, at: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.read(1)


def _pause(seconds: float) -> None:
    """So long, as the schedule says: nothing is waited for."""
    threading.Event().wait(max(seconds, 0.0))
