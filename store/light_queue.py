"""LightQueue: a light queue (LMQ), whose newest units may be in memory yet (LightQueueFiles).

In process `store`, under the lock of ConsumeQueueTable. All that it does otherwise is done by
ConsumeQueue: only units that simply follow the last one wait. While its files cannot be written it
takes what there is room for in memory, and says how far it goes all the same: offsets that records
have must not be given again (store/unwritable_queues.py).

Tested by tests/store/test_light_queue_files.py and tests/store/test_unwritable_queues.py.
"""

from __future__ import annotations

import logging

from store.consume_queue import ConsumeQueue
from store.errors import StoreError
from store.light_queue_files import LightQueueFiles
from store.queue_bounds import FlushMark
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE
from store.unwritable_queues import UnwritableQueue

log = logging.getLogger(__name__)


class LightQueue(ConsumeQueue):
    """See the module."""

    __slots__ = ("_light", "catches_up")

    def __init__(self, files: LightQueueFiles, topic: str, queue_id: int) -> None:
        """Touches no file."""
        super().__init__(files, topic, queue_id)
        self._light = files
        self.catches_up = False
        """What comes now are records that were left out."""

    @property
    def unwritable(self) -> UnwritableQueue | None:
        """What is known if its files cannot be written."""
        return self._light.unwritable.find((self.topic, self.queue_id))

    # -- building ------------------------------------------------------------------------------

    def append(self, data: memoryview, queue_offset: int, first_end: int, last_end: int) -> bool:
        """See ConsumeQueue."""
        bounds, light = self.bounds, self._light
        if light.unwritable and not self.catches_up and self.unwritable is not None:
            return self._append_unwritable(data, queue_offset, first_end, last_end)
        follows = first_end > bounds.max_phy_offset and queue_offset * CQ_UNIT_SIZE == bounds.end
        if follows and light.defer(self.topic, self.queue_id, queue_offset, data):
            bounds.append(len(data), last_end)
            return True
        if self.unwritable is None or self.catches_up:
            try:
                return super().append(data, queue_offset, first_end, last_end)
            except (StoreError, OSError) as error:
                if self.catches_up:
                    raise
                self._note_unwritable(error)
        return self._append_unwritable(data, queue_offset, first_end, last_end)

    def _note_unwritable(self, error: StoreError | OSError) -> UnwritableQueue:
        state = self._light.unwritable.add((self.topic, self.queue_id), error)
        if not self.bounds.max_phy_offset:
            # Perhaps it has begun with blank units.
            self.bounds.clear()
        return state

    def _append_unwritable(
        self, data: memoryview, queue_offset: int, first_end: int, last_end: int
    ) -> bool:
        """Keep what there is room for, and remember that there is more."""
        bounds, state = self.bounds, self.unwritable
        if state is None or last_end <= bounds.max_phy_offset:
            return False
        kept = 0
        if first_end > bounds.max_phy_offset and queue_offset * CQ_UNIT_SIZE == bounds.end:
            kept = self._light.keep(self.topic, self.queue_id, queue_offset, data)
        size = kept * CQ_UNIT_SIZE
        if kept:
            phy_offset, record_size, _ = CQ_UNIT.unpack(data[size - CQ_UNIT_SIZE : size])
            bounds.append(size, phy_offset + record_size)
        if size < len(data):
            if not queue_offset and last_end > state.left_out_end:
                state.following = 0  # The topic was deleted, and made anew.
            state.leave_out(queue_offset + len(data) // CQ_UNIT_SIZE, last_end)
        return True

    def reserve(self, following: int) -> bool:
        """See ConsumeQueue."""
        is_more = following > self.max_offset
        state = self.unwritable
        if state is None:
            try:
                return super().reserve(following)
            except (StoreError, OSError) as error:
                state = self._note_unwritable(error)
        state.leave_out(following, 0)
        return is_more

    # -- while its files cannot be written -----------------------------------------------------

    def try_again(self) -> None:
        """Write what waits. Raises StoreError: it still cannot be written."""
        self._light.try_again(self.topic, self.queue_id)

    def end_unwritable(self, dispatched: int) -> bool:
        """It was written, and all records up to `dispatched` have come again. False: later ones
        were left out. Raises DiskFullError, StoreError."""
        state = self.unwritable
        if state is not None:
            if state.left_out_end > dispatched:
                return False
            # In files, since a checkpoint that was noted meanwhile counts from now on.
            self.try_again()
            # What the log does not have any more is blank.
            super().reserve(state.following)
            self._light.unwritable.remove((self.topic, self.queue_id))
        return True

    @property
    def max_offset(self) -> int:
        """See ConsumeQueue: records that were left out have their offsets."""
        end = self.bounds.end // CQ_UNIT_SIZE
        if self._light.unwritable and (state := self.unwritable) is not None:
            return max(end, state.following)
        return end

    @property
    def left_out_end(self) -> int:
        """End in the log of the last record that was left out; 0: none was."""
        state = self.unwritable
        return 0 if state is None else state.left_out_end

    def correct_min_offset(self, min_phy_offset: int) -> bool:
        """See StoredQueue."""
        return self.unwritable is None and super().correct_min_offset(min_phy_offset)

    def is_expired(self, min_phy_offset: int) -> bool:
        """See StoredQueue."""
        return self.left_out_end <= min_phy_offset and super().is_expired(min_phy_offset)

    def destroy(self) -> None:
        """See StoredQueue. Files that cannot be deleted are left to who looks at the disk."""
        try:
            super().destroy()
        except OSError as error:
            self._light.unwritable.add((self.topic, self.queue_id), error)
            log.error("%r: its files cannot be deleted: %s", self, error)
            self._light.forget_units(self.topic, self.queue_id)
            self.bounds.clear()
            self.emptied = True
        self._light.unwritable.remove((self.topic, self.queue_id))

    # -- flushing ------------------------------------------------------------------------------

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
