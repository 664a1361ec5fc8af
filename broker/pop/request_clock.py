"""RequestClock: when a request was sent that may wait, by our monotonic clock.

Loop thread of `remoting`. The peer says it by its wall clock (bornTime); how long the request waits
must not depend on what is done to a wall clock meanwhile: set back by an hour, it would be held for
an hour. (RocketMQ compares wall clocks until the end.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestClock:
    """See the module."""

    now_ms: Callable[[], int]
    """Wall clock."""
    monotonic_ms: Callable[[], int]

    def sent_ms(self, born_time: int) -> int:
        """By the monotonic clock. born_time: wall clock; 0, or a time to come: now."""
        age_ms = max(self.now_ms() - born_time, 0) if born_time else 0
        return self.monotonic_ms() - age_ms

    def age_ms(self, sent_ms: int) -> int:
        """How long ago that was."""
        return self.monotonic_ms() - sent_ms
