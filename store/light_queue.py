"""LightQueue: a light queue (LMQ), whose newest units may be in memory yet (LightQueueFiles).

In process `store`, under the lock of ConsumeQueueTable. All that it does otherwise is done by
ConsumeQueue: only units that simply follow the last one wait.

Tested by tests/store/test_light_queue_files.py.
"""

from __future__ import annotations

from store.consume_queue import ConsumeQueue
from store.light_queue_files import LightQueueFiles
from store.queue_bounds import FlushMark
from store.stored_units import CQ_UNIT_SIZE


class LightQueue(ConsumeQueue):
    """See the module."""

    __slots__ = ("_light",)

    def __init__(self, files: LightQueueFiles, topic: str, queue_id: int) -> None:
        """Touches no file."""
        super().__init__(files, topic, queue_id)
        self._light = files

    def append(self, data: memoryview, queue_offset: int, first_end: int, last_end: int) -> bool:
        """See ConsumeQueue."""
        bounds = self.bounds
        follows = first_end > bounds.max_phy_offset and queue_offset * CQ_UNIT_SIZE == bounds.end
        if follows and self._light.defer(self.topic, self.queue_id, queue_offset, data):
            bounds.append(len(data), last_end)
            return True
        return super().append(data, queue_offset, first_end, last_end)

    @property
    def _written_end(self) -> int:
        return self.bounds.end - self._light.unwritten(self.topic, self.queue_id)

    @property
    def is_dirty(self) -> bool:
        """See StoredQueue: of what was written."""
        return self.bounds.flushed != self._written_end or self.names_unsynced

    def begin_flush(self) -> tuple[range, bool, FlushMark]:
        """See StoredQueue."""
        starts, names_unsynced, mark = super().begin_flush()
        return starts, names_unsynced, mark._replace(end=self._written_end)
