"""Whether the machine was quiet when a benchmark began: each core spins beside a clock.

Runs in the process of the benchmark and in one process for each core, before anything is measured.
A core that nobody else wants gives a spinning process all of its time. What the host took meanwhile
is told by /proc/stat. The load average is of the minute before, and is only told.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from typing import Any, Final

from tests.support.stolen_time import StolenTime

_SPIN_S: Final = 0.2
_SPINS: Final = 5
_LEAST_SHARE: Final = 0.95
_MOST_STOLEN: Final = 0.02


def spin_test() -> dict[str, Any]:
    """Spin on every core that this process may use, all at once, for a second."""
    cores = sorted(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    stolen = StolenTime()
    with multiprocessing.get_context("fork").Pool(len(cores)) as pool:
        shares = pool.map(spin_on, cores, chunksize=1)
    return judged(shares, stolen.share(), load)


def spin_on(core: int) -> float:
    """The share of `core`'s time that a process gets of it: the median of a few spins."""
    os.sched_setaffinity(0, {core})
    return sorted(_spin() for _ in range(_SPINS))[_SPINS // 2]


def _spin() -> float:
    began, used = time.perf_counter(), time.process_time()
    while (passed := time.perf_counter() - began) < _SPIN_S:
        pass
    return (time.process_time() - used) / passed


def judged(shares: Sequence[float], stolen: float, load: float) -> dict[str, Any]:
    """What was seen and what it means, as reports keep it. shares: of each core, 0 to 1."""
    seen = (
        f"spinning got {', '.join(f'{share:.0%}' for share in shares)} of the cores, "
        f"{stolen:.0%} stolen, load average {load:.1f}"
    )
    quiet = min(shares) >= _LEAST_SHARE and stolen <= _MOST_STOLEN
    text = f"the machine was {'quiet' if quiet else 'NOT QUIET'}: {seen}"
    return {
        "quiet": quiet,
        "shares": list(shares),
        "stolen": stolen,
        "load_average": load,
        "text": text,
    }


if __name__ == "__main__":
    print(spin_test()["text"], flush=True)
