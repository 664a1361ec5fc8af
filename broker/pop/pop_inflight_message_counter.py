"""PopInflightMessageCounter: how many messages of a queue are handed out and not acknowledged.

Owned by the loop thread of `remoting`; in memory only, so it starts at 0 with the process (Java:
PopInflightMessageCounter). Pops of a queue stop above popInflightMessageThreshold if
enablePopMessageThreshold is set.
"""

from __future__ import annotations


class PopInflightMessageCounter:
    """See the module."""

    def __init__(self, started_ms: int) -> None:
        """started_ms: wall clock; messages popped before are not counted here."""
        self._started_ms = started_ms
        self._counts: dict[tuple[str, str, int], int] = {}

    def forget_all(self, now_ms: int) -> None:
        """Count from now on only: this broker leads no more, or again."""
        self._started_ms = now_ms
        self._counts.clear()

    def increment(self, topic: str, group: str, queue_id: int, count: int) -> None:
        """`count` messages were handed out."""
        if count:
            key = (topic, group, queue_id)
            self._counts[key] = self._counts.get(key, 0) + count

    def decrement(
        self, topic: str, group: str, queue_id: int, pop_time_ms: int, count: int
    ) -> None:
        """`count` messages of a pop were acknowledged, or are visible again."""
        if pop_time_ms < self._started_ms:
            return
        key = (topic, group, queue_id)
        left = self._counts.get(key, 0) - count
        if left > 0:
            self._counts[key] = left
        else:
            self._counts.pop(key, None)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """An ordered pop hands out all of the queue's messages again."""
        self._counts.pop((topic, group, queue_id), None)

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """Messages of a queue that are handed out now."""
        return self._counts.get((topic, group, queue_id), 0)
