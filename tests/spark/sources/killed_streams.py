"""Streams that are killed: the process of one, and when it is killed.

Used by the long tests of kills and of failovers.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.spark.sources.stream_ledger import TOPIC, Ledger
from tests.support.deadline import wait_until
from tools.chaos.processes import children_of

CLUSTER: Final = os.environ.get("SPARK_KILLS_MASTER", "local-cluster[2,1,512]")
SEEDS: Final = [int(each) for each in os.environ.get("SPARK_KILLS_SEEDS", "1,2,3,4").split(",")]
KILLS: Final = int(os.environ.get("SPARK_KILLS", "5"))
"""Of a seed."""
_BATCH_S: Final = 180
_ALL_S: Final = 600
_START_S: Final = 30


class Stream:
    """The program, started again and again on the same checkpoint."""

    def __init__(self, name_server: str, directory: Path, *sink: str) -> None:
        """sink: a topic, instead of files."""
        self._words = [CLUSTER, name_server, TOPIC, str(directory), *sink]
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._left: set[int] = set()

    def start(self) -> None:
        with (self._directory / "stream.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.sources.stream_program", *self._words],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill_driver(self) -> None:
        """The driver's Python and JVM, at once. Its executors live until they notice."""
        assert self._process is not None
        found = descendants(self._process.pid)
        executors = set(self.executors())
        kept = executors.union(*map(descendants, executors))
        self._left |= kept
        for pid in [self._process.pid, *(pid for pid in found if pid not in kept)]:
            kill(pid)
        self._process.wait()

    def kill(self) -> None:
        """The driver, its JVM, and all that they and those before them started."""
        assert self._process is not None
        for pid in [*descendants(self._process.pid), self._process.pid, *self._left]:
            if pid not in self._left or str(self._directory).encode() in command(pid):
                kill(pid)
        self._process.wait()

    def executors(self) -> list[int]:
        """Executor JVMs, or the Python workers of a local master."""
        assert self._process is not None
        found = descendants(self._process.pid)
        executors = [pid for pid in found if b"CoarseGrainedExecutorBackend" in command(pid)]
        return executors or [pid for pid in found if b"-m\0spark.job.python_daemon" in command(pid)]

    def ended(self) -> bool:
        """Whether the query failed."""
        return self._process is not None and self._process.poll() is not None

    def revive(self) -> bool:
        """Starts it if it has ended; whether it had."""
        if not self.ended():
            return False
        self.start()
        return True

    def batches(self) -> int:
        """How many Spark has committed."""
        return len(list((self._directory / "checkpoint" / "commits").glob("[0-9]*")))

    def wait_for_batch(self) -> None:
        """Until one more is committed, or the query failed."""
        before = self.batches()
        wait_until(lambda: self.batches() > before or self.ended(), _BATCH_S)

    def settle(self, ends: Mapping[int, int]) -> None:
        """Goes on, started again if need be, until all before `ends` (by queue) is committed."""

        def is_done() -> bool:
            self.revive()
            reached = self._reached()
            return all(reached.get(queue, 0) >= end for queue, end in ends.items())

        wait_until(is_done, _ALL_S)

    def _reached(self) -> dict[int, int]:
        """The offsets behind the last batch that is committed."""
        checkpoint = self._directory / "checkpoint"
        done = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
        if not done:
            return {}
        text = (checkpoint / "offsets" / str(max(done))).read_text("utf-8").splitlines()[-1]
        (queues,) = json.loads(text)["offsets"][TOPIC].values()
        return {int(queue): end for queue, end in queues.items()}


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(pid: int) -> list[int]:
    found = children_of(pid)
    return found + [each for child in found for each in descendants(child)]


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


# -- the kills -------------------------------------------------------------------------------------


class Diary:
    """What was killed and when, as a row of the table in docs/spark_sources.md."""

    def __init__(self, stream: Stream, ledger: Ledger) -> None:
        self._stream, self._ledger = stream, ledger
        self._begun_s = time.monotonic()
        self.entries: list[str] = []

    def note(self, what: str) -> None:
        """It is about to be killed."""
        self.entries.append(f"{what} {self._stream.batches()}/{len(self._ledger.acknowledged)}")
        print(f"{time.monotonic() - self._begun_s:.0f} s: {self.entries[-1]}", flush=True)

    def after(self) -> None:
        """The strike is over: the query is started again, which is worth a star where it had failed
        by itself."""
        if self._stream.revive() and not self.entries[-1].startswith("driver"):
            self.entries[-1] += "*"

    def row(self, seed: int, sink: str, copies: int) -> str:
        """copies: that the sink had before it left out what it had."""
        sent = len(self._ledger.acknowledged)
        kills = ", ".join(self.entries)
        return f"| {seed} | {sink} | {kills} | {sent} | {len(self._ledger.maybe)} | {copies} |"


def wait_for_moment(moments: random.Random, stream: Stream) -> None:
    """Of the seed's: in a batch's middle mostly, else in that of a start or of the batch that a
    start repeats."""
    if in_batch := moments.random() < 0.7:
        stream.wait_for_batch()
    threading.Event().wait(moments.uniform(0, 2 if in_batch else _START_S))
