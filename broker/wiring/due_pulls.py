"""DuePulls: has held pulls time out when the first of them is due, by one timer of the loop.

On the loop's thread. Knows no pull: PullRequestHoldService keeps them, and says when.

Tested by tests/broker/test_idle_broker.py.
"""

from __future__ import annotations

from broker.longpolling.pull_request_hold_service import PullRequestHoldService
from ipc.clock import Clock
from remoting.selector_loop import SelectorLoop, TimerHandle


class DuePulls:
    """See the module. Owned by: the loop thread."""

    def __init__(self, held: PullRequestHoldService, clock: Clock, loop: SelectorLoop) -> None:
        """The timer follows what `held` says from now on."""
        self._held = held
        self._clock = clock
        self._loop = loop
        self._next = TimerHandle(lambda: None)
        held.on_first_due = self._await_first

    def _await_first(self) -> None:
        self._next.cancel()
        due_ms = self._held.next_due_ms()
        if due_ms is not None:
            left_ms = due_ms - self._clock.monotonic_ms()
            self._next = self._loop.call_later(left_ms, self._time_out)

    def _time_out(self) -> None:
        if self._held.scan(self._clock.monotonic_ms()):
            self._loop.call_soon_threadsafe(self._time_out)
        else:
            self._await_first()
