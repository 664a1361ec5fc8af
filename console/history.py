"""History: figures of the last hours, kept in the console's own memory.

The poller's thread adds a sample of each series after a snapshot; any thread reads. Two rings a
series: five-second steps for an hour, 30-second steps (the largest value of each) for six hours;
float32, so that 200 brokers with a dozen series take some 15 MB. A step in which nothing was told
is NaN: a gap is shown as a gap. What is older is on the brokers' own disks (request 28912).

Tested by tests/console/test_history.py.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FINE_MS: Final = 5_000
COARSE_MS: Final = 30_000
STEPS: Final = 720
BACK_STEPS: Final = 12
"""A clock that goes back further was set; a little is a correction."""
MAX_SERIES: Final = 5_000
"""Beyond it new series are not kept: names come from peers."""
SHARE: Final = 100
"""Series of one broker, its replicas' with them: some eleven and three for each replica."""

Key = tuple[str, str]
"""Whose figure it is (a broker's address, for a replica with a blank and its name behind it), and
which."""


@dataclass(frozen=True, slots=True)
class Series:
    """A stretch of a series: the start of each step (wall clock ms), and its value or None."""

    times_ms: list[int]
    values: list[float | None]


class _Ring:
    """The largest value of each of the last STEPS steps."""

    __slots__ = ("_at", "_values")

    def __init__(self) -> None:
        self._values = array("f", [math.nan]) * STEPS
        self._at = 0

    def add(self, step: int, value: float) -> None:
        """Of a step number; steps that were left out are gaps."""
        if self._at - step > BACK_STEPS:
            self._forget(step)
        if step < self._at:
            return  # the wall clock went back a little: that step is over
        for skipped in range(max(self._at + 1, step - STEPS + 1), step + 1):
            self._values[skipped % STEPS] = math.nan
        self._at = step
        before = self._values[step % STEPS]
        self._values[step % STEPS] = value if math.isnan(before) else max(before, value)

    def _forget(self, step: int) -> None:
        """The wall clock was set back: what it called later never was."""
        for later in range(max(step + 1, self._at - STEPS + 1), self._at + 1):
            self._values[later % STEPS] = math.nan
        self._at = step

    def is_over(self, step: int) -> bool:
        """Whether nothing of it is left at a step; nothing is, if the clock was set back since."""
        return self._at <= step - STEPS or self._at - step > BACK_STEPS

    def is_told(self, step: int) -> bool:
        """Whether a value came in this step."""
        return self._at >= step

    def read(self, step_ms: int, first_ms: int, last_ms: int) -> Series:
        """The steps between two times."""
        first = max(first_ms // step_ms, self._at - STEPS + 1, 0)
        last = min(last_ms // step_ms, self._at)
        times, values = [], []
        for step in range(first, last + 1):
            value = self._values[step % STEPS]
            times.append(step * step_ms)
            values.append(None if math.isnan(value) else value)
        return Series(times, values)


class History:
    """All series. Writer: the poller's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rings: dict[Key, tuple[_Ring, _Ring]] = {}
        self._of_broker: dict[str, OrderedDict[Key, None]] = {}
        """The series of each broker, that which was told least lately first."""
        self._looked_at = 0

    def add(self, now_ms: int, figures: Mapping[Key, float]) -> None:
        """One look: the figures that were told just now."""
        with self._lock:
            for key, value in figures.items():
                rings = self._rings.get(key)
                if rings is None:
                    if not self._has_room(key, now_ms):
                        continue
                    rings = self._rings[key] = (_Ring(), _Ring())
                self._of_broker.setdefault(_broker(key), OrderedDict())[key] = None
                self._of_broker[_broker(key)].move_to_end(key)
                rings[0].add(now_ms // FINE_MS, value)
                rings[1].add(now_ms // COARSE_MS, value)

    def _has_room(self, key: Key, now_ms: int) -> bool:
        """Whether a new series may be kept. In a broker's share it takes the place of that which
        the broker has not told for longest."""
        own = self._of_broker.get(_broker(key), ())
        if len(own) >= SHARE:
            oldest = next(iter(own))
            if self._rings[oldest][1].is_told(now_ms // COARSE_MS):
                return False
            self._forget(oldest)
        return len(self._rings) < MAX_SERIES or self._make_room(now_ms)

    def _forget(self, key: Key) -> None:
        del self._rings[key]
        own = self._of_broker[_broker(key)]
        del own[key]
        if not own:
            del self._of_broker[_broker(key)]

    def _make_room(self, now_ms: int) -> bool:
        """Forget series of which nothing is left to show: their brokers are gone. At most once a
        coarse step, as it looks at all of them."""
        step = now_ms // COARSE_MS
        if step == self._looked_at:
            return False
        self._looked_at = step
        over = [key for key, (_, coarse) in self._rings.items() if coarse.is_over(step)]
        for key in over:
            self._forget(key)
        return bool(over)

    def read(self, key: Key, first_ms: int, last_ms: int) -> Series:
        """A stretch; in fine steps when it begins less than an hour ago."""
        with self._lock:
            rings = self._rings.get(key)
            if rings is None:
                return Series([], [])
            if last_ms - first_ms <= FINE_MS * STEPS:
                return rings[0].read(FINE_MS, first_ms, last_ms)
            return rings[1].read(COARSE_MS, first_ms, last_ms)

    def names(self) -> list[Key]:
        """Of all series, sorted."""
        with self._lock:
            return sorted(self._rings)


def _broker(key: Key) -> str:
    return key[0].partition(" ")[0]
