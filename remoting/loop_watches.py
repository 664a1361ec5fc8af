"""LoopWatches: what a loop looks after from time to time, more often while something happens.

On the loop's thread, which tells it of events. What may get late (a request that waits too long, a
queue that is free again) is looked after within a tenth of a second of each turn in which something
happened, and once a second while nothing does: an idle loop sleeps. Knows no socket and nothing of
what is looked after.

Tested by tests/remoting/test_selector_loop.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

WATCH_MS: Final = 100
QUIET_WATCH_MS: Final = 1_000


class Timer(Protocol):
    """A timer of the loop."""

    def cancel(self) -> None: ...


class LoopWatches:
    """See the module. Owned by the loop's thread."""

    def __init__(self, call_at_multiple: Callable[[int, Callable[[], None]], Timer]) -> None:
        """call_at_multiple: the loop's."""
        self._call_at_multiple = call_at_multiple
        self._watches: list[Callable[[], bool]] = []
        self._once: list[Callable[[], None]] = []
        self._next: Timer | None = None
        self.is_quiet = False
        """Nothing has happened since the last look: the next event is to be told."""

    def add(self, function: Callable[[], bool]) -> None:
        """Look after what may get late: run `function` at each look.

        function: returns whether it has to look again in a tenth of a second, whatever happens.
        """
        self._watches.append(function)
        self._begin()

    def call_once(self, function: Callable[[], None]) -> None:
        """Run `function` at the next look."""
        self._once.append(function)
        self._begin()

    def end_quiet(self) -> None:
        """Something has happened while it was quiet."""
        if self._next is not None:
            self._next.cancel()
        self._look_at(WATCH_MS)

    def _begin(self) -> None:
        if self._next is None:
            self._look_at(WATCH_MS)

    def _look_at(self, period_ms: int) -> None:
        self.is_quiet = period_ms == QUIET_WATCH_MS
        self._next = self._call_at_multiple(period_ms, self._look)

    def _look(self) -> None:
        looks_again = [function() for function in self._watches]
        once, self._once = self._once, []
        for function in once:
            function()
        self._look_at(WATCH_MS if any(looks_again) else QUIET_WATCH_MS)
