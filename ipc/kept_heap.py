"""keep_freed_memory: what a thread has freed is there for its next arrays, not given back.

Called by the composition roots of `store` and of a slave's `ha`, once, before their threads work.
Both take megabytes of arrays for each few megabytes of log and free them again; the C library gives
such memory back to the kernel each time and gets it zeroed page by page the next time, which was
25 % of the dispatch thread's time on a slave that caught up (100,000 page faults in 400 MB of
records of 320 bytes; 200 without). It knows no process.
"""

from __future__ import annotations

import ctypes
import logging
from typing import Final

log = logging.getLogger(__name__)

KEPT_SIZE: Final = 16 << 20
"""So much stays at the end of each heap (a few threads share one) though it is free."""
_ON_THE_HEAP: Final = 8 << 20
"""Smaller pieces come from the heap, larger ones from the kernel."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> None:
    """For this process; where the C library cannot (it is not glibc), nothing changes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        log.info("freed memory goes back to the kernel: the C library has no mallopt")
        return
    mallopt(_M_TRIM_THRESHOLD, KEPT_SIZE)
    mallopt(_M_MMAP_THRESHOLD, _ON_THE_HEAP)
