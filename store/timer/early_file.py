"""The file of early deliveries: which timers are delivered of slots that are not over.

Its bytes, for who writes it (broker/timer/early_deliveries.py, process `remoting`) and for
TimerMessageStore, which reads it after an orderly stop. No state. Not of RocketMQ.

    +0     i8  size of the file
    +8     i8  precision ms
    +16    i8  end of the log when something was noted last
    +24    64  boot id, ASCII, zeros behind; "stopped" after an orderly stop
    +88    8 times: i8 slot time / precision (0: free), i8 how many of the slot
    +4096  8 times: 32,768 i8 phy offsets, in the same order

Numbers are little-endian. Eight slots: two are open, the others wait for their turn after a kill,
or for the clock that was set back.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final

CAPACITY: Final = 32_768
"""Most messages of a slot that are delivered before it is over."""
PLACES: Final = 8
HEAD: Final = Struct("<qqq64s")
PLACE: Final = Struct("<qq")
LOG_END: Final = Struct("<q")
LOG_END_AT: Final = 16
PHY_OFFSET: Final = Struct("<q")
HEAD_SIZE: Final = 4096
SIZE: Final = HEAD_SIZE + PLACES * CAPACITY * PHY_OFFSET.size
assert HEAD.size + PLACES * PLACE.size <= HEAD_SIZE
STOPPED: Final = b"stopped".ljust(64, b"\0")


def place_at(place: int) -> int:
    """Where a slot's time and count are."""
    return HEAD.size + place * PLACE.size


def list_at(place: int) -> int:
    """Where a slot's phy offsets begin."""
    return HEAD_SIZE + place * CAPACITY * PHY_OFFSET.size


def read_stopped(path: Path, precision_ms: int, log_end: int) -> dict[int, frozenset[int]]:
    """By slot time (ms) the phy offsets of what is delivered of it; nothing unless `remoting` has
    stopped in order, with a log that ended at or before `log_end`. Raises OSError."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return {}
    if len(raw) != SIZE:
        return {}
    size, precision, end, boot = HEAD.unpack_from(raw)
    if (size, precision, boot) != (SIZE, precision_ms, STOPPED) or end > log_end:
        return {}
    found = {}
    for place in range(PLACES):
        number, count = PLACE.unpack_from(raw, place_at(place))
        if number and 0 < count <= CAPACITY:
            at = list_at(place)
            offsets = PHY_OFFSET.iter_unpack(raw[at : at + count * PHY_OFFSET.size])
            found[number * precision_ms] = frozenset(offset for (offset,) in offsets)
    return found
