"""Walks over the good records of a commit log file, many at once: what recovery scans with.

Run by the main thread of process `store` before any writer starts, and by Spark's executors, which
read logs without a broker (spark/sources). Its rules are those of
message_codec.check_record, to which it leaves every record that it does not find good, and those
longer than a step: tests show that both judge alike. One record after the other takes 4.4 us for
each (bodies of 1 KiB), this 0.8, of which 0.2 are not for the CRC. Dispatch, which needs other
columns and no CRC, has its own walk (record_arrays.py). It changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store.crc32 import crc32_for
from store.message_codec import (
    BODY_CRC_MASK,
    BORN_HOST_V6_FLAG,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_AND_MAGIC,
    STORE_HOST_V6_FLAG,
    SYS_FLAG_AT,
    Buffer,
    read_store_timestamp,
    record_head,
    store_timestamp_position,
)
from store.record_arrays import RECORD_HEAD, Int64Array, walk_sizes

WALK_STEP: Final = 4 << 20
FIRST_STEP: Final = 64 << 10
"""Bytes of the first walk behind damage: each costs as much as its bytes, however soon it ends."""
_MOST_BEHIND_BODY: Final = 2 + 0x7FFF + 2 + 0x7FFF
"""Topic and properties with their sizes."""
_MAGICS: Final = frozenset({MAGIC_V1, MAGIC_V2})
_BODY_AT: Final = record_head(0).size
_V6_EXTRA: Final = record_head(BORN_HOST_V6_FLAG).size - _BODY_AT
_STORE_TIMESTAMP_AT: Final = store_timestamp_position(0)
_ANY_V6: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG


@dataclass(frozen=True, slots=True)
class RecordParts:
    """Where the parts of good records are, in the view that they were found in."""

    at: Int64Array
    body_at: Int64Array
    body_end: Int64Array
    topic_at: Int64Array
    topic_sizes: Int64Array
    end: Int64Array
    crcs: Int64Array
    timestamps: Int64Array

    def cut(self, count: int) -> RecordParts:
        """The first `count` only."""
        if count == len(self.at):
            return self
        return RecordParts(*(getattr(self, name)[:count] for name in _COLUMNS))

    def rows(self, chosen: NDArray[np.bool_] | Int64Array) -> RecordParts:
        """Those that `chosen`, a mask or positions in order, names."""
        return RecordParts(*(getattr(self, name)[chosen] for name in _COLUMNS))


_COLUMNS: Final = tuple(RecordParts.__slots__)


def good_parts(view: memoryview, phy_offset: int | None, *, check_crc: bool) -> RecordParts:
    """The good records that `view` begins with, up to the first that is not good or not whole.

    phy_offset: of the log, of the view's first byte; None: records of any places, as pulls bring.
    """
    at, _ = walk_sizes(view)
    parts = _lay_out(view, at, phy_offset)
    if check_crc:
        parts = parts.cut(_first_zero_in_topic(view, parts))
        parts = parts.cut(_first_wrong_body(view, parts))
    return parts


@dataclass(frozen=True, slots=True)
class GoodRecords:
    """Positions in the view and store timestamps (ms) of good records, which follow each other up
    to `end`."""

    positions: Int64Array
    timestamps: Int64Array
    end: int

    @property
    def count(self) -> int:
        """How many."""
        return len(self.positions)


def walk_good_records(
    view: memoryview, position: int, file_start: int, *, check_crc: bool, step: int = WALK_STEP
) -> GoodRecords:
    """The good records from `position` on, up to one that is not or about `step` bytes; what
    follows them, and every record when there are none, is for check_record.

    view: a whole file, whose first byte is `file_start` of the log.
    """
    with view[position : position + step] as piece:
        parts = good_parts(piece, file_start + position, check_crc=check_crc)
    end = int(parts.end[-1]) if len(parts.at) else 0
    return GoodRecords(parts.at + position, parts.timestamps, position + end)


def single_record(view: memoryview, position: int, size: int) -> GoodRecords:
    """One that check_record has found good."""
    timestamp = read_store_timestamp(view, position)
    return GoodRecords(np.array([position]), np.array([timestamp]), position + size)


def _strided(view: memoryview, dtype: str) -> NDArray[np.generic]:
    """`view` as an array of `dtype` beginning at every byte."""
    kind = np.dtype(dtype)
    return np.ndarray((max(len(view) - kind.itemsize + 1, 0),), kind, view, 0, (1,))


def _lay_out(view: memoryview, at: Int64Array, phy_offset: int | None) -> RecordParts:
    """The parts of the records at `at`, up to the first whose magic, place or sizes are wrong."""
    if not len(at):
        return RecordParts(*(at for _ in _COLUMNS))
    raw = _strided(view, f"V{RECORD_HEAD.itemsize}")[at].view(RECORD_HEAD)
    size = len(view)
    end = at + raw["total_size"]
    magics = raw["magic"]
    timestamps = raw["store_timestamp"].astype(np.int64)
    body_sizes = raw["body_size"].astype(np.int64)
    body_at = at + _BODY_AT
    sys_flags = raw["sys_flag"]
    if (sys_flags & _ANY_V6).any():
        born_extra = np.where(sys_flags & BORN_HOST_V6_FLAG, _V6_EXTRA, 0)
        body_at = body_at + born_extra + np.where(sys_flags & STORE_HOST_V6_FLAG, _V6_EXTRA, 0)
        # A wrong size must not lead outside the view; it is found below.
        times_at = np.minimum(at + _STORE_TIMESTAMP_AT + born_extra, size - 8)
        timestamps = _strided(view, ">i8")[times_at].astype(np.int64)
        body_sizes = _strided(view, ">i4")[np.minimum(body_at - 4, size - 4)].astype(np.int64)
    body_end = body_at + body_sizes
    is_v2 = magics == MAGIC_V2
    topic_at = body_end + 1 + is_v2
    narrow = _strided(view, "i1")[np.clip(body_end, 0, size - 1)].astype(np.int64)
    wide = _strided(view, ">i2")[np.clip(body_end, 0, size - 2)].astype(np.int64)
    topic_sizes = np.where(is_v2, wide, narrow)
    lengths_at = topic_at + topic_sizes
    properties_sizes = _strided(view, ">i2")[np.clip(lengths_at, 0, size - 2)].astype(np.int64)
    good = (magics == MAGIC_V1) | is_v2
    if phy_offset is not None:
        good &= raw["phy_offset"] == phy_offset + at
    good &= (body_sizes >= 0) & (topic_sizes >= 0) & (properties_sizes >= 0)
    good &= lengths_at + 2 + properties_sizes == end
    parts = RecordParts(
        at=at,
        body_at=body_at,
        body_end=body_end,
        topic_at=topic_at,
        topic_sizes=topic_sizes,
        end=end.astype(np.int64),
        crcs=raw["body_crc"].astype(np.int64),
        timestamps=timestamps,
    )
    return parts if good.all() else parts.cut(int(good.argmin()))


def _first_zero_in_topic(view: memoryview, parts: RecordParts) -> int:
    """How many records come before the first that has a zero byte in its topic."""
    first = len(parts.at)
    for size in np.flatnonzero(np.bincount(parts.topic_sizes)).tolist():
        if size:
            rows = np.flatnonzero(parts.topic_sizes == size)
            names = _strided(view, f"V{size}")[parts.topic_at[rows]]
            whole = names.view(np.uint8).reshape(len(rows), size).all(axis=1)
            if not whole.all():
                first = min(first, int(rows[whole.argmin()]))
    return first


def _first_wrong_body(view: memoryview, parts: RecordParts) -> int:
    """How many records come before the first whose body has another CRC. Hot loop: 0.25 us a record
    besides the CRC."""
    sizes = parts.body_end - parts.body_at
    crc32, number = crc32_for(int(sizes.mean()) if len(sizes) else 0), 0
    for at, end, expected in zip(
        parts.body_at.tolist(), parts.body_end.tolist(), parts.crcs.tolist(), strict=True
    ):
        if crc32(view[at:end]) & BODY_CRC_MASK != expected and end > at:
            break
        number += 1
    return number


def announced_size(view: Buffer, position: int, left: int) -> int:
    """How many bytes must be there to judge what is at `position`; -1 when its sizes cannot be
    right, so that a flipped bit in a size does not have a whole file loaded."""
    if len(view) - position < SIZE_AND_MAGIC.size:
        return 0
    size, magic = SIZE_AND_MAGIC.unpack_from(view, position)
    if magic not in _MAGICS or not record_head(0).size <= size <= left:
        return SIZE_AND_MAGIC.size
    sys_flag = int.from_bytes(view[position + SYS_FLAG_AT : position + SYS_FLAG_AT + 4], "big")
    head = record_head(sys_flag)
    if size < head.size:
        return int(head.size)
    body_size = int.from_bytes(
        view[position + head.size - 4 : position + head.size], "big", signed=True
    )
    behind = size - head.size - body_size
    return int(size) if body_size >= 0 and 0 <= behind <= _MOST_BEHIND_BODY else -1
