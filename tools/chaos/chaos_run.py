"""ChaosRun: one seed: start a group, load it, break it, heal it, and judge what is left.

One thread leads; producers, consumer and relay have their own. The order: start, first messages,
the schedule, heal (every process runs, the link passes), lag 0, stop the clients, read everything,
stop the brokers in order, compare the files. A violation is a sentence; none is the verdict "held".
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tools.chaos import checks
from tools.chaos.ack_log import SEND_OK, AckLog
from tools.chaos.frame_client import FrameClient
from tools.chaos.schedule import LINK_FAULTS, Fault, FaultKind, make_schedule
from tools.chaos.scratch_group import ChaosError, ScratchBroker, ScratchGroup, wait_for
from tools.chaos.timeline import draw_timeline
from tools.chaos.workload import QUEUES, TOPIC, Follower, Producers

_RECOVERY_S: Final = 60.0
"""What a group may take, once healed, until it serves and its slave has everything."""
_BIN_S: Final = 0.25
_PULL_TIMEOUT_S: Final = 30.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """What a run does."""

    seconds: float
    kinds: Sequence[FaultKind]
    flush: str
    """"async" or "sync": flushDiskType."""
    replication: str
    """"none" (no slave), "async" or "sync"."""
    ack_level: str
    """haAckLevel: received, validated or flushed."""
    rate: float
    producers: int = 4
    message_size: int = 200

    @property
    def has_slave(self) -> bool:
        """Whether there is one."""
        return self.replication != "none"


@dataclass(slots=True)
class ChaosResult:
    """What came of one seed; `violations` empty: every promise held."""

    seed: int
    faults: list[Fault]
    sent: int = 0
    acknowledged: int = 0
    codes: dict[int, int] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    stored: int = 0
    recovery_s: float = 0.0
    flipped: int = 0
    violations: list[str] = field(default_factory=list)
    acks_a_bin: list[int] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """One word or two."""
        return "held" if not self.violations else f"{len(self.violations)} violations"

    def as_json(self) -> dict[str, Any]:
        """For result.json."""
        return {**asdict(self), "verdict": self.verdict}


class ChaosRun:
    """See the module. Used once."""

    def __init__(self, directory: Path, seed: int, options: ChaosOptions, say: Say) -> None:
        """directory: empty, stays. say: takes a line of progress."""
        self._directory = directory
        self._options = options
        self._say = say
        self._seed = seed
        role = "SYNC_MASTER" if options.replication == "sync" else "ASYNC_MASTER"
        self._group = ScratchGroup(
            directory,
            seed=seed,
            has_slave=options.has_slave,
            role=role,
            settings={
                "flushDiskType": f"{options.flush.upper()}_FLUSH",
                "haAckLevel": options.ack_level,
            },
        )
        faults = make_schedule(seed, options.seconds, options.kinds, has_slave=options.has_slave)
        self._result = ChaosResult(seed, faults)
        self._acks = AckLog(directory / "acks.log")

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
            self._group.port,
            self._acks,
            count=options.producers,
            rate=options.rate,
            size=options.message_size,
        )
        follower = Follower(self._group.port)
        producers.start()
        follower.start()
        wait_for(lambda: len(self._acks.acks) > 50, _RECOVERY_S, "the first acknowledgements")
        with _Sampler(self._acks, self._result.acks_a_bin):
            self._break_things()
            self._heal()
            self._still_serves()
        if not producers.stop():
            self._result.violations.append("a producer hangs: an answer never came")
        self._result.recovery_s += self._wait_for_slave()
        queues = self._read_all(self._group.port)
        wait_for(
            lambda: (
                all(len(follower.seen[q]) >= len(queues[q]) for q in queues) or follower.violations
            ),
            _RECOVERY_S,
            "the consumer at the end of its queues",
        )
        follower.stop()
        self._judge(queues, follower)
        self._judge_files()

    def _break_things(self) -> None:
        began = time.monotonic()
        for fault in self._result.faults:
            self._pause(began + fault.at_s - time.monotonic())
            self._say(fault.text())
            self._commit(fault)
        self._pause(began + self._options.seconds - time.monotonic())

    def _pause(self, seconds: float) -> None:
        """So long, as the schedule says: nothing is waited for."""
        threading.Event().wait(max(seconds, 0.0))

    def _commit(self, fault: Fault) -> None:
        """The fault, and its end."""
        if fault.kind in LINK_FAULTS:
            relay = self._group.relay
            assert relay is not None
            relay.set_mode(fault.kind)
            self._pause(fault.lasts_s)
            relay.set_mode(None)
            return
        broker = self._broker(fault)
        if fault.kind is FaultKind.KILL:
            broker.signal(fault.process, signal.SIGKILL)
            if fault.process == "supervisor":
                wait_for(lambda: not broker.is_alive, _RECOVERY_S, "a killed supervisor's end")
                broker.kill_all()
                broker.start()
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

    def _broker(self, fault: Fault) -> ScratchBroker:
        slave = self._group.slave
        return slave if fault.broker == "slave" and slave is not None else self._group.master

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
            lambda: self._acks.codes[SEND_OK] > before + 50, _RECOVERY_S, "SEND_OK after the faults"
        )
        self._result.recovery_s = time.monotonic() - began

    def _wait_for_slave(self) -> float:
        slave = self._group.slave
        if slave is None:
            return 0.0

        def is_there() -> bool:
            try:
                return self._ends(slave.ports["main"]) == self._ends(self._group.port)
            except OSError:
                return False

        return wait_for(is_there, _RECOVERY_S, "the slave's queues as long as the master's")

    def _ends(self, port: int) -> list[int]:
        with FrameClient(port, _PULL_TIMEOUT_S) as client:
            return [client.max_offset(TOPIC, queue_id) for queue_id in range(QUEUES)]

    def _read_all(self, port: int) -> dict[int, list[bytes]]:
        """Bodies by queue. A queue offset that is missing is a violation."""
        queues: dict[int, list[bytes]] = {}
        with FrameClient(port, _PULL_TIMEOUT_S) as client:
            for queue_id, end in enumerate(self._ends(port)):
                bodies = queues[queue_id] = []
                while len(bodies) < end:
                    pulled = client.pull(TOPIC, queue_id, len(bodies))
                    offsets = [message.queue_offset for message in pulled.messages]
                    if not offsets or offsets != list(
                        range(len(bodies), len(bodies) + len(offsets))
                    ):
                        text = (
                            f"queue {queue_id} at {len(bodies)} of {end}: {pulled.code} {offsets}"
                        )
                        self._result.violations.append(text)
                        break
                    bodies.extend(message.body for message in pulled.messages)
        return queues

    # -- the judge -----------------------------------------------------------------------------

    def _judge(self, queues: dict[int, list[bytes]], follower: Follower) -> None:
        acks, result = self._acks, self._result
        result.sent = sum(acks.sent.values())
        result.acknowledged = len(acks.acks)
        result.codes, result.broken = dict(acks.codes), dict(acks.broken)
        result.stored = sum(map(len, queues.values()))
        result.flipped = 0 if self._group.relay is None else self._group.relay.flipped
        for found in (
            checks.lost(acks.acks, queues),
            checks.places_given_twice(acks.acks),
            checks.invented(queues, acks.sent),
            checks.repeated(queues),
            checks.out_of_order(queues),
            checks.consumed_otherwise(follower.seen, queues),
            follower.violations,
        ):
            result.violations += checks.shortened(found)
        slave = self._group.slave
        if slave is not None:
            copies = self._read_all(slave.ports["main"])
            result.violations += checks.shortened(
                [f"slave: {text}" for text in checks.lost(acks.acks, copies)]
            )

    def _judge_files(self) -> None:
        group, violations = self._group, self._result.violations
        for broker in reversed(group.brokers):
            self._stop(broker)
        if group.slave is not None:
            violations += checks.no_prefix(group.master.log_bytes(), group.slave.log_bytes())
        for broker in group.brokers:
            command = [sys.executable, "-m", "store.check", str(broker.store)]
            command += ["--hash-slots", "10000"]
            checked = subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
            )
            if checked.returncode != 0:
                violations.append(f"store.check of {broker.name}: {checked.stdout[-500:]}")

    def _write(self) -> None:
        result = self._result
        (self._directory / "result.json").write_text(json.dumps(result.as_json(), indent=2) + "\n")
        title = f"mqchaos seed {result.seed}"
        picture = draw_timeline(title, result.acks_a_bin, _BIN_S, result.faults, result.verdict)
        (self._directory / "timeline.svg").write_text(picture)


class _Sampler:
    """Counts acknowledgements a quarter second, for the picture."""

    def __init__(self, acks: AckLog, bins: list[int]) -> None:
        self._acks = acks
        self._bins = bins
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        before = len(self._acks.acks)
        while not self._end.wait(_BIN_S):
            now = len(self._acks.acks)
            self._bins.append(now - before)
            before = now


def summary_line(result: ChaosResult) -> str:
    """One line about a seed."""
    codes = ", ".join(f"{code}: {count:,}" for code, count in sorted(result.codes.items()))
    kinds = Counter(str(fault.kind) for fault in result.faults)
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return (
        f"seed {result.seed}: {result.verdict}; {result.sent:,} sent, {result.acknowledged:,} "
        f"acknowledged ({codes}), {result.stored:,} stored; {faults or 'no fault'}; "
        f"recovered in {result.recovery_s:.1f} s"
    )
