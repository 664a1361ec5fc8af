"""DispatchPace: how long the dispatch thread of process `store` rests between two chunks.

A chunk has a fixed cost, here and in `remoting`, which answers the pulls of the queues that moved:
at high rates records are gathered, as RocketMQ's rest of 1 ms before every look does. While
consumers wait and records come one by one, each is dispatched when it comes. It knows no files.
"""

from __future__ import annotations

from typing import Final

from ipc.clock import Clock
from ipc.control_page import ControlPage
from store.control_slots import PULL_HELD_MS

_RECORD_MS: Final = 0.25
"""For each record of the last chunk, while consumers wait: below 4,000 records a second nothing
is gathered."""
_AWAITED_MS: Final = 1.0
"""The most while consumers wait."""
_UNAWAITED_MS: Final = 10.0
_RECENTLY_MS: Final = 1_000
_SMALL_CHUNK: Final = 512 << 10
"""After more than this there is no rest: chunks of a hundred records cost 4 us a record, of a
thousand 1.5; at 80,000 sends a second that is a quarter of a core."""
_NS_PER_MS: Final = 1_000_000


class DispatchPace:
    """See the module. Owned by: the dispatch thread."""

    def __init__(self, page: ControlPage, clock: Clock) -> None:
        self._counters = page.counters
        self._clock = clock
        self._until_ns = 0

    def dispatched(self, count: int, size: int) -> None:
        """A chunk of `count` records, `size` bytes, was dispatched just now."""
        rest_ms = 0.0 if size >= _SMALL_CHUNK else self._rest_ms(count)
        self._until_ns = self._clock.monotonic_ns() + int(rest_ms * _NS_PER_MS)

    def left_ms(self, *, has_work: bool) -> float:
        """What is left of the rest; 0: dispatch what there is, or sleep on the bell.

        Without work only long rests are slept through: no sender has to ring meanwhile.
        """
        left_ms = (self._until_ns - self._clock.monotonic_ns()) / _NS_PER_MS
        return left_ms if has_work or left_ms > _AWAITED_MS else 0.0

    def _rest_ms(self, count: int) -> float:
        """Longer while no pull was held for a second."""
        held_ms = self._counters[PULL_HELD_MS]
        if held_ms and self._clock.monotonic_ms() - held_ms < _RECENTLY_MS:
            return min(count * _RECORD_MS, _AWAITED_MS)
        return _UNAWAITED_MS
