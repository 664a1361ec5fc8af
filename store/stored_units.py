"""StoredUnits: the units of one queue as they lie in its files, and searches among them.

Positions are bytes of the queue. Any owner, under the owner's lock; it changes nothing and keeps no
state, so the caller passes where the queue starts and ends. It must not know the log.

    +0   i8  phy_offset of the record
    +8   i4  its size; 0x7FFFFFFF in a blank unit: no record
    +12  i8  tagsCode: hash of TAGS, or delivery time (ms) in the schedule topic
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store.consume_queue_files import ConsumeQueueFiles

CQ_UNIT: Final = Struct(">qiq")
CQ_UNIT_SIZE: Final = 20
assert CQ_UNIT.size == CQ_UNIT_SIZE
CQ_UNIT_DTYPE: Final = np.dtype([("phy_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
assert CQ_UNIT_DTYPE.itemsize == CQ_UNIT_SIZE
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
"""Record size in a unit without a record."""
_FIRST_SCAN: Final = 410 * CQ_UNIT_SIZE
"""Two pages: for a short queue one read finds its end and shows that nothing follows it."""
_LARGEST_SCAN: Final = 50_000 * CQ_UNIT_SIZE

Units = NDArray[np.void]


class StoredUnits:
    """See the module."""

    __slots__ = ("_files", "_queue_id", "_topic")

    def __init__(self, files: ConsumeQueueFiles, topic: str, queue_id: int) -> None:
        self._files = files
        self._topic = topic
        self._queue_id = queue_id

    def read(self, position: int, size: int) -> Units:
        """The whole units in [position, position + size), none beyond the file's end."""
        data = self._files.read(self._topic, self._queue_id, position, size)
        return np.frombuffer(data[: len(data) // CQ_UNIT_SIZE * CQ_UNIT_SIZE], CQ_UNIT_DTYPE)

    def phy_offset_at(self, position: int) -> int:
        """phy_offset of the unit at `position`; 0 without one."""
        data = self._files.read(self._topic, self._queue_id, position, CQ_UNIT_SIZE)
        return int(CQ_UNIT.unpack(data)[0]) if len(data) == CQ_UNIT_SIZE else 0

    def find_first(self, low: int, high: int, phy_offset: int) -> int:
        """Position of the first unit in [low, high) whose record is not before `phy_offset`."""
        while low < high:
            middle = (low + high) // (2 * CQ_UNIT_SIZE) * CQ_UNIT_SIZE
            if self.phy_offset_at(middle) < phy_offset:
                low = middle + CQ_UNIT_SIZE
            else:
                high = middle
        return low

    def find_max_phy_offset(self, start: int, end: int) -> int:
        """End of the record of the last unit in [start, end) that is not blank; 0: none."""
        position = end
        while position > start:
            in_file = position % self._files.file_size or self._files.file_size
            size = min(_FIRST_SCAN, in_file, position - start)
            units = self.read(position - size, size)
            real = np.flatnonzero(units["size"] != PRE_BLANK_SIZE)
            if len(real):
                unit = units[real[-1]]
                return int(unit["phy_offset"]) + int(unit["size"])
            position -= size
        return 0

    def find_min(self, start: int, end: int, min_phy_offset: int) -> int | None:
        """Position of the first unit in [start, end) whose record is still in a log that begins at
        `min_phy_offset`; `end`: there is none. None: wrong units would hide right ones."""
        if start == end:
            return end
        data = self._files.read(self._topic, self._queue_id, start, CQ_UNIT_SIZE)
        if len(data) == CQ_UNIT_SIZE:
            phy_offset, size, _ = CQ_UNIT.unpack(data)
            if phy_offset >= min_phy_offset and size != PRE_BLANK_SIZE:
                return start  # As it nearly always is.
        position = self.find_first(start, end, min_phy_offset)
        if not self.is_plausible_around(position, start, end):
            return None
        return self.skip_blanks(position, end)

    def skip_blanks(self, position: int, end: int) -> int:
        """Position of the first unit in [position, end) that is not blank; `end`: none."""
        while position < end:
            units = self.read(position, min(_FIRST_SCAN, end - position))
            real = np.flatnonzero(units["size"] != PRE_BLANK_SIZE)
            if len(real):
                return position + int(real[0]) * CQ_UNIT_SIZE
            if not len(units):
                return position
            position += len(units) * CQ_UNIT_SIZE
        return position

    def is_plausible_around(self, position: int, start: int, end: int) -> bool:
        """Whether the units next to `position` could be right: sizes, growing phy_offsets."""
        low = max(start, position - 2 * CQ_UNIT_SIZE)
        before = -1
        for at in range(low, min(end, position + 2 * CQ_UNIT_SIZE), CQ_UNIT_SIZE):
            data = self._files.read(self._topic, self._queue_id, at, CQ_UNIT_SIZE)
            if len(data) < CQ_UNIT_SIZE:
                return False
            phy_offset, size, _ = CQ_UNIT.unpack(data)
            if size == PRE_BLANK_SIZE:
                continue
            if size <= 0 or phy_offset < before:
                return False
            before = phy_offset
        return True

    def scan(self, position: int, last_end: int) -> tuple[int, int, bytes]:
        """Walk to the first invalid unit: its position, the end of the record of the unit before it
        (0 if that is blank or there is none), and the bytes behind that were already read."""
        size, max_phy_offset = _FIRST_SCAN, 0
        while position < last_end:
            data = self._files.read(self._topic, self._queue_id, position, size)
            units = np.frombuffer(data[: len(data) // CQ_UNIT_SIZE * CQ_UNIT_SIZE], CQ_UNIT_DTYPE)
            if not len(units):
                return position, max_phy_offset, data
            invalid = (units["phy_offset"] < 0) | (units["size"] <= 0)
            first = int(invalid.argmax())
            ends_here = bool(invalid[first])
            count = first if ends_here else len(units)
            if count:
                phy_offset, record_size, _ = CQ_UNIT.unpack_from(data, (count - 1) * CQ_UNIT_SIZE)
                max_phy_offset = 0 if record_size == PRE_BLANK_SIZE else phy_offset + record_size
            if ends_here:
                behind = data[count * CQ_UNIT_SIZE :]
                return position + count * CQ_UNIT_SIZE, max_phy_offset, behind
            position += count * CQ_UNIT_SIZE
            size = min(size * 8, _LARGEST_SCAN)
        return position, max_phy_offset, b""
