"""ChaosRun: one seed: start a group, load it, break it, heal it, and judge what is left.

One thread leads; producers, consumer and relay have their own. The order: start, first messages,
the schedule, heal (every process runs, the link passes), lag 0, stop the clients, read everything,
stop the brokers in order, compare the files. A violation is a sentence; none is the verdict "held".

Tested by tests/tools/chaos/test_mqchaos.py.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tools.chaos import checks
from tools.chaos.ack_bins import BIN_S, AckBins
from tools.chaos.ack_log import SEND_OK, Ack, AckLog
from tools.chaos.chaos_options import ChaosOptions, ChaosResult
from tools.chaos.disk_faults import DiskBreaker
from tools.chaos.file_judge import file_violations, table_violations
from tools.chaos.frame_client import FrameClient
from tools.chaos.honesty import HonestyJudge
from tools.chaos.judged_loads import SETTINGS as LOAD_SETTINGS
from tools.chaos.last_loss import kill_behind, lose_everything
from tools.chaos.look_ups import LOOK_UPS, found_late, sample
from tools.chaos.lost_master import lose_master
from tools.chaos.promotion import (
    OFFSETS_S,
    CommittedOffsets,
    Promotion,
    cut_seen,
    offset_violations,
    promote,
)
from tools.chaos.queue_reading import gaps, have_same_ends, queue_ends, read_queues
from tools.chaos.rights_load import SETTINGS as RIGHTS_SETTINGS
from tools.chaos.rights_load import write_accounts
from tools.chaos.schedule import (
    BOTH,
    DISK_FAULTS,
    LINK_FAULTS,
    Fault,
    FaultKind,
    make_schedule,
)
from tools.chaos.scratch_group import BROKER_NAME, ScratchBroker, ScratchGroup
from tools.chaos.scratch_process import ChaosError, wait_for
from tools.chaos.side_loads import SideLoads
from tools.chaos.timeline import Curve, draw_timeline
from tools.chaos.workload import QUEUES, TOPIC, Follower, Producers
from tools.chaos.world_faults import JUMPY, exhaust_process, jump_clock

_DISPATCH_S: Final = 10.0
RECOVERY_S: Final = 60.0
"""What a group may take, once healed, until it serves and its slave has everything."""

_WORLD_FAULTS: Final = frozenset(
    (
        *(FaultKind.CLOCK_JUMP, FaultKind.FD_EXHAUSTION),
        *(FaultKind.PROMOTE, FaultKind.MASTER_LOST),
    )
)
_STARTS_AGAIN: Final = frozenset((FaultKind.KILL_ALL, FaultKind.RESTART))
_KILLED_SLAVES: Final = 0.5
_ALL_LINKS: Final = 0.5
"""The share of link faults that are those of every link, where there are several."""
Say = Callable[[str], None]


class ChaosRun:
    """See the module. Used once."""

    def __init__(self, directory: Path, seed: int, options: ChaosOptions, say: Say) -> None:
        """directory: empty, stays. say: takes a line of progress."""
        options.check()
        self._directory = directory
        self._options = options
        self._say = say
        self._seed = seed
        self._has_accounts = options.has_accounts(seed)
        self._over_s = 0.0
        """When the load was over."""
        role = "SYNC_MASTER" if options.replication == "sync" else "ASYNC_MASTER"
        self._group = ScratchGroup(
            directory,
            seed=seed,
            slaves=options.slaves if options.has_slave else 0,
            role=role,
            changes_roles=options.promotes,
            settings={
                "flushDiskType": f"{options.flush.upper()}_FLUSH",
                "haAckLevel": options.ack_level,
                "inSyncReplicas": max(options.in_sync_replicas, 2),
                **LOAD_SETTINGS,
                **(RIGHTS_SETTINGS if self._has_accounts else {}),
                **(JUMPY if FaultKind.CLOCK_JUMP in options.kinds else {}),
                **options.settings,
            },
            has_hooks=options.breaks_disks,
        )
        if self._has_accounts:
            for broker in self._group.brokers:
                home = broker.directory / "home"
                broker.configure(rocketmqHome=home)
                write_accounts(home)
        faults = make_schedule(seed, options.seconds, options.kinds, has_slave=options.has_slave)
        self._result = ChaosResult(seed, faults)
        self._acks = AckLog(directory / "acks.log")
        self._topic = TOPIC
        self._follower = Follower(self._where)
        self._honesty = (
            HonestyJudge(lambda: self._group.brokers, options.in_sync_replicas)
            if options.replication == "sync"
            else None
        )
        self._draw = random.Random(seed).random
        self._side: SideLoads | None = None
        self._offsets: CommittedOffsets | None = None
        self._promotions: list[Promotion] = []
        self._slave_broken = -math.inf, -math.inf
        """When the last fault of a slave began and ended."""
        self._disks: DiskBreaker | None = None

    def run(self) -> ChaosResult:
        """The result, also in result.json and timeline.svg of the directory."""
        try:
            self._lead()
        except (ChaosError, OSError, subprocess.SubprocessError) as error:
            self._result.violations.append(f"the run ended early: {error}")
        finally:
            self._group.kill_everything()
            self._acks.close()
        self._write()
        return self._result

    # -- the course of a run -------------------------------------------------------------------

    def _lead(self) -> None:
        self._group.start()
        options = self._options
        producers = Producers(
            self._where,
            self._acks,
            count=options.producers,
            rate=options.rate,
            size=options.message_size,
            on_stored=None if self._honesty is None else self._honesty.answered,
        )
        if options.breaks_disks:
            self._disks = DiskBreaker(
                self._group,
                producers,
                lambda: self._follower,
                options,
                seed=self._seed,
                honesty=self._honesty,
                on_other_log=self._read_again,
                say=self._say,
            )
        producers.start()
        self._follower.start()
        self._side = SideLoads(
            self._where,
            {fault.kind for fault in self._result.faults},
            delayed_rate=options.delayed_rate,
            broker_name=BROKER_NAME,
            may_be_lost=self._may_be_lost,
            has_accounts=self._has_accounts,
        )
        self._side.start()
        self._offsets = CommittedOffsets(self._where, lambda: len(self._follower.seen[0]))
        wait_for(lambda: len(self._acks.acks) > 50, RECOVERY_S, "the first acknowledgements")
        if self._group.slave is not None:
            wait_for(self._slave_serves, RECOVERY_S, "the slave's first messages")
        with self._count_acks():
            self._break_things(self._result.faults, options.seconds)
            self._begin_kill(self._group.master)
            kill_behind(self._group.master)
            self._side.stop_sending()
            self._heal()
            self._still_serves()
        if not producers.stop():
            self._result.violations.append("a producer hangs: an answer never came")
        self._result.recovery_s += self._wait_for_slaves()
        queues = self._read_all(self._where())
        self._wait_for_consumers(queues, self._side)
        promised = self._promised(queues)
        self._judge(queues, promised)
        self._judge_look_ups(promised)
        self._lose_everything(checks.held(promised, queues))
        self._judge_files()

    def _read_again(self) -> None:
        if self._side is not None:
            self._side.read_again()

    def _may_be_lost(self, answered_s: float, code: int) -> bool:
        return self._disks is not None and self._disks.losses.may_take(answered_s, code)

    def _where(self) -> tuple[str, int]:
        return self._group.address

    def _wait_for_consumers(self, queues: dict[int, list[bytes]], side: SideLoads) -> None:
        self._wait_for_follower(queues)
        if self._offsets is not None:
            self._offsets.stop()
        violations, self._result.mixed = side.finish(only_ok=bool(self._promotions))
        self._over_s = time.monotonic()
        self._result.violations += violations
        for text in self._result.mixed:
            self._say(text)

    def _wait_for_follower(self, queues: dict[int, list[bytes]]) -> None:
        follower = self._follower
        wait_for(
            lambda: (
                all(len(follower.seen[q]) >= len(queues[q]) for q in queues) or follower.violations
            ),
            RECOVERY_S,
            "the consumer at the end of its queues",
        )
        follower.stop()

    @contextlib.contextmanager
    def _count_acks(self, at_s: float = 0.0) -> Iterator[None]:
        """For the picture, from `at_s` of the run on."""
        bins = self._result.acks_a_bin
        bins += [0] * (int(at_s / BIN_S) - len(bins))
        with AckBins(self._acks, bins):
            yield

    def _break_things(self, faults: Sequence[Fault], seconds: float) -> None:
        began = time.monotonic()
        for fault in faults:
            self._pause(began + fault.at_s - time.monotonic())
            self._say(fault.text())
            self._commit(fault)
        self._pause(began + seconds - time.monotonic())

    def _pause(self, seconds: float) -> None:
        """So long, as the schedule says: nothing is waited for."""
        threading.Event().wait(max(seconds, 0.0))

    def _commit(self, fault: Fault) -> None:
        """The fault, and its end."""
        began_s = time.monotonic()
        self._commit_now(fault)
        if fault.broker in ("slave", BOTH):
            self._slave_broken = began_s, time.monotonic()

    def _commit_now(self, fault: Fault) -> None:
        if fault.kind in LINK_FAULTS:
            self._break_links(fault.kind, fault)
            self._heal_links()
            return
        if fault.kind in DISK_FAULTS:
            assert self._disks is not None
            self._disks.commit(fault)
            return
        broker, began_s = self._broker(fault), time.monotonic()
        if fault.kind in _WORLD_FAULTS:
            self._commit_world_fault(fault, broker)
            return
        if fault.kind is not FaultKind.STOP:
            self._begin_kill(broker)
        if fault.kind is FaultKind.KILL:
            if fault.process == "supervisor":
                broker.kill_supervisor()
                broker.start()
            else:
                broker.signal(fault.process, signal.SIGKILL)
        elif fault.kind is FaultKind.STOP:
            broker.signal(fault.process, signal.SIGSTOP)
            self._pause(fault.lasts_s)
            broker.signal(fault.process, signal.SIGCONT)
        elif fault.kind is FaultKind.KILL_ALL:
            broker.kill_all()
            self._pause(fault.lasts_s)
            broker.start()
        else:
            self._stop(broker)
            broker.start()
        if broker is self._group.master and fault.kind in _STARTS_AGAIN:
            self._judge_tables(broker, began_s)

    def _break_links(self, mode: FaultKind, fault: Fault) -> None:
        """For the fault's length; of several links all, or one of them."""
        relays = self._group.relays
        lot = self._draw()
        chosen = relays if lot < _ALL_LINKS else [relays[int(self._draw() * len(relays))]]
        for relay in chosen:
            relay.set_mode(mode, fault.amount_ms)
        self._pause(fault.lasts_s)

    def _heal_links(self) -> None:
        for relay in self._group.relays:
            relay.set_mode(None)

    def _begin_kill(self, broker: ScratchBroker) -> None:
        """Processes of it end now."""
        if self._honesty is not None:
            self._honesty.excuse(broker)
        if broker is self._group.master and self._side is not None:
            self._side.disturb()

    def _judge_tables(self, broker: ScratchBroker, killed_s: float) -> None:
        """What was changed in time before a master ended is there when it serves again."""
        who = "a master that was started again"
        self._result.violations += self._lacks(broker, killed_s - OFFSETS_S, who)

    def _lacks(self, broker: ScratchBroker, time_s: float, who: str) -> list[str]:
        """What it does not know of offsets, tables and rights that were changed by then."""
        found: list[str] = []
        if self._offsets is not None:
            found += offset_violations(broker, self._offsets.as_of(time_s), who)
        if self._side is not None:
            found += self._side.lacks(broker.address, time_s, who)
        return found

    def _forget_since(self, time_s: float) -> None:
        if self._offsets is not None:
            self._offsets.forget_since(time_s)
        if self._side is not None:
            self._side.forget_since(time_s)

    def _commit_world_fault(self, fault: Fault, broker: ScratchBroker) -> None:
        """What is not the brokers' own: clocks, descriptors, and the operator."""
        if fault.kind is FaultKind.CLOCK_JUMP:
            jump_clock(broker, fault, self._pause)
        elif fault.kind is FaultKind.FD_EXHAUSTION:
            answers = self._acks.codes.total
            self._result.violations += exhaust_process(broker, fault, self._topic, answers)
        elif fault.kind is FaultKind.MASTER_LOST:
            self._lose_master(fault)
        else:
            self._promote(fault)

    def _lose_master(self, fault: Fault) -> None:
        disks = self._disks

        @contextlib.contextmanager
        def broken_link() -> Iterator[None]:
            self._break_links(FaultKind(fault.detail), fault)
            yield
            self._heal_links()

        self._begin_kill(self._group.master)
        done = lose_master(
            self._group,
            self._acks,
            self._honesty,
            is_sync=self._options.replication == "sync",
            kept_by_slave=list if disks is None else disks.kept_by_slave,
            broken_link=broken_link,
            kills_slave=self._draw() < _KILLED_SLAVES,
            lacks=lambda slave, time_s: self._lacks(slave, time_s, "the slave of a lost master"),
        )
        self._begin_kill(self._group.master)
        self._say(f"           {done.text}")
        self._result.violations += done.violations

    def _promote(self, fault: Fault) -> None:
        assert self._offsets is not None
        broken_s = time.monotonic()
        began_s, ended_s = self._slave_broken
        if broken_s - ended_s < OFFSETS_S:
            broken_s = began_s  # It may have copied no tables since.
        if fault.detail:
            self._break_links(FaultKind(fault.detail), fault)
        for broker in self._group.brokers:
            self._begin_kill(broker)
        self._promote_now(broken_s)
        self._heal_links()

    def _promote_now(self, broken_s: float) -> None:
        """broken_s: until then the links were whole."""
        assert self._offsets is not None
        follower = self._follower
        follower.stop()
        done = promote(
            self._group,
            lambda: self._acks.codes[SEND_OK],
            broken_s,
            lacks=lambda broker, time_s: self._lacks(broker, time_s, "the new master"),
            forget_since=self._forget_since,
        )
        self._say(f"          {done.text()}")
        self._promotions.append(done)
        self._result.violations += done.violations
        if done.rto_s is not None:
            self._result.rto_s.append(round(done.rto_s, 3))
            held, _ = read_queues(self._where(), self._topic, QUEUES)
            if self._disks is not None:
                self._disks.forget_lost(held)
            seen = cut_seen(follower.seen, self._acks.acks, held)
        else:
            self._result.refused_promotions += 1
            seen = follower.seen
        self._result.violations += follower.violations
        self._follower = Follower(self._where, seen=seen)
        self._follower.may_skip = self._disks is not None and self._disks.losses.may_have_gaps
        self._follower.start()

    def _broker(self, fault: Fault) -> ScratchBroker:
        slaves = self._group.slaves
        return slaves[0] if fault.broker == "slave" and slaves else self._group.master

    def _stop(self, broker: ScratchBroker) -> None:
        code = broker.stop()
        if code != 0:
            self._result.violations.append(f"{broker.name}: an orderly stop ended with {code}")

    def _heal(self) -> None:
        for broker in self._group.brokers:
            for process in ("store", "remoting", "ha"):
                broker.signal(process, signal.SIGCONT)
            if not broker.is_alive:
                broker.kill_all()
                self._result.violations.append(f"{broker.name} ended by itself, see its logs")
                broker.start()

    def _still_serves(self) -> None:
        """Sends are answered SEND_OK again."""
        began, before = time.monotonic(), self._acks.codes[SEND_OK]
        wait_for(
            lambda: self._acks.codes[SEND_OK] > before + 50, RECOVERY_S, "SEND_OK after the faults"
        )
        self._result.recovery_s = time.monotonic() - began

    def _slave_serves(self) -> bool:
        """Whether the slave knows the topic, too, which it copies at intervals."""
        assert self._group.slave is not None
        with (
            contextlib.suppress(OSError),
            FrameClient(self._group.slave.address, RECOVERY_S) as client,
        ):
            return all(
                client.pull(self._topic, queue_id, 0).code == 0 for queue_id in range(QUEUES)
            )
        return False

    def _wait_for_slaves(self) -> float:
        # What is lost is said by the judge, message by message.
        with contextlib.suppress(ChaosError):
            wait_for(self._shows_all, _DISPATCH_S, "the master's queues")
        addresses = [broker.address for broker in self._group.brokers]
        return wait_for(
            lambda: have_same_ends(addresses, self._topic, QUEUES),
            RECOVERY_S,
            "the slaves' queues as long as the master's",
        )

    def _shows_all(self) -> bool:
        """Whether the master's queues reach what it has acknowledged: it dispatches afterwards."""
        ends = [0] * QUEUES
        for ack in self._acks.acks:
            if not self._promotions or ack.code == SEND_OK:
                ends[ack.queue_id] = max(ends[ack.queue_id], ack.queue_offset + 1)
        with contextlib.suppress(OSError):
            now = self._ends(self._where())
            return all(end <= at for end, at in zip(ends, now, strict=True))
        return False

    def _ends(self, address: tuple[str, int]) -> list[int]:
        return queue_ends(address, self._topic, QUEUES)

    def _read_all(self, address: tuple[str, int]) -> dict[int, list[bytes]]:
        """Bodies by queue. A queue offset that is missing is a violation."""
        queues, stopped = read_queues(address, self._topic, QUEUES)
        found = gaps(queues)
        if self._disks is not None and self._disks.losses.may_have_gaps:
            self._result.gaps, found = len(found), []
        self._result.violations += checks.shortened([*stopped, *found])
        return queues

    # -- the judge -----------------------------------------------------------------------------

    def _promised(self, queues: dict[int, list[bytes]]) -> list[Ack]:
        """The answers whose messages have to be there."""
        acks = self._acks.acks
        if self._disks is not None:
            acks = self._disks.promised(queues)
            self._result.lost_to_power = dict(self._disks.losses.codes)
        # A promoted slave has what was answered SEND_OK, and perhaps more.
        return [ack for ack in acks if not self._promotions or ack.code == SEND_OK]

    def _judge(self, queues: dict[int, list[bytes]], promised: Sequence[Ack]) -> None:
        acks, result, follower = self._acks, self._result, self._follower
        result.sent += sum(acks.sent.values())
        result.acknowledged += len(acks.acks)
        result.codes = dict(Counter(result.codes) + acks.codes)
        result.broken = dict(Counter(result.broken) + acks.broken)
        result.stored += sum(map(len, queues.values()))
        result.flipped = sum(relay.flipped for relay in self._group.relays)
        if self._honesty is not None:
            result.looked_at, result.dishonest = self._honesty.looked_at, self._honesty.dishonest
        for found in (
            [] if self._honesty is None else self._honesty.violations,
            [] if self._disks is None else self._disks.violations,
            checks.lost(promised, queues),
            checks.places_given_twice(promised),
            checks.invented(queues, acks.sent),
            checks.repeated(queues),
            checks.out_of_order(queues),
            checks.consumed_otherwise(follower.seen, queues),
            follower.violations,
        ):
            result.violations += checks.shortened(found)
        for slave in self._group.slaves:
            copies = self._read_all(slave.address)
            result.violations += checks.shortened(
                [f"{slave.name}: {text}" for text in checks.lost(promised, copies)]
            )

    def _judge_look_ups(self, promised: list[Ack]) -> None:
        """A sample of what has to be there is found by keys and by offset id, too."""
        acks = sample(promised, LOOK_UPS, self._seed)
        self._result.looked_up += len(acks)
        for broker in self._group.brokers:
            missing = found_late(broker.address, self._topic, acks)
            self._result.violations += checks.shortened(
                [f"{broker.name}: {text}" for text in missing]
            )

    def _lose_everything(self, promised: Sequence[Ack]) -> None:
        violations = self._delay_violations()
        told, found = lose_everything(
            self._group,
            promised,
            self._over_s,
            self._draw,
            lacks=lambda broker: self._lacks(broker, self._over_s, "it"),
        )
        self._say(told)
        self._result.violations += violations + found
        if self._group.slave is not None:
            self._wait_for_slaves()

    def _delay_violations(self) -> list[str]:
        """Of the slaves' files, before they are started again: then they go back to what was on
        disk for certain."""
        assert self._side is not None
        found = []
        for slave in self._group.slaves:
            path = slave.store / "config" / "delayOffset.json"
            as_of_s = self._over_s - OFFSETS_S
            found += self._side.tables.delay_violations(path, as_of_s, slave.name)
        return found

    def _judge_files(self) -> None:
        self._result.violations += table_violations(self._group, self._lasting_topics())
        for broker in reversed(self._group.brokers):
            self._stop(broker)
        self._result.violations += file_violations(self._group)

    def _lasting_topics(self) -> list[str]:
        return [self._topic]

    def _write(self) -> None:
        result = self._result
        text = json.dumps(self._as_json(result), indent=2)
        (self._directory / "result.json").write_text(text + "\n")
        title = f"mqchaos seed {result.seed}"
        picture = draw_timeline(
            title, result.acks_a_bin, BIN_S, result.faults, result.verdict, self._curves()
        )
        (self._directory / "timeline.svg").write_text(picture)

    def _as_json(self, result: ChaosResult) -> dict[str, Any]:
        return result.as_json()

    def _curves(self) -> list[Curve]:
        return []
