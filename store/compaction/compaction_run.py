"""CompactionRun: one compaction of one log, in slices, on the thread of CompactionStore.

    1  the newest queue offset of each key is collected, from the files that have records which were
       not looked at yet (position-checkpoint), up to where the map has room
    2  of all files but the last, records are copied that are still needed: those behind what was
       collected, and the newest of each key, unless they have no body: that deletes their key
    3  what was copied is flushed and replaces those files (compaction_files.py)

Records go on to be appended to the last file meanwhile. A run that is given up before step 3 leaves
nothing behind. Rules and resulting files are those of RocketMQ's CompactionLog.compactAndReplace,
which gives up, though, when nothing is left of the files, and when its map is full.

Tested by tests/store/test_compaction_failures.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from store.compaction.compaction_files import decide_replacement, finish_replacement
from store.compaction.offset_map import OffsetMap, digest_of
from store.compaction.partition_log import PartitionLog
from store.compaction.sparse_units import SparseUnits, read_units
from store.errors import RecordDamagedError, StoreError
from store.mapped_file import file_name
from store.message_codec import (
    RECORD_PLACE,
    SYS_FLAG_AT,
    has_magic,
    read_properties,
    record_head,
)
from store.message_properties import find_property
from store.put_aside import RECORDS, ReadBy, StoredPlace, is_of_record

_SLICE: Final = 512
"""Records between two rests, about 5 ms."""
_SLICE_SIZE: Final = 4 << 20
"""Or so many bytes."""
_INT32: Final = Struct(">i")
_UNREADABLE: Final = b""
"""Instead of a key, none of which is empty: such a record is always the newest of its kind."""


def key_of(record: bytes) -> bytes | None:
    """What a record is the newest of: its property KEYS, as a whole; None if that is missing or
    blank. Raises RecordDamagedError."""
    key = find_property(read_properties(record, 0), b"KEYS")
    return None if key is None or not str(key, "utf-8", "replace").strip() else key


class _Stored(NamedTuple):
    """A record with what its unit says."""

    record: bytes
    tags_code: int
    store_timestamp_ms: int
    queue_offset: int


class CompactionRun:
    """See the module. Used once."""

    def __init__(
        self, current: PartitionLog, target: PartitionLog, position: int, memory_size: int
    ) -> None:
        """current: the log. target: for the new files, in `compacting`. position: up to this queue
        offset records were looked at before. memory_size: maxOffsetMapSize, bytes."""
        self._current = current
        self._target = target
        self._offsets = OffsetMap(memory_size)
        self._old = current.starts[:-1]
        self.position = position
        """Afterwards: up to where records were looked at."""
        self.bytes_before = 0
        self.bytes_after = 0
        """Of the records."""

    def has_news(self) -> bool:
        """Whether there are closed files with records that were not looked at. Raises OSError."""
        return bool(self._old) and self._current.last_offset(self._old[-1]) > self.position

    def steps(self) -> Iterator[None]:
        """Steps 1 and 2, resting after every slice. Raises StoreError, OSError."""
        yield from self._collect()
        yield from self._copy()
        self._target.flush()
        self._target.close()
        if self._target.starts and self._target.starts[-1] > self._old[-1]:
            raise StoreError(f"{self._current!r}: compacted records need more files than before")

    def decide(self) -> None:
        """From now on the new files are valid, also after a crash. Raises OSError."""
        decide_replacement(self._current.directories, self._old, self._target.starts, self.position)

    def replace(self) -> None:
        """Step 3, which `decide` has made certain. Raises StoreError, OSError."""
        finish_replacement(self._current.directories)
        self._current.has_replaced(self._old, self._target.starts)

    def close(self) -> None:
        """Close what is open; idempotent."""
        self._target.close()

    def _collect(self) -> Iterator[None]:
        position = self.position
        for start in self._old:
            for stored in self._slices(start, behind=position):
                for record, _, _, queue_offset in stored:
                    key = self._find_key(record, queue_offset)
                    if key and not self._offsets.put(digest_of(key), queue_offset):
                        return
                    self.position = queue_offset
                yield

    def _copy(self) -> Iterator[None]:
        for start in self._old:
            for stored in self._slices(start):
                self._copy_slice(stored)
                self._target.write_out()
                yield

    def _copy_slice(self, stored: list[_Stored]) -> None:
        keys = [self._find_key(each.record, each.queue_offset) for each in stored]
        newest = self._offsets.newest([digest_of(key or b"") for key in keys]).tolist()
        last = self._offsets.last_offset
        for key, newest_offset, each in zip(keys, newest, stored, strict=True):
            size = len(each.record)
            self.bytes_before += size
            is_newest = key is not None and each.queue_offset >= newest_offset
            if each.queue_offset > last or (is_newest and _has_body(each.record)):
                self._target.append(*each)
                self.bytes_after += size

    def _find_key(self, record: bytes, queue_offset: int) -> bytes | None:
        """_UNREADABLE: it raises."""
        try:
            return key_of(record)
        except Exception as error:
            if not is_of_record(error):
                raise
            topic, queue_id = self._current.topic, self._current.queue_id
            place = StoredPlace(-1, topic, queue_id, queue_offset)
            RECORDS.put(ReadBy.COMPACTION, place, error)
            return _UNREADABLE

    def _slices(self, start: int, behind: int = -1) -> Iterator[list[_Stored]]:
        """The records of a file, those with a queue offset over `behind`."""
        directories, sizes = self._current.directories, self._current.sizes
        name = file_name(start)
        with (
            (directories.queue / name).open("rb") as queue,
            (directories.log / name).open("rb") as records,
        ):
            units = read_units(queue.fileno(), sizes.queue)
            first = int(np.searchsorted(units["queue_offset"], behind + 1))
            stored: list[_Stored] = []
            taken = 0
            for position, size, *rest in _each(units[first:]):
                record = os.pread(records.fileno(), size, position - start)
                self._check(record, position, size, rest[2])
                stored.append(_Stored(record, *rest[:3]))
                taken += size
                if len(stored) >= _SLICE or taken >= _SLICE_SIZE:
                    yield stored
                    stored, taken = [], 0
            if stored:
                yield stored

    def _check(self, record: bytes, position: int, size: int, queue_offset: int) -> None:
        if len(record) >= RECORD_PLACE.size:
            found_size, _, found_offset, place = RECORD_PLACE.unpack_from(record)
            is_it = (found_size, found_offset, place) == (size, queue_offset, position)
            if is_it and has_magic(record):
                return
        raise RecordDamagedError(
            f"{self._current!r}: no record at position {position} for queue offset {queue_offset}; "
            "the log is not compacted, its files stay as they are"
        )


def _each(units: SparseUnits) -> Iterator[tuple[int, ...]]:
    """As numbers, a slice at a time: those of a whole file would be many."""
    for at in range(0, len(units), _SLICE):
        yield from units[at : at + _SLICE].tolist()


def _has_body(record: bytes) -> bool:
    """Without one it deletes its key."""
    sys_flag: int = _INT32.unpack_from(record, SYS_FLAG_AT)[0]
    size: int = _INT32.unpack_from(record, record_head(sys_flag).size - _INT32.size)[0]
    return size > 0
