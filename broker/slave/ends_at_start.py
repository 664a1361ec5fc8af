"""EndsAtStart: where the queues of a master ended when it began, before it took a message.

What a slave did in this master's place it did with messages of an earlier life, so what it says of
its progress counts up to here only. A master whose machine lost the log's tail is shorter than its
slave's log: with the live ends, what producers send in the seconds before the slave is asked would
count as done, and never be delivered.

`note` on the main thread of process `remoting`, before the loop runs; the rest on any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

QueueEnds = Mapping[str, Mapping[int, int]]
"""The offset of the next record by topic and queue id."""


class EndsAtStart:
    """See the module."""

    def __init__(self, queue_ends: Callable[[], QueueEnds], now_ms: Callable[[], int]) -> None:
        """queue_ends: a copy of what the log knows (CommitLog). now_ms: wall clock."""
        self._queue_ends = queue_ends
        self._now_ms = now_ms
        self._ends: QueueEnds = {}
        self.began_ms = 0
        """When that was (wall clock)."""

    def note(self) -> None:
        """This is the start; the log is open."""
        self._ends = self._queue_ends()
        self.began_ms = self._now_ms()

    def end(self, topic: str, queue_id: int) -> int:
        """Where a queue ended then; 0 for one without records."""
        return self._ends.get(topic, {}).get(queue_id, 0)
