"""Finds where the records of a commit-log file go on behind damage.

Used by LogFileScan. What counts is what counts for the broker's own search (store.record_search):
magic, sizes, its own physicalOffset and the CRC are right, and it is not older than what lies
before. That one looks into a mapped file; this one reads windows, whose candidates numpy finds.

Tested by tests/spark/sources/test_log_scan.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark.sources.log_window import FileWindow
from store.message_codec import (
    BLANK_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHY_OFFSET_AT,
    RecordCheck,
    RecordKind,
    read_store_timestamp,
    record_head,
)

_STEP: Final = 1 << 20
_HEAD: Final = record_head(0).size
_MAGIC_AT: Final = 4
_FIRST_BYTES: Final = (MAGIC_V1 >> 24, MAGIC_BLANK >> 24)
assert MAGIC_V1 >> 24 == MAGIC_V2 >> 24


def find_next(
    window: FileWindow,
    at: int,
    end: int,
    *,
    file_start: int,
    file_size: int,
    not_before: int,
    judge: Callable[[int], RecordCheck],
) -> int | None:
    """The first whole record in the file from `at` on, else the first blank record; None without
    one.

    end: bytes that the file has. file_size: that it should have. not_before: ms; a record that was
    stored before does not count. judge: says what is at a place of the file, CRC and all; linear in
    all, though candidates may lie within each other.
    """
    blank = None
    while end - at >= BLANK_SIZE and (at := window.next_data(at)) < end:
        size = min(_STEP + _HEAD, end - at)
        view, base = window.view(at, size)
        piece = view[at - base : at - base + size]
        records, blanks = candidates(piece, file_start + at, file_size - at)
        if blanks and blank is None:
            blank = at + blanks[0]
        for found in records:
            if judge(at + found).kind is RecordKind.MESSAGE:
                view, base = window.view(at + found, _HEAD)
                if read_store_timestamp(view, at + found - base) >= not_before:
                    return at + found
        at += min(_STEP, size)
    return blank


def candidates(piece: memoryview, phy_offset: int, left: int) -> tuple[list[int], list[int]]:
    """Positions in `piece` at which the head of a record, and of a blank one, says that it is just
    there.

    phy_offset: of the log, of the first byte. left: bytes from there to the file's end.
    """
    data = np.frombuffer(piece, np.uint8)
    first_bytes = data[_MAGIC_AT:]
    at = np.flatnonzero(first_bytes == _FIRST_BYTES[0])
    at = at[at + _HEAD <= len(data)]
    magics = _strided(piece, ">u4")[at + _MAGIC_AT]
    at = at[(magics == MAGIC_V1) | (magics == MAGIC_V2)]
    records = at[_strided(piece, ">i8")[at + PHY_OFFSET_AT] == at + phy_offset]
    at = np.flatnonzero(first_bytes == _FIRST_BYTES[1])
    at = at[at + BLANK_SIZE <= len(data)]
    at = at[_strided(piece, ">u4")[at + _MAGIC_AT] == MAGIC_BLANK]
    blanks = at[_strided(piece, ">i4")[at] == left - at]
    return records.tolist(), blanks.tolist()


def _strided(piece: memoryview, dtype: str) -> NDArray[np.generic]:
    """`piece` as an array of `dtype` beginning at every byte."""
    kind = np.dtype(dtype)
    return np.ndarray((max(len(piece) - kind.itemsize + 1, 0),), kind, piece, 0, (1,))
