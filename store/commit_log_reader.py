"""CommitLogReader: the reading end of the commit log for a process that does not write it.

Each thread that reads has its own (MappedFileQueue has one owner). Reads up to what the control
page publishes and drops its maps below min_phy_offset, so that deleted files free their space.
It knows records, no queues and no requests.
"""

from __future__ import annotations

import logging
import mmap
from pathlib import Path
from typing import Final

from ipc.control_page import ControlPage
from store.control_slots import LOG_FENCES, MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.errors import RecordDamagedError, StoreError
from store.log_directories import LogDirectories
from store.log_fences import LogFences, fences_path, load_fences
from store.mapped_file_queue import MappedFileQueue
from store.message_codec import (
    CheckedRecord,
    RecordHead,
    RecordKind,
    check_record,
    read_checked,
    read_head,
    read_store_timestamp,
)

log = logging.getLogger(__name__)

_LEAST_RECORD: Final = 91


class CommitLogReader:
    """Views and copies of stored records. Owned by: the thread that uses it."""

    def __init__(
        self,
        place: Path | LogDirectories,
        file_size: int,
        page: ControlPage,
        *,
        max_maps: int = 16,
    ) -> None:
        """place: the log's directory, or directories."""
        self.file_size = file_size
        self._counters = page.counters
        self._files = MappedFileQueue(place, file_size, max_maps=max_maps)
        self._dropped_below = 0
        self._last = memoryview(b"")
        """The file that was lent last, for offsets from `_last_from` to `_last_end`: who reads on
        and on is spared two thirds of the way to it."""
        self._last_from = self._last_end = 0
        self._fences_path = fences_path(LogDirectories.of(place).first)
        self._fences = LogFences()
        self._fences_version = 0

    @property
    def fences(self) -> LogFences:
        """The ranges in which nothing can be read, as process `store` has last written them."""
        version = self._counters[LOG_FENCES]
        if version != self._fences_version:
            self._fences_version = version
            try:
                self._fences = load_fences(self._fences_path)
            except (StoreError, OSError) as error:
                log.error("cannot reload the fences, keeping those known: %s", error)
        return self._fences

    @property
    def min_phy_offset(self) -> int:
        """The first byte that is still there."""
        return self._counters[MIN_PHY_OFFSET]

    @property
    def max_phy_offset(self) -> int:
        """The byte behind the last published record."""
        return self._counters[MAX_PHY_OFFSET]

    def view_of_file(self, phy_offset: int) -> memoryview | None:
        """The whole file that contains `phy_offset`; None if it is gone. A lent view: release it
        soon, since it keeps the space of a deleted file."""
        low = self._counters[MIN_PHY_OFFSET]
        if low != self._dropped_below:
            self._forget_last()
            self._files.drop_below(low)
            self._dropped_below = low
        elif self._last_from <= phy_offset < self._last_end:
            return self._last[:]
        if phy_offset < low:
            return None
        file = self._files.find_file(phy_offset)
        if file is None:
            return None
        self._last = file.view()
        self._last_from = max(file.start_offset, low)
        self._last_end = file.end_offset
        return self._last[:]

    def _forget_last(self) -> None:
        self._last, self._last_from, self._last_end = memoryview(b""), 0, 0

    def read_ahead(self, enabled: bool) -> None:
        """Whether the kernel reads on behind what is read here (dataReadAheadEnable)."""
        self._files.advise(mmap.MADV_NORMAL if enabled else mmap.MADV_RANDOM)

    def record_at(self, phy_offset: int) -> bytes | None:
        """A copy of the checked record that starts at `phy_offset`; None when none does."""
        place = self._place_at(phy_offset)
        if place is None:
            return None
        view, position, limit = place
        found = check_record(view, position, limit, phy_offset, check_crc=True)
        if found.kind is not RecordKind.MESSAGE:
            return None
        return bytes(view[position : position + found.size])

    def checked_at(self, phy_offset: int) -> CheckedRecord | None:
        """The same record, read at once; None when none does."""
        place = self._place_at(phy_offset)
        return None if place is None else read_checked(*place, phy_offset)

    def _place_at(self, phy_offset: int) -> tuple[memoryview, int, int] | None:
        """The file with the record that may start at `phy_offset`, where it would, and where the
        log or the file ends; None where there can be none."""
        high = self.max_phy_offset
        if phy_offset < 0 or phy_offset + _LEAST_RECORD > high or self.fences.find(phy_offset):
            return None
        view = self.view_of_file(phy_offset)
        if view is None:
            return None
        position = phy_offset % self.file_size
        limit = min(self.file_size, high - phy_offset + position)
        return view, position, limit

    def head_at(self, phy_offset: int) -> RecordHead | None:
        """What the record that starts at `phy_offset` says of itself; None when none does. Its body
        is neither read nor checked."""
        if phy_offset < 0 or phy_offset + _LEAST_RECORD > self.max_phy_offset:
            return None
        view = None if self.fences.find(phy_offset) else self.view_of_file(phy_offset)
        if view is None:
            return None
        try:
            head = read_head(view, phy_offset % self.file_size)
        except RecordDamagedError:
            return None
        return head if head.phy_offset == phy_offset else None

    def store_timestamp_at(self, phy_offset: int) -> int:
        """Wall clock ms at which the record was stored; of one inside a fence that of the record
        behind it. -1 when no record can start there."""
        if phy_offset < 0 or phy_offset + _LEAST_RECORD > self.max_phy_offset:
            return -1
        if (fence := self.fences.find(phy_offset)) is not None:
            phy_offset = fence.end
            if phy_offset + _LEAST_RECORD > self.max_phy_offset:
                return -1
        view = self.view_of_file(phy_offset)
        position = phy_offset % self.file_size
        if view is None or position + _LEAST_RECORD > self.file_size:
            return -1
        return read_store_timestamp(view, position)

    def close(self) -> None:
        """Unmap; views that are out stay readable."""
        self._forget_last()
        self._files.close()
