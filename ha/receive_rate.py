"""ReceiveRate: how many log bytes a second a slave's link receives.

Updated by HAClient's thread, read by any: plain numbers, each replaced as one word. It knows no
frames.
"""

from __future__ import annotations

from typing import Final

from ipc.clock import Clock

_WINDOW_MS: Final = 1000


class ReceiveRate:
    """The rate over the last whole window, or over the current one when that is overdue."""

    def __init__(self, clock: Clock, position: int) -> None:
        """position: the end of the log now."""
        self._clock = clock
        self._from_ms = clock.monotonic_ms()
        self._from_position = position
        self._rate = 0

    def update(self, now_ms: int, position: int) -> None:
        """Bytes came; the log ends at `position`. now_ms: monotonic."""
        if now_ms >= self._from_ms + _WINDOW_MS:
            self._rate = self._since(now_ms, position)
            self._from_ms, self._from_position = now_ms, position

    def bytes_per_second(self, position: int) -> int:
        """The rate while the log ends at `position`. Any thread."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._from_ms + _WINDOW_MS:
            return self._rate
        return self._since(now_ms, position)

    def _since(self, now_ms: int, position: int) -> int:
        size = max(position - self._from_position, 0)
        return size * 1000 // max(now_ms - self._from_ms, 1)
