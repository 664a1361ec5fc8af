"""MovedRecords: a record as it is at another place of a log.

Pure but for what it remembers, one thread. All bytes stay but the physical offset; the offset of
the half message that a committed message names, which has moved, too; and, where it was right
before, the checksum of all of that (5.x, enabledAppendPropCRC). Everything else that a record says
of places counts in queues.
"""

from __future__ import annotations

import struct
import zlib
from collections import OrderedDict
from typing import Final

from store.message_codec import (
    BODY_CRC_MASK,
    PHY_OFFSET_AT,
    decode_record,
    record_head,
)

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
_REMEMBERED: Final = 100_000
"""Half messages whose commit may follow; some 15 MB."""
_INT64: Final = struct.Struct(">q")
_CRC_NAME: Final = b"__CRC32#\x01"
_CRC_DIGITS: Final = 10
_CRC_SIZE: Final = len(_CRC_NAME) + _CRC_DIGITS + 1
assert _CRC_SIZE == 20


class MovedRecords:
    """See the module. `unknown_halves`: committed messages whose half message is not known any
    more; they name 0."""

    def __init__(self) -> None:
        self.unknown_halves = 0
        self._halves: Final[OrderedDict[int, int]] = OrderedDict()

    def move(self, record: bytes, old_offset: int, new_offset: int) -> bytes:
        """The record from `old_offset` as it is at `new_offset`. Raises RecordDamagedError."""
        message = decode_record(record, 0)[0]
        moved = bytearray(record)
        has_crc = has_right_crc(record)
        _INT64.pack_into(moved, PHY_OFFSET_AT, new_offset)
        if message.prepared_transaction_offset:
            half = self._find_half(message.prepared_transaction_offset)
            _INT64.pack_into(moved, prepared_offset_at(message.sys_flag), half)
        if message.topic == HALF_TOPIC:
            self._remember(old_offset, new_offset)
        if has_crc:
            moved[-_CRC_DIGITS - 1 : -1] = _crc_digits(moved)
        return bytes(moved)

    def _find_half(self, old_offset: int) -> int:
        found = self._halves.get(old_offset)
        if found is None:
            self.unknown_halves += 1
            return 0
        return found

    def _remember(self, old_offset: int, new_offset: int) -> None:
        self._halves[old_offset] = new_offset
        if len(self._halves) > _REMEMBERED:
            self._halves.popitem(last=False)


def prepared_offset_at(sys_flag: int) -> int:
    """Where in a record preparedTransactionOffset is: the last field before the body's size."""
    return record_head(sys_flag).size - 12


def has_right_crc(record: bytes | bytearray) -> bool:
    """Whether the record ends with 5.x's checksum of itself, and it is right."""
    end = record[-_CRC_SIZE:]
    return end.startswith(_CRC_NAME) and end[-_CRC_DIGITS - 1 : -1] == _crc_digits(record)


def _crc_digits(record: bytes | bytearray) -> bytes:
    """Decimal, the last digit first."""
    crc = zlib.crc32(record[:-_CRC_SIZE]) & BODY_CRC_MASK
    return f"{crc:0{_CRC_DIGITS}d}"[::-1].encode("ascii")
