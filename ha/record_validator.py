"""RecordValidator: how far received bytes are whole, good records.

Pure; used by the slave's link with haAckLevel=validated and flushed, before anything is published.
Bytes come in pieces that end anywhere: what is the beginning of a record is judged as far as it is
there and waits for the rest. It knows no socket and publishes nothing. The checks are those of
recovery (store/message_codec.check_record).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from store.message_codec import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHY_OFFSET_AT,
    SIZE_AND_MAGIC,
    RecordKind,
    check_record,
    fixed_size,
)

_INT64: Final = Struct(">q")
_HEAD_SEEN: Final = PHY_OFFSET_AT + _INT64.size
_LEAST_RECORD: Final = fixed_size(0) + 1


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
        while at < end:
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
