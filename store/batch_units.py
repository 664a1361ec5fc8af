"""The unit of a batch consume queue (queue.type=BatchCQ, 5.x): its byte layout, known only here.

Pure values, any thread. One unit of 46 bytes for each record of the queue, in queue order; a record
is an inner batch (inner_batch.py) or a single message.

    +0   i8  phy_offset of the record
    +8   i4  its size
    +12  i8  tagsCode: hash of TAGS
    +20  i8  store timestamp (ms)
    +28  i8  base: queue offset of its first message
    +36  i2  how many messages it holds
    +38  i4  compacted offset: -1
    +42  i4  reserved: 0

Files as of a consume queue, below <storePathRootDir>/batchconsumequeue/<topic>/<queueId>, of
mapperFileSizeBatchConsumeQueue bytes. Behind the last unit lie zeros. Corresponds to RocketMQ's
BatchConsumeQueue.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from store.message_store_config import BATCH_UNIT_SIZE

BATCH_UNIT: Final = Struct(">qiqqqhii")
assert BATCH_UNIT.size == BATCH_UNIT_SIZE
_BATCH_UNIT_DTYPE: Final = np.dtype(
    [
        ("phy_offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
        ("base", ">i8"),
        ("count", ">i2"),
        ("compacted", ">i4"),
        ("reserved", ">i4"),
    ]
)
assert _BATCH_UNIT_DTYPE.itemsize == BATCH_UNIT_SIZE
_NO_COMPACTED_OFFSET: Final = -1


class BatchUnit(NamedTuple):
    """One unit."""

    phy_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base: int
    messages: int

    @property
    def record_end(self) -> int:
        """Log position of the end of its record."""
        return self.phy_offset + self.size

    @property
    def following(self) -> int:
        """Queue offset behind its last message."""
        return self.base + self.messages

    def pack(self) -> bytes:
        """Its 46 bytes."""
        return BATCH_UNIT.pack(*self, _NO_COMPACTED_OFFSET, 0)


def parse_unit(data: bytes, at: int = 0) -> BatchUnit | None:
    """The unit at `at`; None when none is there, by RocketMQ's rule."""
    if len(data) - at < BATCH_UNIT_SIZE:
        return None
    unit = BatchUnit(*BATCH_UNIT.unpack_from(data, at)[:6])
    return unit if unit.phy_offset >= 0 < unit.size and unit.base >= 0 < unit.messages else None


def count_valid(data: bytes) -> int:
    """How many units stand at the start of `data` before the first that is none, or that is not
    behind the one before it, in the log and in the queue."""
    whole = len(data) // BATCH_UNIT_SIZE
    units: NDArray[np.void] = np.frombuffer(data, _BATCH_UNIT_DTYPE, whole)
    if not whole:
        return 0
    phy = units["phy_offset"].astype(np.int64)
    base = units["base"].astype(np.int64)
    wrong = (phy < 0) | (units["size"] <= 0) | (base < 0) | (units["count"] <= 0)
    wrong[1:] |= (phy[1:] <= phy[:-1]) | (base[1:] <= base[:-1])
    first = int(wrong.argmax())
    return first if wrong[first] else whole
