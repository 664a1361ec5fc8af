"""One start of one broker under measurement: its store, its loads, and what it uses meanwhile.

Runs in the process of the benchmark. A session knows no row: shapes.py says what is done in it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.bench.client_process import ClientProcess
from tests.bench.guards import GUARDS, OPEN
from tests.bench.measuring import (
    MemoryWatch,
    first_touch_gb_s,
    quiet_cpu_s,
    run_load,
    side_broker,
)
from tests.bench.memory_budget import Holding, look_at_memory
from tests.bench.sync_counter import SyncCounter
from tests.interop import harness

_WARM_UP: Final = 200_000
_CLIENT_WARM_UP: Final = 30_000
_STREAM_WARM_UP: Final = (8, 5_000, 15_000, 1024)
"""Queues, messages a second, messages, bytes; the same for short runs, since it is for the client:
its latencies are those of code that its JVM has not compiled yet."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Factors on what the rows do: on counts of messages, and on seconds of open loops. Java is
    warmed up as long for a short run as for a whole one: warm_up is for trials."""

    counts: float = 1.0
    seconds: float = 1.0
    warm_up: float = 1.0

    def count(self, full: int, unit: int = 1) -> int:
        """The count of messages for `full` of them: a multiple of `unit`, at least one."""
        return _multiple(full * self.counts, unit)

    def warm_up_count(self, full: int, unit: int = 1) -> int:
        """The same for a warm-up."""
        return _multiple(full * self.warm_up, unit)


def _multiple(count: float, unit: int) -> int:
    return max(1, int(count) // unit) * unit


@dataclass(frozen=True, slots=True)
class Setup:
    """How the broker of some rows is started."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    has_name_server: bool = False
    counts_syncs: bool = False
    warms_up: bool = True
    guard: str = ""
    """A name of guards.py, or nothing."""
    is_alone: bool = False
    """Its rows start their brokers themselves: alone.py."""


class Session:
    """A broker on a fresh store, which goes with it. Used by one thread."""

    def __init__(self, side: str, directory: Path, setup: Setup, lengths: Lengths) -> None:
        """side: a name of measuring.BROKERS, or the limit."""
        self.side = side
        self.lengths = lengths
        self.first_touch_gb_s = first_touch_gb_s()
        self.idle: list[Holding] = []
        """Memory of each process before the first load."""
        self.sent: Final[dict[str, dict[str, float]]] = {}
        """By topic: what the load that filled it counted."""
        self.first_sends: Final[dict[str, float]] = {}
        """By topic: how many messages it has besides."""
        self._directory = directory
        self._setup = setup
        self._names: harness.NameServer | None = None
        self._clients: dict[str, ClientProcess] = {}
        self._syncs = SyncCounter(directory / "syncs") if setup.counts_syncs else None
        if setup.has_name_server:
            self._names = harness.name_server("ours", directory / "namesrv")
        self._guard = GUARDS[setup.guard](side, directory) if setup.guard else OPEN
        self.broker: Final = side_broker(
            side,
            directory,
            self._names.address if self._names else None,
            jvm=self._guard.jvm,
            conf={**setup.settings, **self._guard.settings},
            env=self._syncs.environment if self._syncs else {},
        )

    def __enter__(self) -> Self:
        """Start, note the idle memory, warm up."""
        try:
            if self._names:
                self._names.start()
            self.broker.start()
            self.wait_quiet()
            self.idle = look_at_memory(self.broker.process.pid)
            if self._setup.warms_up:
                self._warm_up()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.broker.log_tail())
        self._end()

    def _end(self) -> None:
        for client in self._clients.values():
            client.close()
        self.broker.kill()
        if self._names:
            self._names.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _warm_up(self) -> None:
        self.load("send", "bench-warm-up", 4, 64, self.lengths.warm_up_count(_WARM_UP), 128)
        if "pull" in self._guard.options:
            self.load("pull", "bench-warm-up", "bench-warm", 4, 32)

    def load(self, mode: str, topic: str, *arguments: object) -> dict[str, float]:
        """Run the load generator against the broker; its figures."""
        return run_load(mode, self.broker, topic, *arguments, *self._guard.options[mode])

    def make_topic(self, topic: str) -> None:
        """By a send to each of its queues; `first_sends` has how many of them were taken."""
        figures = self.load("send", topic, 1, 1, 4, 128)
        self.first_sends[topic] = figures["total"] - figures["not_success"]

    def wait_quiet(self) -> float:
        """Until the broker has worked off what it had to do; its CPU seconds so far."""
        return quiet_cpu_s(self.broker.process.pid)

    def measured(self, action: Callable[[], dict[str, float]]) -> dict[str, float]:
        """What `action` gives, with what the broker used from before it until it is quiet again.

        Added are cpu_s, rss_anon_max (bytes) and, where they are counted, syncs (while the action
        ran).
        """
        before_s = self.wait_quiet()
        syncs = self._syncs.read() if self._syncs else 0
        with MemoryWatch(self.broker.process.pid) as memory:
            figures = dict(action())
            if self._syncs:
                figures["syncs"] = self._syncs.read() - syncs
            figures["cpu_s"] = self.wait_quiet() - before_s
        figures["rss_anon_max"] = memory.highest
        return figures

    def client(self, language: str) -> ClientProcess:
        """The official client of a language, started and warmed up by the first who asks."""
        if language not in self._clients:
            count = self.lengths.warm_up_count(_CLIENT_WARM_UP, 16)
            self._started(language).send(f"bench-warm-up-{language}", 16, count, 128)
        return self._clients[language]

    def stream_client(self) -> ClientProcess:
        """Java's producer with a push consumer behind it, likewise."""
        program = "java-push"
        if program not in self._clients:
            self._started(program).stream("bench-warm-up-push", *_STREAM_WARM_UP)
        return self._clients[program]

    def _started(self, program: str) -> ClientProcess:
        assert self._names is not None, f"setup {self._setup.name} has no name server"
        directory = self._directory / f"client-{program}"
        self._clients[program] = ClientProcess(program, self._names.address, directory)
        return self._clients[program]

    def boot_s(self) -> float:
        """Start the broker again, after its end; the time to its boot line."""
        begin = time.perf_counter()
        self.broker.start()
        return time.perf_counter() - begin
