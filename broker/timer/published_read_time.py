"""PublishedReadTime: TIMER_READ_TIME_MS, up to where timers count as delivered for all others.

Loop thread of `remoting`. `store` and slaves follow it. The read time of the delivery counts there
when all that was delivered before it is as durable as sends are answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ipc.clock import Clock
from store.control_slots import SYNC_FLUSH_WANTED
from store.timer.timer_slots import TIMER_READ_TIME_MS

_SNAPSHOTS: Final = 1_000
_FLUSH_WAIT_MS: Final = 1_000


class PublishedReadTime:
    """See the module. Owned by: TimerDequeueService."""

    def __init__(
        self, counters: memoryview[int], safe_offset: Callable[[], int], clock: Clock
    ) -> None:
        """safe_offset: up to where the log is as durable as sends are answered."""
        self._counters = counters
        self._safe_offset = safe_offset
        self._clock = clock
        self._snapshots: deque[tuple[int, int]] = deque()
        """Log end, and the read time that is true at that log end."""
        self._read_ms = 0
        self._flush_asked_ms = 0

    def begin(self, read_ms: int) -> None:
        """From now on it is this, whatever it was."""
        self._snapshots.clear()
        self._read_ms = self._counters[TIMER_READ_TIME_MS] = read_ms

    def follow(self, read_ms: int, log_end: int) -> None:
        """read_ms: of the delivery now; log_end: where the last delivered record ends."""
        snapshots = self._snapshots
        if read_ms != self._read_ms:
            self._read_ms = read_ms
            if snapshots and (snapshots[-1][0] == log_end or len(snapshots) >= _SNAPSHOTS):
                snapshots.pop()
            snapshots.append((log_end, read_ms))
        safe, reached = self._safe_offset(), 0
        while snapshots and snapshots[0][0] <= safe:
            reached = snapshots.popleft()[1]
        if reached:
            self._counters[TIMER_READ_TIME_MS] = reached
        self._ask_for_flush()

    def _ask_for_flush(self) -> None:
        """The log's own flush may be ten seconds away."""
        now_ms, snapshots = self._clock.monotonic_ms(), self._snapshots
        if not snapshots:
            self._flush_asked_ms = now_ms
        elif now_ms - self._flush_asked_ms > _FLUSH_WAIT_MS:
            self._flush_asked_ms = now_ms
            wanted = max(snapshots[-1][0], self._counters[SYNC_FLUSH_WANTED])
            self._counters[SYNC_FLUSH_WANTED] = wanted
