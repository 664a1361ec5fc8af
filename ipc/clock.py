"""Clock: the only place of the product that asks the operating system for the time.

Any thread. Wall clock for stored timestamps, monotonic clock for deadlines; both in ms. Services
take a Clock in their constructor; tests give tests.support.manual_clock.ManualClock.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The two clocks of a host."""

    def now_ms(self) -> int:
        """Wall clock: ms since 1970-01-01 UTC. May jump."""

    def monotonic_ms(self) -> int:
        """Ms since some moment; never goes back. For deadlines and intervals."""

    def monotonic_ns(self) -> int:
        """The same in ns, for what takes less than a ms."""


class SystemClock:
    """The clocks of the operating system."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall clock ms."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Monotonic ms."""
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Monotonic ns."""
        return time.monotonic_ns()
