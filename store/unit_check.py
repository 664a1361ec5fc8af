"""Whether consume queue units name their records: the one rule for everybody who uses units.

The log is the truth: at the unit's phy_offset there must be a record's magic, and the record must
have the unit's size and say that it lies there, in this topic and queue, at this queue offset; a
light queue's record says it in its properties (lmq_places.py). Functions over the log's views, any
thread; both processes that read units use them. Not checked is the tags code: it would take the
record's properties. Java's queues hold units at other offsets than their records say only where it
had lost units before (it shifts them): they count as wrong and are rebuilt.

Tested by tests/store/test_lmq_units.py.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store.commit_log_reader import CommitLogReader
from store.errors import RecordDamagedError
from store.lmq_places import LMQ_PREFIX_BYTES, lmq_places
from store.message_codec import (
    BODY_SIZE_AT,
    HEAD_SIZE,
    HOSTS_V6_FLAGS,
    MAGIC_V1,
    PHY_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_PLACE,
    SYS_FLAG_AT,
    holds_topic,
    read_properties,
)
from store.stored_units import CQ_UNIT, CQ_UNIT_DTYPE, CQ_UNIT_SIZE, PRE_BLANK_SIZE, Units

_FEW: Final = 10
"""Up to this many units one by one is faster."""
_HEAD: Final = np.dtype(f"V{HEAD_SIZE}")
_PLACE: Final = np.dtype(
    {
        "names": ["size", "magic", "queue_id", "queue_offset", "phy_offset", "sys_flag", "body"],
        "formats": [">i4", ">u4", ">i4", ">i8", ">i8", ">i4", ">i4"],
        "offsets": [
            0,
            4,
            QUEUE_ID_AT,
            QUEUE_OFFSET_AT,
            PHY_OFFSET_AT,
            SYS_FLAG_AT,
            BODY_SIZE_AT,
        ],
        "itemsize": HEAD_SIZE,
    }
)
_MAGIC: Final = Struct(">I").pack(MAGIC_V1)
_QUEUE_ID: Final = Struct(">i")
_WITHOUT_V6: Final = bytes(flags for flags in range(256) if not flags & HOSTS_V6_FLAGS)
"""Last bytes of sysFlags that leave both hosts IPv4."""
_NUMBER: Final = np.dtype(">i8")

Int64Array = NDArray[np.int64]
Flags = NDArray[np.bool_]


# -- one unit ----------------------------------------------------------------------------------


def names_record(
    view: memoryview,
    position: int,
    phy_offset: int,
    size: int,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
) -> bool:
    """Whether the record at `position` of its file's view is the one that the unit (phy_offset,
    size) of this queue must name at `queue_offset`."""
    if position + size > len(view):
        return False
    try:
        place = RECORD_PLACE.unpack_from(view, position)
    except struct.error:
        return False
    if place == (size, queue_id, queue_offset, phy_offset) and holds_topic(view, position, topic):
        return True
    return (
        topic.startswith(LMQ_PREFIX_BYTES)
        and place[0] == size
        and place[3] == phy_offset
        and lmq_places(_properties(view, position, size)).get(topic.decode()) == queue_offset
    )


def _properties(view: memoryview, position: int, size: int) -> bytes:
    """Of the record there; none if it is damaged."""
    try:
        return read_properties(view[position : position + size], 0)
    except RecordDamagedError:
        return b""


def is_right(
    log: CommitLogReader, phy_offset: int, size: int, topic: bytes, queue_id: int, queue_offset: int
) -> bool:
    """Whether the unit (phy_offset, size) names its record, or one that is gone, or is blank."""
    if size == PRE_BLANK_SIZE:
        return True
    if size <= 0 or phy_offset < 0:
        return False
    if phy_offset < log.min_phy_offset:
        return True
    if phy_offset + size > log.max_phy_offset:
        return False
    view = log.view_of_file(phy_offset)
    # Without a file it was deleted since, or by hand: the log cannot say more.
    return view is None or names_record(
        view, phy_offset % log.file_size, phy_offset, size, topic, queue_id, queue_offset
    )


# -- many units --------------------------------------------------------------------------------


def as_units(raw: bytes) -> Units:
    """The whole units at the start of `raw`."""
    return np.frombuffer(raw, CQ_UNIT_DTYPE, len(raw) // CQ_UNIT_SIZE)


def count_plausible(units: Units) -> int:
    """How many units come before the first that cannot be one whatever the log says: no size, or
    a record before that of the unit before it."""
    if not len(units):
        return 0
    sizes = units["size"].astype(np.int64)
    phys = _phys_but_blanks(units["phy_offset"].astype(np.int64), sizes)
    wrong = (sizes <= 0) | (phys < 0)
    wrong[1:] |= phys[1:] < phys[:-1]
    first = int(wrong.argmax())
    return first if wrong[first] else len(units)


def _phys_but_blanks(phys: Int64Array, sizes: Int64Array) -> Int64Array:
    """A blank unit has the phy_offset of what comes before it, whatever is written there."""
    blank = sizes == PRE_BLANK_SIZE
    if not blank.any():
        return phys
    return np.where(blank, np.maximum.accumulate(np.where(blank, 0, phys)), phys)


def count_right(
    log: CommitLogReader, raw: bytes, topic: bytes, queue_id: int, queue_offset: int
) -> int:
    """How many of the whole units `raw`, which begin at `queue_offset`, come before the first
    wrong one.

    A unit whose record is deleted counts as wrong behind one whose record is there.
    """
    count = len(raw) // CQ_UNIT_SIZE
    if count <= _FEW:
        return _count_few(log, raw[: count * CQ_UNIT_SIZE], topic, queue_id, queue_offset)
    numbers = np.arange(queue_offset, queue_offset + count)
    right = right_units(log, as_units(raw), topic, queue_id, numbers)
    first = int(right.argmin())
    return count if right[first] else first


def _count_few(
    log: CommitLogReader, raw: bytes, topic: bytes, queue_id: int, queue_offset: int
) -> int:
    low, high, file_size = log.min_phy_offset, log.max_phy_offset, log.file_size
    least, file_start, view = 0, -file_size, memoryview(b"")
    for number, (phy_offset, size, _) in enumerate(CQ_UNIT.iter_unpack(raw)):
        if size == PRE_BLANK_SIZE:
            continue
        if phy_offset < least or size <= 0:
            return number
        least = phy_offset
        if phy_offset < low:
            continue
        if phy_offset + size > high:
            return number
        if not 0 <= phy_offset - file_start < file_size:
            found = log.view_of_file(phy_offset)
            if found is None:
                continue
            view, file_start = found, phy_offset - phy_offset % file_size
        if not names_record(
            view, phy_offset - file_start, phy_offset, size, topic, queue_id, queue_offset + number
        ):
            return number
    return len(raw) // CQ_UNIT_SIZE


def right_units(
    log: CommitLogReader, units: Units, topic: bytes, queue_id: int, queue_offsets: Int64Array
) -> Flags:
    """For each of the units, at growing queue offsets, whether it is right (see count_right)."""
    if not len(units):
        return np.ones(0, np.bool_)
    phys = units["phy_offset"].astype(np.int64)
    first, low, high = int(phys[0]), log.min_phy_offset, log.max_phy_offset
    view = log.view_of_file(first) if low <= first < high else None
    if view is not None:
        start = first - first % log.file_size
        end = min(high, start + len(view))
        # Nearly always all records are in one file, and right.
        if _are_all_right(view, start, end, units, phys, topic, queue_id, queue_offsets):
            return np.ones(len(units), np.bool_)
    right = np.fromiter(
        (
            is_right(log, phy_offset, size, topic, queue_id, queue_offset)
            for phy_offset, size, queue_offset in zip(
                phys.tolist(), units["size"].tolist(), queue_offsets.tolist(), strict=True
            )
        ),
        np.bool_,
        len(units),
    )
    # A deleted record's unit proves nothing by itself, but must not follow a later record's.
    phys = _phys_but_blanks(phys, units["size"].astype(np.int64))
    reached = np.maximum.accumulate(np.where(right, phys, 0))
    right &= phys >= reached
    return right


def _are_all_right(
    view: memoryview,
    start: int,
    end: int,
    units: NDArray[np.void],
    phys: Int64Array,
    topic: bytes,
    queue_id: int,
    queue_offsets: Int64Array,
) -> bool:
    """Whether every unit names its record, and all lie in the file of `view` between `start` and
    `end`. False, too, for the rare forms of records (IPv6 hosts, V2): look at each."""
    count = len(units)
    if int((phys + units["size"]).max()) > end:
        return False
    at = phys - start
    try:
        # A negative place reads from the view's end: another phy_offset.
        heads = np.ndarray((len(view) - HEAD_SIZE + 1,), _HEAD, view, 0, (1,))[at].view(_PLACE)
    except IndexError:
        return False
    if (
        heads["phy_offset"].tobytes() != units["phy_offset"].tobytes()
        or heads["size"].tobytes() != units["size"].tobytes()
        or heads["queue_offset"].tobytes() != queue_offsets.astype(_NUMBER).tobytes()
        or heads["queue_id"].tobytes() != _QUEUE_ID.pack(queue_id) * count
        or heads["magic"].tobytes() != _MAGIC * count
        or heads["sys_flag"].tobytes()[3::4].translate(None, _WITHOUT_V6)
    ):
        return False
    name = bytes((len(topic),)) + topic
    at += heads["body"]
    names = np.ndarray(
        (len(view) - len(name) - HEAD_SIZE + 1,), f"V{len(name)}", view, HEAD_SIZE, (1,)
    )
    try:
        return bool(names[at].tobytes() == name * count)
    except IndexError:
        return False
