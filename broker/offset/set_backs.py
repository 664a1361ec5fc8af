"""SetBacks: which groups' offsets may have become lower ones, however high they are again.

Noted by whoever lowers, or removes, an offset; compared by who counts how long groups lag, who says
which ones it watches: others cost nothing, however many they are. Any thread; `watch` is called by
one. Knows no offsets.

Tested by tests/broker/metrics/test_group_lag_times.py.
"""

from __future__ import annotations

from collections.abc import Iterable


class SetBacks:
    """By key of the table of offsets. Plain dict operations: safe under the GIL."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def watch(self, keys: Iterable[str]) -> None:
        """These, and no others; those that were watched keep their counts."""
        wanted = set(keys)
        for key in self._counts.keys() - wanted:
            self._counts.pop(key, None)
        for key in wanted:
            self._counts.setdefault(key, 0)

    def of(self, key: str) -> int:
        """Of a key that is watched: another value whenever an offset of it may have become a lower
        one."""
        return self._counts.get(key, 0)

    def note(self, *keys: str) -> None:
        """One of their offsets is lower now, or gone."""
        for key in keys:
            count = self._counts.get(key)
            if count is not None:
                self._counts[key] = count + 1
