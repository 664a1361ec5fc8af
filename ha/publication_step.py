"""When a slave publishes what came while its master's socket has more. Pure; any thread.

The check and the dispatch of few records cost as much as those of many, and the master waits for
the reports.
"""

from __future__ import annotations

from typing import Final

_LEAST_STEP: Final = 512 << 10
"""While the socket has more, less is not published: a Java master's frames have 32 KiB, and a check
of so few records costs as much as one of many."""
_FULL_STEP: Final = 2 << 20
"""So much is published at once, and dispatched: per record of 1 KiB the check costs 0.21 us, and
0.52 in steps of 512 KiB; dispatch 0.67 and 1.2."""
_STEP_MS: Final = 5
"""But no longer than this after the last publication: the master waits for the reports."""


def is_step_full(size: int, since_ms: int) -> bool:
    """Whether `size` bytes are worth a publication, `since_ms` after the last one."""
    if size < _FULL_STEP and since_ms < _STEP_MS:
        return False
    return size >= _LEAST_STEP
