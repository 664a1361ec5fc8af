"""Time that others took away: the host of a virtual machine, other tests, other programs.

Figures leave out the first, deadlines all of them. A machine whose host gives its processors to
others for a while is as slow as if it had fewer, and so is one on which more processes want to run
than it has processors. No test is about that: what has thirty seconds has thirty seconds of the
machine's own time, and of its own share of that.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

_CORES: Final = os.cpu_count() or 1
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK") * _CORES

WORKERS: Final = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
"""How many of pytest's processes run tests on this machine."""


class StolenTime:
    """How much of this virtual machine's processors its host gave to others since this began."""

    def __init__(self) -> None:
        self._began = _processor_ticks(_stat())

    def share(self) -> float:
        """0 to 1 of all processors' time; 0 on a machine that does not tell."""
        stolen, every = (
            now - before for now, before in zip(_processor_ticks(_stat()), self._began, strict=True)
        )
        return stolen / every if every else 0.0


class OwnTime:
    """A clock for one deadline or one measurement, from 0. It stands still while all processors are
    stolen, and runs slower when others run tests or more processes want to run than there are
    processors: read it often, each reading counts the time since the one before. One thread's.
    """

    def __init__(self) -> None:
        self._elapsed_s = 0.0
        self._at_s, self._stolen = time.monotonic(), _processor_ticks(_stat())[0]

    def s(self) -> float:
        """Seconds since it was made."""
        stat = _stat()
        at_s, stolen = time.monotonic(), _processor_ticks(stat)[0]
        passed_s = at_s - self._at_s - (stolen - self._stolen) / _TICKS_PER_S
        self._at_s, self._stolen = at_s, stolen
        self._elapsed_s += max(0.0, passed_s) / max(WORKERS, _waiting(stat) / _CORES)
        return self._elapsed_s


def _stat() -> str:
    return Path("/proc/stat").read_text()


def _processor_ticks(stat: str) -> tuple[int, int]:
    """(stolen, all) of all processors since the machine started; see proc(5), /proc/stat."""
    ticks = [int(word) for word in stat.partition("\n")[0].split()[1:9]]
    return ticks[7], sum(ticks)


def _waiting(stat: str) -> int:
    """How many threads run, want to, or wait for a disk."""
    lines = dict(line.split(" ", 1) for line in stat.rsplit("ctxt ", 1)[1].splitlines()[1:])
    return int(lines.get("procs_running", 1)) + int(lines.get("procs_blocked", 0))
