"""RecordValidator: how far received bytes are whole, good records.

Pure; used by the slave's link with haAckLevel=validated and flushed, before anything is published.
Bytes come in pieces that end anywhere: what is the beginning of a record is judged as far as it is
there and waits for the rest. It knows no socket and publishes nothing. The checks are those of
recovery (store/message_codec.check_record), which needs 4 us a record; many records together are
looked at in whole columns first (1.1 us a record of 270 bytes that comes in 64 KiB pieces, with its
CRC), and only what was not found good there is judged one by one.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from store.message_codec import (
    BODY_CRC_MASK,
    BORN_HOST_V6_FLAG,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHY_OFFSET_AT,
    PROPERTIES_LENGTH,
    SIZE_AND_MAGIC,
    STORE_HOST_V6_FLAG,
    RecordKind,
    check_record,
    fixed_size,
)
from store.record_arrays import MIN_RECORD_SIZE, RECORD_HEAD, Int64Array, walk_sizes

_INT64: Final = Struct(">q")
_HEAD_SEEN: Final = PHY_OFFSET_AT + _INT64.size
_LEAST_RECORD: Final = fixed_size(0) + 1
_ANY_V6: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
_MANY: Final = 24
"""From so many records on, columns are faster."""


class RecordValidator:
    """Owned by: the link's thread. `position`: the end of the last good record (or blank)."""

    def __init__(self, file_size: int, position: int) -> None:
        """position: where a record begins; up to there all is good."""
        self._file_size = file_size
        self.position = position
        self._look_again_at = 0

    def check(self, file: memoryview, received: int) -> str | None:
        """Move `position` on over the whole records before `received`.

        file: the whole file that holds `position`; received: in the same file, or its end.
        Returns why what lies at `position` is no record, None while nothing is wrong.
        """
        if received < self._look_again_at:
            return None
        size = self._file_size
        file_start = self.position - self.position % size
        at, end = self.position - file_start, received - file_start
        reason = None
        good = _find_good_runs(file[at:end], at, file_start)
        while at < end:
            if at in good:
                at = good[at]
                continue
            needed, reason = _needed(file, at, end, size, file_start + at)
            if reason is not None or at + needed > end:
                self._look_again_at = file_start + at + needed
                break
            found = check_record(file, at, size, file_start + at, check_crc=True)
            if found.kind not in (RecordKind.MESSAGE, RecordKind.BLANK):
                reason = found.reason
                break
            at += found.size
        self.position = file_start + at
        return reason


def _needed(
    file: memoryview, at: int, end: int, file_size: int, phy_offset: int
) -> tuple[int, str | None]:
    """How many bytes from `at` on the next judgement needs, or why there is no record."""
    left = file_size - at
    if left < SIZE_AND_MAGIC.size:
        return 0, f"only {left} bytes are left in the file"
    if end - at < SIZE_AND_MAGIC.size:
        return SIZE_AND_MAGIC.size, None
    total, magic = SIZE_AND_MAGIC.unpack_from(file, at)
    if magic == MAGIC_BLANK:
        return (left, None) if total == left else (0, f"a blank of {total} bytes, {left} are left")
    if magic not in (MAGIC_V1, MAGIC_V2):
        return 0, "zero bytes" if magic == total == 0 else f"magic {magic:#x} is not a record's"
    if not _LEAST_RECORD <= total <= left:
        return 0, f"totalSize {total} is impossible, {left} bytes left"
    if end - at < _HEAD_SEEN:
        return _HEAD_SEEN, None
    (stored,) = _INT64.unpack_from(file, at + PHY_OFFSET_AT)
    if stored != phy_offset:
        return 0, f"physicalOffset field says {stored}, the place is {phy_offset}"
    return total, None


# -- many records at once ----------------------------------------------------------------------


def _find_good_runs(view: memoryview, position: int, file_start: int) -> dict[int, int]:
    """Start and end (positions in the file) of runs of records that are surely good.

    view: the file's bytes from `position` on, where a record begins. Only V1 with IPv4 hosts is
    known here. What is found is the truth as far as every record before it is one.
    """
    if len(view) < _MANY * MIN_RECORD_SIZE:
        return {}
    at, _ = walk_sizes(view)
    if len(at) < _MANY:
        return {}
    raw = _from_every_byte(view, f"V{RECORD_HEAD.itemsize}")[at].view(RECORD_HEAD)
    ends = at + raw["total_size"]
    is_good = raw["magic"] == MAGIC_V1
    is_good &= raw["phy_offset"] == at + (file_start + position)
    is_good &= raw["sys_flag"] & _ANY_V6 == 0
    rows = np.flatnonzero(is_good)
    rows = rows[_parts_add_up(view, at[rows], ends[rows], raw["body_size"][rows])]
    rows = rows[_bodies_are_whole(view, at[rows], raw["body_size"][rows], raw["body_crc"][rows])]
    if not len(rows):
        return {}
    breaks = np.flatnonzero(np.diff(rows) != 1)
    firsts = at[rows[np.concatenate(([0], breaks + 1))]] + position
    lasts = ends[rows[np.concatenate((breaks, [len(rows) - 1]))]] + position
    return dict(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _from_every_byte(view: memoryview, dtype: str) -> NDArray[Any]:
    """`view` as an array of `dtype` that begins at every byte: its indices are positions."""
    kind = np.dtype(dtype)
    return np.ndarray((len(view) - kind.itemsize + 1,), kind, view, 0, (1,))


def _parts_add_up(
    view: memoryview, at: Int64Array, ends: Int64Array, body_sizes: NDArray[Any]
) -> NDArray[np.bool_]:
    """Whether body, topic and properties fill each record, and its topic has no zero byte."""
    topic_at = at + (RECORD_HEAD.itemsize + 1) + body_sizes
    least = 1 + PROPERTIES_LENGTH.size
    found: NDArray[np.bool_] = (body_sizes >= 0) & (topic_at - 1 + least <= ends)
    topic_at = np.where(found, topic_at, ends - least + 1)
    sizes = _from_every_byte(view, "i1")[topic_at - 1].astype(np.int64)
    lengths_at = topic_at + sizes
    found &= (sizes >= 0) & (lengths_at + PROPERTIES_LENGTH.size <= ends)
    lengths_at = np.where(found, lengths_at, ends - PROPERTIES_LENGTH.size)
    lengths = _from_every_byte(view, ">i2")[lengths_at].astype(np.int64)
    found &= (lengths >= 0) & (lengths_at + PROPERTIES_LENGTH.size + lengths == ends)
    for size in np.flatnonzero(np.bincount(sizes[found])).tolist():
        rows = np.flatnonzero(found & (sizes == size))
        if size:
            names = _from_every_byte(view, f"V{size}")[topic_at[rows]].view(np.uint8)
            found[rows] = names.reshape(len(rows), size).all(axis=1)
    return found


def _bodies_are_whole(
    view: memoryview, at: Int64Array, sizes: NDArray[Any], expected: NDArray[Any]
) -> NDArray[np.bool_]:
    """Whether the CRC of each body is the stored one; a body without a byte has none."""
    starts = at + RECORD_HEAD.itemsize
    bodies = map(view.__getitem__, map(slice, starts.tolist(), (starts + sizes).tolist()))
    crcs = np.fromiter(map(zlib.crc32, bodies), np.int64, len(at))
    found: NDArray[np.bool_] = (crcs & BODY_CRC_MASK == expected) | (sizes == 0)
    return found
