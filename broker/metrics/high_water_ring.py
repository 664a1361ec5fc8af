"""HighWaterRing: the largest values of the last while, by seconds, in metric slots.

One process writes what it saw at each look, the supervisor asks for the largest since some moment:
neither has to tell the other when a line of the metrics dump was written. Bucket b of time (b =
monotonic ms // bucket_ms) lies at place b % BUCKETS of the ring, as slots

    0       1 + b; 0: never written
    1 + k   the largest value k of it

Pure: numbers in and out. The writer's successor goes on in the same slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

BUCKETS: Final = 1024
_SHORTEST_MS: Final = 1_000


class HighWaterRing:
    """The layout of a ring; no state of its own."""

    def __init__(self, values: int, interval_ms: int) -> None:
        """`values`: how many there are. `interval_ms`: metricsDumpIntervalSeconds; the ring holds
        at least two of it."""
        self.bucket_ms: Final = max(_SHORTEST_MS, -(-4 * interval_ms // BUCKETS))
        self._width: Final = 1 + values
        self.size: Final = BUCKETS * self._width
        """Slots."""

    def write(
        self, slots: memoryview[float], first: int, now_ms: int, values: Sequence[float]
    ) -> None:
        """Values of this moment, in the ring whose first slot is `first`."""
        bucket = now_ms // self.bucket_ms
        at = first + bucket % BUCKETS * self._width
        if slots[at] != 1 + bucket:
            slots[at] = 0
            for place, value in enumerate(values, at + 1):
                slots[place] = value
            slots[at] = 1 + bucket
            return
        for place, value in enumerate(values, at + 1):
            if value > slots[place]:
                slots[place] = value

    def since_ms(self, wanted_ms: int, now_ms: int) -> int:
        """What `largest` reaches back to when asked at `now_ms`: the begin of the bucket with
        `wanted_ms`, or later where the ring does not reach so far back."""
        oldest = now_ms // self.bucket_ms - BUCKETS + 2
        return max(wanted_ms // self.bucket_ms, oldest, 0) * self.bucket_ms

    def largest(self, ring: Sequence[float], since_ms: int) -> list[float]:
        """The largest values of buckets from that with `since_ms` on; zeros without any."""
        first, found = 1 + since_ms // self.bucket_ms, [0.0] * (self._width - 1)
        for at in range(0, len(ring), self._width):
            if ring[at] >= first:
                for place in range(len(found)):
                    value = ring[at + 1 + place]
                    if value > found[place]:
                        found[place] = value
        return found
