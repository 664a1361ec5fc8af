"""BodyCrcs: the CRCs of bodies that may lie within each other, each byte of them read a few times
at most.

Bytes may look like a record's head and be none, which only the CRC of a whole body tells. A client
may have sent a body full of such heads, each within the one before: were each of them read to its
end, what follows damage would be looked for in quadratic time. So what was read once is read a
second time only to note the CRC of all bytes up to each STEP; from these follows the CRC of any
part (CRCs are linear: what zlib calls crc32_combine). Every body is judged, and exactly.

Used by process `store` (record_search.py, recovery.py, file_scan.py) and by Spark's executors
(spark/sources/log_scan.py), one thread each, for one scan of bytes that nobody changes meanwhile.
Its memory is 4 bytes for each STEP of the longest body.

Tested by tests/store/test_body_crcs.py and tests/store/test_record_search.py.
"""

from __future__ import annotations

from array import array
from typing import Final

from store.crc32 import crc32, crc32_for
from store.message_codec import Buffer

STEP: Final = 1 << 10
_POLYNOMIAL: Final = 0xEDB88320
"""Of CRC-32, the lowest bit first."""
_Map = list[int]
"""A linear map of CRCs: what becomes of each bit."""


class BodyCrcs:
    """Of one scan, whose places come in ascending order: others are only slower."""

    __slots__ = ("_marks", "_read_until", "_start")

    def __init__(self) -> None:
        self._read_until = 0
        """Place in the log behind everything that was read."""
        self._start = 0
        self._marks: array[int] = array("I")
        """CRC of the bytes from `_start` to each STEP behind it."""

    def crc(self, view: Buffer, body_at: int, body_end: int, place: int) -> int:
        """The CRC-32 of view[body_at:body_end], whose first byte is `place` of the log."""
        end = place + body_end - body_at
        is_known = place < self._read_until
        self._read_until = max(self._read_until, end)
        if not is_known or body_end - body_at <= 2 * STEP:
            return crc32_for(body_end - body_at)(view[body_at:body_end])
        return self._crc_of_known(view, body_at, place, end)

    def _crc_of_known(self, view: Buffer, body_at: int, place: int, end: int) -> int:
        base = body_at - place
        self._note_marks(view, base, place, end)
        first = max(-(-(place - self._start) // STEP), 0)
        last = (end - self._start) // STEP
        first_at, last_at = (base + self._start + number * STEP for number in (first, last))
        head = crc32_for(STEP)(view[body_at:first_at])
        # Both end at the last mark: what they have in common goes out.
        known = _behind_zeros(head ^ self._marks[first], last - first) ^ self._marks[last]
        return crc32(view[last_at : base + end], known)

    def _note_marks(self, view: Buffer, base: int, place: int, end: int) -> None:
        """As far as `end`. `base`: where in `view` the log's first byte would be."""
        marks = self._marks
        if not marks or not -STEP <= place - self._start <= (len(marks) - 1) * STEP:
            self._start, marks[:] = place, array("I", (0,))
        at = base + self._start + (len(marks) - 1) * STEP
        step_crc = crc32_for(STEP)
        while at + STEP <= base + end:
            marks.append(step_crc(view[at : at + STEP], marks[-1]))
            at += STEP


def _behind_zeros(crc: int, steps: int) -> int:
    """What a CRC adds to that of all bytes when `steps` STEPs of others follow."""
    number = 0
    while steps >> number:
        if steps >> number & 1:
            low, second, third, high = _tables_of(number)
            crc = low[crc & 255] ^ second[crc >> 8 & 255] ^ third[crc >> 16 & 255] ^ high[crc >> 24]
        number += 1
    return crc


_MAPS: Final[list[_Map]] = []
_TABLES: Final[list[list[list[int]]]] = []


def _tables_of(number: int) -> list[list[int]]:
    """What 2 ** number STEPs of zero bytes do, by each byte of a CRC."""
    while len(_TABLES) <= number:
        _MAPS.append(_squared(_MAPS[-1]) if _MAPS else _map_of_step())
        columns = _MAPS[-1]
        _TABLES.append([_table(columns[at : at + 8]) for at in range(0, 32, 8)])
    return _TABLES[number]


def _map_of_step() -> _Map:
    found: _Map = [_POLYNOMIAL, *(1 << bit for bit in range(31))]  # one zero bit
    for _ in range((8 * STEP).bit_length() - 1):
        found = _squared(found)
    return found


def _squared(columns: _Map) -> _Map:
    return [_applied(columns, column) for column in columns]


def _table(columns: _Map) -> list[int]:
    return [_applied(columns, value) for value in range(256)]


def _applied(columns: _Map, crc: int) -> int:
    found = 0
    for bit, column in enumerate(columns):
        if crc >> bit & 1:
            found ^= column
    return found
