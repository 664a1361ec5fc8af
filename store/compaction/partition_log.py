"""PartitionLog: the files of one compaction log with their sparse queue, as they are appended to.

Records go to files of one size, one after the other; each log file has a queue file of the same
name, and both end together: when the next record (and eight bytes) does not fit into the one, or no
unit but the end unit into the other, a blank and an end unit close them. What is appended is kept
until `write_out`, log before queue, so that a unit that is there has its record; files that end are
flushed, so that a power loss concerns the last ones only. The same class makes the files that will
replace others. Owned by one thread. Corresponds to TopicPartitionLog and the append callbacks of
RocketMQ's CompactionLog.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from struct import Struct
from typing import Final

from store.batch_units import BATCH_UNIT
from store.compaction.compaction_files import CompactionDirectories, FileSizes, list_starts
from store.compaction.sparse_units import (
    END_UNIT,
    NO_UNIT,
    encode_unit,
    find_unit,
    queue_offset_of,
)
from store.errors import DiskFullError, FlushFailedError, StoreError
from store.mapped_file import NO_SPACE, file_name, make_directory, sync_directory
from store.message_codec import (
    BLANK_SIZE,
    PHY_OFFSET_AT,
    RECORD_PLACE,
    Buffer,
    RecordKind,
    check_record,
    encode_blank,
)
from store.message_store_config import BATCH_UNIT_SIZE

log = logging.getLogger(__name__)

_POSITION: Final = Struct(">q")
_STEP: Final = 1 << 20


class PartitionLog:
    """See the module."""

    def __init__(
        self, directories: CompactionDirectories, sizes: FileSizes, topic: str, queue_id: int
    ) -> None:
        self.directories = directories
        self.sizes = sizes
        self.max_offset = 0
        """Queue offset behind the last record."""
        self.starts: list[int] = []
        """Where the files begin, in order; the last one is appended to."""
        self.topic, self.queue_id = topic, queue_id
        self._name = f"{topic}/{queue_id}"
        self._queue_id = queue_id
        self._log_fd = self._queue_fd = -1
        self._log_end = self._queue_end = 0
        """Bytes of the last file and of its queue file, `_records` and `_units` included."""
        self._records = bytearray()
        self._units = bytearray()
        self._is_closed = False
        """The last file has its blank and its end unit: the next one is to be made."""
        self._unflushed = False

    def __repr__(self) -> str:
        return f"compaction log {self._name}"

    # -- the start -----------------------------------------------------------------------------

    def open(self, *, check_all: bool, copied_again_from: int = 0, rewrite: bool = False) -> None:
        """Find the files, and where they end; what is behind it goes.

        check_all: bytes that were not flushed may be lost, so that all records of the last file are
        looked at; copied_again_from: by queue offset, those that can be copied again, for which the
        commit log was kept because they might not be on disk. A damaged one before them is no
        reason to drop what follows. rewrite: a flush has failed, so that pages of the last file may
        count as clean that the disk does not have. Raises StoreError, OSError.
        """
        self.starts = list_starts(self.directories, self.sizes)
        for start in self.starts[:-1]:
            self._check_pair(start)
        while self.starts:
            self._open_last()
            if count := self._count_right(check_all, copied_again_from):
                self._end_behind(count)
                if rewrite:
                    _rewrite(self._log_fd, self._log_end)
                    _rewrite(self._queue_fd, self._queue_end)
                return
            self._remove_last()
        self.max_offset = 0

    def cut(self, queue_offset: int) -> None:
        """Drop the records from `queue_offset` on. Raises OSError."""
        while self.starts:
            self._open_last()
            count = find_unit(self._queue_fd, self.sizes.queue, queue_offset)
            if count:
                self._end_behind(count)
                return
            self._remove_last()
        self.max_offset = 0

    def _check_pair(self, start: int) -> None:
        """One right record of three is enough: a damaged one is no reason not to start. Raises
        StoreError: log and queue do not belong together."""
        log_fd, queue_fd = self._open_pair(start, os.O_RDONLY)
        try:
            count = find_unit(queue_fd, self.sizes.queue, NO_UNIT)
            for number in dict.fromkeys((0, count // 2, count - 1)) if count else ():
                unit = os.pread(queue_fd, BATCH_UNIT_SIZE, number * BATCH_UNIT_SIZE)
                if self._read_right(log_fd, start, unit):
                    return
        finally:
            os.close(queue_fd)
            os.close(log_fd)
        raise StoreError(
            f"{self!r}: {file_name(start)} of compactionLog and of compactionCq do not belong "
            "together; restore both directories from a copy, or delete both: what the commit log "
            "still holds is compacted again"
        )

    def _count_right(self, check_all: bool, copied_again_from: int) -> int:
        """Units of the last file, up to the first one that does not name its record."""
        count = find_unit(self._queue_fd, self.sizes.queue, NO_UNIT)
        start = self.starts[-1]
        for number in range(count) if check_all else ():
            unit = self._unit(number)
            if self._read_right(self._log_fd, start, unit, check_crc=True):
                continue
            if queue_offset_of(unit) >= copied_again_from:
                log.warning("%r: records from number %s of the last file on are lost", self, number)
                return number
            log.error("%r: record number %s of the last file is damaged", self, number)
        while count and not self._read_right(self._log_fd, start, self._unit(count - 1)):
            count -= 1
        return count

    def _unit(self, number: int) -> bytes:
        return os.pread(self._queue_fd, BATCH_UNIT_SIZE, number * BATCH_UNIT_SIZE)

    def _read_right(
        self, log_fd: int, start: int, unit: bytes, *, check_crc: bool = False
    ) -> bytes | None:
        """The record of a unit; None if it is not there."""
        position, size, _, _, queue_offset, *_ = BATCH_UNIT.unpack(unit)
        if not start <= position <= start + self.sizes.log - size:
            return None
        record = os.pread(log_fd, size, position - start)
        place = (size, self._queue_id, queue_offset, position)
        if len(record) < RECORD_PLACE.size or RECORD_PLACE.unpack_from(record) != place:
            return None
        found = check_record(record, 0, size, position, check_crc=check_crc)
        return record if found.kind is RecordKind.MESSAGE else None

    def last_record(self) -> bytes | None:
        """The newest record; None without one. Raises OSError."""
        if not self.starts:
            return None
        self.write_out()
        number = find_unit(self._queue_fd, self.sizes.queue, NO_UNIT) - 1
        return self._read_right(self._log_fd, self.starts[-1], self._unit(number))

    def _end_behind(self, count: int) -> None:
        """The last file has `count` units, zeros follow."""
        position, size, _, _, queue_offset, *_ = BATCH_UNIT.unpack(self._unit(count - 1))
        self._queue_end = count * BATCH_UNIT_SIZE
        self._log_end = position + size - self.starts[-1]
        self.max_offset = queue_offset + 1
        for fd, end, whole in (
            (self._queue_fd, self._queue_end, self.sizes.queue),
            (self._log_fd, self._log_end, self.sizes.log),
        ):
            os.ftruncate(fd, end)
            os.ftruncate(fd, whole)
        self._unflushed = True

    # -- appending -----------------------------------------------------------------------------

    def append(
        self, record: Buffer, tags_code: int, store_timestamp_ms: int, queue_offset: int
    ) -> bool:
        """Add a record, at the next `write_out`; False, with an error in the log, if it is larger
        than a file. Raises DiskFullError, FlushFailedError, OSError."""
        size = len(record)
        if size + BLANK_SIZE > self.sizes.log:
            log.error("%r: record %s of %s bytes is larger than a file", self, queue_offset, size)
            return False
        if not self.starts or self._is_closed or not self._has_room(size):
            self._roll()
        at = len(self._records)
        position = self.starts[-1] + self._log_end
        self._records += record
        _POSITION.pack_into(self._records, at + PHY_OFFSET_AT, position)
        self._units += encode_unit(position, size, tags_code, store_timestamp_ms, queue_offset)
        self._log_end += size
        self._queue_end += BATCH_UNIT_SIZE
        self.max_offset = queue_offset + 1
        self._unflushed = True
        return True

    def _has_room(self, size: int) -> bool:
        return (
            size + BLANK_SIZE <= self.sizes.log - self._log_end
            and self._queue_end + BATCH_UNIT_SIZE < self.sizes.queue
        )

    def _roll(self) -> None:
        """Close the last file, if there is one, and begin the next."""
        start = 0
        if self.starts:
            self._close_last()
            start = self.starts[-1] + self.sizes.log
        sizes = (self.sizes.log, self.sizes.queue)
        try:
            for directory, size in zip(self.directories.both, sizes, strict=True):
                make_directory(directory)
                _create(directory / file_name(start), size)
                sync_directory(directory)
        except OSError as error:
            raise self._write_error(error) from error
        self.starts.append(start)
        self._open_last()

    def _close_last(self) -> None:
        """Once: the next file may find no room at first."""
        if not self._is_closed:
            self._records += encode_blank(self.sizes.log - self._log_end)
            self._units += END_UNIT
            self._log_end += BLANK_SIZE
            self._queue_end += BATCH_UNIT_SIZE
            self._is_closed = True
        self.write_out()
        self.flush()

    def write_out(self) -> None:
        """Write what was appended. Raises DiskFullError, OSError: the rest is kept."""
        try:
            _write(self._log_fd, self._records, self._log_end)
            _write(self._queue_fd, self._units, self._queue_end)
        except OSError as error:
            raise self._write_error(error) from error

    def _write_error(self, error: OSError) -> OSError | DiskFullError:
        if error.errno in NO_SPACE:
            return DiskFullError(f"{self.directories.log}: {error.strerror}")
        return error

    def flush(self) -> None:
        """What was appended is on disk. Raises DiskFullError, FlushFailedError, OSError."""
        self.write_out()
        if not self._unflushed:
            return
        for fd, directory in zip(
            (self._log_fd, self._queue_fd), self.directories.both, strict=True
        ):
            try:
                os.fdatasync(fd)
            except OSError as error:
                raise FlushFailedError(f"fdatasync in {directory}: {error}") from error
        self._unflushed = False

    @property
    def is_flushed(self) -> bool:
        """Whether everything that was appended is on disk."""
        return not self._unflushed

    # -- files ---------------------------------------------------------------------------------

    def last_offset(self, start: int) -> int:
        """Queue offset of the last record in the closed file at `start`; -1 without one. Raises
        OSError."""
        with (self.directories.queue / file_name(start)).open("rb") as file:
            count = find_unit(file.fileno(), self.sizes.queue, NO_UNIT)
            if not count:
                return -1
            file.seek((count - 1) * BATCH_UNIT_SIZE)
            return queue_offset_of(file.read(BATCH_UNIT_SIZE))

    def has_replaced(self, old: list[int], new: list[int]) -> None:
        """The closed files `old` were replaced by `new`."""
        self.starts = new + [start for start in self.starts if start not in old]

    def close(self) -> None:
        """Close; idempotent. Nothing is written."""
        for fd in (self._log_fd, self._queue_fd):
            if fd >= 0:
                os.close(fd)
        self._log_fd = self._queue_fd = -1

    def _open_pair(self, start: int, flags: int) -> tuple[int, int]:
        log_fd = os.open(self.directories.log / file_name(start), flags | os.O_CLOEXEC)
        try:
            return log_fd, os.open(self.directories.queue / file_name(start), flags | os.O_CLOEXEC)
        except OSError:
            os.close(log_fd)
            raise

    def _open_last(self) -> None:
        self.close()
        self._log_fd, self._queue_fd = self._open_pair(self.starts[-1], os.O_RDWR)
        self._log_end = self._queue_end = 0
        self._is_closed = False

    def _remove_last(self) -> None:
        self.close()
        start = self.starts.pop()
        # The queue's first: readers look there.
        for directory in reversed(self.directories.both):
            (directory / file_name(start)).unlink(missing_ok=True)
            sync_directory(directory)


def _create(path: Path, size: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(fd, size)
    finally:
        os.close(fd)


def _write(fd: int, pending: bytearray, end: int) -> None:
    """Write `pending`, whose last byte belongs before `end`, and empty it."""
    while pending:
        written = os.pwrite(fd, pending, end - len(pending))
        del pending[:written]


def _rewrite(fd: int, end: int) -> None:
    """Make all pages dirty: the same bytes once more (see store/cache_repair.py)."""
    for at in range(0, end, _STEP):
        data = os.pread(fd, min(_STEP, end - at), at)
        while data:
            written = os.pwrite(fd, data, at)
            data, at = data[written:], at + written
