"""ReplicationLag: the age of the oldest record that a replica has not acknowledged.

Runs in process `ha` on the thread that answers HA status, with a CommitLogReader of its own. An
acknowledgement may lie anywhere in a record, as frames are cut by size: the record around it is
looked for backwards, by its magic code and by the place that it names itself. It must not know
who acknowledged.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ipc.clock import Clock
from store.commit_log_reader import CommitLogReader
from store.errors import StoreError
from store.message_codec import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SIZE_AND_MAGIC,
    RecordKind,
    check_record,
    read_store_timestamp,
)

log = logging.getLogger(__name__)

SEARCH_LIMIT: Final = 8 << 20
"""Bytes that are looked through on either side of an offset within a record."""
_CHUNK: Final = 64 << 10
_MOST_SAID: Final = 64
"""Troubles with files that are remembered, so that each is said once."""
_MAGIC_SIZE: Final = 4
_MAGIC_AT: Final = SIZE_AND_MAGIC.size - _MAGIC_SIZE
_MAGICS: Final = re.compile(
    b"|".join(re.escape(m.to_bytes(_MAGIC_SIZE, "big")) for m in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))
)


@dataclass(frozen=True, slots=True)
class LagAge:
    """`ms`: age of the oldest record that is not acknowledged. `exact` False: at least that, or,
    where the acknowledgement itself is a lower bound, about that."""

    ms: int
    exact: bool


class ReplicationLag:
    """Ages of acknowledgements. Owned by: the thread that asks."""

    def __init__(self, source: CommitLogReader, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._said: set[str] = set()

    def age(self, ack_offset: int, newest_timestamp_ms: int) -> LagAge:
        """How old the oldest record is that does not lie wholly below `ack_offset`; 0 when none is.

        Not exact when that record is deleted, or when none is found within SEARCH_LIMIT; then
        `newest_timestamp_ms`, the wall clock ms at which the newest record was stored, decides.
        """
        end, low = self._source.max_phy_offset, self._source.min_phy_offset
        if ack_offset >= end:
            return LagAge(0, exact=True)
        stored_ms, exact = self._search(max(ack_offset, low), end)
        if stored_ms is None:
            stored_ms = newest_timestamp_ms or self._clock.now_ms()
        age_ms = max(self._clock.now_ms() - stored_ms, 0)
        return LagAge(age_ms, exact and ack_offset >= low)

    def _search(self, offset: int, end: int) -> tuple[int | None, bool]:
        """storeTimestamp of the record around `offset`, which is exact, or else of the next one
        that can be recognised; None when the file is gone or nothing is found."""
        file_size = self._source.file_size
        while offset < end:
            try:
                view = self._source.view_of_file(offset)
            except (StoreError, OSError) as error:  # deleted just now, or no descriptors left
                self._complain(offset, str(error))
                view = None
            if view is None:
                return None, False
            position = offset % file_size
            start = offset - position
            around = _record_around(view, position, start)
            if around is None:
                return _next_timestamp(view, position, start), False
            kind, at = around
            if kind is RecordKind.MESSAGE:
                return read_store_timestamp(view, at), True
            offset = start + file_size  # in the blank that ends the file
        return self._clock.now_ms(), True  # that blank was all

    def _complain(self, offset: int, text: str) -> None:
        """Once: the lag is asked for several times a second."""
        if text in self._said:
            return
        if len(self._said) >= _MOST_SAID:
            self._said.clear()
        self._said.add(text)
        log.warning("the exact lag of a replica at %s is unknown: %s", offset, text)


def _record_around(view: memoryview, position: int, start: int) -> tuple[RecordKind, int] | None:
    """The message or blank whose bytes include `position`, and where it begins; the file is
    `start` in the log."""
    for at in _places_before(view, position):
        found = check_record(view, at, len(view), start + at, check_crc=False)
        if at + found.size > position:
            return found.kind, at
    return None


def _next_timestamp(view: memoryview, position: int, start: int) -> int | None:
    """storeTimestamp of the first message that begins behind `position`."""
    for at in _places_behind(view, position):
        found = check_record(view, at, len(view), start + at, check_crc=False)
        if found.kind is RecordKind.MESSAGE:
            return read_store_timestamp(view, at)
    return None


def _places_before(view: memoryview, position: int) -> Iterator[int]:
    """Where a record may begin by its magic code, at `position` or before, the nearest first."""
    lowest = max(position - SEARCH_LIMIT, 0) + _MAGIC_AT
    end = min(position + _MAGIC_AT + _MAGIC_SIZE, len(view))
    while end - lowest >= _MAGIC_SIZE:
        begin = max(end - _CHUNK, lowest)
        hits = [hit.start() for hit in _MAGICS.finditer(bytes(view[begin:end]))]
        for hit in reversed(hits):
            yield begin + hit - _MAGIC_AT
        end = begin + _MAGIC_SIZE - 1


def _places_behind(view: memoryview, position: int) -> Iterator[int]:
    """Where a record may begin by its magic code, behind `position`, the nearest first."""
    begin = position + _MAGIC_AT + 1
    highest = min(position + SEARCH_LIMIT, len(view))
    while highest - begin >= _MAGIC_SIZE:
        end = min(begin + _CHUNK, highest)
        for hit in _MAGICS.finditer(bytes(view[begin:end])):
            yield begin + hit.start() - _MAGIC_AT
        begin = end - _MAGIC_SIZE + 1
