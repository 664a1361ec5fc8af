"""Placement: which slot a timer goes into. Pure arithmetic, any thread. Corresponds to
RocketMQ's TimerMessageStore.doEnqueue."""

from __future__ import annotations

from typing import Final

from store.timer.timer_wheel import BLANK_SLOTS, SLOTS_A_TURN

_LARGEST_DELAY_MS: Final = 2**31 - 1
"""The timer log has 4 bytes for it."""


def round_down(time_ms: int, precision_ms: int) -> int:
    """The slot time of a time."""
    return time_ms - time_ms % precision_ms


class Placement:
    """Where a timer goes: pure arithmetic of timerPrecisionMs and timerRollWindowSlot."""

    def __init__(self, precision_ms: int, roll_window_slots: int) -> None:
        longest = SLOTS_A_TURN - BLANK_SLOTS
        slots = roll_window_slots if 2 <= roll_window_slots <= longest else longest
        self._precision_ms = precision_ms
        self._slots = min(slots, _LARGEST_DELAY_MS // precision_ms)

    def place(self, out_ms: int, write_ms: int) -> tuple[int, bool]:
        """Slot time for a timer that is due at `out_ms`, and whether it rolls: is too far ahead."""
        out_ms = round_down(out_ms, self._precision_ms)
        window_ms = self._slots * self._precision_ms
        if out_ms - write_ms < window_ms:
            return out_ms, False
        if out_ms - write_ms - window_ms < self._slots // 3 * self._precision_ms:
            return write_ms + self._slots // 2 * self._precision_ms, True
        return write_ms + window_ms, True
