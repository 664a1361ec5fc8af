"""SetBacks: the one event that offsets of a group were set, not committed by who consumed further.

Noted by whoever lowers, resets or removes an offset, however high it is again. Who counts how long
groups lag says which ones it watches and compares counts; pops hear of each queue (`hear`), since
what they handed out may be before it. Any thread; `watch` is called by one. Knows no offsets.

Tested by tests/broker/offset/test_consumer_offset_manager.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class SetBacks:
    """By key of the table of offsets. Plain dict operations: safe under the GIL. What is neither
    watched nor heard costs nothing, however much it is."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self.hear: Callable[[str, int], None] = lambda _key, _queue_id: None
        """Told (key, queue id) by the thread that noted it, which may hold the table's lock. Set
        before the first request."""

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

    def note(self, key: str, queue_ids: Iterable[int]) -> None:
        """The offsets of these queues were set, or are gone."""
        count = self._counts.get(key)
        if count is not None:
            self._counts[key] = count + 1
        for queue_id in queue_ids:
            self.hear(key, queue_id)
