"""SoakRun: a group under mixed load and faults for long, and whether anything grows.

The load of a ChaosRun goes on in epochs of a minute, each with a topic of its own, a schedule of
its own and the whole judgement at its end, so that this program needs no more memory in the tenth
hour than in the first minute. Beside it run delayed messages, transactions, topics that come and go
and clients that come and go, over all epochs. A thread samples what each process holds.

Faults that end processes are left out unless they are asked for: a process that is new holds
nothing yet. Figures of a process are judged over its last life, if that is the longer part of the
run.

Tested by tests/tools/chaos/test_flatness.py.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from remoting.request_code import RequestCode
from tools.chaos import checks
from tools.chaos.ack_log import AckLog
from tools.chaos.chaos_options import ChaosOptions, ChaosResult
from tools.chaos.chaos_run import RECOVERY_S, ChaosRun, Say
from tools.chaos.delayed_load import DelayedLoad
from tools.chaos.flatness import TABLE_HEAD, Growth, Limit, growth_of
from tools.chaos.frame_client import FrameClient
from tools.chaos.mixed_load import TX_TOPIC, LoadThread, Reconnects, TopicChurn, Transactions
from tools.chaos.processes import figures_of
from tools.chaos.schedule import LINK_FAULTS, FaultKind, make_schedule
from tools.chaos.scratch_group import ScratchGroup
from tools.chaos.scratch_process import ChaosError, wait_for
from tools.chaos.timeline import Curve
from tools.chaos.workload import Follower, Producers

SOAK_KINDS: Final = (
    *(kind for kind in FaultKind if kind in LINK_FAULTS),
    *(FaultKind.STOP, FaultKind.CLOCK_JUMP, FaultKind.FD_EXHAUSTION),
)
LIMITS: Final = {
    "memory": (Limit(0.05, 4.0), "MB"),
    "descriptors": (Limit(0.0, 8.0), ""),
    "threads": (Limit(0.0, 4.0), ""),
    "p50": (Limit(0.5, 5.0), "ms"),
    "p99": (Limit(1.0, 100.0), "ms"),
}
"""By figure: how much it may grow in the second half."""
SETTINGS: Final = {
    "transactionCheckInterval": 2_000,
    "transactionTimeOut": 1_000,
    "transactionCheckMax": 1_000_000,
    # Each file of the log is a descriptor for each of its readers.
    "mappedFileSizeCommitLog": 256 << 20,
    "mappedFileSizeConsumeQueue": 6_000_000,
}
_EPOCH_S: Final = 60.0
_LEAST_EPOCH_S: Final = 10.0
_MOST_SAMPLES: Final = 720
_LEAST_PAUSE_S: Final = 1.0

Series = dict[str, list[tuple[float, float]]]
"""By name of a figure: (seconds since the start, figure)."""


class SoakSamples:
    """What the processes hold and how long answers take. Its thread writes, `stop` ends it."""

    def __init__(self, group: ScratchGroup, seconds: float) -> None:
        self._group = group
        self._pause_s = max(seconds / _MOST_SAMPLES, _LEAST_PAUSE_S)
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._answers_s: list[float] = []
        self._pids: dict[str, int] = {}
        self.series: Series = defaultdict(list)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="SoakSamples", daemon=True)
        self._thread.start()

    def answered(self, seconds: float) -> None:
        """An answer took so long. Any thread."""
        with self._lock:
            self._answers_s.append(seconds)

    def stop(self) -> Series:
        """End; the series."""
        self._end.set()
        self._thread.join()
        return self.series

    def _run(self) -> None:
        while not self._end.wait(self._pause_s):
            now_s = time.monotonic() - self._began_s
            for broker in self._group.brokers:
                for process, pid in broker.processes().items():
                    self._sample(f"{broker.name} {process}", pid, now_s)
            self._sample_answers(now_s)

    def _sample(self, name: str, pid: int, now_s: float) -> None:
        found = figures_of(pid)
        if found is None:
            return
        figures = {
            f"{name} memory": found.memory_mb,
            f"{name} descriptors": float(found.descriptors),
            f"{name} threads": float(found.threads),
        }
        if self._pids.setdefault(name, pid) != pid:
            self._pids[name] = pid
            for series in figures:
                self.series[series].clear()
        for series, figure in figures.items():
            self.series[series].append((now_s, figure))

    def _sample_answers(self, now_s: float) -> None:
        with self._lock:
            answers, self._answers_s = sorted(self._answers_s), []
        if answers:
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                figure = answers[int(share * (len(answers) - 1))] * 1000
                self.series[f"answers {name}"].append((now_s, figure))


def judge_series(series: Series, seconds: float) -> list[Growth]:
    """The growth of each figure; lives shorter than half of the run are not judged."""
    found = []
    for name, samples in sorted(series.items()):
        limit, unit = LIMITS[name.rpartition(" ")[2]]
        if not samples:
            continue
        growth = growth_of(name, unit, limit, samples)
        if samples[-1][0] - samples[0][0] < seconds / 2:
            growth = replace(growth, is_flat=None)
        found.append(growth)
    return found


class SoakRun(ChaosRun):
    """See the module. Used once."""

    def __init__(self, directory: Path, seed: int, options: ChaosOptions, say: Say) -> None:
        if options.breaks_disks:
            raise ValueError(
                "a soak takes no disk faults: these are judged on one topic, its topics change"
            )
        super().__init__(directory, seed, replace(options, settings=SETTINGS, accounts=False), say)
        self._result.faults = []
        self._growth: list[Growth] = []
        self._series: Series = {}

    # -- the course of a run -------------------------------------------------------------------

    def _lead(self) -> None:
        self._group.start()
        began_s = time.monotonic()
        samples = SoakSamples(self._group, self._options.seconds)
        delayed = DelayedLoad(self._where, self._options.delayed_rate)
        transactions = Transactions(self._where, 0.05)
        loads: list[LoadThread] = [
            transactions,
            TopicChurn(self._where, 0.5),
            Reconnects(self._where, 0.03),
        ]
        delayed.start()
        for load in loads:
            load.start()
        epoch_s = max(min(_EPOCH_S, self._options.seconds / 4), _LEAST_EPOCH_S)
        number = 0
        while time.monotonic() - began_s < self._options.seconds:
            self._epoch(number, epoch_s, began_s, samples)
            number += 1
        self._series = samples.stop()
        self._end_loads(delayed, transactions, loads)
        self._growth = judge_series(self._series, self._options.seconds)
        grows = [growth.text() for growth in self._growth if growth.is_flat is False]
        self._result.violations += [" ".join(text.split()) for text in grows]
        self._judge_files()

    def _lasting_topics(self) -> list[str]:
        return [TX_TOPIC]  # The epochs' own are deleted.

    def _epoch(self, number: int, epoch_s: float, began_s: float, samples: SoakSamples) -> None:
        """A minute of load on a topic of its own, with faults, and its judgement."""
        options, before = self._options, len(self._result.violations)
        self._topic = f"Soak{number}"
        self._acks.close()
        self._acks = AckLog(self._directory / f"acks-{number}.log")
        self._follower = Follower(self._where, self._topic)
        producers = Producers(
            self._where,
            self._acks,
            count=options.producers,
            rate=options.rate,
            size=options.message_size,
            topic=self._topic,
            on_answer=samples.answered,
            on_stored=None if self._honesty is None else self._honesty.answered,
        )
        producers.start()
        self._follower.start()
        wait_for(lambda: len(self._acks.acks) > 50, RECOVERY_S, "the first acknowledgements")
        at_s = time.monotonic() - began_s
        has_slave = options.has_slave
        faults = make_schedule(self._seed + number, epoch_s, options.kinds, has_slave=has_slave)
        self._result.faults += [replace(fault, at_s=fault.at_s + at_s) for fault in faults]
        with self._count_acks(at_s):
            self._break_things(faults, epoch_s)
            self._heal()
            self._still_serves()
        if not producers.stop():
            self._result.violations.append("a producer hangs: an answer never came")
        self._wait_for_slaves()
        queues = self._read_all(self._where())
        self._wait_for_follower(queues)
        self._judge(queues, self._promised(queues))
        self._end_epoch(number, before)

    def _end_epoch(self, number: int, before: int) -> None:
        """Drop what is judged: the topic, and the answers of an epoch that held."""
        with FrameClient(self._where(), RECOVERY_S) as client:
            client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": self._topic})
        self._say(
            f"          epoch {number}: {len(self._acks.acks):,} acknowledged, "
            f"{len(self._result.violations) - before} violations"
        )
        if len(self._result.violations) == before:
            (self._directory / f"acks-{number}.log").unlink()

    def _end_loads(
        self, delayed: DelayedLoad, transactions: Transactions, loads: Sequence[LoadThread]
    ) -> None:
        violations = self._result.violations
        delayed.stop_sending()
        transactions.decide_only()
        try:
            wait_for(lambda: transactions.has_all, RECOVERY_S, "transactions")
            wait_for(lambda: delayed.has_all(only_ok=False), RECOVERY_S, "delayed messages")
        except ChaosError as error:
            violations.append(str(error))
        for load in loads:
            load.stop()
            found = transactions.judge() if load is transactions else load.violations
            violations += checks.shortened(found)
        violations += checks.shortened(delayed.stop(only_ok=False))
        self._result.delayed = delayed.text()
        self._result.mixed = [load.text() for load in loads]
        for text in (self._result.delayed, *self._result.mixed):
            self._say(text)

    # -- what is left ----------------------------------------------------------------------------

    def table(self) -> list[str]:
        """The figures, a line each."""
        return [TABLE_HEAD, *(growth.text() for growth in self._growth)]

    def _as_json(self, result: ChaosResult) -> dict[str, Any]:
        figures = [
            {name: getattr(growth, name) for name in Growth.__slots__} for growth in self._growth
        ]
        return {**result.as_json(), "figures": figures}

    def _curves(self) -> list[Curve]:
        (self._directory / "samples.json").write_text(json.dumps(self._series) + "\n")
        by_figure: dict[str, Series] = defaultdict(dict)
        for name, samples in sorted(self._series.items()):
            line, _space, figure = name.rpartition(" ")
            by_figure[figure][line] = samples
        return [
            Curve(f"{figure} {LIMITS[figure][1]}".strip(), lines)
            for figure, lines in by_figure.items()
        ]
