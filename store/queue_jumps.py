"""QueueJumps: records whose queue offset is too far ahead to be true get no consume queue unit.

Used by ConsumeQueueTable on the dispatch thread, under the table's lock. Between the last record
of a queue and the next one lie, in the log, all records whose offsets lie between; each needs
MIN_RECORD_SIZE bytes there. An offset for which there is no room cannot be: one such record (a bit
that has flipped) would begin the queue anew at an offset of billions, or delete what it has. Nor is
a single record believed that would do the latter, whatever room there is. It is logged, counted
and left out; the queue goes on with its next record. A second one in a row that is further on is
believed: the queue's own end is wrong then. The first one's unit stays blank until the queue is
rebuilt from the log (rebuild_consume_queue_service.py), as it is after every gap. It knows no
files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from store.consume_queue import ConsumeQueue
from store.record_arrays import MIN_RECORD_SIZE

log = logging.getLogger(__name__)


class QueueJumps:
    """See the module. Its state has one entry for each queue whose last record was left out."""

    def __init__(self, on_left_out: Callable[[], None]) -> None:
        """on_left_out: counts a record without a unit."""
        self._on_left_out: Final = on_left_out
        self._left_out: dict[ConsumeQueue, int] = {}

    def allows(self, queue: ConsumeQueue, queue_offset: int, count: int, first_end: int) -> bool:
        """Whether the queue may get `count` units from `queue_offset` on, which lies ahead of its
        end; first_end: where the first one's record ends in the log."""
        missing = queue_offset - queue.max_offset
        fits = (missing + 1) * MIN_RECORD_SIZE <= first_end - queue.bounds.max_phy_offset
        before = self._left_out.pop(queue, None)
        if fits and not queue.begins_anew_at(queue_offset):
            return True
        has_room = fits or (queue_offset + 1) * MIN_RECORD_SIZE <= first_end
        if has_room and (count > 1 or (before is not None and queue_offset > before)):
            return True
        self._left_out[queue] = queue_offset
        for _ in range(count):
            self._on_left_out()
        log.error(
            "%r: the record that ends at %s in the log says queue offset %s; %s: skipped, "
            "the queue continues with its next record",
            queue,
            first_end,
            queue_offset,
            "what the queue has would be deleted for a single record"
            if fits
            else f"the log has no room for {missing} records in between",
        )
        return False

    def forget(self, queue: ConsumeQueue) -> None:
        """The queue is deleted."""
        self._left_out.pop(queue, None)
