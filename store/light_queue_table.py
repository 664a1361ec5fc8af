"""LightQueueTable: the consume queues of a store that has light queues.

In process `store`, instead of ConsumeQueueTable. Units of light queues are written later
(LightQueueFiles), and not at all while their files cannot be written: such queues are passed by
when others are flushed or cleaned, and get what they lack by `dispatch_left_out`
(store/unwritable_retries.py). Guarded by: `lock`, taken by every public method.

Tested by tests/store/test_light_queue_files.py and tests/store/test_unwritable_queues.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from store.consume_queue import ConsumeQueue
from store.consume_queue_table import ConsumeQueueTable
from store.light_queue import LightQueue
from store.light_queue_files import LightQueueFiles
from store.lmq_places import is_lmq
from store.record_arrays import RecordArrays
from store.unit_runs import runs_of_units

if TYPE_CHECKING:
    from ipc.queue_table import QueueTableWriter

log = logging.getLogger(__name__)


class LightQueueTable(ConsumeQueueTable):
    """See the module and ConsumeQueueTable."""

    def __init__(
        self,
        files: LightQueueFiles,
        publisher: QueueTableWriter,
        *,
        on_left_out: Callable[[], None] = lambda: None,
        on_deleted: Callable[[Collection[tuple[str, int]]], None] = lambda _queues: None,
    ) -> None:
        """As ConsumeQueueTable."""
        super().__init__(files, publisher, on_left_out=on_left_out, on_deleted=on_deleted)
        self._light_files: Final = files
        files.on_written = self._note_written

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        if is_lmq(topic):
            return LightQueue(self._light_files, topic, queue_id)
        return super()._new(topic, queue_id)

    def _note_written(self, topic: str, queue_id: int, created: bool) -> None:
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            queue.names_unsynced |= created
            self._dirty[queue] = None

    def reaches(self, topic: str, queue_id: int, phy_offset: int) -> bool:
        """See ConsumeQueueTable."""
        if super().reaches(topic, queue_id, phy_offset):
            return True
        queue = self._queues.get((topic, queue_id))
        return isinstance(queue, LightQueue) and queue.left_out_end >= phy_offset

    # -- queues that cannot be written ---------------------------------------------------------

    def unwritable_queues(self) -> list[LightQueue]:
        """Those that there are."""
        with self.lock:
            found = [self._queues.get(name) for name in self._light_files.unwritable]
        return [queue for queue in found if isinstance(queue, LightQueue)]

    def try_again(self, queue: LightQueue) -> int:
        """Write what waits of a queue that could not be written; from where in the log on it may
        lack records. Raises StoreError: it still cannot be written."""
        with self.lock:
            queue.try_again()
            return queue.max_phy_offset

    def dispatch_left_out(self, records: RecordArrays, queue: LightQueue) -> None:
        """As `dispatch`, of records that the queue was not to have before. Raises DiskFullError,
        StoreError, OSError."""
        if not records.count:
            return
        moved: dict[ConsumeQueue, None] = {}
        with self.lock:
            queue.catches_up = True
            try:
                self._build(runs_of_units(records), moved, (queue,))
            finally:
                queue.catches_up = False
                self._publish_moved(moved)

    def end_unwritable(self, queue: LightQueue, dispatched: int) -> bool:
        """See LightQueue.end_unwritable. Its files are looked at as those of a damaged queue: who
        knows what happened to them."""
        with self.lock:
            if self._queues.get((queue.topic, queue.queue_id)) is not queue:
                return True
            if not queue.end_unwritable(dispatched):
                return False
            log.warning("%r: it can be written again", queue)
            self._dirty[queue] = None
            self._note_damaged(queue)
            return True
