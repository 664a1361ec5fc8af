"""Records that take the place of a range of the log which nobody has any more.

Pure functions, any thread; they know no file and no replica. The range [start, end) becomes whole
records that no queue and no index refers to, so that a slave, Java's too, can take over what
follows: records with sysFlag ROLLBACK, which RocketMQ's dispatch passes over
(CommitLogDispatcherBuildConsumeQueue), or, up to the end of a file, its blank. A record's body, and
what follows the 8 bytes of the blank, begins with LOST_MARK.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from store.message import Message
from store.message_codec import (
    BLANK_SIZE,
    TRANSACTION_ROLLBACK,
    encode_blank,
    encode_record,
    fixed_size,
)

LOST_MARK: Final = b"LOST RANGE"
_LARGEST: Final = 1 << 20
"""Bytes of one such record, except that the last may have up to a smallest one more."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """[start, end) of a log whose files have `file_size` bytes. topic: of the records that replace
    it. store_timestamp: ms, of a record beside it: times never go back in a log."""

    start: int
    end: int
    file_size: int
    topic: str
    store_timestamp: int

    def records(self) -> bytes | None:
        """Exactly end - start bytes of whole records; None where a part is too small for one."""
        pieces = []
        for start, end in self._by_file():
            piece = self._file_end(start) if end % self.file_size == 0 else self._fill(start, end)
            if piece is None:
                return None
            pieces.append(piece)
        return b"".join(pieces)

    def _by_file(self) -> Iterator[tuple[int, int]]:
        start = self.start
        while start < self.end:
            end = min(self.end, start - start % self.file_size + self.file_size)
            yield start, end
            start = end

    def _file_end(self, start: int) -> bytes | None:
        left = self.file_size - start % self.file_size
        blank = encode_blank(left) + LOST_MARK
        return blank[:left].ljust(left, b"\0") if left >= BLANK_SIZE else None

    def _fill(self, start: int, end: int) -> bytes | None:
        least_body = len(LOST_MARK)
        smallest = fixed_size(TRANSACTION_ROLLBACK) + least_body + 1 + len(self.topic.encode())
        if end - start < smallest:
            return None
        pieces = []
        while start < end:
            size = end - start if end - start <= _LARGEST + smallest else _LARGEST
            pieces.append(self._record(start, size - smallest + least_body))
            start += size
        return b"".join(pieces)

    def _record(self, phy_offset: int, body_size: int) -> bytes:
        text = f" [{self.start}, {self.end}): it was damaged, and no broker of the group had it"
        return encode_record(
            Message(
                topic=self.topic,
                queue_id=0,
                body=(LOST_MARK + text.encode())[:body_size].ljust(body_size, b"\0"),
                sys_flag=TRANSACTION_ROLLBACK,
                phy_offset=phy_offset,
                born_timestamp=self.store_timestamp,
                store_timestamp=self.store_timestamp,
            )
        )
