"""The distance from the log's end within which a message counts as "in memory"
(accessMessageInMemoryMaxRatio).

Pure, except for one query to the operating system; any thread. RocketMQ's counterpart: StoreUtil.
"""

from __future__ import annotations

import os


def memory_limit_bytes(ratio_percent: int) -> int:
    """`ratio_percent` of physical memory, in bytes."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total * ratio_percent // 100
