"""Time that others took away, the host of a virtual machine or other tests: figures leave out the
first, deadlines both.

A machine whose host gives its processors to others for a while is as slow as if it had fewer, and
so is one on which several workers run tests. No test is about that: what has thirty seconds has
thirty seconds of the machine's own time, and of its own share of that.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK") * (os.cpu_count() or 1)

WORKERS: Final = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
"""How many of pytest's processes run tests on this machine."""


class StolenTime:
    """How much of this virtual machine's processors its host gave to others since this began."""

    def __init__(self) -> None:
        self._began = _processor_ticks()

    def share(self) -> float:
        """0 to 1 of all processors' time; 0 on a machine that does not tell."""
        stolen, every = (
            now - before for now, before in zip(_processor_ticks(), self._began, strict=True)
        )
        return stolen / every if every else 0.0


def own_s() -> float:
    """A clock for deadlines: it stands still while all processors are stolen, and runs slower when
    some are or other workers run tests."""
    return (time.monotonic() - _processor_ticks()[0] / _TICKS_PER_S) / WORKERS


def _processor_ticks() -> tuple[int, int]:
    """(stolen, all) of all processors since the machine started; see proc(5), /proc/stat."""
    first = Path("/proc/stat").read_text().partition("\n")[0]
    ticks = [int(word) for word in first.split()[1:9]]
    return ticks[7], sum(ticks)
