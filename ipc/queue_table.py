"""The queue table: min and max offset of every queue, in shared memory.

Written by the `store` process only (it builds the consumequeue), read by `remoting` for 30, 31,
pulls and long polls. Rows are never reused for another queue, so that a reader's row number stays
right for ever; the directory that maps (topic, queueId) to a row is append-only. A ring of moved
rows says which queues changed, so that a reader with many parked pulls looks at few.

    offset        size        content (native byte order, 8-byte aligned counters)
    0             8           directory_end: bytes of the directory that are valid
    8             8           row count
    16            8           ring head: entries ever written to the ring (also QUEUE_MOVES)
    4096          256 KiB     ring: uint32 row, entry n at index n % RING_SIZE
    +             32 x rows   row: min_offset, max_offset, generation, compacted (of a compaction
                              log: generation << 48 | max_offset; 0: there is none)
    +             ...         directory: uint16 size, topic bytes, int32 queueId, uint32 row
    +             ...         units of light queues that are in no file yet: unwritten_units.py

The memory is a sparse memfd: untouched parts cost nothing.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
from collections.abc import Iterator
from typing import Final

from ipc.unwritten_units import UnwrittenUnits, UnwrittenUnitsReader, size_for

log = logging.getLogger(__name__)

RING_SIZE: Final = 65_536
MAX_QUEUES: Final = 1 << 20
_RING_AT: Final = 4096
_ROWS_AT: Final = _RING_AT + 4 * RING_SIZE
_ROW_WORDS: Final = 4
_COMPACTED_BITS: Final = 48
_COMPACTED_MASK: Final = (1 << _COMPACTED_BITS) - 1
_DIRECTORY_AT: Final = _ROWS_AT + 8 * _ROW_WORDS * MAX_QUEUES
_DIRECTORY_SIZE: Final = 160 << 20
_UNWRITTEN_AT: Final = _DIRECTORY_AT + _DIRECTORY_SIZE
TABLE_SIZE: Final = _UNWRITTEN_AT + size_for(MAX_QUEUES)
_DIRECTORY_END: Final = 0
_ROW_COUNT: Final = 1
_RING_HEAD: Final = 2
_ENTRY_TAIL: Final = struct.Struct("=iI")
_ENTRY_SIZE: Final = struct.Struct("=H")


def create_queue_table() -> int:
    """A descriptor of a fresh, empty table; children inherit it."""
    fd = os.memfd_create("mqbroker-queue-table")
    os.ftruncate(fd, TABLE_SIZE)
    return fd


def reset_queue_table(fd: int) -> None:
    """Make the table empty again; nobody has it mapped."""
    os.ftruncate(fd, 0)
    os.ftruncate(fd, TABLE_SIZE)


class _SharedTable:
    """The mapping and the directory, common to the writer and the readers."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, TABLE_SIZE)
        view = memoryview(self._map)
        self._head: memoryview[int] = view[:_RING_AT].cast("Q")
        self._ring: memoryview[int] = view[_RING_AT:_ROWS_AT].cast("I")
        self.rows: memoryview[int] = view[_ROWS_AT:_DIRECTORY_AT].cast("Q")
        self._directory = view[_DIRECTORY_AT:_UNWRITTEN_AT]
        self._unwritten = view[_UNWRITTEN_AT:]
        self._directory_read = 0
        self._row_of: dict[tuple[str, int], int] = {}
        self._queues: dict[int, tuple[str, int]] = {}

    def refresh(self) -> None:
        """Take up the directory entries that were added since the last call.

        The loop and pool threads share one reader: two may take up the same entries, each leaves
        what the other would.
        """
        end = self._head[_DIRECTORY_END]
        at = self._directory_read
        while at < end:
            (size,) = _ENTRY_SIZE.unpack_from(self._directory, at)
            topic = str(self._directory[at + 2 : at + 2 + size], "utf-8")
            queue_id, row = _ENTRY_TAIL.unpack_from(self._directory, at + 2 + size)
            self._row_of[topic, queue_id] = row
            self._queues[row] = (topic, queue_id)
            at += 2 + size + _ENTRY_TAIL.size
        self._directory_read = at

    def find_row(self, topic: str, queue_id: int) -> int | None:
        """The row of a queue, None when the store has never seen it."""
        row = self._row_of.get((topic, queue_id))
        if row is None and self._head[_DIRECTORY_END] != self._directory_read:
            self.refresh()
            row = self._row_of.get((topic, queue_id))
        return row

    def queue_of(self, row: int) -> tuple[str, int]:
        """(topic, queueId) of a row."""
        if row not in self._queues:
            self.refresh()
        return self._queues[row]

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return self._head[_ROW_COUNT]

    def has_room(self, queues: int, name_bytes: int) -> bool:
        """Whether so many further queues fit, whose topics' names have so many bytes together."""
        size = queues * (_ENTRY_SIZE.size + _ENTRY_TAIL.size) + name_bytes
        return (
            self._head[_ROW_COUNT] + queues <= MAX_QUEUES
            and self._head[_DIRECTORY_END] + size <= _DIRECTORY_SIZE
        )

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min_offset, max_offset) of a queue; (0, 0) for one that was never written."""
        row = self.find_row(topic, queue_id)
        if row is None:
            return 0, 0
        return self.rows[row * _ROW_WORDS], self.rows[row * _ROW_WORDS + 1]

    def compacted(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Generation and max offset of a queue's compaction log; (0, 0): there is none, or it is
        not open yet."""
        row = self.find_row(topic, queue_id)
        if row is None:
            return 0, 0
        word = self.rows[row * _ROW_WORDS + 3]
        return word >> _COMPACTED_BITS, word & _COMPACTED_MASK

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        """(topic, queueId, row) of every queue that was ever seen."""
        self.refresh()
        for (topic, queue_id), row in list(self._row_of.items()):
            yield topic, queue_id, row


class QueueTableWriter(_SharedTable):
    """The table as the `store` process writes it. Guarded by: ConsumeQueueTable's lock.

    A restarted store finds its queues again.
    """

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.unwritten: Final = UnwrittenUnits(self._unwritten, MAX_QUEUES)
        self._is_full = False
        self.refresh()

    def row(self, topic: str, queue_id: int) -> int | None:
        """The row of a queue, made on first use. None: the table is full, nobody can read it."""
        row = self.find_row(topic, queue_id)
        return self._add(topic, queue_id) if row is None else row

    def set_offsets(self, row: int, min_offset: int, max_offset: int) -> None:
        """Publish the bounds of a queue: offsets [min_offset, max_offset) can be read."""
        at = row * _ROW_WORDS
        self.rows[at] = min_offset
        self.rows[at + 1] = max_offset

    def mark_moved(self, row: int) -> None:
        """Announce that a queue changed; readers wake what waits for it."""
        head = self._head[_RING_HEAD]
        self._ring[head % RING_SIZE] = row
        self._head[_RING_HEAD] = head + 1

    def reset(self, row: int) -> None:
        """The queue was deleted: empty, and of a new generation (cached files are stale)."""
        at = row * _ROW_WORDS
        self.rows[at] = 0
        self.rows[at + 1] = 0
        self.rows[at + 2] += 1

    def renew(self, row: int) -> None:
        """The queue was rebuilt in other files, or with other bytes: a new generation."""
        self.rows[row * _ROW_WORDS + 2] += 1

    def set_compacted(self, row: int, generation: int, max_offset: int) -> None:
        """Publish the end of the queue's compaction log. generation: 1 or more, another one when
        its files were replaced or deleted."""
        word = (generation % (1 << 16)) << _COMPACTED_BITS | max_offset
        self.rows[row * _ROW_WORDS + 3] = word

    def _add(self, topic: str, queue_id: int) -> int | None:
        name = topic.encode()
        row = self._head[_ROW_COUNT]
        at = self._directory_read
        size = 2 + len(name) + _ENTRY_TAIL.size
        if row >= MAX_QUEUES or at + size > _DIRECTORY_SIZE:
            if not self._is_full:
                log.error(
                    "the queue table is full, it has %s queues: %s of topic %s, and others, "
                    "cannot be read; delete unused topics and restart the broker",
                    row,
                    queue_id,
                    topic,
                )
            self._is_full = True
            return None
        _ENTRY_SIZE.pack_into(self._directory, at, len(name))
        self._directory[at + 2 : at + 2 + len(name)] = name
        _ENTRY_TAIL.pack_into(self._directory, at + 2 + len(name), queue_id, row)
        self._row_of[topic, queue_id] = row
        self._queues[row] = (topic, queue_id)
        self._head[_ROW_COUNT] = row + 1
        self._directory_read = at + size
        self._head[_DIRECTORY_END] = at + size
        return row


class QueueTableReader(_SharedTable):
    """The table as `remoting` reads it. Owned by: its loop thread (pool threads may read too)."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self.unwritten: Final = UnwrittenUnitsReader(self._unwritten, MAX_QUEUES)
        self._ring_read = self._head[_RING_HEAD]

    def generation(self, row: int) -> int:
        """Incremented when the queue is deleted or rebuilt: files opened before may not be its
        files any more."""
        return self.rows[row * _ROW_WORDS + 2]

    def generation_of(self, topic: str, queue_id: int) -> int:
        """`generation` of a queue; 0 for one that was never written."""
        row = self.find_row(topic, queue_id)
        return 0 if row is None else self.generation(row)

    def state(self, row: int) -> tuple[int, int, int]:
        """`offsets` and `generation` of the queue with this row, which stays its row for ever."""
        rows, at = self.rows, row * _ROW_WORDS
        return rows[at], rows[at + 1], rows[at + 2]

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of `topic` that were ever written, in order."""
        return sorted(queue_id for name, queue_id, _ in self if name == topic)

    def has_moves(self) -> bool:
        """Whether `take_moves` would return something."""
        return self._head[_RING_HEAD] != self._ring_read

    def skip_moves(self) -> None:
        """Discard the moves so far: no pull waits for a queue."""
        self._ring_read = self._head[_RING_HEAD]

    def take_moves(self) -> list[int] | None:
        """Rows that moved since the last call; None if too many did: check all of your queues."""
        head = self._head[_RING_HEAD]
        start = self._ring_read
        if head - start > RING_SIZE // 2:
            self._ring_read = head
            return None
        moved = [self._ring[n % RING_SIZE] for n in range(start, head)]
        self._ring_read = head
        return moved
