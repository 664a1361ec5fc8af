"""Rows of bin/bench compare that other commands measure, too: each starts its brokers itself.

Runs in the process of the benchmark. A shape here knows one function of one command (pop.py,
replicated_sends.py, idle.py) or, for the first use, the launcher; what it gives is as in shapes.py,
or named as that command names it.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench import idle, pop
from tests.bench.replicated_sends import measure_sync_one
from tests.bench.session import Lengths, Session
from tests.bench.shapes import Row
from tests.interop.harness import REPO_DIR
from tests.interop.processes import ServerProcess
from tools.chaos.free_ports import free_port

_BOOT_LINE: Final = r"The broker\[[^\]]*\] boot success"
_OF_THIS_CHECKOUT: Final = (
    *("BROKER_VENV", "PYTHONPATH", "PYTHONSAFEPATH", "ROCKETMQ_HOME", "ROCKETMQ_RUN_DIR"),
    *("VIRTUAL_ENV", "PYTHONHOME"),
)
_FIRST_USES: Final = 3
_FIRST_USE_LIMIT_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone(Row):
    """A row without a session."""

    def run(self, session: Session) -> dict[str, float]:
        raise NotImplementedError(f"{self.name} starts its brokers itself")

    def measure(self, side: str, directory: Path, lengths: Lengths) -> dict[str, float]:
        """One run with brokers of `side`, whose files are under `directory`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class PopAck(Alone):
    """As bin/bench pop."""

    batch: int
    messages: int

    def measure(self, side: str, directory: Path, lengths: Lengths) -> dict[str, float]:
        load = pop.Load(
            messages=lengths.count(self.messages),
            batch=self.batch,
            warm_up=lengths.warm_up_count(pop.WARM_UP),
        )
        return pop.measure(side, directory, load).figures


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncMaster(Alone):
    """As bin/bench replication, one send at a time that waits for the slave."""

    def measure(self, side: str, directory: Path, lengths: Lengths) -> dict[str, float]:
        return measure_sync_one(side, directory, lengths.counts, lengths.warm_up)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleClients(Alone):
    """As bin/bench idle; shorter where open loops are."""

    clients: int

    def measure(self, side: str, directory: Path, lengths: Lengths) -> dict[str, float]:
        factor = max(1 / 3, lengths.seconds) if lengths.warm_up == 1 else lengths.seconds
        load = idle.Load(
            clients=max(2, int(self.clients * min(1.0, lengths.warm_up))),
            seconds=30 * factor,
            wakes=max(2, int(500 * factor)),
        )
        return idle.measure(side, directory, load).figures


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstUse(Alone):
    """From bin/mqbroker in a fresh clone of HEAD to the boot line: an environment is made, with
    packages from pip's cache, which a first run fills. The median of three after it."""

    def measure(self, side: str, directory: Path, lengths: Lengths) -> dict[str, float]:
        first_use_s(side, directory / "warm-up")
        runs = [first_use_s(side, directory / str(number)) for number in range(_FIRST_USES)]
        return {"seconds": statistics.median(runs)}


def first_use_s(side: str, directory: Path) -> float:
    """Once; the clone is not counted."""
    clone = directory / "clone"
    subprocess.run(["git", "clone", "--quiet", str(REPO_DIR), str(clone)], check=True)
    conf = directory / "broker.conf"
    settings = {
        "listenPort": free_port(-2, 1),
        "brokerIP1": "127.0.0.1",
        "embeddedNamesrvPort": 0,
        "metricsPort": 0,
        "storePathRootDir": directory / "store",
    }
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [str(clone / "bin" / "mqbroker"), "-c", str(conf)]
    process = ServerProcess("first use", command, directory / "log", _BOOT_LINE, {})
    began = time.perf_counter()
    try:
        process.start()
        return time.perf_counter() - began
    finally:
        process.kill()
        shutil.rmtree(directory, ignore_errors=True)
