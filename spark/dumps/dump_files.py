"""The bytes of a dump's file become lines, and each line goes to its broker group.

Runs in the executors (msgspec and the standard library). What a file is, is told by its content,
never by its name: its lines may be of any group, any hour and any order. Which lines matter is
said in docs/sla_report.md ("Samples"). Must not know where files lie or what lines are used for.
"""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from spark.dumps.dump_line import BadLineError, FileLines, decode_line, shown_text
from spark.dumps.line_head import NO_JSON, LineHead, find_head
from spark.reported_day import Day, midnight_ms

Group = tuple[str, str]
"""(cluster, broker)"""
_GZIP: Final = b"\x1f\x8b"
_WITH_GZIP_HEADER: Final = 31
"""For zlib's `wbits`."""
_QUICK: Final = 1
_CHUNK: Final = 1 << 16


class FileContent(NamedTuple):
    """What a file holds, without the line breaks. `damage`: why it breaks off, "" when it does not;
    such a file has no last line that is torn. `has_rest`: nothing ends the last line;
    `has_returns`: there is a carriage return somewhere."""

    lines: list[bytes]
    damage: str
    has_rest: bool
    has_returns: bool

    def read_lines(self) -> list[bytes]:
        """The lines as they are read: without the carriage returns at their ends."""
        if not self.has_returns:
            return self.lines
        return [line.removesuffix(b"\r") for line in self.lines]


class Packed(NamedTuple):
    """The lines of one file that are one group's, as they travel to who reports on the group.

    `content` is gzip; the file's own bytes, where all of its lines are that group's.
    """

    file: str
    date: datetime.date
    content: bytes

    def unpacked(self) -> FileLines:
        """The lines as they are read."""
        return self.lines_of(self.read())

    def read(self) -> FileContent:
        """The lines as they were written."""
        return file_content(self.content)

    def lines_of(self, found: FileContent) -> FileLines:
        """The lines as they are read, of what `read` gave."""
        return FileLines(self.file, self.date, found.read_lines())


class BadLine(NamedTuple):
    """A line that belongs to no group, or a file that breaks off: a row of table `bad_lines`."""

    file: str
    reason: str
    text: str


class Split(NamedTuple):
    """What a file holds for each group, and its bad lines. Of a file of the date reported on also
    its content, and the numbers (from 1) of lines that have no head (spark/dumps/line_head.py)."""

    groups: dict[Group, Packed]
    bad: list[BadLine]
    content: FileContent
    headless: list[int]


class _Place(msgspec.Struct, gc=False):
    """What tells where a line belongs. `ts` and `seq` are judged with the rest of the line."""

    cluster: str
    broker: str
    ts: Any = None
    seq: Any = None


_DECODER: Final = msgspec.json.Decoder(_Place)


def file_content(content: bytes) -> FileContent:
    """The lines of a file, gzip of any number of members or plain.

    A line ends with `\\n` alone, as in spark/evidence/dump_chain.py: what is read is covered."""
    text, damage = _decompressed(content) if is_gzip(content) else (content, "")
    lines = text.split(b"\n")
    has_rest = bool(lines[-1]) and not damage
    if not has_rest:
        lines.pop()
    return FileContent(lines, damage, has_rest, b"\r" in text)


def is_gzip(content: bytes) -> bool:
    """Whether a file is gzip, by its first bytes."""
    return content.startswith(_GZIP)


def read_lines(content: bytes) -> tuple[list[bytes], str]:
    """The lines of a file as they are read; and why it breaks off, "" when it does not."""
    found = file_content(content)
    return found.read_lines(), found.damage


def split_by_group(file: str, date: datetime.date, content: bytes, day: Day) -> Split:
    """A file of the directory of `date`.

    Lines of the date reported on all count, good or bad. Of those of the days beside it only what
    `day` needs is kept, and nothing is said of bad ones: they are in their own day's report.
    """
    found = file_content(content)
    groups: dict[Group, list[bytes]] = {}
    bad: list[bytes] = []
    headless: list[int] = []
    if date == day.date:
        _sort_all(found.lines, groups, bad, headless)
    else:
        _sort_needed(found.lines, groups, day)
    packed = {}
    for group, some in groups.items():
        is_whole = len(some) == len(found.lines) and not found.damage and is_gzip(content)
        packed[group] = Packed(file, date, content if is_whole else _compressed(some))
    told = _bad_lines(file, bad, found.damage, midnight_ms(date)) if date == day.date else ()
    return Split(packed, list(told), found, headless)


def _sort_all(
    lines: list[bytes], groups: dict[Group, list[bytes]], bad: list[bytes], headless: list[int]
) -> None:
    decode = _DECODER.decode
    for number, line in enumerate(lines, 1):
        place: LineHead | _Place | None = find_head(line)
        if place is None:
            headless.append(number)
            try:
                place = decode(line)
            except NO_JSON:
                bad.append(line.removesuffix(b"\r"))
                continue
        groups.setdefault((place.cluster, place.broker), []).append(line)


def _sort_needed(lines: list[bytes], groups: dict[Group, list[bytes]], day: Day) -> None:
    decode, needs = _DECODER.decode, day.needs
    for line in lines:
        try:
            place = decode(line)
        except NO_JSON:
            continue
        ts, seq = place.ts, place.seq
        if isinstance(ts, int) and isinstance(seq, int) and needs(ts, seq):
            groups.setdefault((place.cluster, place.broker), []).append(line)


def _bad_lines(file: str, lines: list[bytes], damage: str, midnight: int) -> Iterator[BadLine]:
    if damage:
        yield BadLine(file, f"the file breaks off: {damage}", "")
    for line in lines:
        try:
            decode_line(line, midnight)
        except BadLineError as error:
            yield BadLine(file, str(error), shown_text(line))


def _compressed(lines: list[bytes]) -> bytes:
    packer = zlib.compressobj(_QUICK, wbits=_WITH_GZIP_HEADER)
    return packer.compress(b"\n".join(lines)) + packer.flush()


def _decompressed(content: bytes) -> tuple[bytes, str]:
    """All that can be read, and why not more; zeros behind the last member are padding."""
    parts = []
    while content:
        member = zlib.decompressobj(_WITH_GZIP_HEADER)
        try:
            parts.append(member.decompress(content))
        except zlib.error as error:
            parts.append(_before_the_error(content))
            return b"".join(parts), str(error).rpartition(": ")[2]
        if not member.eof:
            return b"".join(parts), "unexpected end of the gzip stream"
        content = member.unused_data.lstrip(b"\0")
    return b"".join(parts), ""


def _before_the_error(content: bytes) -> bytes:
    """What a damaged member gives up to its damage: zlib keeps back what it had unpacked of the
    piece in which it found an error, so the last piece goes byte by byte."""
    member = zlib.decompressobj(_WITH_GZIP_HEADER)
    parts = []
    for start in range(0, len(content), _CHUNK):
        chunk, before = content[start : start + _CHUNK], member.copy()
        try:
            parts.append(member.decompress(chunk))
        except zlib.error:
            parts += _byte_by_byte(before, chunk)
            break
    return b"".join(parts)


def _byte_by_byte(member: Any, chunk: bytes) -> Iterator[bytes]:
    try:
        for number in range(len(chunk)):
            yield member.decompress(chunk[number : number + 1])
    except zlib.error:
        return
