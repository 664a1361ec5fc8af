"""BatchConsumeQueue: one queue of a BatchCQ topic: a 46-byte unit for each record.

Built in process `store` by the dispatch thread, under the lock of ConsumeQueueTable. Units are
appended in log order; what was appended before is skipped, a queue that restarts at offset 0 (its
topic was deleted and made again) is emptied. It must not know topics' settings or records.
Corresponds to RocketMQ's BatchConsumeQueue.

Tested by tests/store/test_batch_consume_queues.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from store.batch_codec import BATCH_ITEM_HEAD
from store.batch_units import BatchUnit, count_valid, parse_unit
from store.consume_queue_files import ConsumeQueueFiles
from store.message_store_config import BATCH_UNIT_SIZE
from store.stored_queue import StoredQueue

log = logging.getLogger(__name__)

_RECOVERED_FILES: Final = 3
_SCAN: Final = 20_000 * BATCH_UNIT_SIZE
_LEAST_ITEM: Final = BATCH_ITEM_HEAD.size + 2
"""Bytes of the smallest message of a batch."""


def find_first(
    unit_at: Callable[[int], BatchUnit | None],
    low: int,
    high: int,
    is_before: Callable[[BatchUnit], bool],
) -> int:
    """Position of the first unit in [low, high) that is not `is_before`; `high`: all are. What is
    no unit counts as behind all of them."""
    while low < high:
        middle = low + (high - low) // (2 * BATCH_UNIT_SIZE) * BATCH_UNIT_SIZE
        unit = unit_at(middle)
        if unit is not None and is_before(unit):
            low = middle + BATCH_UNIT_SIZE
        else:
            high = middle
    return low


class BatchConsumeQueue(StoredQueue):
    """State of one queue. Guarded by: the lock of ConsumeQueueTable."""

    __slots__ = ("_left_out", "_max_offset", "_min_offset", "gap")

    UNIT_SIZE = BATCH_UNIT_SIZE
    KEEPS_FIRST_FILE = False

    def __init__(self, files: ConsumeQueueFiles, topic: str, queue_id: int) -> None:
        """Touches no file; `recover` loads what is on disk."""
        super().__init__(files, topic, queue_id)
        self._min_offset = 0
        self._max_offset = 0
        self._left_out = -1
        """Queue offset of the last record, when it was not believed."""
        self.gap: tuple[int, int] | None = None
        """Between which log positions records are whose units are missing: a unit was appended
        further on than where the queue ended."""

    def __repr__(self) -> str:
        return f"batch {super().__repr__()}"

    @property
    def min_offset(self) -> int:
        """See StoredQueue."""
        return self._min_offset

    @property
    def max_offset(self) -> int:
        """See StoredQueue."""
        return self._max_offset

    # -- building ------------------------------------------------------------------------------

    def append(self, unit: BatchUnit) -> bool:
        """Append one unit; False for one that is here already. Raises DiskFullError, StoreError."""
        bounds = self.bounds
        if unit.record_end <= bounds.max_phy_offset:
            return False
        if unit.base == 0 and not bounds.is_empty:
            log.warning("%r: restarts at offset 0, phy %s: emptied", self, unit.phy_offset)
            self.empty()
        if unit.base < self._max_offset:
            log.error("%r: offset %s already exists, phy %s", self, unit.base, unit.phy_offset)
            return False
        if not self._believes(unit):
            log.error(
                "%r: the record at %s in the log says queue offset %s, with no room for those in "
                "between: skipped, the queue continues with its next record",
                self,
                unit.phy_offset,
                unit.base,
            )
            return False
        if bounds.is_empty:
            self._min_offset = unit.base
        if unit.base > self._max_offset and self.gap is None:
            self.gap = bounds.max_phy_offset, unit.phy_offset
        data = memoryview(unit.pack())
        # As in ConsumeQueue.append.
        before, self.names_unsynced = self.names_unsynced, True
        created = self.files.write(self.topic, self.queue_id, bounds.end, data)
        self.names_unsynced = before or created
        bounds.append(BATCH_UNIT_SIZE, unit.record_end)
        self._max_offset = unit.following
        return True

    def _believes(self, unit: BatchUnit) -> bool:
        """As QueueJumps: one record whose offset cannot be (a bit has flipped) must not end the
        queue there, a second one in a row that is further on is right."""
        before, self._left_out = self._left_out, -1
        missing = unit.base - self._max_offset
        room = unit.phy_offset - self.bounds.max_phy_offset
        if self.bounds.is_empty or missing * _LEAST_ITEM <= room or 0 <= before < unit.base:
            return True
        self._left_out = unit.base
        return False

    def empty(self) -> None:
        """See StoredQueue."""
        super().empty()
        self._min_offset = self._max_offset = 0
        self.gap, self._left_out = None, -1

    # -- reading -------------------------------------------------------------------------------

    def _unit_at(self, position: int) -> BatchUnit | None:
        data = self.files.read(self.topic, self.queue_id, position, BATCH_UNIT_SIZE)
        return parse_unit(data)

    def _find_first(self, is_before: Callable[[BatchUnit], bool]) -> int:
        return find_first(self._unit_at, self.bounds.start, self.bounds.end, is_before)

    @property
    def first_unit(self) -> BatchUnit | None:
        """The first unit; None without one."""
        return None if self.bounds.is_empty else self._unit_at(self.bounds.start)

    @property
    def last_unit(self) -> BatchUnit | None:
        """The last unit; None without one."""
        return None if self.bounds.is_empty else self._unit_at(self.bounds.end - BATCH_UNIT_SIZE)

    def singles_from(self) -> int | None:
        """Log position of the first of the single messages behind its last inner batch; None:
        there is none."""
        found, position = None, self.bounds.end - BATCH_UNIT_SIZE
        while position >= self.bounds.start:
            unit = self._unit_at(position)
            if unit is None or unit.messages > 1:
                break
            found, position = unit.phy_offset, position - BATCH_UNIT_SIZE
        return found

    # -- recovery ------------------------------------------------------------------------------

    def recover(self) -> None:
        """Load the files: scan from the third-last one to the first unit that is none; all behind
        it is zeroed or deleted. Raises WrongFileSizeError, OSError."""
        starts, was_short = self.files.list_starts(self.topic, self.queue_id)
        if not starts:
            self.doubtful_from = 0
            return
        file_size = self.files.file_size
        first = len(starts) - 1
        while first and starts[first - 1] == starts[first] - file_size:
            first -= 1
        start, last_end = starts[first], starts[-1] + file_size
        begin = max(start, last_end - _RECOVERED_FILES * file_size)
        end = self._scan(begin, last_end)
        if end == begin and begin > start:
            end = self._scan(start, last_end)
        last = self._unit_at(end - BATCH_UNIT_SIZE) if end > start else None
        self.bounds.load(start, end, last.record_end if last is not None else 0)
        lost = self.clear_behind(end, last_end) or was_short
        self._take_offsets()
        if first:
            log.error("%r: files before a gap at %s are missing", self, starts[first])
            self.empty()
            for old in starts[:first]:
                # Readers would go on from the last unit of an old file to nothing.
                self.files.delete(self.topic, self.queue_id, old)
        if lost or first:
            self.doubtful_from = self.max_phy_offset

    def _scan(self, position: int, last_end: int) -> int:
        while position < last_end:
            size = min(_SCAN, last_end - position)
            data = self.files.read(self.topic, self.queue_id, position, size)
            valid = count_valid(data) * BATCH_UNIT_SIZE
            position += valid
            if valid < len(data) or not data:
                break
        return position

    def holds_data(self, position: int) -> bool:
        """See StoredQueue. Zeros are none: Java's files have all their blocks."""
        if not super().holds_data(position):
            return False
        file_end = position - position % self.files.file_size + self.files.file_size
        while position < file_end:
            size = min(_SCAN, file_end - position)
            data = self.files.read(self.topic, self.queue_id, position, size)
            if not data or data.strip(b"\0"):
                return bool(data)
            position += len(data)
        return False

    def _take_offsets(self) -> None:
        """The offsets that the units say; the minimum of the log is not considered."""
        first, last = self.first_unit, self.last_unit
        self._min_offset = first.base if first is not None else 0
        self._max_offset = last.following if last is not None else 0

    # -- removal -------------------------------------------------------------------------------

    def drop_last(self) -> None:
        """Drop the last unit, which cannot be used: dispatching the log again makes it anew."""
        self._drop_from(self.bounds.end - BATCH_UNIT_SIZE)
        self.doubt_end()

    def truncate(self, phy_offset: int) -> None:
        """Drop the units of records that do not end at or before `phy_offset`."""
        if self.max_phy_offset > phy_offset:
            self._drop_from(self._find_first(lambda unit: unit.record_end <= phy_offset))
            log.warning("%r: truncated to records before phy %s", self, phy_offset)

    def truncate_to_offset(self, max_offset: int) -> None:
        """Drop the units of messages from queue offset `max_offset` on."""
        if self._max_offset > max_offset:
            self._drop_from(self._find_first(lambda unit: unit.following <= max_offset))

    def _drop_from(self, end: int) -> None:
        bounds = self.bounds
        if end <= bounds.start:
            self.empty()
            return
        self.clear_behind(end, bounds.end + (-bounds.end) % self.files.file_size)
        last = self._unit_at(end - BATCH_UNIT_SIZE)
        bounds.cut(end, last.record_end if last is not None else 0)
        low = self._min_offset
        self._take_offsets()
        self._min_offset = min(max(low, self._min_offset), self._max_offset)

    # -- the log's minimum ---------------------------------------------------------------------

    def correct_min_offset(self, min_phy_offset: int) -> bool:
        """See StoredQueue."""
        before = self._min_offset
        position = self._find_first(lambda unit: unit.phy_offset < min_phy_offset)
        unit = self._unit_at(position) if position < self.bounds.end else None
        self.bounds.set_min(position, min_phy_offset)
        self._min_offset = unit.base if unit is not None else self._max_offset
        return self._min_offset != before

    def is_gone(self, position: int, min_phy_offset: int) -> bool:
        """See StoredQueue."""
        unit = self._unit_at(position)
        return unit is not None and unit.phy_offset < min_phy_offset

    def is_expired(self, min_phy_offset: int) -> bool:
        """Whether it has units, but no record of them is left."""
        return self.max_phy_offset > 0 and super().is_expired(min_phy_offset)

    # -- flushing ------------------------------------------------------------------------------

    def write_again(self, phy_offset: int) -> None:
        """Write the units of the records from `phy_offset` on again: they count as not flushed.
        Raises DiskFullError, StoreError."""
        bounds = self.bounds
        if bounds.max_phy_offset <= phy_offset:
            return
        begin = position = self._find_first(lambda unit: unit.phy_offset < phy_offset)
        while position < bounds.end:
            size = min(_SCAN, bounds.end - position)
            data = self.files.read(self.topic, self.queue_id, position, size)
            if not data:
                break
            self.files.write(self.topic, self.queue_id, position, memoryview(data))
            position += len(data)
        bounds.write_again(begin)
        self.names_unsynced = True
