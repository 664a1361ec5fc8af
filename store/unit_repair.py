"""UnitRepair: changes units of one queue where they lie in its files; its ends do not move.

Used under the table's lock. Records that cannot be read get blank units and, once they can, their
own again; units found wrong are replaced; after a failed flush they are written again. What was
written counts as not flushed. It must not know the log.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from store.consume_queue_files import ConsumeQueueFiles
from store.queue_bounds import QueueBounds
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE, PRE_BLANK_SIZE, StoredUnits, Units

_STEP: Final = 50_000 * CQ_UNIT_SIZE
"""Bytes that are changed together."""


class UnitRepair:
    """See the module. Made for each use. Every method raises DiskFullError, StoreError."""

    __slots__ = ("_bounds", "_files", "_queue_id", "_stored", "_topic")

    def __init__(
        self, files: ConsumeQueueFiles, topic: str, queue_id: int, bounds: QueueBounds
    ) -> None:
        self._files = files
        self._topic = topic
        self._queue_id = queue_id
        self._bounds = bounds
        self._stored = StoredUnits(files, topic, queue_id)

    def rewrite(self, queue_offset: int, data: memoryview | bytes) -> None:
        """Replace existing units from `queue_offset` on; what lies outside the queue is left
        out."""
        bounds, position = self._bounds, queue_offset * CQ_UNIT_SIZE
        skipped = max(bounds.start - position, 0)
        view = memoryview(data)[skipped : max(bounds.end - position, 0)]
        if view:
            position += skipped
            self._write(position, view)
            is_last = position + len(view) == bounds.end
            bounds.write_over(
                position, self._max_phy_offset() if is_last else bounds.max_phy_offset
            )

    def blank_out(self, low: int, high: int) -> int:
        """Make the units of records in [low, high) of the log blank ones: these cannot be read.
        Returns the queue offset behind the last of them, 0 without any."""
        bounds = self._bounds
        if bounds.max_phy_offset <= low:
            return 0
        begin = position = self._stored.find_first(bounds.start, bounds.end, low)
        while position < bounds.end:
            units = self._stored.read(position, min(_STEP, bounds.end - position)).copy()
            count = int(np.searchsorted(units["phy_offset"].astype(np.int64), high))
            if not count:
                break
            units["size"][:count] = PRE_BLANK_SIZE
            units["tags_code"][:count] = 0
            self._write(position, memoryview(units[:count].tobytes()))
            position += count * CQ_UNIT_SIZE
        if begin == position:
            return 0
        bounds.write_over(begin, self._max_phy_offset())
        return position // CQ_UNIT_SIZE

    def fill_blanks(self, queue_offset: int, units: Units) -> int:
        """A damaged record had a queue offset that was too large: those before it are blank until
        their records come. Returns how many were."""
        return sum(
            self.fill_blank(queue_offset + number, *map(int, unit))
            for number, unit in enumerate(units.tolist())
        )

    def fill_blank(self, queue_offset: int, phy_offset: int, size: int, tags_code: int) -> bool:
        """The unit at `queue_offset`, if it is a blank one, gets its record. True if it was."""
        bounds, position = self._bounds, queue_offset * CQ_UNIT_SIZE
        if not bounds.start <= position < bounds.end:
            return False
        units = self._stored.read(position, CQ_UNIT_SIZE)
        if not len(units) or int(units[0]["size"]) != PRE_BLANK_SIZE:
            return False
        self._write(position, memoryview(CQ_UNIT.pack(phy_offset, size, tags_code)))
        bounds.write_over(position, max(bounds.max_phy_offset, phy_offset + size))
        return True

    def write_again(self, phy_offset: int) -> None:
        """Write the units of the records from `phy_offset` on as they are."""
        bounds = self._bounds
        begin = position = self._stored.find_first(bounds.start, bounds.end, phy_offset)
        while position < bounds.end:
            data = memoryview(
                self._stored.read(position, min(_STEP, bounds.end - position)).tobytes()
            )
            if not data:
                break
            self._write(position, data)
            position += len(data)
        bounds.write_again(begin)

    def _max_phy_offset(self) -> int:
        return self._stored.find_max_phy_offset(self._bounds.start, self._bounds.end)

    def _write(self, position: int, data: memoryview) -> None:
        self._files.write(self._topic, self._queue_id, position, data)
