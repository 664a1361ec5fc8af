"""PeerSpin: whether the loop polls for its peer's answer this time, or sleeps at once.

On the loop's thread, while responses wait for another process (SelectorLoop). Polling saves a
wake-up where a core is left for the processes that the answer depends on: p50 of a SYNC_MASTER send
with one in flight 211 us instead of 273. Where none is left, it keeps them from running until it is
over: 375 us instead of 200. Which it is shows only in the outcome, and changes within milliseconds.
"""

from __future__ import annotations

from typing import Final

_MOST_LEFT_OUT: Final = 64


class PeerSpin:
    """After a poll in vain one is left out; twice as many after each further one, 64 at most."""

    __slots__ = ("_leave_out", "_left_out")

    def __init__(self) -> None:
        self._leave_out = 1
        """How many are left out after the next one in vain."""
        self._left_out = 0
        """How many are still to be left out."""

    def is_due(self) -> bool:
        """Whether to poll this time; called once for each."""
        if self._left_out:
            self._left_out -= 1
            return False
        return True

    def ended(self, *, in_vain: bool) -> None:
        """A poll is over; in_vain: neither an answer nor an event has come."""
        if in_vain:
            self._left_out = self._leave_out
            self._leave_out = min(2 * self._leave_out, _MOST_LEFT_OUT)
        else:
            self._leave_out = 1
