"""LogFileScan: the records of one commit-log file in their order, and the damage between them.

Used by the Python workers of Spark's executors, one thread. Good records come in runs, as numpy
arrays of where their parts are (store.record_walk); whatever the walk does not take is judged by
store.message_codec.check_record. Damage never ends a scan: a record whose sizes are right is
stepped over, behind anything else the next whole record is looked for (log_search). Its work is
linear in the file's size, whatever the bytes are.

Tested by tests/spark/sources/test_log_scan.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark.sources.log_search import find_next
from spark.sources.log_window import WINDOW, FileWindow
from store.believed_time import WITNESSES, BelievedTime
from store.body_crcs import BodyCrcs
from store.errors import RecordDamagedError
from store.lost_range import LOST_MARK
from store.message import Message
from store.message_codec import (
    BLANK_SIZE,
    HOSTS_V6_FLAGS,
    MAGIC_BLANK,
    RECORD_PLACE,
    SIZE_AND_MAGIC,
    RecordCheck,
    RecordKind,
    check_record,
    decode_record,
    has_magic,
    record_head,
)
from store.record_walk import FIRST_STEP, RecordParts, announced_size, good_parts

LONGEST_HEAD: Final = record_head(HOSTS_V6_FLAGS).size
LOST_REASON: Final = "no broker of the group had it: one that started put this in its place"
LONGEST_RECORD: Final = 64 << 20
"""Bytes; a longer one is not read, whatever it says."""


class Damage(NamedTuple):
    """[start, end) of the log holds no message. kind: of the table in docs/spark_sources.md.
    message: what the damaged record says of itself, not to be relied upon."""

    kind: str
    start: int
    end: int
    reason: str
    message: Message | None = None


class Run(NamedTuple):
    """Good records of the view, whose first byte is `start` of the log. Lent until the scan goes
    on."""

    view: memoryview
    start: int
    parts: RecordParts


@dataclass(frozen=True, slots=True)
class NotedPart:
    """[start, end) of the log is passed over, as its broker does. kind: of the table of damage;
    None: it is none."""

    kind: str | None
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log. Picklable; its path is the same on every executor.

    size: bytes that it should have. is_newest: nothing behind it was begun, so its records may end
    anywhere. is_written: and a broker may be writing it. noted: parts within it, by their place.
    """

    path: str
    start: int
    size: int
    is_newest: bool = False
    is_written: bool = False
    noted: tuple[NotedPart, ...] = ()


class _Part(NamedTuple):
    """What is scanned: the file, as far as it is there, or what lies before a noted part. end: its
    position in the file."""

    end: int
    is_last: bool
    is_newest: bool
    is_written: bool


class LogFileScan:
    """One scan. Used once."""

    def __init__(
        self,
        file: LogFile,
        window: FileWindow,
        *,
        now_ms: int,
        longest_record: int = LONGEST_RECORD,
    ) -> None:
        """now_ms: the wall clock."""
        self._file = file
        self._window = window
        self._part = _Part(
            min(window.size, file.size),
            is_last=True,
            is_newest=file.is_newest,
            is_written=file.is_written,
        )
        self._longest_record = longest_record
        self._believed = BelievedTime(now_ms)
        self._step = FIRST_STEP
        self._crcs = BodyCrcs()

    def run(self) -> Iterator[Run | Damage]:
        """Records and damage, in their order. Raises SourceError: the file cannot be read, for
        another reason than rot."""
        at, last = 0, self._part
        for noted in self._file.noted:
            end = min(noted.start - self._file.start, last.end)
            ends = noted.kind is None  # The log does, for its readers: within a record perhaps.
            self._part = _Part(end, is_last=ends, is_newest=ends, is_written=ends)
            yield from self._scan(at)
            start = max(noted.start, self._file.start + at)
            if noted.kind is not None and start < noted.end:
                yield Damage(noted.kind, start, noted.end, noted.reason)
            at = max(at, noted.end - self._file.start)
        self._part = last
        yield from self._scan(at)

    def _scan(self, at: int) -> Iterator[Run | Damage]:
        """From `at` on, as far as there is something."""
        while self._part.end - at >= BLANK_SIZE:
            run = self._walk(at)
            if run is None:
                found = self._judge(at)
                if found.kind is RecordKind.BLANK:
                    yield from self._blank(at)
                    return
                if found.kind is not RecordKind.MESSAGE:
                    damage, at = self._damaged(at, found)
                    self._step = FIRST_STEP
                    if damage is not None:
                        yield damage
                    continue
                run = self._run(at, found.size)
                assert run is not None, "the walk and check_record judge alike"
            self._step = min(self._step * 2, WINDOW)
            at = run.start - self._file.start + int(run.parts.end[-1])
            yield run
        yield from self._end(at)

    # -- good records --------------------------------------------------------------------------

    def _walk(self, at: int) -> Run | None:
        """The good records at `at` that are loaded whole; None without one."""
        view, base = self._window.view(at, min(FIRST_STEP, self._part.end - at))
        return self._run(at, min(len(view) - (at - base), self._part.end - at, self._step))

    def _run(self, at: int, size: int) -> Run | None:
        view, base = self._window.view(at, size)
        piece = view[at - base : at - base + size]
        parts = good_parts(piece, self._file.start + at, check_crc=True)
        if not len(parts.at):
            return None
        self._believed.note(piece, parts.at[-WITNESSES:].tolist())
        return Run(piece, self._file.start + at, parts)

    def _judge(self, at: int) -> RecordCheck:
        """What is at `at`; loaded whole when it is a message."""
        view, base = self._window.view(at, LONGEST_HEAD)
        needed = announced_size(view, at - base, self._file.size - at)
        if needed < 0:
            return RecordCheck(RecordKind.INVALID, 0, "totalSize is not the sum of its parts")
        if needed > self._part.end - at:
            return RecordCheck(RecordKind.INVALID, 0, "the file ends within this record")
        if needed > self._longest_record:
            reason = f"a record of {needed} bytes: more than maxRecordBytes"
            return RecordCheck(RecordKind.INVALID, needed, reason)
        view, base = self._window.view(at, max(needed, BLANK_SIZE))
        limit, phy_offset = self._file.size - base, self._file.start + at
        return check_record(view, at - base, limit, phy_offset, check_crc=self._crcs.crc)

    # -- damage --------------------------------------------------------------------------------

    def _damaged(self, at: int, found: RecordCheck) -> tuple[Damage | None, int]:
        """What there is to say of what `found` is not good at `at`, and where to go on."""
        size = found.size or self._size_of_parts(at)
        if size and self._goes_on(at + size):
            if self._part.is_written and self._ends(at + size):
                return None, self._part.end
            return self._damage("record", at, at + size, found.reason), at + size
        following = find_next(
            self._window,
            at + 1,
            self._part.end,
            file_start=self._file.start,
            file_size=self._file.size,
            not_before=self._believed.ms,
            judge=self._judge,
        )
        if following is not None:
            return self._damage("bytes", at, following, found.reason), following
        end = self._end_of_bytes(at) if self._part.is_newest else self._part.end
        if end == at or self._part.is_written:
            return None, self._part.end
        return self._damage("bytes", at, end, found.reason), self._part.end

    def _size_of_parts(self, at: int) -> int:
        """The size of the record at `at`, if only its bytes are wrong; 0 when its sizes are."""
        view, base = self._window.view(at, LONGEST_HEAD)
        needed = announced_size(view, at - base, self._file.size - at)
        if not BLANK_SIZE < needed <= min(self._part.end - at, self._longest_record):
            return 0
        view, base = self._window.view(at, needed)
        limit, phy_offset = self._file.size - base, self._file.start + at
        found = check_record(view, at - base, limit, phy_offset, check_crc=False)
        return found.size if found.kind is RecordKind.MESSAGE else 0

    def _goes_on(self, at: int) -> bool:
        """Whether the head of a record or a blank one is at `at`, or the end of all."""
        if at == self._part.end or (self._part.is_newest and self._ends(at)):
            return True
        if self._part.end - at < BLANK_SIZE:
            return False
        view, base = self._window.view(at, RECORD_PLACE.size)
        size, magic = SIZE_AND_MAGIC.unpack_from(view, at - base)
        if magic == MAGIC_BLANK:
            return bool(size == self._file.size - at)
        if self._part.end - at < RECORD_PLACE.size or not has_magic(
            view[at - base : at - base + 8]
        ):
            return False
        return bool(RECORD_PLACE.unpack_from(view, at - base)[3] == self._file.start + at)

    def _ends(self, at: int) -> bool:
        """Whether nothing was written at `at`."""
        view, base = self._window.view(at, BLANK_SIZE)
        at -= base
        return not any(view[at : at + BLANK_SIZE])

    def _end_of_bytes(self, at: int) -> int:
        """Behind the last byte from `at` on that is not zero, or cannot be read."""
        if self._window.why_unreadable(at, self._part.end):
            return self._part.end
        end = at
        while (at := self._window.next_data(at)) < self._part.end:
            view, base = self._window.view(at, min(WINDOW, self._part.end - at))
            piece = bytes(view[at - base : self._part.end - base])
            end = at + len(used) if (used := piece.rstrip(b"\0")) else end
            at += len(piece)
        return end

    def _blank(self, at: int) -> Iterator[Damage]:
        """The blank record at `at`: nothing is missing, unless a broker put it in the place of a
        range that all had lost."""
        view, base = self._window.view(at, BLANK_SIZE + len(LOST_MARK))
        if bytes(view[at - base + BLANK_SIZE :][: len(LOST_MARK)]) == LOST_MARK:
            yield self._damage("lost", at, self._file.size, LOST_REASON)

    def _end(self, at: int) -> Iterator[Damage]:
        """No blank record ended the file."""
        if not self._part.is_last:
            if at < self._part.end:
                yield self._damage("bytes", at, self._part.end, "too few bytes for a record")
        elif self._part.is_newest:
            if not self._part.is_written and at < (end := self._end_of_bytes(at)):
                yield self._damage("bytes", at, end, "too few bytes for a record")
        elif at < self._file.size:
            reason = f"the file has {self._window.size} bytes of {self._file.size}"
            yield self._damage("truncated", at, self._file.size, reason)

    def _damage(self, kind: str, at: int, end: int, reason: str) -> Damage:
        start = self._file.start
        if why := self._window.why_unreadable(at, end):
            reason = f"{why}; {reason}"
        message = self._message(at) if kind == "record" else None
        return Damage(kind, start + at, start + end, reason, message)

    def _message(self, at: int) -> Message | None:
        view, base = self._window.view(at, LONGEST_HEAD)
        try:
            return decode_record(view, at - base)[0]
        except (RecordDamagedError, struct.error):
            return None
