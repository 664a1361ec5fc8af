"""TimerLog: one unit for each timer that was entered, in files; TimerLogReader follows chains.

    +0   i4  size: 52
    +4   i8  prevPos: position of the previous unit of the same slot, -1: none
    +12  i4  magic: 1 always, | 2 roll (back to the timer topic), | 4 delete: a recall, if its
             record says so; else it was delivered (TimerLog.mark_delivered)
    +16  i8  write time ms (W of timer_slots.py as the unit was entered)
    +24  i4  slot time - write time, ms
    +28  i8  commit log offset of the timer's record
    +36  i4  its size
    +40  i4  String.hashCode of the real topic, 0: none
    +44  i8  0

Files `<root>/timerlog/<20 digits>` are of one size and sparse; positions go on over their ends. A
unit never crosses an end: when less than 68 bytes are left, a blank {i4 bytes left, i8 0, i4
0xCBD43194} leads to the next file. Written with pwrite by process `store` only, see TimerWheel.
Corresponds to RocketMQ's TimerLog.

Tested by tests/store/test_timer_files.py.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from store.errors import DiskFullError, FlushFailedError
from store.mapped_file import NO_SPACE, file_name, make_directory, sync_directory
from store.mapped_file_queue import MappedFileQueue, list_store_files

log = logging.getLogger(__name__)

UNIT: Final = Struct(">iqiqiqiiq")
UNIT_SIZE: Final = 52
assert UNIT.size == UNIT_SIZE
_MAGIC: Final = Struct(">i")
_MAGIC_AT: Final = 12
UNIT_DTYPE: Final = np.dtype(
    [
        ("size", ">i4"),
        ("prev_pos", ">i8"),
        ("magic", ">u4"),
        ("write_time", ">i8"),
        ("delay", ">i4"),
        ("phy_offset", ">i8"),
        ("record_size", ">i4"),
        ("topic_hash", ">i4"),
        ("reserved", ">i8"),
    ]
)
assert UNIT_DTYPE.itemsize == UNIT_SIZE
MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2
MAGIC_DELETE: Final = 4
_MAGIC_BITS: Final = 0xF
BLANK_MAGIC: Final = 0xCBD43194
BLANK: Final = Struct(">iqI")
BLANK_SIZE: Final = 16
assert BLANK.size == BLANK_SIZE
_SCAN_UNITS: Final = 16_384


class TimerUnit(NamedTuple):
    """One unit as it is stored."""

    prev_pos: int
    magic: int
    write_time_ms: int
    delay_ms: int
    phy_offset: int
    record_size: int
    topic_hash: int

    @property
    def slot_time_ms(self) -> int:
        """Time of the slot that it belongs to."""
        return self.write_time_ms + self.delay_ms

    @property
    def rolls(self) -> bool:
        """It goes back to the timer topic when it is due."""
        return bool(self.magic & MAGIC_ROLL)

    @property
    def deletes(self) -> bool:
        """It recalls another message of its slot."""
        return bool(self.magic & MAGIC_DELETE)

    def encode(self) -> bytes:
        """Its 52 bytes."""
        return UNIT.pack(UNIT_SIZE, *self, 0)


class TimerLogReader:
    """Follows the chains of units. Any thread (one lock)."""

    def __init__(self, directory: Path, file_size: int, *, max_maps: int = 16) -> None:
        self._files = MappedFileQueue(directory, file_size, max_maps=max_maps)
        self._file_size = file_size
        self._lock = threading.Lock()

    def unit(self, pos: int) -> TimerUnit | None:
        """The unit at `pos`; None when there is none. Raises WrongFileSizeError, StoreError."""
        at = pos % self._file_size
        if pos < 0 or at + UNIT_SIZE > self._file_size:
            return None
        with self._lock:
            if (found := self._find(pos, at)) is None:
                # A file that was made anew is still mapped as it was.
                self._files.close()
                found = self._find(pos, at)
            return found

    def _find(self, pos: int, at: int) -> TimerUnit | None:
        file = self._files.find_file(pos)
        if file is None:
            return None
        size, *fields, _ = UNIT.unpack(file.view(at, UNIT_SIZE))
        found = TimerUnit(*fields)
        return found if size == UNIT_SIZE and not found.magic & ~_MAGIC_BITS else None

    def chain(self, last_pos: int) -> Iterator[TimerUnit]:
        """The units of a slot, newest first, from its last_pos on; ends where none is (-1, or the
        file is gone). Raises StoreError."""
        while last_pos >= 0 and (found := self.unit(last_pos)) is not None:
            yield found
            if found.prev_pos >= last_pos:
                return
            last_pos = found.prev_pos

    def drop_below(self, pos: int) -> None:
        """Unmap files that end at or before `pos`: they were deleted."""
        with self._lock:
            self._files.drop_below(pos)

    def close(self) -> None:
        """Unmap; idempotent."""
        with self._lock:
            self._files.close()


class TimerLog:
    """The log as process `store` writes it. Owned by: one thread; `reader` by any.

    Units are kept until `write_out`; `end` counts them.
    """

    def __init__(self, directory: Path, file_size: int) -> None:
        self.directory = directory
        self.file_size = file_size
        self.reader: Final = TimerLogReader(directory, file_size)
        self.end = 0
        """Position after the last unit."""
        self.flushed_pos = 0
        self._pending = bytearray()
        self._written = 0
        self._fd = -1
        self._fd_start = -1
        self._unsynced: set[int] = set()

    def start_offsets(self) -> list[int]:
        """Where the files begin that there are, in order."""
        return [file.start_offset for file in list_store_files(self.directory)]

    def next_pos(self) -> int:
        """Position of the unit that is appended next."""
        left = self.file_size - self.end % self.file_size
        return self.end if left >= UNIT_SIZE + BLANK_SIZE else self.end + left

    def append(self, unit: TimerUnit) -> int:
        """Add a unit, at the next `write_out`; returns its position."""
        pos = self.next_pos()
        if pos != self.end:
            left = pos - self.end
            self._pending += BLANK.pack(left, 0, BLANK_MAGIC).ljust(left, b"\0")
        self._pending += unit.encode()
        self.end = pos + UNIT_SIZE
        return pos

    def write_out(self) -> None:
        """Write what was added. Raises DiskFullError, OSError: the rest is kept."""
        while self._pending:
            at = self._written % self.file_size
            piece = bytes(self._pending[: self.file_size - at])
            try:
                self._select(self._written - at)
                count = os.pwrite(self._fd, piece, at)
            except OSError as error:
                if error.errno in NO_SPACE:
                    raise DiskFullError(f"{self.directory}: {error.strerror}") from error
                raise
            self._unsynced.add(self._fd_start)
            del self._pending[:count]
            self._written += count

    def mark_delivered(self, pos: int, unit: TimerUnit) -> None:
        """Have a Java broker drop the written `unit` at `pos` when its slot is due: it takes one
        with the delete bit for a recall, and one whose record names nothing to recall for nothing.
        Raises OSError."""
        at = pos % self.file_size
        self._select(pos - at)
        os.pwrite(self._fd, _MAGIC.pack(unit.magic | MAGIC_DELETE), at + _MAGIC_AT)
        self._unsynced.add(self._fd_start)

    def flush(self) -> int:
        """Bring what is written to disk; returns the position. Raises FlushFailedError."""
        pos = self._written
        for start in sorted(self._unsynced):
            self._select(start)
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                raise FlushFailedError(f"fdatasync of {self.directory}: {error}") from error
        self._unsynced.clear()
        self.flushed_pos = pos
        return pos

    def units_of_file(self, file_start: int) -> tuple[NDArray[np.void], bool]:
        """The valid units at the beginning of a file, mapped, and whether they fill it. Raises
        OSError."""
        path = self.directory / file_name(file_start)
        whole = np.memmap(path, np.uint8, "r")
        most = min(len(whole), self.file_size) // UNIT_SIZE
        units: NDArray[np.void] = whole[: most * UNIT_SIZE].view(UNIT_DTYPE)
        count = 0
        while count < most:
            piece = units[count : count + _SCAN_UNITS]
            wrong = (piece["size"] != UNIT_SIZE) | (piece["magic"] > _MAGIC_BITS)
            if wrong.any():
                count += int(wrong.argmax())
                break
            count += len(piece)
        at = count * UNIT_SIZE
        if len(whole) - at < BLANK_SIZE:
            return units[:count], len(whole) == self.file_size
        return units[:count], BLANK.unpack_from(whole.data, at)[2] == BLANK_MAGIC

    def begin_at(self, pos: int) -> None:
        """Units end at `pos`: what is behind it goes, and the next is appended there. Raises
        OSError."""
        file_start = pos - pos % self.file_size
        for start in self.start_offsets():
            if start > file_start:
                self.delete_file(start)
            elif start == file_start:
                self._zero_behind(start, pos % self.file_size)
        self.end = self._written = self.flushed_pos = pos
        self._pending.clear()

    def _zero_behind(self, file_start: int, at: int) -> None:
        """In place: the file may be mapped."""
        self._select(file_start)
        zeros = bytes(1 << 20)
        while at < self.file_size:
            piece = os.pread(self._fd, len(zeros), at)
            if piece != zeros[: len(piece)]:
                os.pwrite(self._fd, zeros[: len(piece)], at)
                self._unsynced.add(file_start)
            at += len(piece)

    def delete_file(self, file_start: int) -> None:
        """Unlink one file. Raises OSError."""
        if self._fd_start == file_start:
            self._unselect()
        self._unsynced.discard(file_start)
        (self.directory / file_name(file_start)).unlink(missing_ok=True)

    def delete_before(self, start_offset: int) -> None:
        """Unlink the files before `start_offset`. Raises OSError."""
        for start in self.start_offsets():
            if start < start_offset:
                self.delete_file(start)
        self.reader.drop_below(start_offset)

    def delete_expired(self, min_phy_offset: int) -> None:
        """Delete files, but the last, whose records the commit log has no more. Raises OSError."""
        kept = 0
        for start in self.start_offsets()[:-1]:
            unit = self.last_unit_of_file(start)
            if unit is not None and unit.phy_offset >= min_phy_offset:
                break
            kept = start + self.file_size
        if kept:
            log.info("timer log: deleted up to %s", kept)
            self.delete_before(kept)

    def last_unit_of_file(self, file_start: int) -> TimerUnit | None:
        """The last unit of a full file."""
        room = self.file_size - BLANK_SIZE
        return self.reader.unit(file_start + room - room % UNIT_SIZE - UNIT_SIZE)

    def close(self) -> None:
        """Close; idempotent. Nothing is flushed."""
        self.reader.close()
        self._unselect()

    def _select(self, file_start: int) -> None:
        """Open the file that begins at `file_start` for writing; create it, at full length."""
        if self._fd_start == file_start:
            return
        self._unselect()
        path = self.directory / file_name(file_start)
        is_new = not path.exists()
        if is_new:
            make_directory(self.directory)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._fd_start = file_start
        if os.fstat(self._fd).st_size < self.file_size:
            os.ftruncate(self._fd, self.file_size)
        if is_new:
            sync_directory(self.directory)

    def _unselect(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = self._fd_start = -1
