"""Rounds of a delivery on the loop: of delayed messages and of timers. Owned by: the loop thread.

Tested by tests/broker/schedule/test_schedule_message_service.py.
"""

from __future__ import annotations

from collections.abc import Callable

from remoting.selector_loop import SelectorLoop


def deliver_in_rounds(
    loop: SelectorLoop,
    deliver: Callable[[], int],
    goes_on: Callable[[], bool],
    *,
    first_ms: int,
    idle_ms: int,
) -> None:
    """Call `deliver` again and again while `goes_on`; it returns ms until its next round, 0: in the
    next turn. One with nothing to do, nor soon, unless a turn of the loop brings it something,
    returns `idle_ms`: it is called soon after the next turn in which something happens."""

    def next_round() -> None:
        if not goes_on():
            return
        wait_ms = deliver()
        if wait_ms == idle_ms:
            loop.watches.call_once(next_round)
        elif wait_ms:
            loop.call_later(wait_ms, next_round)
        else:
            loop.call_soon_threadsafe(next_round)

    loop.call_later(first_ms, next_round)
