"""IndexFile: one file of the key index: hash slots, chained units, a header.

Written by process `store` (its dispatch thread), queried there and by `remoting` through read-only
maps. A batch becomes visible in the order units, slots, header, so that a reader in another process
never follows a chain into bytes that are not there. Units are written with pwrite and the slots are
allocated at creation: a full disk is an OSError, not a SIGBUS. It must not know records or topics:
its keys are hashes. Big-endian, signed:

    0   i8  beginTimestamp (ms)     40          i4 x slots  newest unit of the chain, 0 none
    8   i8  endTimestamp            40+4*slots  20 x units  unit n at +20n, unit 0 unused:
    16  i8  beginPhyOffset            +0   i4  key hash
    24  i8  endPhyOffset              +4   i8  phy_offset
    32  i4  used slots                +12  i4  seconds since beginTimestamp
    36  i4  number of the next unit   +16  i4  previous unit of the chain, 0 none
Corresponds to IndexFile and IndexHeader of RocketMQ.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from store.errors import DiskFullError, FlushFailedError, StoreError, WrongFileSizeError
from store.mapped_file import NO_SPACE, make_directory, sync_directory

log = logging.getLogger(__name__)

Int64Array = NDArray[np.int64]

INDEX_HEADER: Final = struct.Struct(">qqqqii")
assert INDEX_HEADER.size == 40
_UNIT: Final = struct.Struct(">iqii")
assert _UNIT.size == 20
INDEX_UNIT: Final = np.dtype(
    [("key_hash", ">i4"), ("phy_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
assert INDEX_UNIT.itemsize == _UNIT.size
_SLOT_SIZE: Final = 4
_SLOT: Final = struct.Struct(">i")
assert _SLOT.size == _SLOT_SIZE
_INT32_MAX: Final = (1 << 31) - 1
_ORDER_BITS: Final = 20
"""Batches are limited so that slot and position in the batch fit into one sortable int64."""


class IndexEntry(NamedTuple):
    """A key of a record. key_hash: as index_key_hash; store_timestamp: ms."""

    key_hash: int
    phy_offset: int
    store_timestamp: int


def index_file_size(hash_slot_num: int, max_index_num: int) -> int:
    """Bytes of an index file: 420,000,040 for RocketMQ's defaults."""
    return INDEX_HEADER.size + hash_slot_num * _SLOT_SIZE + max_index_num * _UNIT.size


class IndexFile:
    """One mapped index file. Owned by: the thread that dispatches, or one reader."""

    def __init__(
        self, path: Path, hash_slot_num: int, max_index_num: int, *, writable: bool
    ) -> None:
        """Maps an existing file. Raises WrongFileSizeError, OSError."""
        self.path = path
        self._slot_num = hash_slot_num
        self._max_index_num = max_index_num
        size = index_file_size(hash_slot_num, max_index_num)
        self._fd = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
        try:
            found = os.fstat(self._fd).st_size
            if found != size:
                raise WrongFileSizeError(
                    f"index file {path} has {found} bytes, maxHashSlotNum={hash_slot_num} and "
                    f"maxIndexNum={max_index_num} make {size}: set them back, or delete the "
                    "index directory (key lookups of old messages are lost then)"
                )
            self._map = mmap.mmap(
                self._fd,
                size,
                prot=mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0),
            )
        except BaseException:
            os.close(self._fd)
            raise
        self._slots = np.frombuffer(self._map, ">i4", hash_slot_num, INDEX_HEADER.size)
        self._units_at = INDEX_HEADER.size + hash_slot_num * _SLOT_SIZE
        self._closed = False

    @classmethod
    def create(
        cls,
        path: Path,
        hash_slot_num: int,
        max_index_num: int,
        *,
        end_phy_offset: int,
        end_timestamp: int,
    ) -> Self:
        """A new file, its header preset with the end of the previous file (0, 0 without one).
        Raises DiskFullError, StoreError, FileExistsError."""
        try:
            make_directory(path.parent)
            cls._make(path, hash_slot_num, max_index_num, end_phy_offset, end_timestamp)
            sync_directory(path.parent)
        except FileExistsError:
            raise
        except OSError as error:
            raise _disk_error(path, error) from error
        return cls(path, hash_slot_num, max_index_num, writable=True)

    @staticmethod
    def _make(
        path: Path, hash_slot_num: int, max_index_num: int, end_phy_offset: int, end_timestamp: int
    ) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            # Full length first: a file truncated by a crash is then empty (IndexService.load).
            os.ftruncate(fd, index_file_size(hash_slot_num, max_index_num))
            os.posix_fallocate(fd, 0, INDEX_HEADER.size + hash_slot_num * _SLOT_SIZE)
            preset = (end_timestamp, end_timestamp, end_phy_offset, end_phy_offset, 0, 0)
            os.pwrite(fd, INDEX_HEADER.pack(*preset), 0)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    # -- header --------------------------------------------------------------------------------

    @property
    def header(self) -> tuple[int, int, int, int, int, int]:
        """(begin ms, end ms, begin phy_offset, end phy_offset, used slots, next unit >= 1)."""
        *head, unit_count = INDEX_HEADER.unpack_from(self._map, 0)
        return (*head, max(unit_count, 1))

    @property
    def begin_timestamp(self) -> int:
        """Store time (ms) of the first entry, or the preset one."""
        return self.header[0]

    @property
    def end_timestamp(self) -> int:
        """Store time (ms) of the last entry."""
        return self.header[1]

    @property
    def end_phy_offset(self) -> int:
        """phy_offset of the last entry's record."""
        return self.header[3]

    @property
    def unit_count(self) -> int:
        """Number of the next unit; 1 in an empty file."""
        return self.header[5]

    @property
    def is_full(self) -> bool:
        """Whether no unit is left."""
        return self.unit_count >= self._max_index_num

    def is_time_matched(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file's time range and [begin_ms, end_ms] overlap."""
        first, last = self.header[:2]
        return first <= end_ms and last >= begin_ms

    # -- writing -------------------------------------------------------------------------------

    def put_batch(
        self, key_hashes: Int64Array, phy_offsets: Int64Array, store_timestamps: Int64Array
    ) -> int:
        """Add entries in order; returns how many fit. Raises DiskFullError, OSError.

        key_hashes: as index_key_hash, 0 ... 2**31 - 1. store_timestamps in ms.
        """
        taken = 0
        while taken < len(key_hashes) and not self.is_full:
            room = min(self._max_index_num - self.unit_count, 1 << _ORDER_BITS)
            piece = slice(taken, taken + room)
            self._put(key_hashes[piece], phy_offsets[piece], store_timestamps[piece])
            taken += len(key_hashes[piece])
        return taken

    def _put(self, hashes: Int64Array, phy_offsets: Int64Array, timestamps: Int64Array) -> None:
        begin, _, begin_phy_offset, _, used, first = self.header
        count = len(hashes)
        slots = hashes % self._slot_num
        heads, previous = self._chain(slots, first)
        units = np.empty(count, INDEX_UNIT)
        units["key_hash"] = hashes
        units["phy_offset"] = phy_offsets
        units["seconds"] = _seconds_since(begin, timestamps)
        if first <= 1:
            begin, begin_phy_offset = int(timestamps[0]), int(phy_offsets[0])
            units["seconds"][1:] = _seconds_since(begin, timestamps[1:])
        units["previous"] = previous
        self._write_units(first, units.tobytes())
        ordered_slots, ordered_numbers = heads
        self._slots[ordered_slots] = ordered_numbers
        used += count - int(np.count_nonzero(previous))
        last, last_phy_offset = int(timestamps[-1]), int(phy_offsets[-1])
        self._write_header(begin, last, begin_phy_offset, last_phy_offset, used, first + count)

    def put_few(self, entries: Sequence[IndexEntry]) -> bool:
        """`put_batch` for a few entries, at least one, without arrays. False, and nothing is done,
        if they do not all fit, or may be here already. Raises DiskFullError, OSError."""
        begin, _, begin_phy_offset, end_phy_offset, used, first = self.header
        end = first + len(entries)
        if entries[0].phy_offset <= end_phy_offset or end > self._max_index_num:
            return False
        heads: dict[int, int] = {}
        units = []
        for number, (key_hash, phy_offset, timestamp) in enumerate(entries, first):
            slot = key_hash % self._slot_num
            previous = heads[slot] if slot in heads else self._head(slot, first)
            seconds = 0 if begin <= 0 else min(max((timestamp - begin) // 1000, 0), _INT32_MAX)
            units.append(_UNIT.pack(key_hash, phy_offset, seconds, previous))
            heads[slot] = number
            used += not previous
            if number <= 1:
                begin, begin_phy_offset = timestamp, phy_offset
        self._write_units(first, b"".join(units))
        for slot, number in heads.items():
            _SLOT.pack_into(self._map, INDEX_HEADER.size + slot * _SLOT_SIZE, number)
        _, last_phy_offset, last_timestamp = entries[-1]
        self._write_header(begin, last_timestamp, begin_phy_offset, last_phy_offset, used, end)
        return True

    def _head(self, slot: int, first: int) -> int:
        """The newest unit of a chain; 0 when it is none of those before `first`."""
        (number,) = _SLOT.unpack_from(self._map, INDEX_HEADER.size + slot * _SLOT_SIZE)
        return int(number) if 0 <= number < first else 0

    def _write_header(self, *header: int) -> None:
        """One call: a process that is killed leaves all of it or nothing. An end that is ahead of
        the number of units would have the next start leave out what is between."""
        os.pwrite(self._fd, INDEX_HEADER.pack(*header), 0)

    def _chain(
        self, slots: Int64Array, first: int
    ) -> tuple[tuple[Int64Array, Int64Array], Int64Array]:
        """(slots in order, unit for each), and each new unit's previous one.

        Entries of one slot within the batch are chained; the last one becomes the head.
        """
        count = len(slots)
        keys = np.sort(slots << _ORDER_BITS | np.arange(count, dtype=np.int64))
        ordered = keys >> _ORDER_BITS
        order = keys & ((1 << _ORDER_BITS) - 1)
        numbers = order + first
        before = self._slots[ordered].astype(np.int64)
        before[(before < 0) | (before >= first)] = 0
        again = ordered[1:] == ordered[:-1]
        before[1:][again] = numbers[:-1][again]
        previous = np.empty(count, np.int64)
        previous[order] = before
        return (ordered, numbers), previous

    def _write_units(self, first: int, units: bytes) -> None:
        data = memoryview(units)
        position = self._units_at + first * _UNIT.size
        try:
            while data:
                written = os.pwrite(self._fd, data, position)
                data, position = data[written:], position + written
        except OSError as error:
            raise _disk_error(self.path, error) from error

    def repair_chains(self) -> int:
        """After a writer died within a batch: move heads that point to units not yet entered back
        to the previous entry. Returns the number of repaired slots."""
        first = self.unit_count
        slots = np.flatnonzero(self._slots >= first)
        for slot in slots.tolist():
            number = int(self._slots[slot])
            while first <= number < self._max_index_num:
                number = self._before(number)
            self._slots[slot] = number if 0 < number < first else 0
        return len(slots)

    def _before(self, number: int) -> int:
        previous: int = self._unit(number)[3]
        return previous if previous < number else 0

    # -- reading -------------------------------------------------------------------------------

    def _unit(self, number: int) -> tuple[int, int, int, int]:
        found: tuple[int, int, int, int] = _UNIT.unpack_from(
            self._map, self._units_at + number * _UNIT.size
        )
        return found

    def last_units(self) -> Iterator[int]:
        """phy_offsets of the entries from the newest to the oldest."""
        for number in range(self.unit_count - 1, 0, -1):
            yield self._unit(number)[1]

    def select_phy_offsets(
        self, found: list[int], key_hash: int, max_num: int, begin_ms: int, end_ms: int
    ) -> None:
        """Append to `found` the entries of `key_hash` stored in [begin_ms, end_ms], newest first,
        until it has `max_num`. Times are known to the second; hash collisions are included.
        """
        begin = self.begin_timestamp
        number = int(self._slots[key_hash % self._slot_num])
        while 0 < number < self._max_index_num and len(found) < max_num:
            unit_hash, phy_offset, seconds, previous = self._unit(number)
            time_ms = begin + seconds * 1000
            if seconds < 0:
                return
            if unit_hash == key_hash and begin_ms <= time_ms <= end_ms:
                found.append(phy_offset)
            if time_ms < begin_ms or previous >= number:
                return
            number = previous

    # -- life ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Everything written so far is on disk afterwards. Raises FlushFailedError."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise FlushFailedError(f"fdatasync of index file {self.path}: {error}") from error

    def close(self) -> None:
        """Unmap; idempotent."""
        if self._closed:
            return
        self._closed = True
        del self._slots
        self._map.close()
        os.close(self._fd)

    def destroy(self) -> None:
        """Unmap and delete."""
        self.close()
        self.path.unlink(missing_ok=True)


def _seconds_since(begin_ms: int, timestamps: Int64Array) -> Int64Array | int:
    if begin_ms <= 0:
        return 0
    return np.clip((timestamps - begin_ms) // 1000, 0, _INT32_MAX)


def _disk_error(path: Path, error: OSError) -> StoreError:
    text = f"writing index file {path}: {error}"
    return DiskFullError(text) if error.errno in NO_SPACE else StoreError(text)
