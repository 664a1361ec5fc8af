"""EndsAtStart: where the queues of a master ended when it began, before it took a message.

What a slave did in this master's place it did with messages of an earlier life, so what it says of
its progress counts up to here only. A master whose machine lost the log's tail is shorter than its
slave's log: with the live ends, what producers send in the seconds before the slave is asked would
count as done, and never be delivered.

`note` on the main thread of process `remoting`, before the loop runs; the rest on any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipc.queue_table import QueueTableReader


class EndsAtStart:
    """See the module."""

    def __init__(
        self,
        table: QueueTableReader,
        next_offset: Callable[[str, int], int | None],
        now_ms: Callable[[], int],
    ) -> None:
        """next_offset: of CommitLog. now_ms: wall clock."""
        self._table = table
        self._next_offset = next_offset
        self._now_ms = now_ms
        self._ends: dict[str, dict[int, int]] = {}
        """By topic and queue id."""
        self.began_ms = 0
        """When that was (wall clock)."""

    def note(self) -> None:
        """This is the start; the log is open, which knows its ends before the table does."""
        for topic, queue_id, row in self._table:
            end = max(self._table.state(row)[1], self._next_offset(topic, queue_id) or 0)
            self._ends.setdefault(topic, {})[queue_id] = end
        self.began_ms = self._now_ms()

    def end(self, topic: str, queue_id: int) -> int:
        """Where a queue ended then; 0 for one without records."""
        return self._ends.get(topic, {}).get(queue_id, 0)
