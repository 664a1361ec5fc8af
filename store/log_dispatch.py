"""LogDispatch: what is published of the commit log, handed to the dispatchers chunk by chunk.

On the dispatch thread of process `store` (ReputMessageService). It reads what the log's writer has
published, a chunk at a time and never over a file's end, hands the records to the dispatchers
(consume queues, then index), and publishes how far it is. The same chunk may be dispatched twice,
after a crash: the dispatchers skip what they have. Recovery uses `dispatch_range`. It must not know
queues, keys or who waits for its progress.

Tested by tests/store/test_reput_message_service.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from store.careful_dispatch import CarefulDispatch, Dispatcher
from store.commit_log_reader import CommitLogReader
from store.controller_mode import RoleNow
from store.dispatch_pace import DispatchPace
from store.errors import RecordDamagedError
from store.record_arrays import RecordArrays, ScanEnd
from store.record_properties import PropertyExtractor
from store.record_search import contradicts_itself, find_published, is_within

log = logging.getLogger(__name__)

DEFAULT_CHUNK_SIZE: Final = 4 << 20
"""Most bytes dispatched between two publications: ten thousand small records, about 5 ms."""

FewDispatcher = Callable[[int, int], tuple[int, int] | None]
"""(start, end of the log): see FewRecordsDispatch.dispatch."""
FenceOff = Callable[[int, int, str], None]
"""(start, end, reason): these bytes are damage; the source's fences have them when it returns."""
Publish = Callable[[int, int | None], None]
"""(dispatched offset, store timestamp in ms of the newest record that was dispatched now, None
without one): after every chunk."""


def dispatch_range(
    source: CommitLogReader,
    start: int,
    end: int,
    extractor: PropertyExtractor,
    dispatchers: Sequence[Dispatcher],
    on_progress: Callable[[int], None] | None = None,
    *,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
    fence_off: FenceOff | None = None,
) -> int:
    """Dispatch [start, end) of the log; returns the number of records. For recovery.

    A record that `end` lies within is left out. on_progress(phy_offset) is called after every
    chunk. fence_off: called for damage, which is then stepped over; without it RecordDamagedError
    is raised.
    """
    count = 0
    at = start
    dispatch = CarefulDispatch(source, extractor, dispatchers)
    while at < end:
        records, following = dispatch.dispatch(at, end, chunk_size)
        count += records.count
        if following == at:
            if is_within(source, at, end):
                break
            reason = records.reason or records.end.value
            if fence_off is None:
                raise RecordDamagedError(
                    f"commit log: no whole record at {at} before {end}: {reason}"
                )
            behind = find_published(source, at + 1, end)
            following = end if behind is None else behind
            fence_off(at, following, reason)
        at = following
        if on_progress is not None:
            on_progress(at)
    return count


class LogDispatch:
    """See the module. Owned by: the dispatch thread; `reput_from_offset` may be read by any."""

    def __init__(
        self,
        source: CommitLogReader,
        careful: CarefulDispatch,
        publish: Publish,
        *,
        role: RoleNow,
        chunk_size: int = DEFAULT_CHUNK_SIZE,
        pace: DispatchPace | None = None,
        dispatch_few: FewDispatcher = lambda start, end: None,
        fence_off: FenceOff | None = None,
    ) -> None:
        """role: up to where records may be dispatched, and whether they come in pieces. pace: hears
        of each chunk. dispatch_few: asked before a chunk is parsed as arrays for the
        dispatchers. fence_off: called for damage; without it damage ends the service
        (RecordDamagedError)."""
        self._source = source
        self._careful = careful
        self._publish = publish
        self._is_slave = role.is_slave
        self._readable_end = role.readable_end
        self._chunk_size = chunk_size
        self._pace = pace
        self._dispatch_few = dispatch_few
        self._fence_off = fence_off
        self.reput_from_offset = 0
        """Everything before is dispatched. Set it before the start."""
        self._stalled_at = -1
        """Where on a slave bytes are that are no record; logged once."""

    @property
    def behind_bytes(self) -> int:
        """Bytes that may be dispatched and are not yet."""
        return max(self._readable_end() - self.reput_from_offset, 0)

    @property
    def is_through(self) -> bool:
        """Whether all records are dispatched that may be. Raises StoreError."""
        at, end = self.reput_from_offset, self._readable_end()
        return at >= end or is_within(self._source, at, end)

    def dispatch_once(self) -> bool:
        """Dispatch one chunk; False when nothing can be done now.

        Damage is fenced and stepped over. Raises StoreError.
        """
        end = self._readable_end()
        start = self._start_offset()
        if start >= end:
            return False
        few = self._dispatch_few(start, end)
        if few is not None:
            self._note_dispatched(end, *few)
            return True
        records, following = self._careful.dispatch(start, end, self._chunk_size)
        if following == start:
            return self._step_over_damage(start, end, records)
        newest = int(records.store_timestamps[-1]) if records.count else None
        self._note_dispatched(following, records.count, newest)
        return True

    def _note_dispatched(self, following: int, count: int, store_timestamp: int | None) -> None:
        """store_timestamp: of the last record, None without one."""
        size = following - self.reput_from_offset
        self.reput_from_offset = following
        self._publish(following, store_timestamp)
        if self._pace is not None:
            self._pace.dispatched(count, size)

    def _start_offset(self) -> int:
        low = self._source.min_phy_offset
        if self.reput_from_offset < low:
            log.warning(
                "dispatch: offset %s is before the start of the commit log: continuing at %s",
                self.reput_from_offset,
                low,
            )
            self.reput_from_offset = low
        return self.reput_from_offset

    def _step_over_damage(self, at: int, end: int, records: RecordArrays) -> bool:
        """True when there was damage, which is fenced now. A record that may be read in part only
        is waited for; a slave waits for the rest of one that came in part, too, and for a whole
        record behind damage."""
        if is_within(self._source, at, end):
            return False
        end = self._source.max_phy_offset
        fence_start = self._source.fences.next_start(at)
        is_incomplete = records.end is not ScanEnd.INVALID and fence_start > end
        if self._is_slave() and is_incomplete and not contradicts_itself(self._source, at, end):
            return False
        reason = records.reason or records.end.value
        limit = min(end, fence_start)
        behind = find_published(self._source, at + 1, limit)
        if behind is None and (not self._is_slave() or limit < end):
            # Whole records are published: what is damaged ends where they do.
            behind = limit
        if behind is None:
            if self._stalled_at != at:
                self._stalled_at = at
                log.error(
                    "commit log: no whole record at %s, published up to %s: %s; dispatch waits for "
                    "a whole record after it",
                    at,
                    end,
                    reason,
                )
            return False
        if self._fence_off is None:
            raise RecordDamagedError(
                f"commit log: no whole record at {at}, published up to {end}: {reason}"
            )
        self._fence_off(at, behind, reason)
        return True
