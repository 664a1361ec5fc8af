"""The units of a compaction log's sparse queue, as bytes and as numpy arrays; no file, any thread.

    +0   i8  position in the compaction log (not in the commit log)
    +8   i4  size of the record
    +12  i8  tags code
    +20  i8  store timestamp, ms
    +28  i8  queue offset: grows from unit to unit, with holes
    +36  i2  records: 1 always
    +38  i4  -1
    +42  i4  0

The unit behind the last one of a file that is full has position -1 and no size. Corresponds to
RocketMQ's SparseConsumeQueue, whose units are those of BatchConsumeQueue.
"""

from __future__ import annotations

import os
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store.batch_units import BATCH_UNIT
from store.message_store_config import BATCH_UNIT_SIZE

SPARSE_UNIT_DTYPE: Final = np.dtype(
    [
        ("position", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
        ("queue_offset", ">i8"),
        ("records", ">i2"),
        ("compacted", ">i4"),
        ("reserved", ">i4"),
    ]
)
assert SPARSE_UNIT_DTYPE.itemsize == BATCH_UNIT_SIZE
SparseUnits = NDArray[np.void]

END_UNIT: Final = BATCH_UNIT.pack(-1, 0, 0, 0, 0, 0, -1, 0)
NO_UNIT: Final = 1 << 63
"""Queue offset of what is no unit: behind all that are."""


def encode_unit(
    position: int, size: int, tags_code: int, store_timestamp_ms: int, queue_offset: int
) -> bytes:
    """Its 46 bytes."""
    return BATCH_UNIT.pack(position, size, tags_code, store_timestamp_ms, queue_offset, 1, -1, 0)


def queue_offset_of(data: bytes) -> int:
    """Queue offset of the unit in `data`; NO_UNIT if that is none."""
    if len(data) < BATCH_UNIT_SIZE:
        return NO_UNIT
    position, size, _, _, queue_offset, records, _, _ = BATCH_UNIT.unpack(data)
    is_unit = position >= 0 and size > 0 and queue_offset >= 0 and records > 0
    return queue_offset if is_unit else NO_UNIT


def find_unit(fd: int, file_size: int, queue_offset: int) -> int:
    """Number of the first unit of a file whose queue offset is `queue_offset` or more; the number
    of its units if there is none. Raises OSError."""
    low, high = 0, file_size // BATCH_UNIT_SIZE
    while low < high:
        middle = (low + high) // 2
        found = queue_offset_of(os.pread(fd, BATCH_UNIT_SIZE, middle * BATCH_UNIT_SIZE))
        if found < queue_offset:
            low = middle + 1
        else:
            high = middle
    return low


def read_units(fd: int, file_size: int) -> SparseUnits:
    """All units of a file. Raises OSError."""
    count = find_unit(fd, file_size, NO_UNIT)
    data = os.pread(fd, count * BATCH_UNIT_SIZE, 0)
    return np.frombuffer(data, SPARSE_UNIT_DTYPE, len(data) // BATCH_UNIT_SIZE)
