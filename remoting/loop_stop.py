"""LoopStop: ends a program's loop in order, whoever asks for it and whenever.

Any thread and signal handlers ask; the loop's thread closes the loop at the end. The lock is
reentrant, since a signal may arrive while it is held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from remoting.selector_loop import SelectorLoop


class LoopStop:
    """See the module."""

    def __init__(self, loop: SelectorLoop, stop: Callable[[], None]) -> None:
        """stop: called on the loop's thread, once; it has `loop.run` return."""
        self._loop = loop
        self._stop = stop
        self._lock = threading.RLock()
        self._is_requested = False

    def request(self) -> None:
        """Have `stop` called soon. Any thread, signal handlers."""
        with self._lock:
            if not self._is_requested:
                self._is_requested = True
                self._loop.call_soon_threadsafe(self._stop)
                self._loop.wake()

    def close_loop(self) -> None:
        """Close it. A closed loop must not be woken: requests that come later do nothing."""
        with self._lock:
            self._is_requested = True
            self._loop.close()
