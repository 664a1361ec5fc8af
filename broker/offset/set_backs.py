"""SetBacks: which groups' offsets may have become lower ones, however high they are again.

Noted by whoever lowers, or removes, an offset; compared by who counts how long groups lag. Any
thread. Knows no offsets.

Tested by tests/broker/metrics/test_group_lag_times.py.
"""

from __future__ import annotations

from collections.abc import Iterable


class SetBacks:
    """By key of the table of offsets. Plain dict operations: safe under the GIL."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._removals = 0

    def of(self, key: str) -> tuple[int, int]:
        """Another value whenever an offset of the key may have become a lower one."""
        return self._removals, self._counts.get(key, 0)

    def note(self, key: str) -> None:
        """One of its offsets is lower now, or gone."""
        self._counts[key] = self._counts.get(key, 0) + 1

    def forget(self, keys: Iterable[str]) -> None:
        """They are in the table no more; one of the name may be again, at once."""
        for key in keys:
            self._counts.pop(key, None)
        self._removals += 1
