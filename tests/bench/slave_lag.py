"""How long a slave is behind its master under a steady load, from both brokers' control pages.

Ours only: a sampler maps both pages read-only (through /proc/PID/fd of the supervisors) and reads
both ends of the log every millisecond, so that the brokers are not asked and not disturbed. A lag
is never understated: a byte counts as written since the sample before the one that showed it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ipc.control_page import PAGE_SIZE
from store.control_slots import MAX_PHY_OFFSET

_PAGE_NAME: Final = "/memfd:mqbroker-control-page"
_INTERVAL_S: Final = 0.001


@contextlib.contextmanager
def log_end_of(supervisor_pid: int) -> Iterator[Callable[[], int]]:
    """Reads max_phy_offset of a running broker of ours. Raises LookupError without a page."""
    for entry in Path(f"/proc/{supervisor_pid}/fd").iterdir():
        if os.readlink(entry).startswith(_PAGE_NAME):
            break
    else:
        raise LookupError(f"process {supervisor_pid} has no {_PAGE_NAME}")
    fd = os.open(entry, os.O_RDONLY)
    try:
        page = mmap.mmap(fd, PAGE_SIZE, access=mmap.ACCESS_READ)
    finally:
        os.close(fd)
    with page, memoryview(page) as view, view.cast("Q") as counters:
        yield lambda: counters[MAX_PHY_OFFSET]


def sample_lags(
    master_end: Callable[[], int], slave_end: Callable[[], int], *, until: Callable[[], bool]
) -> list[tuple[float, float]]:
    """(lag in seconds, for how many seconds it was seen) until `until` says so."""
    unconfirmed: deque[tuple[int, float]] = deque()  # end of the master's log, since when at least
    lags = []
    highest, last_s = master_end(), time.perf_counter()
    while not until():
        time.sleep(_INTERVAL_S)
        slave, master, now = slave_end(), master_end(), time.perf_counter()
        if master > highest:
            highest = master
            unconfirmed.append((master, last_s))
        while unconfirmed and unconfirmed[0][0] <= slave:
            unconfirmed.popleft()
        lags.append((now - unconfirmed[0][1] if unconfirmed else 0.0, now - last_s))
        last_s = now
    return lags


def percentile(lags: list[tuple[float, float]], share: float) -> float:
    """The lag that is not exceeded during `share` of the time."""
    total = sum(seconds for _, seconds in lags)
    seen = 0.0
    for lag, seconds in sorted(lags):
        seen += seconds
        if seen >= share * total:
            return lag
    return 0.0
