"""Patience: tries that are repeated for `retry_ms`, with pauses that grow.

Any thread; knows nothing of what is tried.

Tested by tests/spark/sources/test_cluster.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0


class Patience:
    """Of one request. Owned by: one thread."""

    def __init__(self, retry_ms: int, pause: Callable[[float], object]) -> None:
        """pause: waits so many seconds."""
        self._deadline_s = time.monotonic() + retry_ms / 1000
        self._pause = pause
        self._pause_s = FIRST_PAUSE_S

    def has_waited(self) -> bool:
        """Whether there was more than one try."""
        return self._pause_s > FIRST_PAUSE_S

    def wait(self) -> bool:
        """Until the next try; False, at once: there is no time for one."""
        if time.monotonic() + self._pause_s > self._deadline_s:
            return False
        self._pause(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return True
