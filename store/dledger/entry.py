"""The entry of a DLedger store: its byte layout and that of its index, known only here.

Pure functions over buffers, any thread; they know no file. All integers big-endian, signed.

    offset  size  field                       index unit: 4  magic 1
    0       4     magic: 1 entry, -1 blank                8  pos
    4       4     size = 48 + n                           4  size
    8       8     index                                   8  index
    16      8     term                                    8  term
    24      8     pos, the entry's own place
    32      12    channel, chainCrc, bodyCrc: 0
    44      4     n
    48      n     the commit log record, whose physicalOffset is pos + 48

A blank fills a file to its end: magic -1, int32 bytes left. Index unit i is at byte 32 i of the
index. Corresponds to openmessaging's DLedgerEntryCoder and MmapFileList.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

ENTRY_MAGIC: Final = 1
BLANK_MAGIC: Final = -1
_HEAD: Final = Struct(">iiqqqiiii")
ENTRY_HEAD_SIZE: Final = 48
assert _HEAD.size == ENTRY_HEAD_SIZE
_BLANK: Final = Struct(">ii")
BLANK_SIZE: Final = 8
"""Least bytes of a blank, and of what can be read where an entry should begin."""
assert _BLANK.size == BLANK_SIZE
_UNIT: Final = Struct(">iqiqq")
UNIT_SIZE: Final = 32
"""Bytes of an index unit."""
assert _UNIT.size == UNIT_SIZE
POS_AT: Final = 24
"""Where in an entry its own place is."""
assert struct.calcsize(">iiqq") == POS_AT


@dataclass(frozen=True, slots=True)
class EntryHead:
    """What an entry says of itself. `size`: with its head."""

    index: int
    term: int
    pos: int
    size: int


class HeadProblem(NamedTuple):
    """Why there is no entry here; `is_empty`: nothing was ever written."""

    reason: str
    is_empty: bool = False


class Blank(NamedTuple):
    """Nothing more up to the file's end."""


def read_head(view: memoryview, position: int, pos: int) -> EntryHead | Blank | HeadProblem:
    """What begins at `position` of a data file's bytes, which is `pos` in the log."""
    left = len(view) - position
    if left < BLANK_SIZE:
        return HeadProblem(f"only {left} bytes left")
    magic, size = _BLANK.unpack_from(view, position)
    if magic == BLANK_MAGIC and size == left:
        return Blank()
    if magic == 0 and size == 0:
        return HeadProblem("zeros", is_empty=True)
    if magic != ENTRY_MAGIC:
        return HeadProblem(f"magic {magic} is neither an entry's nor a blank's of {left} bytes")
    if not ENTRY_HEAD_SIZE < size <= left:
        return HeadProblem(f"an entry of {size} bytes where {left} are left")
    _, _, index, term, said, _, _, _, body_size = _HEAD.unpack_from(view, position)
    if said != pos:
        return HeadProblem(f"pos field says {said}")
    if body_size + ENTRY_HEAD_SIZE != size:
        return HeadProblem(f"size field says {size}, the body's {body_size}")
    return EntryHead(index, term, pos, size)


def find_unit(raw: bytes) -> EntryHead | None:
    """What an index unit says; None: no unit, or not one."""
    if len(raw) != UNIT_SIZE:
        return None
    magic, pos, size, index, term = _UNIT.unpack(raw)
    return EntryHead(index, term, pos, size) if magic == ENTRY_MAGIC else None
