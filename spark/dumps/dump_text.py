"""The lines of a dump's file, gzip or plain, read piece by piece within bounds.

Runs in the executors and in `mqreport verify` (the standard library). A few KB of gzip can unpack
to a thousand times as much, so nothing here holds more than a piece and a line, and a file beyond
`Bounds` is not read to its end. Must not know what a line means or where files lie.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

MB: Final = 1_000_000
DEFAULT_MOST_MB: Final = 512
MOST_BAD_LINES: Final = 100_000
"""A file with more of them is no dump."""
SETTING: Final = "--max-dump-file-mb"
_STORED_PART: Final = 4
_MOST_RATIO: Final = 300
"""Lines of a broker unpack to 10 to 100 times their size, what is made to be large to 1,000."""
_ALWAYS_MB: Final = 32
"""So much may be unpacked whatever the ratio: a few lines, often repeated, are a test's."""
GZIP: Final = b"\x1f\x8b"
_WITH_GZIP_HEADER: Final = 31
"""For zlib's `wbits`."""
_FIRST_CHUNK: Final = 1 << 9
_CHUNK: Final = 1 << 16
_PIECE: Final = 1 << 20
_LONGEST_LINE: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a file may have: `most_mb` when unpacked, a quarter of it as it lies there; in MB of
    1,000,000 bytes."""

    most_mb: int = DEFAULT_MOST_MB

    @property
    def stored_bytes(self) -> int:
        """As it lies there: a file is read whole before it is unpacked."""
        return self.most_mb * MB // _STORED_PART

    def check_text(self, size: int, stored: int) -> None:
        """Raises LeftOutError when a gzip file of `stored` bytes unpacks to so many."""
        if size > self.most_mb * MB:
            raise LeftOutError(
                f"unpacks to more than {self.most_mb:,} MB; {SETTING} {2 * self.most_mb} reads"
                " twice as much"
            )
        if size > max(_ALWAYS_MB * MB, _MOST_RATIO * stored):
            raise LeftOutError(
                f"unpacks to more than {_MOST_RATIO} times its size, as no dump does; remove it, or"
                " unpack it where it lies"
            )

    def check_stored(self, size: int) -> None:
        """Raises LeftOutError for a file of so many bytes that would not be read."""
        if size > self.stored_bytes:
            raise LeftOutError(self.stored_problem(size))

    def stored_problem(self, size: int) -> str:
        """Why such a file is left out."""
        return (
            f"has {-(-size // MB):,} MB, and at most {self.stored_bytes // MB:,} are read;"
            f" {SETTING} {-(-size * _STORED_PART // MB)} reads it"
        )


DEFAULT_BOUNDS: Final = Bounds()


class LeftOutError(Exception):
    """A file whose lines do not count at all: why, and the way out, without its name."""


class LineReader:
    """The lines of one file, to be iterated over once, each without its `\\n`. Raises LeftOutError
    on the way; what was read so far does not count then. `bounds`: None for what is known to be
    within some.

    When it is done, `damage` says why the file breaks off ("" when it does not), and `rest` is what
    is behind the last line break. A line ends with `\\n` alone.
    """

    def __init__(self, content: bytes, bounds: Bounds | None) -> None:
        self._content = content
        self._bounds = bounds
        self.is_gzip = content.startswith(GZIP)
        self.damage = ""
        self.rest = b""

    def __iter__(self) -> Iterator[bytes]:
        if self._bounds is not None:
            self._bounds.check_stored(len(self._content))
        begun = bytearray()
        for piece in self._pieces():
            first, *lines = piece.split(b"\n")
            begun += first
            if lines:
                yield bytes(begun)
                begun = bytearray(lines.pop())
                yield from lines
            if len(begun) > _LONGEST_LINE:
                raise LeftOutError(
                    f"has a line of more than {_LONGEST_LINE // MB} MB, which no broker writes;"
                    " remove it"
                )
        self.rest = bytes(begun)

    def _pieces(self) -> Iterator[bytes]:
        content = self._content
        if not self.is_gzip:
            yield from (content[at : at + _PIECE] for at in range(0, len(content), _PIECE))
            return
        size = 0
        for piece in self._unpacked():
            size += len(piece)
            if self._bounds is not None:
                self._bounds.check_text(size, len(content))
            yield piece

    def _unpacked(self) -> Iterator[bytes]:
        """All that can be read; zeros behind the last member are padding."""
        content, at = self._content, 0
        while at < len(content):
            member, chunk_size = zlib.decompressobj(_WITH_GZIP_HEADER), _FIRST_CHUNK
            while not member.eof:
                # A new member takes a copy of what is left of its chunk: many are tiny.
                data = content[at : at + chunk_size]
                if not data:
                    self.damage = "unexpected end of the gzip stream"
                    return
                at += len(data)
                chunk_size = min(2 * chunk_size, _CHUNK)
                yield from self._of_chunk(member, data)
                if self.damage:
                    return
            at -= len(member.unused_data)
            at = _behind_zeros(content, at)

    def _of_chunk(self, member: Any, data: bytes) -> Iterator[bytes]:
        """In pieces; up to the damage, where there is one. zlib keeps back what it had unpacked of
        the data in which it finds an error, so these go byte by byte."""
        while True:
            before = member.copy()
            try:
                piece = member.decompress(data, _PIECE)
            except zlib.error as error:
                self.damage = str(error).rpartition(": ")[2]
                yield from _byte_by_byte(before, data)
                return
            yield piece
            data = member.unconsumed_tail
            if member.eof or (not data and len(piece) < _PIECE):
                return


def _behind_zeros(content: bytes, at: int) -> int:
    while some := content[at : at + _CHUNK]:
        rest = some.lstrip(b"\0")
        at += len(some) - len(rest)
        if rest:
            break
    return at


def _byte_by_byte(member: Any, data: bytes) -> Iterator[bytes]:
    try:
        for number in range(len(data)):
            yield member.decompress(data[number : number + 1])
    except zlib.error:
        return


def bad_lines_counted(count: int) -> None:
    """Raises LeftOutError when a file has had so many bad lines that it is no dump."""
    if count > MOST_BAD_LINES:
        raise LeftOutError(
            f"has more than {MOST_BAD_LINES:,} lines that are not of a dump; remove it"
        )
