"""Slot: one slot of the timer wheel, its bytes and its meaning. Pure; any thread. Corresponds to
RocketMQ's org.apache.rocketmq.store.timer.Slot.

    +0   i8  slot time / precision
    +8   i8  firstPos: position of the slot's first unit in the timer log
    +16  i8  lastPos: of its newest unit, from which the chain of prevPos leads to the others
    +24  i4  num: messages of the slot, units that delete one counted as -1
    +28  i4  magic, unused
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

import numpy as np

SLOT: Final = Struct(">qqqii")
SLOT_SIZE: Final = 32
assert SLOT.size == SLOT_SIZE
SLOT_DTYPE: Final = np.dtype(
    [("time", ">i8"), ("first_pos", ">i8"), ("last_pos", ">i8"), ("num", ">i4"), ("magic", ">i4")]
)
assert SLOT_DTYPE.itemsize == SLOT_SIZE


class Slot(NamedTuple):
    """A slot that holds something. `time_ms` is a multiple of the precision."""

    time_ms: int
    first_pos: int
    last_pos: int
    num: int = 0
    magic: int = 0
