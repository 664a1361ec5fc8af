"""Unwritten units: units of light queues that are in no file yet, in shared memory.

Part of the queue table's memory (ipc/queue_table.py). Process `store` puts units of light queues
here, and writes those of one queue to its file together, later; `remoting` reads both.
A ring of entries in the order of the log, and a word for each row of the queue table that leads to
the newest entry of its queue, from which each entry leads to the one before it. It knows no files,
nor what a unit says.

    offset        size        content (native byte order, 8-byte aligned)
    0             8           end: entries ever put; entry n is at index n % capacity
    8             8           begin: entries before it are used up, and may be overwritten
    4096          8 x rows    of each row: number of its newest entry << 8 | how many it has here;
                              0: all its units are in files
    +             40 x ring   queue offset, number of the entry before it of its queue, row, unit;
                              SPARE more than there is room for, where units are moved to

What is written to a file is taken out of the row's word afterwards, and only then is its entry
overwritten: a reader whose entries were overwritten meanwhile finds another word, and reads again.
A process that is killed between any two of these steps leaves what both it and readers understand.

Tested by tests/ipc/test_unwritten_units.py.
"""

from __future__ import annotations

import struct
from typing import Final

UNIT_SIZE: Final = 20
MOST_OF_QUEUE: Final = 32
"""Units of one queue: its next one has them written together. A reader goes through them."""
CAPACITY: Final = 1 << 19
"""Units of all queues: 20 MiB, of which what was never used takes no memory."""
MOST_MOVED: Final = 64
"""Queues whose units may be moved to the end again and again (`move_to_end`)."""
SPARE: Final = MOST_MOVED * MOST_OF_QUEUE
"""Entries for that while the ring is full."""
_HEADS_AT: Final = 4096
_ENTRY: Final = struct.Struct("=QQI20s")
_END: Final = 0
_BEGIN: Final = 1
_COUNT_BITS: Final = 8
_COUNT_MASK: Final = (1 << _COUNT_BITS) - 1
assert MOST_OF_QUEUE <= _COUNT_MASK


def size_for(rows: int, capacity: int = CAPACITY) -> int:
    """Bytes of memory for a table of so many rows."""
    return _HEADS_AT + 8 * rows + _ENTRY.size * (capacity + SPARE)


class _SharedUnits:
    """The layout, common to the writer and the readers."""

    def __init__(self, view: memoryview, rows: int, capacity: int = CAPACITY) -> None:
        """view: `size_for(rows, capacity)` bytes."""
        self._capacity = capacity
        self._words: memoryview[int] = view[:_HEADS_AT].cast("Q")
        self._heads: memoryview[int] = view[_HEADS_AT : _HEADS_AT + 8 * rows].cast("Q")
        self._entries = view[_HEADS_AT + 8 * rows :]

    def _at(self, number: int) -> int:
        return number % (self._capacity + SPARE) * _ENTRY.size

    def _entry(self, number: int) -> tuple[int, int, int, bytes]:
        found: tuple[int, int, int, bytes] = _ENTRY.unpack_from(self._entries, self._at(number))
        return found


class UnwrittenUnitsReader(_SharedUnits):
    """As processes see it that write no queues. Any thread."""

    def read(self, row: int, queue_offset: int) -> tuple[int, bytes] | None:
        """The units of a queue that are in no file, from `queue_offset` on, and the queue offset of
        the first of them; what is before it is in files. None: all are.

        Look here first, then into the files: the other way round it could have been written in
        between."""
        while word := self._heads[row]:
            oldest = number = word >> _COUNT_BITS
            first, units = 0, []
            for _ in range(word & _COUNT_MASK):
                # What was overwritten leads anywhere.
                oldest = min(oldest, number)
                first, number, _row, unit = self._entry(number)
                units.append(unit)
                if first <= queue_offset:
                    break
            if self._words[_BEGIN] <= oldest:
                return first, b"".join(reversed(units))
        return None


class UnwrittenUnits(_SharedUnits):
    """As process `store` sees it. Guarded by: ConsumeQueueTable's lock."""

    @property
    def begin(self) -> int:
        """Number of the oldest entry that may be needed: units before it are in files."""
        return self._words[_BEGIN]

    @property
    def end(self) -> int:
        """Number of the next entry. Any thread."""
        return self._words[_END]

    def has_room(self, count: int) -> bool:
        """Whether so many entries can come before the oldest one must go."""
        return self.end - self.begin + count <= self._capacity

    def count(self, row: int) -> int:
        """How many units the queue of `row` has here."""
        return self._heads[row] & _COUNT_MASK

    def put(self, row: int, queue_offset: int, unit: memoryview) -> None:
        """The next unit of a queue, which has fewer than MOST_OF_QUEUE; there is room."""
        number, word = self._words[_END], self._heads[row]
        before = word >> _COUNT_BITS
        _ENTRY.pack_into(self._entries, self._at(number), queue_offset, before, row, bytes(unit))
        self._words[_END] = number + 1
        self._heads[row] = number << _COUNT_BITS | (word & _COUNT_MASK) + 1

    def move_to_end(self, row: int) -> int:
        """The units of a queue, which has some, become the newest entries, for they cannot be
        written now; number of the first of them. What they were stays for readers until it is
        dropped. Of at most MOST_MOVED queues, and not again before that one is the oldest."""
        first_offset, units = self.units_of(row)
        first = self._words[_END]
        count = len(units) // UNIT_SIZE
        for index in range(count):
            unit = units[index * UNIT_SIZE : (index + 1) * UNIT_SIZE]
            number = first + index
            _ENTRY.pack_into(
                self._entries, self._at(number), first_offset + index, number - 1, row, unit
            )
        self._words[_END] = first + count
        self._heads[row] = first + count - 1 << _COUNT_BITS | count
        return first

    def units_of(self, row: int) -> tuple[int, bytes]:
        """The units of a queue that has any, and the queue offset of the first."""
        word = self._heads[row]
        number, first, units = word >> _COUNT_BITS, 0, []
        for _ in range(word & _COUNT_MASK):
            first, number, _row, unit = self._entry(number)
            units.append(unit)
        return first, b"".join(reversed(units))

    def clear(self, row: int) -> None:
        """The queue's units are in files now, or deleted."""
        self._heads[row] = 0

    def keep_newest(self, row: int, count: int) -> None:
        """The queue's units before its newest `count` are deleted; it has more."""
        self._heads[row] = self._heads[row] & ~_COUNT_MASK | count

    def oldest_row(self) -> int | None:
        """The row whose units must be written before `drop_oldest`; None: no one's."""
        queue_offset, _number, row, _unit = self._entry(self.begin)
        word = self._heads[row]
        if not word:
            return None
        newest = self._entry(word >> _COUNT_BITS)[0]
        return row if newest - (word & _COUNT_MASK) < queue_offset <= newest else None

    def drop_oldest(self) -> None:
        """The oldest entry is used up."""
        self._words[_BEGIN] += 1

    def rows(self, row_count: int) -> list[int]:
        """Those of the first rows whose queues have units here, as another process left them."""
        return [row for row in range(row_count) if self._heads[row]]

    def drop_all(self, row_count: int) -> None:
        """Nothing of the first rows is needed any more."""
        for row in self.rows(row_count):
            self.clear(row)
        self._words[_BEGIN] = self._words[_END]
