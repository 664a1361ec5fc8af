"""ConsumeQueue: one queue of one topic: a 20-byte unit for each record, in queue order.

Built in process `store` by the dispatch thread, under the table's lock. Unit n is at byte 20 n of
the queue, so queue offsets are positions. The queueOffset of the record determines the position, so
every replica builds the same bytes. A unit that already exists is skipped; a queue that restarts at
0 (its topic was deleted and recreated) is emptied; a gap is filled with blank units, so that what
follows keeps its position (RocketMQ shifts it). How it is loaded at a start: queue_recovery.py; how
units are changed where they lie: unit_repair.py. It must not know topics' settings, records beyond
a unit's fields, or the control page.

Corresponds to RocketMQ's ConsumeQueue.putMessagePositionInfo, truncateDirtyLogicFiles,
correctMinOffset.
"""

from __future__ import annotations

import logging
from typing import Final

import numpy as np

from store.consume_queue_files import ConsumeQueueFiles
from store.stored_queue import StoredQueue
from store.stored_units import (
    CQ_UNIT,
    CQ_UNIT_DTYPE,
    CQ_UNIT_SIZE,
    PRE_BLANK_SIZE,
    StoredUnits,
    Units,
)
from store.unit_repair import UnitRepair

log = logging.getLogger(__name__)

_FILL_STEP: Final = 50_000
_PAGE: Final = 4096
_ZEROS: Final = bytes(2 * _PAGE)
LARGEST_GAP_FILES: Final = 10
"""A larger gap is not filled (that could fill the disk): the queue restarts after it."""


class ConsumeQueue(StoredQueue):
    """State of one queue. Guarded by: the lock of ConsumeQueueTable."""

    __slots__ = ("starts_late",)

    UNIT_SIZE = CQ_UNIT_SIZE
    KEEPS_FIRST_FILE = True

    def __init__(self, files: ConsumeQueueFiles, topic: str, queue_id: int) -> None:
        """Touches no file."""
        super().__init__(files, topic, queue_id)
        self.starts_late = False
        """Its first unit was not the first of its queue: the log may have earlier ones."""

    @property
    def stored(self) -> StoredUnits:
        """Made for each use: 80,000 queues are opened at a start, and few of them read."""
        return StoredUnits(self.files, self.topic, self.queue_id)

    @property
    def repair(self) -> UnitRepair:
        """Changes units where they lie. Made for each use, too."""
        return UnitRepair(self.files, self.topic, self.queue_id, self.bounds)

    @property
    def start_offset(self) -> int:
        """Queue offset of the first unit there is."""
        return self.bounds.start // CQ_UNIT_SIZE

    @property
    def min_offset(self) -> int:
        """First queue offset whose record is still in the commit log."""
        return self.bounds.min // CQ_UNIT_SIZE

    @property
    def max_offset(self) -> int:
        """The next queue offset."""
        return self.bounds.end // CQ_UNIT_SIZE

    # -- building ------------------------------------------------------------------------------

    def append(self, data: memoryview, queue_offset: int, first_end: int, last_end: int) -> bool:
        """Append whole units with consecutive queue offsets. True if the queue moved.

        first_end, last_end: phy_offset of the end of the first and the last unit's record. Raises
        DiskFullError, StoreError.
        """
        bounds = self.bounds
        if last_end <= bounds.max_phy_offset:
            return False
        if first_end <= bounds.max_phy_offset or queue_offset * CQ_UNIT_SIZE != bounds.end:
            skipped = self._make_room(data, queue_offset)
            data = data[skipped * CQ_UNIT_SIZE :]
            if not data:
                return False
        # A write that fails may have made a file, which the next one finds.
        before, self.names_unsynced = self.names_unsynced, True
        created = self.files.write(self.topic, self.queue_id, bounds.end, data)
        self.names_unsynced = before or created
        bounds.append(len(data), last_end)
        return True

    def _make_room(self, data: memoryview, queue_offset: int) -> int:
        """Move the end to where `data` belongs; returns how many of its units already exist."""
        units = np.frombuffer(data, CQ_UNIT_DTYPE)
        ends = units["phy_offset"].astype(np.int64) + units["size"]
        known = int(np.searchsorted(ends, self.max_phy_offset, "right"))
        if known == len(units):
            return known
        expected, end = (queue_offset + known) * CQ_UNIT_SIZE, self.bounds.end
        if expected == 0 and end:
            log.warning("%r: restarts at offset 0, phy %s: emptied", self, ends[0])
            self.empty()
        elif expected < end:
            repeated = (end - expected) // CQ_UNIT_SIZE
            existing = units[known : known + repeated]
            filled = self.repair.fill_blanks(queue_offset + known, existing)
            log.warning(
                "%r: offset %s already exists: %s units skipped, %s blank ones filled",
                self,
                queue_offset + known,
                len(existing) - filled,
                filled,
            )
            return min(known + repeated, len(units))
        elif expected > end:
            self._skip_to(expected)
        return known

    def begins_anew_at(self, queue_offset: int) -> bool:
        """Whether a unit at `queue_offset` is so far ahead that the queue would begin anew there,
        and lose what it has."""
        gap = queue_offset * CQ_UNIT_SIZE - self.bounds.end
        return not self.bounds.is_empty and gap > LARGEST_GAP_FILES * self.files.file_size

    def _skip_to(self, expected: int, least: int = 0) -> None:
        """Fill with blank units from the end, or from the file's start in an empty queue, which
        gets `least` bytes of them."""
        bounds, file_size = self.bounds, self.files.file_size
        if not bounds.is_empty:
            log.error(
                "%r: the next record has offset %s: no record for the offsets before it; "
                "the log is searched for them",
                self,
                expected // CQ_UNIT_SIZE,
            )
            self.whole = False
            if self.begins_anew_at(expected // CQ_UNIT_SIZE):
                self.empty()
        if bounds.is_empty:
            first_file = expected - least - (expected - least) % file_size
            if first_file != bounds.start:
                self.files.delete(self.topic, self.queue_id, bounds.start)
            bounds.begin_at(first_file, expected)
            self.starts_late = True
        # phy_offsets must never decrease within a queue.
        before = 0 if bounds.is_empty else self.stored.phy_offset_at(bounds.end - CQ_UNIT_SIZE)
        blank = CQ_UNIT.pack(before, PRE_BLANK_SIZE, 0)
        while bounds.end < expected:
            data = memoryview(blank * min((expected - bounds.end) // CQ_UNIT_SIZE, _FILL_STEP))
            self.files.write(self.topic, self.queue_id, bounds.end, data)
            bounds.append_blank(len(data))
        self.names_unsynced = True

    def reserve(self, following: int) -> bool:
        """The next queue offset is `following` at least: those before are used up. True if the
        queue moved. Raises DiskFullError, StoreError."""
        gap = following * CQ_UNIT_SIZE - self.bounds.end
        is_filled = not self.bounds.is_empty
        if gap <= 0 or (is_filled and gap > LARGEST_GAP_FILES * self.files.file_size):
            return False
        # Without a unit nothing on disk would say so.
        self._skip_to(following * CQ_UNIT_SIZE, least=CQ_UNIT_SIZE)
        return True

    # -- reading -------------------------------------------------------------------------------

    def read_units(self, queue_offset: int, count: int) -> Units:
        """Up to `count` units from `queue_offset`; stops at the end of the queue or the file."""
        position = queue_offset * CQ_UNIT_SIZE
        size = min(count * CQ_UNIT_SIZE, self.bounds.end - position)
        return self.stored.read(position, size) if size > 0 else np.empty(0, CQ_UNIT_DTYPE)

    def record_end(self, queue_offset: int) -> int:
        """Log position of the end of a unit's record; 0 if the unit does not exist."""
        units = self.read_units(queue_offset, 1)
        return int(units[0]["phy_offset"]) + int(units[0]["size"]) if len(units) else 0

    # -- removal -------------------------------------------------------------------------------

    def truncate(self, phy_offset: int) -> None:
        """Drop the units of records that do not end at or before `phy_offset`."""
        if self.max_phy_offset <= phy_offset:
            return
        end = self.stored.find_first(self.bounds.start, self.bounds.end, phy_offset)
        # Blank ones at the end go, too, and a record that reaches over.
        while end > self.bounds.start and self.record_end(end // CQ_UNIT_SIZE - 1) > phy_offset:
            end -= CQ_UNIT_SIZE
        self._drop_from(end)
        log.info("%r: truncated at phy %s", self, phy_offset)
        if end == 0:
            self.emptied = True

    def drop_last(self) -> None:
        """Drop the last unit, which is wrong: dispatching the log again makes it anew."""
        self._drop_from(self.bounds.end - CQ_UNIT_SIZE)

    def _drop_from(self, end: int) -> None:
        bounds = self.bounds
        self.clear_behind(end, bounds.end + (-bounds.end) % self.files.file_size)
        bounds.cut(end, self.stored.find_max_phy_offset(bounds.start, end))

    # -- the log's minimum ---------------------------------------------------------------------

    def correct_min_offset(self, min_phy_offset: int) -> bool:
        """See StoredQueue."""
        bounds = self.bounds
        if bounds.knows_min_for(min_phy_offset):
            return False
        position = self.stored.find_min(bounds.start, bounds.end, min_phy_offset)
        if position is None:
            self.whole = False
            return False
        return bounds.set_min(position, min_phy_offset)

    def is_gone(self, position: int, min_phy_offset: int) -> bool:
        """See StoredQueue."""
        if self.stored.phy_offset_at(position) >= min_phy_offset:
            return False
        if self.stored.is_plausible_around(position, self.bounds.start, self.bounds.end):
            return True
        self.whole = False
        return False

    # -- files ---------------------------------------------------------------------------------

    def write_again(self, phy_offset: int) -> None:
        """Write the units of the records from `phy_offset` on again, and the names of the files:
        they count as not flushed. Raises DiskFullError, StoreError."""
        if self.max_phy_offset > phy_offset:
            self.repair.write_again(phy_offset)
            self.names_unsynced = True

    def holds_more(self, end: int, behind: bytes) -> bool:
        """See StoredQueue. Checks the next pages, then for any data."""
        near = _PAGE + (-end) % _PAGE
        if len(behind) < near:
            behind = self.files.read(self.topic, self.queue_id, end, near)
        data = behind[:near]
        if data != _ZEROS[: len(data)]:
            return True
        return end % self.files.file_size + near < self.files.file_size and self.holds_data(
            end + near
        )
