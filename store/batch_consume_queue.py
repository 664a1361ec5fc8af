"""BatchConsumeQueue: one queue of a BatchCQ topic: a 46-byte unit for each record.

Built in process `store` by the dispatch thread, under the lock of ConsumeQueueTable. Units are
appended in log order; what was appended before is skipped, a queue that restarts at offset 0 (its
topic was deleted and made again) is emptied. It must not know topics' settings or records.
Corresponds to RocketMQ's BatchConsumeQueue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from store.batch_codec import BATCH_ITEM_HEAD
from store.batch_units import BatchUnit, count_valid, parse_unit
from store.consume_queue_files import ConsumeQueueFiles
from store.message_store_config import BATCH_UNIT_SIZE

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


class BatchConsumeQueue:
    """State of one queue. Guarded by: the lock of ConsumeQueueTable."""

    __slots__ = (
        "_end",
        "_files",
        "_left_out",
        "_start",
        "doubtful_from",
        "emptied",
        "flushed",
        "gap",
        "generation",
        "max_offset",
        "max_phy_offset",
        "min_offset",
        "names_unsynced",
        "queue_id",
        "row",
        "topic",
    )

    def __init__(self, files: ConsumeQueueFiles, topic: str, queue_id: int) -> None:
        """Touches no file; `recover` loads what is on disk."""
        self._files = files
        self.topic = topic
        self.queue_id = queue_id
        self._start = 0
        """First byte of the first file."""
        self._end = 0
        """The byte after the last unit."""
        self.min_offset = 0
        """First queue offset whose record is still in the commit log."""
        self.max_offset = 0
        """The next queue offset."""
        self.max_phy_offset = 0
        """End of the last record that has a unit here; 0 if there is none."""
        self.flushed = 0
        """Bytes of the queue that are on disk."""
        self.names_unsynced = False
        """Files were created whose names may not be on disk."""
        self.emptied = False
        """Set when the queue restarted; cleared by whoever publishes it."""
        self.generation = 0
        """Incremented whenever units are removed."""
        self._left_out = -1
        """Queue offset of the last record, when it was not believed."""
        self.gap: tuple[int, int] | None = None
        """Between which log positions records are whose units are missing: a unit was appended
        further on than where the queue ended."""
        self.doubtful_from: int | None = None
        """Set by recovery: units of records from this log position on may be missing."""
        self.row = -1
        """Its row in the queue table, -1 before it has one."""

    def __repr__(self) -> str:
        return f"batch queue {self.topic}/{self.queue_id} [{self.min_offset}, {self.max_offset})"

    @property
    def end(self) -> int:
        """The byte after the last unit."""
        return self._end

    @property
    def unit_count(self) -> int:
        """Units in its files."""
        return (self._end - self._start) // BATCH_UNIT_SIZE

    @property
    def lacks_first_file(self) -> bool:
        """Whether its first files were deleted, by retention or otherwise."""
        return self._start > 0

    @property
    def is_dirty(self) -> bool:
        """Whether units are not on disk yet."""
        return self.flushed < self._end or self.names_unsynced

    # -- building ------------------------------------------------------------------------------

    def append(self, unit: BatchUnit) -> bool:
        """Append one unit; False for one that is here already. Raises DiskFullError, StoreError."""
        if unit.record_end <= self.max_phy_offset:
            return False
        if unit.base == 0 and self._end > self._start:
            log.warning("%r: restarts at offset 0, phy %s: emptied", self, unit.phy_offset)
            self.empty()
        if unit.base < self.max_offset:
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
        if self._end == self._start:
            self.min_offset = unit.base
        if unit.base > self.max_offset and self.gap is None:
            self.gap = self.max_phy_offset, unit.phy_offset
        data = memoryview(unit.pack())
        if self._files.write(self.topic, self.queue_id, self._end, data):
            self.names_unsynced = True
        self._end += BATCH_UNIT_SIZE
        self.max_offset, self.max_phy_offset = unit.following, unit.record_end
        return True

    def _believes(self, unit: BatchUnit) -> bool:
        """As QueueJumps: one record whose offset cannot be (a bit has flipped) must not end the
        queue there, a second one in a row that is further on is right."""
        before, self._left_out = self._left_out, -1
        missing = unit.base - self.max_offset
        room = unit.phy_offset - self.max_phy_offset
        if self._end == self._start or missing * _LEAST_ITEM <= room or 0 <= before < unit.base:
            return True
        self._left_out = unit.base
        return False

    def empty(self) -> None:
        """Delete all files; the queue is then like a new one."""
        for start in range(self._start, self._end + 1, self._files.file_size):
            self._files.delete(self.topic, self.queue_id, start)
        self._start = self._end = self.flushed = 0
        self.min_offset = self.max_offset = self.max_phy_offset = 0
        self.gap, self._left_out = None, -1
        self.emptied = True
        self.generation += 1

    def destroy(self) -> None:
        """Delete all files and the directory."""
        self.empty()
        self._files.remove_directories(self.topic, self.queue_id)

    # -- reading -------------------------------------------------------------------------------

    def _unit_at(self, position: int) -> BatchUnit | None:
        data = self._files.read(self.topic, self.queue_id, position, BATCH_UNIT_SIZE)
        return parse_unit(data)

    def _find_first(self, is_before: Callable[[BatchUnit], bool]) -> int:
        return find_first(self._unit_at, self._start, self._end, is_before)

    @property
    def first_unit(self) -> BatchUnit | None:
        """The first unit; None without one."""
        return self._unit_at(self._start) if self._end > self._start else None

    @property
    def last_unit(self) -> BatchUnit | None:
        """The last unit; None without one."""
        return self._unit_at(self._end - BATCH_UNIT_SIZE) if self._end > self._start else None

    def singles_from(self) -> int | None:
        """Log position of the first of the single messages behind its last inner batch; None:
        there is none."""
        found, position = None, self._end - BATCH_UNIT_SIZE
        while position >= self._start:
            unit = self._unit_at(position)
            if unit is None or unit.messages > 1:
                break
            found, position = unit.phy_offset, position - BATCH_UNIT_SIZE
        return found

    # -- recovery ------------------------------------------------------------------------------

    def recover(self) -> None:
        """Load the files: scan from the third-last one to the first unit that is none; all behind
        it is zeroed or deleted. Raises WrongFileSizeError, OSError."""
        starts, was_short = self._files.list_starts(self.topic, self.queue_id)
        if not starts:
            self.doubtful_from = 0
            return
        file_size = self._files.file_size
        first = len(starts) - 1
        while first and starts[first - 1] == starts[first] - file_size:
            first -= 1
        self._start, last_end = starts[first], starts[-1] + file_size
        begin = max(self._start, last_end - _RECOVERED_FILES * file_size)
        self._end = self._scan(begin, last_end)
        if self._end == begin and begin > self._start:
            self._end = self._scan(self._start, last_end)
        lost = self._cut(last_end) or was_short
        self.flushed = self._end
        self._take_bounds()
        if first:
            log.error("%r: files before a gap at %s are missing", self, starts[first])
            self.empty()
        if lost or first:
            self.doubtful_from = self.max_phy_offset

    def _scan(self, position: int, last_end: int) -> int:
        while position < last_end:
            size = min(_SCAN, last_end - position)
            data = self._files.read(self.topic, self.queue_id, position, size)
            valid = count_valid(data) * BATCH_UNIT_SIZE
            position += valid
            if valid < len(data) or not data:
                break
        return position

    def _cut(self, last_end: int) -> bool:
        """Remove what is between the end and `last_end`, the end of the files on disk; True if
        there was anything."""
        file_size = self._files.file_size
        kept = self._end + (-self._end) % file_size
        found = False
        for start in range(kept, last_end, file_size):
            found |= self._holds_data(start)
            self._files.delete(self.topic, self.queue_id, start)
        if self._end % file_size and self._holds_data(self._end):
            self._files.zero_from(self.topic, self.queue_id, self._end)
            found = True
        return found

    def _holds_data(self, position: int) -> bool:
        """Whether anything but zeros lies in the file of `position` there or behind: Java's files
        have all their blocks."""
        if not self._files.has_data_at(self.topic, self.queue_id, position):
            return False
        file_end = position - position % self._files.file_size + self._files.file_size
        while position < file_end:
            size = min(_SCAN, file_end - position)
            data = self._files.read(self.topic, self.queue_id, position, size)
            if not data or data.strip(b"\0"):
                return bool(data)
            position += len(data)
        return False

    def _take_bounds(self) -> None:
        """The offsets that the units say; the minimum of the log is not considered."""
        last = self.last_unit
        first = self.first_unit
        self.min_offset = first.base if first is not None else 0
        self.max_offset = last.following if last is not None else 0
        self.max_phy_offset = last.record_end if last is not None else 0

    def drop_last(self) -> None:
        """Drop the last unit, which cannot be used: dispatching the log again makes it anew."""
        self._drop_from(self._end - BATCH_UNIT_SIZE)
        self.doubtful_from = self.max_phy_offset

    # -- truncation and retention ----------------------------------------------------------------

    def truncate(self, phy_offset: int) -> None:
        """Drop the units of records that do not end at or before `phy_offset`."""
        if self.max_phy_offset > phy_offset:
            self._drop_from(self._find_first(lambda unit: unit.record_end <= phy_offset))
            log.warning("%r: truncated to records before phy %s", self, phy_offset)

    def truncate_to_offset(self, max_offset: int) -> None:
        """Drop the units of messages from queue offset `max_offset` on."""
        if self.max_offset > max_offset:
            self._drop_from(self._find_first(lambda unit: unit.following <= max_offset))

    def _drop_from(self, position: int) -> None:
        if position <= self._start:
            self.empty()
            return
        old_end, self._end = self._end, position
        self._cut(old_end + (-old_end) % self._files.file_size)
        self.flushed = min(self.flushed, self._end)
        self.generation += 1
        low = self.min_offset
        self._take_bounds()
        self.min_offset = min(max(low, self.min_offset), self.max_offset)

    def correct_min_offset(self, min_phy_offset: int) -> bool:
        """The log begins at `min_phy_offset`. True if the minimum changed."""
        before = self.min_offset
        position = self._find_first(lambda unit: unit.phy_offset < min_phy_offset)
        unit = self._unit_at(position) if position < self._end else None
        self.min_offset = unit.base if unit is not None else self.max_offset
        return self.min_offset != before

    def delete_first_expired(self, min_phy_offset: int) -> bool:
        """Delete the first file if it is not the last one and its records are all gone."""
        behind = self._start + self._files.file_size
        if behind >= self._end:
            return False
        last = self._unit_at(behind - BATCH_UNIT_SIZE)
        if last is None or last.phy_offset >= min_phy_offset:
            return False
        self._files.delete(self.topic, self.queue_id, self._start)
        self._start = behind
        return True

    def is_expired(self, min_phy_offset: int) -> bool:
        """Whether it has units, but no record of them is left."""
        return 0 < self.max_phy_offset <= min_phy_offset

    # -- flushing ------------------------------------------------------------------------------

    def write_again(self, phy_offset: int) -> None:
        """Write the units of the records from `phy_offset` on again: they count as not flushed.
        Raises DiskFullError, StoreError."""
        if self.max_phy_offset <= phy_offset:
            return
        position = self._find_first(lambda unit: unit.phy_offset < phy_offset)
        self.flushed = min(self.flushed, position)
        while position < self._end:
            size = min(_SCAN, self._end - position)
            data = self._files.read(self.topic, self.queue_id, position, size)
            if not data:
                break
            self._files.write(self.topic, self.queue_id, position, memoryview(data))
            position += len(data)
        self.names_unsynced = True

    def dirty_files(self) -> list[int]:
        """First bytes of the files with units that are not on disk."""
        file_size = self._files.file_size
        begin = max(self.flushed - self.flushed % file_size, self._start)
        return list(range(begin, self._end, file_size))

    def mark_flushed(self, end: int, generation: int) -> None:
        """Everything before `end` is on disk, unless units were removed meanwhile."""
        if generation == self.generation:
            self.flushed = max(self.flushed, end)
