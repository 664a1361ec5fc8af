"""ConsumeQueue: one queue of one topic: a 20-byte unit for each record, in queue order.

Built in process `store` by the dispatch thread, under the table's lock. Unit n is at byte 20 n of
the queue, so queue offsets are positions. The queueOffset of the record determines the position, so
every replica builds the same bytes. A unit that already exists is skipped; a queue that restarts at
0 (its topic was deleted and recreated) is emptied; a gap is filled with blank units, so that what
follows keeps its position (RocketMQ shifts it). It must not know topics' settings, records beyond
a unit's fields, or the control page.

Corresponds to RocketMQ's ConsumeQueue.putMessagePositionInfo, recover, truncateDirtyLogicFiles,
correctMinOffset.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

import numpy as np

from store.consume_queue_files import ConsumeQueueFiles
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
_NS_PER_S: Final = 1_000_000_000
_LARGEST_GAP_FILES: Final = 10
"""A larger gap is not filled (that could fill the disk): the queue restarts after it."""


class QueueState(NamedTuple):
    """The state of a queue saved by a clean stop (store/queue_states.py). All but marks: bytes."""

    start: int
    end: int
    min: int
    """-1: must be searched for."""
    max_phy_offset: int
    marks: tuple[int, int]
    """ConsumeQueueFiles.marks at the stop."""


def _last_file(start: int, end: int, file_size: int) -> int:
    """First byte of the file with the last unit; of the first file if the queue is empty."""
    last = max(start, end - 1)
    return last - last % file_size


class ConsumeQueue:
    """State of one queue. Guarded by: the lock of ConsumeQueueTable."""

    __slots__ = (
        "_end",
        "_files",
        "_min",
        "_min_is_for",
        "_start",
        "doubtful_from",
        "emptied",
        "flushed",
        "generation",
        "max_phy_offset",
        "names_unsynced",
        "queue_id",
        "row",
        "starts_late",
        "topic",
        "whole",
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
        self._min = 0
        self._min_is_for = -1
        """The log's minimum for which `_min` was last determined; -1: search again."""
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
        self.doubtful_from: int | None = None
        """Set by recovery: records from this log position on may be missing here, and the end is
        not known for sure before the log was dispatched again from there on."""
        self.starts_late = False
        """Its first unit was not the first of its queue: the log may have earlier ones."""
        self.whole = True
        """False: units were found missing or wrong; to be rebuilt from the log."""
        self.row = -1
        """Its row in the queue table, -1 before it has one."""

    def __repr__(self) -> str:
        return f"queue {self.topic}/{self.queue_id} [{self.min_offset}, {self.max_offset})"

    @property
    def _stored(self) -> StoredUnits:
        """Made for each use: 80,000 queues are opened at a start, and few of them read."""
        return StoredUnits(self._files, self.topic, self.queue_id)

    @property
    def _repair(self) -> UnitRepair:
        return UnitRepair(self._files, self.topic, self.queue_id, self._start, self._end)

    @property
    def min_offset(self) -> int:
        """First queue offset whose record is still in the commit log."""
        return self._min // CQ_UNIT_SIZE

    @property
    def max_offset(self) -> int:
        """The next queue offset."""
        return self._end // CQ_UNIT_SIZE

    # -- building ------------------------------------------------------------------------------

    def append(self, data: memoryview, queue_offset: int, first_end: int, last_end: int) -> bool:
        """Append whole units with consecutive queue offsets. True if the queue moved.

        first_end, last_end: phy_offset of the end of the first and the last unit's record. Raises
        DiskFullError, StoreError.
        """
        if last_end <= self.max_phy_offset:
            return False
        if first_end <= self.max_phy_offset or queue_offset * CQ_UNIT_SIZE != self._end:
            skipped = self._make_room(data, queue_offset)
            data = data[skipped * CQ_UNIT_SIZE :]
            if not data:
                return False
        if self._files.write(self.topic, self.queue_id, self._end, data):
            self.names_unsynced = True
        self._end += len(data)
        self.max_phy_offset = last_end
        return True

    def _make_room(self, data: memoryview, queue_offset: int) -> int:
        """Move the end to where `data` belongs; returns how many of its units already exist."""
        units = np.frombuffer(data, CQ_UNIT_DTYPE)
        ends = units["phy_offset"].astype(np.int64) + units["size"]
        known = int(np.searchsorted(ends, self.max_phy_offset, "right"))
        if known == len(units):
            return known
        expected = (queue_offset + known) * CQ_UNIT_SIZE
        if expected == 0 and self._end:
            log.warning("%r: restarts at offset 0, phy %s: emptied", self, ends[0])
            self.empty()
        elif expected < self._end:
            repeated = (self._end - expected) // CQ_UNIT_SIZE
            existing = units[known : known + repeated]
            filled = self._fill_blanks(queue_offset + known, existing)
            log.warning(
                "%r: offset %s already exists: %s units skipped, %s blank ones filled",
                self,
                queue_offset + known,
                len(existing) - filled,
                filled,
            )
            return min(known + repeated, len(units))
        elif expected > self._end:
            self._skip_to(expected)
        return known

    def _fill_blanks(self, queue_offset: int, units: Units) -> int:
        """A damaged record had a queue offset that was too large: those before it are blank until
        their records come. Returns how many were."""
        return sum(
            self.fill_blank(queue_offset + number, *map(int, unit))
            for number, unit in enumerate(units.tolist())
        )

    def begins_anew_at(self, queue_offset: int) -> bool:
        """Whether a unit at `queue_offset` is so far ahead that the queue would begin anew there,
        and lose what it has."""
        gap = queue_offset * CQ_UNIT_SIZE - self._end
        return self._end > self._start and gap > _LARGEST_GAP_FILES * self._files.file_size

    def _skip_to(self, expected: int) -> None:
        """Fill with blank units from the end, or from the file's start in an empty queue."""
        self._min_is_for = -1
        if self._end > self._start:
            log.error(
                "%r: the next record has offset %s: no record for the offsets before it; "
                "the log is searched for them",
                self,
                expected // CQ_UNIT_SIZE,
            )
            self.whole = False
            if self.begins_anew_at(expected // CQ_UNIT_SIZE):
                self.empty()
        if self._end == self._start:
            first_file = expected - expected % self._files.file_size
            if first_file != self._start:
                self._files.delete(self.topic, self.queue_id, self._start)
            self._start = self._end = self.flushed = first_file
            self._min = expected
            self.starts_late = True
        blank = CQ_UNIT.pack(self._last_phy_offset(), PRE_BLANK_SIZE, 0)
        while self._end < expected:
            count = min((expected - self._end) // CQ_UNIT_SIZE, _FILL_STEP)
            self._files.write(self.topic, self.queue_id, self._end, memoryview(blank * count))
            self._end += count * CQ_UNIT_SIZE
        self.names_unsynced = True

    def _last_phy_offset(self) -> int:
        """Offset for blanks after the last unit: phy_offsets must never decrease within a queue."""
        return (
            self._stored.phy_offset_at(self._end - CQ_UNIT_SIZE) if self._end > self._start else 0
        )

    def empty(self) -> None:
        """Delete all files; the queue is then like a new one."""
        for start in range(self._start, self._end + 1, self._files.file_size):
            self._files.delete(self.topic, self.queue_id, start)
        self._start = self._end = self._min = self.flushed = self.max_phy_offset = 0
        self._min_is_for = -1
        self.emptied = True
        self.generation += 1

    def destroy(self) -> None:
        """Delete all files and the directory."""
        self.empty()
        self._files.remove_directories(self.topic, self.queue_id)

    # -- reading -------------------------------------------------------------------------------

    def read_units(self, queue_offset: int, count: int) -> Units:
        """Up to `count` units from `queue_offset`; stops at the end of the queue or the file."""
        position = queue_offset * CQ_UNIT_SIZE
        size = min(count * CQ_UNIT_SIZE, self._end - position)
        return self._stored.read(position, size) if size > 0 else np.empty(0, CQ_UNIT_DTYPE)

    # -- recovery ------------------------------------------------------------------------------

    def recover(self, complete_until_ms: int = 0) -> None:
        """Load the files: scan from the third-last one to the first invalid unit.

        Everything after it is zeroed or deleted; `doubtful_from` says whether something may be
        missing then. complete_until_ms: wall clock; units of records stored before are on disk
        (the checkpoint). Raises WrongFileSizeError, OSError.
        """
        starts, was_short = self._files.list_starts(self.topic, self.queue_id)
        if not starts:
            self.doubtful_from = 0
            return
        file_size = self._files.file_size
        last_end = starts[-1] + file_size
        self._start = self._find_start(starts)
        position = max(self._start, last_end - 3 * file_size)
        self._end, self.max_phy_offset, behind = self._stored.scan(position, last_end)
        self._min = self._start
        if self._cut(last_end, behind) or was_short:
            self.doubtful_from = self.max_phy_offset
        if not self.max_phy_offset:
            self.max_phy_offset = self._stored.find_max_phy_offset(self._start, self._end)
        if self._end == 0 and self._files.changed_ms(self.topic, self.queue_id) < complete_until_ms:
            # Its first unit was on disk once.
            self.doubtful_from = 0
        elif self.doubtful_from is not None:
            self.doubtful_from = self.max_phy_offset
        self.flushed = self._end

    def _find_start(self, starts: list[int]) -> int:
        """The first file; files missing in between are made again, to be filled from the log."""
        file_size = self._files.file_size
        first = len(starts) - 1
        most = _LARGEST_GAP_FILES * file_size
        while first and starts[first] - starts[first - 1] <= most:
            first -= 1
        if first:
            log.error("%r: ignoring files before a gap at %s", self, starts[first] // CQ_UNIT_SIZE)
        wanted = range(starts[first], starts[-1] + 1, file_size)
        if len(wanted) > len(starts) - first:
            log.error("%r: %s files are missing", self, len(wanted) - len(starts) + first)
            self._files.make_whole(self.topic, self.queue_id, wanted)
            self.whole = False
        return starts[first]

    def _cut(self, last_end: int, behind: bytes = b"") -> bool:
        """Remove everything between the end and `last_end`, the end of the files on disk. True if
        there was anything.

        behind: the bytes after the end, as many as were already read.
        The first file of an empty queue is kept unless it is file 0: its name is the offset at
        which the queue continues.
        """
        file_size = self._files.file_size
        keep_first = self._end == self._start and self._start > 0
        kept = self._end + (-self._end) % file_size + (file_size if keep_first else 0)
        found = False
        for start in range(kept, last_end, file_size):
            found |= self._files.has_data_at(self.topic, self.queue_id, start)
            self._files.delete(self.topic, self.queue_id, start)
        if (self._end % file_size or keep_first) and self._has_left_over(behind):
            self._files.zero_from(self.topic, self.queue_id, self._end)
            found = True
        return found

    def _has_left_over(self, behind: bytes) -> bool:
        """Whether the last file contains anything after the end: checks the next pages, then for
        any data."""
        near = _PAGE + (-self._end) % _PAGE
        if len(behind) < near:
            behind = self._files.read(self.topic, self.queue_id, self._end, near)
        data = behind[:near]
        if data != _ZEROS[: len(data)]:
            return True
        in_file = self._end % self._files.file_size + near
        return in_file < self._files.file_size and self._files.has_data_at(
            self.topic, self.queue_id, self._end + near
        )

    def state(self, min_phy_offset: int) -> QueueState:
        """The argument of `restore`, after the last flush; the log begins at `min_phy_offset`."""
        return QueueState(
            start=self._start,
            end=self._end,
            min=self._min if self._min_is_for == min_phy_offset else -1,
            max_phy_offset=self.max_phy_offset,
            marks=self._files.marks(
                self.topic,
                self.queue_id,
                _last_file(self._start, self._end, self._files.file_size),
            ),
        )

    def restore(self, state: QueueState, min_phy_offset: int) -> bool:
        """Adopt `state` without reading the files; False, without any change, if they were touched
        since, or if the file system's times are too coarse to tell.

        min_phy_offset: where the log began at that time.
        """
        written_ns = state.marks[1]
        if written_ns and written_ns % _NS_PER_S == 0:
            return False
        last_file = _last_file(state.start, state.end, self._files.file_size)
        if state.marks != self._files.marks(self.topic, self.queue_id, last_file):
            return False
        self._take_over(state, min_phy_offset)
        return True

    def _take_over(self, state: QueueState, min_phy_offset: int) -> None:
        self._start, self._end, self.flushed = state.start, state.end, state.end
        self._min, self._min_is_for = state.start, -1
        if state.min >= 0:
            self._min, self._min_is_for = state.min, min_phy_offset
        self.max_phy_offset = state.max_phy_offset

    def adopt(self, state: QueueState, min_phy_offset: int) -> None:
        """Adopt the `state` of a queue whose files were touched since: the log has not changed, so
        its offsets hold, and files that are not as they should be are to be filled from the log.

        min_phy_offset: where the log began at that time. Raises WrongFileSizeError, OSError.
        """
        found, was_short = self._files.list_starts(self.topic, self.queue_id)
        file_size = self._files.file_size
        self._take_over(state, min_phy_offset)
        wanted = range(self._start, _last_file(self._start, self._end, file_size) + 1, file_size)
        has_all = set(wanted) <= set(found) or self._end == 0
        if not has_all:
            self._files.make_whole(self.topic, self.queue_id, wanted)
            self.names_unsynced = True
        if found:
            self._cut(found[-1] + file_size)
        has_end = self._stored.find_max_phy_offset(self._start, self._end) == self.max_phy_offset
        self.whole = has_all and has_end and not was_short
        if not self.whole:
            log.error("%r: its files have changed since the last stop", self)

    def falls_short_of(self, state: QueueState) -> bool:
        """Whether recovery has found less than an earlier stop knew: units are lost, unless the
        queue was deleted and made again in between."""
        if self._end >= state.end:
            return False
        first = self._stored.phy_offset_at(self._start) if self._end > self._start else 0
        return not first >= state.max_phy_offset > 0

    def doubt_end(self) -> None:
        """Units may be missing at the end: the log must be dispatched again from the last one."""
        self.doubtful_from = self.max_phy_offset if self._end > self._start else 0

    def drop_last(self) -> None:
        """Drop the last unit, which is wrong: dispatching the log again makes it anew."""
        self._end -= CQ_UNIT_SIZE
        self._files.zero_from(self.topic, self.queue_id, self._end)
        self.max_phy_offset = self._stored.find_max_phy_offset(self._start, self._end)
        self.flushed = min(self.flushed, self._end)
        self._min, self._min_is_for = min(self._min, self._end), -1
        self.generation += 1

    # -- rebuilding ----------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """Queue offset of the first unit there is."""
        return self._start // CQ_UNIT_SIZE

    def make_files_whole(self) -> int:
        """Have every file, in its full length; returns how many were not. Raises OSError."""
        last = _last_file(self._start, self._end, self._files.file_size)
        starts = range(self._start, last + 1, self._files.file_size) if self._end else range(0)
        made = self._files.make_whole(self.topic, self.queue_id, starts)
        self.names_unsynced = self.names_unsynced or made > 0
        return made

    def rewrite(self, queue_offset: int, data: memoryview | bytes) -> None:
        """Replace existing units from `queue_offset` on; what lies outside the queue is left out.
        Raises DiskFullError, StoreError."""
        begin, end = self._repair.replace(queue_offset * CQ_UNIT_SIZE, memoryview(data))
        if begin < end:
            self._note_changed(begin)
            if end == self._end:
                self.max_phy_offset = self._stored.find_max_phy_offset(self._start, self._end)

    def blank_out(self, low: int, high: int) -> int:
        """Make the units of records in [low, high) of the log blank ones: these cannot be read.

        Returns the queue offset behind the last of them, 0 without any. Raises DiskFullError,
        StoreError.
        """
        if self.max_phy_offset <= low:
            return 0
        begin, end = self._repair.blank_out(low, high)
        if begin == end:
            return 0
        self._note_changed(begin)
        self.max_phy_offset = self._stored.find_max_phy_offset(self._start, self._end)
        return end // CQ_UNIT_SIZE

    def fill_blank(self, queue_offset: int, phy_offset: int, size: int, tags_code: int) -> bool:
        """The unit at `queue_offset`, if it is a blank one, gets its record. True if it was.
        Raises DiskFullError, StoreError."""
        position = queue_offset * CQ_UNIT_SIZE
        if not self._repair.fill_blank(position, phy_offset, size, tags_code):
            return False
        self._note_changed(position)
        self.max_phy_offset = max(self.max_phy_offset, phy_offset + size)
        return True

    def _note_changed(self, position: int) -> None:
        """Units were changed from `position` on."""
        self.flushed = min(self.flushed, position)
        self._min_is_for = -1

    def reserve(self, following: int) -> bool:
        """The next queue offset is `following` at least: those before are used up. True if the
        queue moved. Raises DiskFullError, StoreError."""
        gap = following * CQ_UNIT_SIZE - self._end
        if not 0 < gap <= _LARGEST_GAP_FILES * self._files.file_size:
            return False
        self._skip_to(following * CQ_UNIT_SIZE)
        return True

    def record_end(self, queue_offset: int) -> int:
        """Log position of the end of a unit's record; 0 if the unit does not exist."""
        units = self.read_units(queue_offset, 1)
        return int(units[0]["phy_offset"]) + int(units[0]["size"]) if len(units) else 0

    def truncate(self, phy_offset: int) -> None:
        """Drop the units of records that do not end at or before `phy_offset`."""
        if self.max_phy_offset <= phy_offset:
            return
        before = self._end
        self._min_is_for = -1
        self.generation += 1
        self._end = self._stored.find_first(self._start, self._end, phy_offset)
        while self._end > self._start and self._ends_badly(phy_offset):
            self._end -= CQ_UNIT_SIZE
        self._cut(before + (-before) % self._files.file_size)
        self._min = min(self._min, self._end)
        self.flushed = min(self.flushed, self._end)
        self.max_phy_offset = self._stored.find_max_phy_offset(self._start, self._end)
        log.info("%r: truncated at phy %s", self, phy_offset)
        if self._end == 0:
            self.emptied = True

    def _ends_badly(self, phy_offset: int) -> bool:
        """Whether the last unit is blank or its record ends after `phy_offset`."""
        unit = self._stored.read(self._end - CQ_UNIT_SIZE, CQ_UNIT_SIZE)[0]
        return int(unit["phy_offset"]) + int(unit["size"]) > phy_offset

    # -- retention -----------------------------------------------------------------------------

    def correct_min_offset(self, min_phy_offset: int) -> bool:
        """Move min_offset to the first unit whose record is still in the commit log, or to the
        queue's end if there is none. True if it changed.
        """
        if self._min_is_for == min_phy_offset:
            return False
        position = self._start
        if not self._begins_at_or_behind(min_phy_offset):
            position = self._stored.find_first(position, self._end, min_phy_offset)
            if not self._stored.is_plausible_around(position, self._start, self._end):
                # Wrong units would hide right ones: what is there stays until it is rebuilt.
                self.whole = False
                return False
            position = self._stored.skip_blanks(position, self._end)
        changed = position != self._min
        self._min = position
        self._min_is_for = min_phy_offset
        return changed

    def _begins_at_or_behind(self, min_phy_offset: int) -> bool:
        """Whether the record of the first unit is still in the log, as it nearly always is."""
        if self._end == self._start:
            return False
        data = self._files.read(self.topic, self.queue_id, self._start, CQ_UNIT_SIZE)
        if len(data) < CQ_UNIT_SIZE:
            return False
        phy_offset, size, _ = CQ_UNIT.unpack(data)
        return bool(phy_offset >= min_phy_offset and size != PRE_BLANK_SIZE)

    def delete_first_expired(self, min_phy_offset: int) -> bool:
        """Delete the first file if its last record is before `min_phy_offset` and another file
        follows. True if it was deleted."""
        following = self._start + self._files.file_size
        if following >= self._end or self._stored.phy_offset_at(following - CQ_UNIT_SIZE) >= (
            min_phy_offset
        ):
            return False
        if not self._stored.is_plausible_around(following - CQ_UNIT_SIZE, self._start, self._end):
            self.whole = False
            return False
        self._files.delete(self.topic, self.queue_id, self._start)
        log.info("%r: file %s deleted, before %s", self, self._start, min_phy_offset)
        self._start = following
        self._min = max(self._min, following)
        return True

    def is_expired(self, min_phy_offset: int) -> bool:
        """Whether no record of the queue is left (306 deletes such queues)."""
        return self._end > 0 and self.max_phy_offset <= min_phy_offset

    # -- flushing ------------------------------------------------------------------------------

    def write_again(self, phy_offset: int) -> None:
        """Write the units of the records from `phy_offset` on again, and the names of the files:
        they count as not flushed. Raises DiskFullError, StoreError."""
        if self.max_phy_offset <= phy_offset:
            return
        self.flushed = min(self.flushed, self._repair.write_again(phy_offset))
        self.names_unsynced = True

    def dirty_pages(self) -> int:
        """4 KiB pages begun since the last flush, counted as in RocketMQ."""
        return self._end // _PAGE - self.flushed // _PAGE

    @property
    def is_dirty(self) -> bool:
        """Whether there is anything to flush."""
        return self._end != self.flushed or self.names_unsynced

    def dirty_files(self) -> list[int]:
        """First bytes of the files with unflushed units."""
        file_size = self._files.file_size
        first = max(self.flushed - self.flushed % file_size, self._start)
        return list(range(first, self._end, file_size))

    @property
    def end(self) -> int:
        """Bytes up to the end of the last unit."""
        return self._end

    def mark_flushed(self, end: int, generation: int) -> None:
        """Everything up to `end` is on disk, if the queue is still of `generation`."""
        if generation == self.generation:
            self.flushed = max(self.flushed, end)
