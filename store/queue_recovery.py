"""QueueRecovery: what a consume queue holds, from its files or from what an earlier stop knew.

Used at a start by ConsumeQueueTable, under its lock, before anybody reads. The units count up to
the first that is none; what lies behind is removed, and whether something may be missing is said in
`doubtful_from` and `whole`. It must not know the log. Corresponds to RocketMQ's
ConsumeQueue.recover.

Tested by tests/store/test_consume_queue.py.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from store.consume_queue import LARGEST_GAP_FILES, ConsumeQueue
from store.queue_bounds import last_file
from store.stored_units import CQ_UNIT_SIZE

log = logging.getLogger(__name__)

_NS_PER_S: Final = 1_000_000_000
_SCANNED_FILES: Final = 3


class QueueState(NamedTuple):
    """The state of a queue saved by a clean stop (store/queue_states.py). All but marks: bytes."""

    start: int
    end: int
    min: int
    """-1: must be searched for."""
    max_phy_offset: int
    marks: tuple[int, int]
    """ConsumeQueueFiles.marks at the stop."""


class QueueRecovery:
    """Of one queue. Made for each use; keeps no state."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue: Final = queue
        self._files: Final = queue.files
        self._name: Final = queue.topic, queue.queue_id

    # -- from the files ------------------------------------------------------------------------

    def recover(self, complete_until_ms: int = 0) -> None:
        """Load the files: scan from the third-last one to the first invalid unit.

        Everything after it is zeroed or deleted; `doubtful_from` says whether something may be
        missing then. complete_until_ms: wall clock; units of records stored before are on disk
        (the checkpoint). Raises WrongFileSizeError, OSError.
        """
        queue, file_size = self.queue, self._files.file_size
        starts, was_short = self._files.list_starts(*self._name)
        if not starts:
            queue.doubtful_from = 0
            return
        start, last_end = self._find_start(starts), starts[-1] + file_size
        position = max(start, last_end - _SCANNED_FILES * file_size)
        end, max_phy_offset, behind = queue.stored.scan(position, last_end)
        max_phy_offset = max_phy_offset or queue.stored.find_max_phy_offset(start, end)
        queue.bounds.load(start, end, max_phy_offset)
        has_lost = queue.clear_behind(end, last_end, behind) or was_short
        # Its first unit was on disk once.
        lost_all = end == 0 and self._files.changed_ms(*self._name) < complete_until_ms
        if lost_all:
            queue.doubtful_from = 0
        elif has_lost:
            queue.doubtful_from = max_phy_offset

    def _find_start(self, starts: list[int]) -> int:
        """The first file; files missing in between are made again, to be filled from the log."""
        file_size = self._files.file_size
        first = len(starts) - 1
        most = LARGEST_GAP_FILES * file_size
        while first and starts[first] - starts[first - 1] <= most:
            first -= 1
        if first:
            log.error(
                "%r: ignoring files before a gap at %s", self.queue, starts[first] // CQ_UNIT_SIZE
            )
        wanted = range(starts[first], starts[-1] + 1, file_size)
        if len(wanted) > len(starts) - first:
            missing = len(wanted) - len(starts) + first
            log.error("%r: %s files are missing", self.queue, missing)
            self._files.make_whole(*self._name, wanted)
            self.queue.names_unsynced = True
            self.queue.whole = False
        return starts[first]

    # -- from an earlier stop ------------------------------------------------------------------

    def state(self, min_phy_offset: int) -> QueueState:
        """The argument of `restore`, after the last flush; the log begins at `min_phy_offset`."""
        bounds = self.queue.bounds
        start, end = bounds.start, bounds.end
        return QueueState(
            start=start,
            end=end,
            min=bounds.min if bounds.knows_min_for(min_phy_offset) else -1,
            max_phy_offset=bounds.max_phy_offset,
            marks=self._files.marks(*self._name, last_file(start, end, self._files.file_size)),
        )

    def restore(self, state: QueueState, min_phy_offset: int) -> bool:
        """Adopt `state` without reading the files; False, without any change, if they were touched
        since, or if the file system's times are too coarse to tell.

        min_phy_offset: where the log began at that time.
        """
        written_ns = state.marks[1]
        if written_ns and written_ns % _NS_PER_S == 0:
            return False
        last = last_file(state.start, state.end, self._files.file_size)
        if state.marks != self._files.marks(*self._name, last):
            return False
        self._take_over(state, min_phy_offset)
        return True

    def _take_over(self, state: QueueState, min_phy_offset: int) -> None:
        bounds = self.queue.bounds
        bounds.load(state.start, state.end, state.max_phy_offset)
        if state.min >= 0:
            bounds.set_min(state.min, min_phy_offset)

    def adopt(self, state: QueueState, min_phy_offset: int) -> None:
        """Adopt the `state` of a queue whose files were touched since: the log has not changed, so
        its offsets hold, and files that are not as they should be are to be filled from the log.

        min_phy_offset: where the log began at that time. Raises WrongFileSizeError, OSError.
        """
        queue, bounds, file_size = self.queue, self.queue.bounds, self._files.file_size
        found, was_short = self._files.list_starts(*self._name)
        self._take_over(state, min_phy_offset)
        has_all = set(bounds.files(file_size)) <= set(found)
        if not has_all:
            queue.make_files_whole()
            queue.names_unsynced = True
        if found:
            queue.clear_behind(bounds.end, found[-1] + file_size)
        last_end = queue.stored.find_max_phy_offset(bounds.start, bounds.end)
        queue.whole = has_all and last_end == bounds.max_phy_offset and not was_short
        if not queue.whole:
            log.error("%r: its files have changed since the last stop", queue)

    def falls_short_of(self, state: QueueState) -> bool:
        """Whether recovery has found less than an earlier stop knew: units are lost, unless the
        queue was deleted and made again in between."""
        bounds = self.queue.bounds
        if bounds.end >= state.end:
            return False
        first = 0 if bounds.is_empty else self.queue.stored.phy_offset_at(bounds.start)
        return not first >= state.max_phy_offset > 0
