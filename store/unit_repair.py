"""UnitRepair: changes units of one queue where they lie in its files; its ends do not move.

Used by ConsumeQueue under the table's lock. Records that cannot be read get blank units and, once
they can, their own again; units found wrong are replaced; after a failed flush they are written
again. Positions are bytes of the queue. It keeps no state: each change returns the first byte that
it wrote, from which on the queue counts as not flushed. It must not know the log.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from store.consume_queue_files import ConsumeQueueFiles
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE, PRE_BLANK_SIZE, StoredUnits

_STEP: Final = 50_000 * CQ_UNIT_SIZE
"""Bytes that are changed together."""


class UnitRepair:
    """See the module. Every method raises DiskFullError, StoreError."""

    __slots__ = ("_end", "_files", "_queue_id", "_start", "_stored", "_topic")

    def __init__(
        self, files: ConsumeQueueFiles, topic: str, queue_id: int, start: int, end: int
    ) -> None:
        """start, end: the units that there are."""
        self._files = files
        self._topic = topic
        self._queue_id = queue_id
        self._start = start
        self._end = end
        self._stored = StoredUnits(files, topic, queue_id)

    def replace(self, position: int, data: memoryview) -> tuple[int, int]:
        """Write whole units from `position` on; those outside the queue are left out. Returns
        (begin, end) of what was written, two equal numbers for nothing."""
        skipped = max(self._start - position, 0)
        view = data[skipped : max(self._end - position, 0)]
        if not view:
            return position, position
        position += skipped
        self._write(position, view)
        return position, position + len(view)

    def blank_out(self, low: int, high: int) -> tuple[int, int]:
        """Make the units of records in [low, high) of the log blank ones. Returns (begin, end) of
        them, two equal numbers without any."""
        begin = position = self._stored.find_first(self._start, self._end, low)
        while position < self._end:
            units = self._stored.read(position, min(_STEP, self._end - position)).copy()
            count = int(np.searchsorted(units["phy_offset"].astype(np.int64), high))
            if not count:
                break
            units["size"][:count] = PRE_BLANK_SIZE
            units["tags_code"][:count] = 0
            self._write(position, memoryview(units[:count].tobytes()))
            position += count * CQ_UNIT_SIZE
        return begin, position

    def fill_blank(self, position: int, phy_offset: int, size: int, tags_code: int) -> bool:
        """The unit at `position`, if it is a blank one, gets its record. True if it was."""
        if not self._start <= position < self._end:
            return False
        units = self._stored.read(position, CQ_UNIT_SIZE)
        if not len(units) or int(units[0]["size"]) != PRE_BLANK_SIZE:
            return False
        self._write(position, memoryview(CQ_UNIT.pack(phy_offset, size, tags_code)))
        return True

    def write_again(self, phy_offset: int) -> int:
        """Write the units of the records from `phy_offset` on as they are; returns where they
        begin."""
        begin = position = self._stored.find_first(self._start, self._end, phy_offset)
        while position < self._end:
            data = memoryview(
                self._stored.read(position, min(_STEP, self._end - position)).tobytes()
            )
            if not data:
                break
            self._write(position, data)
            position += len(data)
        return begin

    def _write(self, position: int, data: memoryview) -> None:
        self._files.write(self._topic, self._queue_id, position, data)
