"""MastersWord: what the master that is followed has confirmed, as far as it counts here. Pure.

It says so once, and the next frame may come seconds later: what is not flushed here yet counts when
it is. Owned by the member; one thread.

Tested by tests/simulation/test_member_pitfalls.py.
"""

from __future__ import annotations

from broker.failover.messages import LogEnds
from ha.epochs import slave_confirm_offset


class MastersWord:
    """See the module."""

    def __init__(self) -> None:
        self._counts = False
        """The log is the beginning of its master's."""
        self._told = 0

    def begin(self) -> None:
        """Both logs were compared; what was said before counts no more."""
        self._counts, self._told = True, 0

    def end(self) -> None:
        """Nothing that is said counts."""
        self._counts = False

    def told(self, confirm_offset: int) -> None:
        """By a frame."""
        self._told = confirm_offset

    def confirm_offset(self, log: LogEnds, previous: int) -> int:
        """Up to where consumers may read here (bytes)."""
        if not (self._counts and self._told):
            return previous
        return slave_confirm_offset(self._told, log.counted_end, previous)
