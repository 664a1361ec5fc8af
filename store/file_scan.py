"""FileScan: reads one closed file of the commit log: which records are damaged, and its digests.

Used by the scrub thread of process `store`. Records are judged as recovery judges them
(message_codec.check_record with the body's CRC; zeros are damage in a closed file), on the bytes
that DiskReader returns. Where damage ends is looked for in the mapped file. It changes nothing.

Tested by tests/store/test_scrub_service.py.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from store.believed_time import WITNESSES, BelievedTime
from store.body_crcs import BodyCrcs
from store.disk_reader import READ_STEP, DiskReader
from store.log_digests import CHUNK_SIZE, new_digest
from store.log_fences import LogFences
from store.message_codec import (
    BLANK_SIZE,
    RecordCheck,
    RecordKind,
    check_record,
)
from store.record_search import find_in_view
from store.record_walk import announced_size

_LONGEST_HEAD: Final = 112


@dataclass(frozen=True, slots=True)
class Damage:
    """[start, end) of the log. reason: for people."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile:
    """`digests`: of each chunk, None where it overlaps damage, known or new. `data_end`: position
    in the file; None when the blank record was not found."""

    digests: tuple[str | None, ...]
    damages: tuple[Damage, ...]
    data_end: int | None


class FileScan:
    """One walk. Used once."""

    def __init__(
        self,
        reader: DiskReader,
        file_start: int,
        mapped: memoryview,
        fences: LogFences,
        *,
        chunk_size: int = CHUNK_SIZE,
        now_ms: int,
    ) -> None:
        """mapped: the same file, as readers see it. fences: they are stepped over. now_ms: the wall
        clock."""
        self._reader = reader
        self._size = reader.size
        self._start = file_start
        self._mapped = mapped
        self._fences = fences
        self._chunk_size = chunk_size
        self._hash = new_digest()
        self._hashed = 0
        """Position up to which the bytes are in a digest."""
        self._digests: list[str | None] = []
        self._damages: list[Damage] = []
        self._marked: set[int] = set()
        """Chunks with damage."""
        self._believed = BelievedTime(now_ms)
        self._disk_crcs = BodyCrcs()
        """Of what the disk returns; the search's are of what is mapped."""
        self._search_crcs = BodyCrcs()

    def run(self) -> ScannedFile:
        """Raises OSError, and what the reader's on_read raises."""
        at = 0
        data_end = None
        while at < self._size:
            fence = self._fences.find(self._start + at)
            if fence is not None:
                at = self._step_over(at, fence.end - self._start)
                continue
            if (walked := self._walk(at)) > at:
                at = walked
                continue
            found = self._check(at)
            if found.kind is RecordKind.MESSAGE:
                at += found.size
            elif found.kind is RecordKind.BLANK:
                data_end = at = at + BLANK_SIZE
                break
            else:
                at = self._step_over(at, self._note(at, found))
        self._hash_until(at)
        self._finish()
        return ScannedFile(
            digests=tuple(self._digests),
            damages=tuple(self._damages),
            data_end=data_end,
        )

    # -- records -------------------------------------------------------------------------------

    def _walk(self, at: int) -> int:
        """Position of the first thing that is no good record, or is not loaded whole. Hot loop."""
        if at >= self._reader.loaded_end:
            return at
        view, base = self._reader.window(at, 0)
        end = min(self._reader.loaded_end, self._fences.next_start(self._start + at) - self._start)
        limit, start = self._size - base, self._start + base
        crc_of = self._disk_crcs.crc
        last: deque[int] = deque(maxlen=WITNESSES)
        position, end = at - base, end - base
        while position + BLANK_SIZE <= end:
            if not 0 < int.from_bytes(view[position : position + 4], "big") <= end - position:
                break
            found = check_record(view, position, limit, start + position, check_crc=crc_of)
            if found.kind is not RecordKind.MESSAGE:
                break
            last.append(position)
            position += found.size
        self._believed.note(view, last)
        return base + position

    def _check(self, at: int) -> RecordCheck:
        reader, size = self._reader, self._size
        if at + _LONGEST_HEAD > reader.loaded_end < size:
            self._hash_until(at)
        view, base = reader.window(at, _LONGEST_HEAD)
        needed = announced_size(view, at - base, size - at)
        if needed < 0:
            return RecordCheck(RecordKind.INVALID, 0, "totalSize is not the sum of its parts")
        if at + needed > reader.loaded_end:
            self._hash_until(at)
            view, base = reader.window(at, needed)
        found = check_record(
            view,
            at - base,
            size - base,
            self._start + at,
            check_crc=self._disk_crcs.crc,
        )
        if found.kind is RecordKind.MESSAGE:
            self._believed.note(view, (at - base,))
        return found

    def _note(self, at: int, found: RecordCheck) -> int:
        """There is damage at `at`; returns where it ends."""
        end = find_in_view(
            self._mapped,
            at + 1,
            self._size,
            self._size,
            self._start,
            not_before=self._believed.ms,
            crcs=self._search_crcs,
        )
        end = self._size if end < 0 else end
        end = min(end, self._fences.next_start(self._start + at) - self._start)
        self._damages.append(Damage(self._start + at, self._start + end, found.reason))
        return end

    def _step_over(self, at: int, end: int) -> int:
        end = min(end, self._size)
        first, last = at // self._chunk_size, (end - 1) // self._chunk_size
        self._marked.update(range(first, last + 1))
        return end

    # -- digests -------------------------------------------------------------------------------

    def _hash_until(self, end: int) -> None:
        while self._hashed < end:
            chunk_end = (self._hashed // self._chunk_size + 1) * self._chunk_size
            upto = min(end, chunk_end, self._hashed + READ_STEP)
            view, base = self._reader.window(self._hashed, upto - self._hashed)
            self._hash.update(view[self._hashed - base : upto - base])
            self._hashed = upto
            if upto == chunk_end:
                self._finish_chunk()

    def _finish_chunk(self) -> None:
        is_whole = len(self._digests) not in self._marked
        self._digests.append(self._hash.hexdigest() if is_whole else None)
        self._hash = new_digest()

    def _finish(self) -> None:
        """The last chunk, and those behind the blank record, which are empty."""
        while len(self._digests) * self._chunk_size < self._size:
            self._finish_chunk()
