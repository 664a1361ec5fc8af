"""LightQueueFiles: consume queue files whose light queues get their units later, many at once.

In process `store`, instead of ConsumeQueueFiles, where the settings have light queues. 100,000 of
them are as many files, few of which can be open: a unit at a time cost an opening and a closing
each. So their units go to shared memory first (ipc/unwritten_units.py), where readers find them,
and from there to their files: those of one queue together when it has many, the oldest ones when
the ring is full and when the queues are flushed (FlushConsumeQueueService). Units that are lost
with the machine are built again from the log, since the checkpoint never promises one that is in no
file. Whatever else is done with a queue's files finds them written. A queue that cannot be written
holds up no other (store/unwritable_queues.py). Guarded by: the lock of ConsumeQueueTable. It must
not know the log, or what a unit says.

Tested by tests/store/test_light_queue_files.py.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final

from ipc.queue_table import QueueTableWriter
from ipc.unwritten_units import MOST_MOVED, MOST_OF_QUEUE, UNIT_SIZE
from store.consume_queue_files import DEFAULT_OPEN_FILES, ConsumeQueueFiles, make_file
from store.errors import StoreError
from store.lmq_places import is_lmq
from store.written_first_files import WrittenFirstFiles

log = logging.getLogger(__name__)

_STEP: Final = 16
"""Queues written under one lock: dispatch waits 5 ms for them at most."""


MOST_NEW_FILES: Final = 8_192
"""Files that are still to be made, at 0.1 to 0.4 ms each: an orderly stop must not take long."""


class LightQueueFiles(WrittenFirstFiles):
    """See the module."""

    MOST_UNWRITABLE: ClassVar[int] = MOST_MOVED

    def __init__(
        self,
        root: Path,
        file_size: int,
        table: QueueTableWriter,
        *,
        open_files: int = DEFAULT_OPEN_FILES,
    ) -> None:
        """As ConsumeQueueFiles. table: has the units that are not written yet."""
        super().__init__(root, file_size, writable=True, open_files=open_files)
        self.unwritable.is_light = is_lmq
        self._table = table
        self._units = table.unwritten
        self.defers = False
        """Whether units wait: once the store is open. Those that recovery builds are written at
        once, since a kill meanwhile leaves them to a recovery that believes what queues have: it
        looks no further back than the checkpoint says, which knows nothing of what is built
        again."""
        self._new_files = 0
        """Queues that wait with the first unit of a file."""
        self.on_written: Callable[[str, int, bool], None] = lambda _topic, _id, _created: None
        """Hears of each queue whose units are written, and whether a file may have been made."""

    # -- units that wait -----------------------------------------------------------------------

    def defer(self, topic: str, queue_id: int, queue_offset: int, data: memoryview) -> bool:
        """Take units that follow the last of a light queue. False, and nothing is done: they are to
        be written, unless that was just found to be impossible. Raises DiskFullError,
        StoreError."""
        units, count = self._units, len(data) // UNIT_SIZE
        may_wait = self.defers and count <= MOST_OF_QUEUE
        row = self._table.row(topic, queue_id) if may_wait else None
        if row is None:
            return False
        if units.count(row) + count > MOST_OF_QUEUE and not self._can_write_out(row):
            return False
        begins_file = not units.count(row) and _begins_file(queue_offset, self.file_size)
        if begins_file and self._new_files >= MOST_NEW_FILES:
            return False
        self._put(row, queue_offset, data)
        return True

    def keep(self, topic: str, queue_id: int, queue_offset: int, data: memoryview) -> int:
        """The same of a queue that cannot be written; how many of the units there is room for.
        Raises DiskFullError, StoreError."""
        row = self._table.row(topic, queue_id)
        if row is None:
            return 0
        count = min(MOST_OF_QUEUE - self._units.count(row), len(data) // UNIT_SIZE)
        if count:
            self._put(row, queue_offset, data[: count * UNIT_SIZE])
        return count

    def _put(self, row: int, queue_offset: int, data: memoryview) -> None:
        units, count = self._units, len(data) // UNIT_SIZE
        # What raises comes before anything is counted or put: the same units come again.
        while not units.has_room(count):
            self._drop_oldest()
        if not units.count(row):
            self._new_files += _begins_file(queue_offset, self.file_size)
        for number in range(count):
            at = number * UNIT_SIZE
            units.put(row, queue_offset + number, data[at : at + UNIT_SIZE])

    def unwritten(self, topic: str, queue_id: int) -> int:
        """Bytes at the end of a queue that are in no file."""
        row = self._waiting_row(topic, queue_id)
        return 0 if row is None else self._units.count(row) * UNIT_SIZE

    def write_out(self, until: int, lock: threading.Lock) -> bool:
        """Write the units of some of the entries before `until` (UnwrittenUnits.end) to their
        files, under the lock. False: that was all, but for queues that cannot be written. Raises
        DiskFullError, StoreError."""
        units = self._units
        with lock:
            for _ in range(_STEP):
                if units.begin < until:
                    self._drop_oldest()
        return units.begin < until

    def take_over(self) -> None:
        """Write what a predecessor of this process left, which was killed: readers have seen it.
        Raises OSError."""
        self.open()
        for row in self._units.rows(self._table.row_count):
            try:
                self._can_write_out(row)
            except StoreError as error:
                # A queue that has less than was published is built from the log, into memory: on
                # a full disk the store could not be opened.
                log.error("units of a light queue are lost: %s", error)
                self.defers = True
        self.forget_unwritten()

    def forget_unwritten(self) -> None:
        """Nothing in memory is true any more: the log is recovered."""
        self._units.drop_all(self._table.row_count)
        self._new_files = 0

    def _drop_oldest(self) -> None:
        units = self._units
        row = units.oldest_row()
        if row is not None and not self._can_write_out(row):
            state = self.unwritable.find(self._table.queue_of(row))
            if state is not None and units.begin >= state.first_entry:
                state.first_entry = units.move_to_end(row)
        units.drop_oldest()

    def _can_write_out(self, row: int) -> bool:
        """Write a queue's units. False: it cannot be written. Raises StoreError: nor can others."""
        name = self._table.queue_of(row)
        if self.unwritable.find(name) is not None:
            return False
        try:
            self._write_out(row)
        except StoreError as error:
            self.unwritable.add(name, error)
            return False
        return True

    def try_again(self, topic: str, queue_id: int) -> None:
        """Write what waits of a queue that could not be written. Raises StoreError: it cannot."""
        self._written(topic, queue_id)

    def forget_units(self, topic: str, queue_id: int) -> None:
        """What waits of a queue is never written: it is deleted."""
        row = self._waiting_row(topic, queue_id)
        if row is not None:
            self._clear(row, self._units.units_of(row)[0])

    def _waiting_row(self, topic: str, queue_id: int) -> int | None:
        """The row of a queue with units that are not written; None: there are none."""
        if not is_lmq(topic):
            return None
        row = self._table.find_row(topic, queue_id)
        return None if row is None or not self._units.count(row) else row

    def _written(self, topic: str, queue_id: int) -> None:
        """What the queue has is in its files from now on."""
        row = self._waiting_row(topic, queue_id)
        if row is not None:
            self._write_out(row)

    def _write_out(self, row: int) -> None:
        topic, queue_id = self._table.queue_of(row)
        queue_offset, data = self._units.units_of(row)
        position, at = queue_offset * UNIT_SIZE, queue_offset * UNIT_SIZE % self.file_size
        is_one_file = at + len(data) <= self.file_size
        is_done = is_one_file and self._write_once((topic, queue_id, position - at), at, data)
        # A write that fails may have made a file.
        self.on_written(topic, queue_id, not at or not is_done)
        if not is_done:
            ConsumeQueueFiles.write(self, topic, queue_id, position, memoryview(data))
        self._clear(row, queue_offset)

    def _clear(self, row: int, first: int) -> None:
        """The units of a queue, from the queue offset `first` on, wait no longer."""
        self._units.clear(row)
        self._new_files -= _begins_file(first, self.file_size)

    def _write_once(self, key: tuple[str, int, int], at: int, data: bytes) -> bool:
        """Write to a file that is not kept open: its next turn is far off. One that begins is made.
        False: not done."""
        with contextlib.suppress(OSError):
            fd = self._open_once(key, is_new=not at)
            try:
                return os.pwrite(fd, data, at) == len(data)
            finally:
                os.close(fd)
        return False

    def _open_once(self, key: tuple[str, int, int], *, is_new: bool) -> int:
        if is_new:
            with contextlib.suppress(FileExistsError):
                return make_file(self.path(*key), os.O_WRONLY | os.O_EXCL, self.file_size)
        return os.open(self.path(*key), os.O_WRONLY | os.O_CLOEXEC)

    # -- whatever else is done with a queue ----------------------------------------------------

    def read(self, topic: str, queue_id: int, position: int, size: int) -> bytes:
        """See ConsumeQueueFiles. Writes nothing for units that there are."""
        row = self._waiting_row(topic, queue_id)
        if row is None:
            return super().read(topic, queue_id, position, size)
        size = min(size, self.file_size - position % self.file_size)
        first, data = self._units.units_of(row)
        begin = first * UNIT_SIZE
        if position + size > begin + len(data):
            self._write_out(row)
            return super().read(topic, queue_id, position, size)
        if position >= begin:
            return data[position - begin : position - begin + size]
        in_file = super().read(topic, queue_id, position, min(size, begin - position))
        behind = position + size - begin
        # A file that somebody has deleted or cut has less.
        is_joined = behind > 0 and position + len(in_file) == begin
        return in_file + data[:behind] if is_joined else in_file

    def delete(self, topic: str, queue_id: int, start: int) -> None:
        """See ConsumeQueueFiles. Units that belong into this file need not be written any more:
        there may be no room for them."""
        row = self._waiting_row(topic, queue_id)
        if row is not None:
            first, data = self._units.units_of(row)
            begin = first * UNIT_SIZE
            behind = (begin + len(data) - start - self.file_size) // UNIT_SIZE
            if begin < start:
                self._write_out(row)
            elif behind <= 0:
                self._clear(row, first)
            elif behind < len(data) // UNIT_SIZE:
                self._units.keep_newest(row, behind)
                self._new_files += not _begins_file(first, self.file_size)
        super().delete(topic, queue_id, start)


def _begins_file(queue_offset: int, file_size: int) -> bool:
    return queue_offset * UNIT_SIZE % file_size == 0
