"""PublishedQueues: says in the queue table what queues have, once their bytes are in place.

In process `store`, under the lock of the queues' table. It must not know units, or who reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from store.stored_queue import StoredQueue

if TYPE_CHECKING:
    from ipc.queue_table import QueueTableWriter

QueueT = TypeVar("QueueT", bound=StoredQueue)


class PublishedQueues(Generic[QueueT]):
    """See the module."""

    def __init__(self, table: QueueTableWriter, on_damaged: Callable[[QueueT], None]) -> None:
        """on_damaged: units of the queue were found missing or wrong."""
        self._table: Final = table
        self._on_damaged: Final = on_damaged

    def publish(self, queue: QueueT, *, moved: bool = True) -> None:
        """A queue for which the table has no row is built, and read once there is room."""
        table = self._table
        if queue.row < 0:
            row = table.row(queue.topic, queue.queue_id)
            queue.row = -1 if row is None else row
        if queue.row >= 0:
            if queue.emptied:
                table.reset(queue.row)
                queue.emptied = queue.files_deleted = False
            elif queue.files_deleted:
                table.renew(queue.row)
                queue.files_deleted = False
            table.set_offsets(queue.row, queue.min_offset, queue.max_offset)
            if moved:
                table.mark_moved(queue.row)
        if not queue.whole:
            self._on_damaged(queue)

    def renew(self, queue: QueueT) -> None:
        """Units that readers may have read before were written over."""
        if queue.row >= 0:
            self._table.renew(queue.row)

    def publish_compacted(
        self, topic: str, queue_id: int, generation: int, max_offset: int
    ) -> None:
        """The compaction log of a queue has grown, or has other files (another generation); what
        waits for the queue looks there again."""
        row = self._table.row(topic, queue_id)
        if row is not None:
            self._table.set_compacted(row, generation, max_offset)
            self._table.mark_moved(row)
