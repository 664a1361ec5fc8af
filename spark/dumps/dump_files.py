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
from spark.reported_day import Day, midnight_ms

Group = tuple[str, str]
"""(cluster, broker)"""
_GZIP: Final = b"\x1f\x8b"
_WITH_GZIP_HEADER: Final = 31
"""For zlib's `wbits`."""
_QUICK: Final = 1
_CHUNK: Final = 1 << 16


class Packed(NamedTuple):
    """The lines of one file that are one group's, as they travel to who reports on the group.

    `content` is gzip; the file's own bytes, where all of its lines are that group's.
    """

    file: str
    date: datetime.date
    content: bytes

    def unpacked(self) -> FileLines:
        """The lines."""
        return FileLines(self.file, self.date, read_lines(self.content)[0])


class BadLine(NamedTuple):
    """A line that belongs to no group, or a file that breaks off: a row of table `bad_lines`."""

    file: str
    reason: str
    text: str


class _Head(msgspec.Struct, gc=False):
    """What tells where a line belongs. `ts` and `seq` are judged with the rest of the line."""

    cluster: str
    broker: str
    ts: Any = None
    seq: Any = None


_DECODER: Final = msgspec.json.Decoder(_Head)


def read_lines(content: bytes) -> tuple[list[bytes], str]:
    """The lines of a file, gzip of any number of members or plain, without their ends; and why it
    breaks off, "" when it does not. A file that breaks off has no last line that is torn.

    A line ends with `\\n` alone, as in spark/evidence/dump_chain.py: what is read is covered."""
    text, damage = file_text(content)
    lines = text.split(b"\n")
    if damage or not lines[-1]:
        lines.pop()
    if b"\r" in text:
        lines = [line.removesuffix(b"\r") for line in lines]
    return lines, damage


def file_text(content: bytes) -> tuple[bytes, str]:
    """What a file holds, gzip or plain, as far as it can be read; and why it breaks off, or ""."""
    return _decompressed(content) if content.startswith(_GZIP) else (content, "")


def split_by_group(
    file: str, date: datetime.date, content: bytes, day: Day
) -> tuple[dict[Group, Packed], list[BadLine]]:
    """A file of the directory of `date`: what it holds for each group, and its bad lines.

    Lines of the date reported on all count, good or bad. Of those of the days beside it only what
    `day` needs is kept, and nothing is said of bad ones: they are in their own day's report.
    """
    lines, damage = read_lines(content)
    is_reported = date == day.date
    midnight, decode, needs = midnight_ms(date), _DECODER.decode, day.needs
    found: dict[Group, list[bytes]] = {}
    bad = []
    for line in lines:
        try:
            head = decode(line)
        except (msgspec.DecodeError, ValueError, RecursionError):
            bad.append(line)
            continue
        if is_reported or (
            isinstance(head.ts, int) and isinstance(head.seq, int) and needs(head.ts, head.seq)
        ):
            found.setdefault((head.cluster, head.broker), []).append(line)
    packed = {}
    for group, some in found.items():
        is_whole = len(some) == len(lines) and not damage and content.startswith(_GZIP)
        packed[group] = Packed(file, date, content if is_whole else _compressed(some))
    return packed, list(_bad_lines(file, bad, damage, midnight)) if is_reported else []


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
