"""StoredQueue: what a consume queue and a batch consume queue have in common: files and bounds.

Units of one size lie in files of one size; the first file that there is may begin anywhere. What is
removed at the end is zeroed or deleted, files at the start go when their records are gone, and a
flush is told which files need it. In process `store`. It must not know what a unit holds.

Tested by tests/store/test_consume_queue.py.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import ClassVar

from store.consume_queue_files import ConsumeQueueFiles
from store.queue_bounds import FlushMark, QueueBounds

log = logging.getLogger(__name__)


class StoredQueue(ABC):
    """State of one queue. Guarded by: the lock of its table."""

    __slots__ = (
        "bounds",
        "doubtful_from",
        "emptied",
        "files",
        "files_deleted",
        "names_unsynced",
        "queue_id",
        "row",
        "topic",
        "whole",
    )

    UNIT_SIZE: ClassVar[int]
    KEEPS_FIRST_FILE: ClassVar[bool]
    """An empty queue keeps its first file, unless it is file 0: its name is the offset at which the
    queue goes on."""

    def __init__(self, files: ConsumeQueueFiles, topic: str, queue_id: int) -> None:
        """Touches no file; recovery loads what is on disk."""
        self.files = files
        self.topic = topic
        self.queue_id = queue_id
        self.bounds = QueueBounds()
        self.names_unsynced = False
        """Files were created whose names may not be on disk."""
        self.emptied = False
        """Set when the queue restarted; cleared by whoever publishes it."""
        self.files_deleted = False
        """Set when files at the end were deleted, which readers may have open and which are made
        again under the same names; cleared by whoever publishes it."""
        self.doubtful_from: int | None = None
        """Set by recovery: records from this log position on may be missing here, and the end is
        not known for sure before the log was dispatched again from there on."""
        self.whole = True
        """False: units were found missing or wrong; to be rebuilt from the log."""
        self.row = -1
        """Its row in the queue table, -1 before it has one."""

    def __repr__(self) -> str:
        return f"queue {self.topic}/{self.queue_id} [{self.min_offset}, {self.max_offset})"

    # -- what a kind of queue says -------------------------------------------------------------

    @property
    @abstractmethod
    def min_offset(self) -> int:
        """First queue offset whose record is still in the commit log."""

    @property
    @abstractmethod
    def max_offset(self) -> int:
        """The next queue offset."""

    @abstractmethod
    def correct_min_offset(self, min_phy_offset: int) -> bool:
        """Move min_offset to the first unit whose record is still in the commit log, which begins
        at `min_phy_offset`, or to the queue's end if there is none. True if it changed."""

    @abstractmethod
    def is_gone(self, position: int, min_phy_offset: int) -> bool:
        """Whether the record of the unit at `position` lies before `min_phy_offset`; not if the
        unit cannot be believed."""

    def holds_data(self, position: int) -> bool:
        """Whether anything was written at or behind `position` in its file."""
        return self.files.has_data_at(self.topic, self.queue_id, position)

    def holds_more(self, end: int, behind: bytes) -> bool:
        """The same behind the last unit. behind: the bytes there, as many as were already read."""
        return self.holds_data(end)

    # -- units ---------------------------------------------------------------------------------

    @property
    def max_phy_offset(self) -> int:
        """End of the last record that has a unit here; 0 if there is none."""
        return self.bounds.max_phy_offset

    @property
    def unit_count(self) -> int:
        """Units in its files."""
        return (self.bounds.end - self.bounds.start) // self.UNIT_SIZE

    def empty(self) -> None:
        """Delete all files; the queue is then like a new one."""
        bounds = self.bounds
        for start in range(bounds.start, bounds.end + 1, self.files.file_size):
            self.files.delete(self.topic, self.queue_id, start)
        bounds.clear()
        self.emptied = True

    def destroy(self) -> None:
        """Delete all files and the directory."""
        self.empty()
        self.files.remove_directories(self.topic, self.queue_id)

    def make_files_whole(self) -> None:
        """Have every file, in its full length. Raises OSError."""
        starts = self.bounds.files(self.files.file_size)
        before, self.names_unsynced = self.names_unsynced, True  # Also if only some could be made.
        made = self.files.make_whole(self.topic, self.queue_id, starts)
        self.names_unsynced = before or made > 0

    def clear_behind(self, end: int, last_end: int, behind: bytes = b"") -> bool:
        """Zero or delete everything between `end` and `last_end`, the end of the files on disk.
        True if there was anything. behind: see holds_more."""
        file_size = self.files.file_size
        keep_first = self.KEEPS_FIRST_FILE and end == self.bounds.start > 0
        kept = end + (-end) % file_size + (file_size if keep_first else 0)
        found = False
        # The last one first: a kill in between leaves no gap, which a recovery would fill.
        for start in reversed(range(kept, last_end, file_size)):
            found |= self.holds_data(start)
            self.files.delete(self.topic, self.queue_id, start)
            self.files_deleted = True
        if (end % file_size or keep_first) and self.holds_more(end, behind):
            self.files.zero_from(self.topic, self.queue_id, end)
            found = True
        return found

    def doubt_end(self) -> None:
        """Units may be missing at the end: the log must be dispatched again from the last one."""
        self.doubtful_from = 0 if self.bounds.is_empty else self.bounds.max_phy_offset

    def doubt_disk(self) -> None:
        """Another process wrote what it has and was killed: the disk may lack any of it, and the
        next flush brings it all."""
        if not self.bounds.is_empty:
            self.bounds.write_again(self.bounds.start)
            self.names_unsynced = True

    # -- retention -----------------------------------------------------------------------------

    def delete_first_expired(self, min_phy_offset: int) -> bool:
        """Delete the first file if its last record is before `min_phy_offset` and another file
        follows. True if it was deleted."""
        start = self.bounds.start
        following = start + self.files.file_size
        if following >= self.bounds.end:
            return False
        if not self.is_gone(following - self.UNIT_SIZE, min_phy_offset):
            return False
        self.files.delete(self.topic, self.queue_id, start)
        log.info("%r: file %s deleted, before %s", self, start, min_phy_offset)
        self.bounds.drop_first_file(following)
        return True

    def is_expired(self, min_phy_offset: int) -> bool:
        """Whether no record of the queue is left (306 deletes such queues)."""
        return self.bounds.end > 0 and self.bounds.max_phy_offset <= min_phy_offset

    # -- flushing ------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """Whether there is anything to flush."""
        return self.bounds.flushed != self.bounds.end or self.names_unsynced

    def begin_flush(self) -> tuple[range, bool, FlushMark]:
        """First bytes of the files to be flushed, whether their names are, too, and the mark for
        QueueBounds.mark_flushed."""
        names_unsynced, self.names_unsynced = self.names_unsynced, False
        bounds = self.bounds
        return bounds.dirty_files(self.files.file_size), names_unsynced, bounds.flush_mark()
