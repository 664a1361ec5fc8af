"""How far behind the log's end a message counts as "in memory" (accessMessageInMemoryMaxRatio).

Pure but for one question to the operating system; any thread. Kin: StoreUtil.
"""

from __future__ import annotations

import os


def memory_limit_bytes(ratio_percent: int) -> int:
    """`ratio_percent` of the machine's memory."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total * ratio_percent // 100
