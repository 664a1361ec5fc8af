"""Each line of a dump's file goes to its broker group.

Runs in the executors (msgspec and the standard library). What a file is, is told by its content,
never by its name: its lines may be of any group, any hour and any order. How its bytes become
lines, and which files are left out, is the business of spark/dumps/dump_text.py. Which lines matter
is said in docs/sla_report.md ("Samples"). Must not know where files lie or what lines are for.
"""

from __future__ import annotations

import datetime
import heapq
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from spark.dumps.dump_line import BadLineError, FileLines, Line, decode_line, shown_text
from spark.dumps.dump_text import (
    DEFAULT_BOUNDS,
    GZIP,
    Bounds,
    LeftOutError,
    LineReader,
    bad_lines_counted,
)
from spark.reported_day import Day, midnight_ms
from spark.vocabulary import LEFT_OUT

Group = tuple[str, str]
"""(cluster, broker)"""
_DATE: Final = re.compile(r"/dt=(\d{4}-\d\d-\d\d)(?=/)")
_WITH_GZIP_HEADER: Final = 31
"""For zlib's `wbits`."""
_QUICK: Final = 1
_MOST_WAITING: Final = 8_000_000
_ENDS_KEPT: Final = 4
"""Of a life's first lines, and of its last, from which a good one is taken later."""
_Ends = list[tuple[int, bytes]]
"""A heap: (rank, line), the least wanted first."""


class Packed(NamedTuple):
    """The lines of one file that are one group's, as they travel to who reports on the group.

    `content` is gzip; where `is_file`, the file's own bytes: all of its lines are that group's.
    """

    file: str
    date: datetime.date
    content: bytes
    is_file: bool = False

    def unpacked(self, chain: Chain | None = None) -> FileLines:
        """The lines; `chain` gets all that the file has, on the way."""
        reader = LineReader(self.content, None)
        lines = reader if chain is None else _told_to(chain, reader)
        return FileLines(self.file, self.date, list(_ends_cut(lines, reader)))


class Chain(Protocol):
    """Takes down each line of a file; spark/evidence/file_chain.py, FileChain."""

    def add(self, line: bytes) -> None: ...

    def end(self, reader: LineReader) -> None: ...


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
    boot: Any = None
    broker_id: Any = None


_DECODER: Final = msgspec.json.Decoder(_Head)


def read_lines(content: bytes, bounds: Bounds | None = None) -> tuple[list[bytes], str]:
    """The lines of a file, gzip of any number of members or plain, without their ends; and why it
    breaks off, "" when it does not. A file that breaks off has no last line that is torn. Raises
    LeftOutError, where there are `bounds`."""
    reader = LineReader(content, bounds)
    return list(_ends_cut(reader, reader)), reader.damage


def all_lines(
    content: bytes, midnight: int, bounds: Bounds
) -> Iterator[tuple[bytes, Line | BadLineError]]:
    """Every line of a file of the date that begins at `midnight` (epoch ms), and what it is; where
    the file breaks off, one more bad one that says so. Raises LeftOutError on the way: what came so
    far does not count then."""
    reader = LineReader(content, bounds)
    bad = 0
    for text in _ends_cut(reader, reader):
        found: Line | BadLineError
        try:
            found = decode_line(text, midnight)
        except BadLineError as error:
            found = error
            bad += 1
            bad_lines_counted(bad)
        yield text, found
    if reader.damage:
        yield b"", broken_off(reader.damage)


def broken_off(damage: str) -> BadLineError:
    """What is said of a file that breaks off."""
    return BadLineError(f"the file breaks off: {damage}")


def date_of(path: str) -> datetime.date:
    """The date of the directory `dt=` that a file is in; its lines are of that day. IndexError,
    ValueError: it is in none."""
    return datetime.date.fromisoformat(_DATE.findall(path)[-1])


def _told_to(chain: Chain, reader: LineReader) -> Iterator[bytes]:
    for line in reader:
        chain.add(line)
        yield line
    chain.end(reader)


def _ends_cut(lines: Iterable[bytes], reader: LineReader) -> Iterator[bytes]:
    """The lines that `reader` gives, and what is behind the last line break."""
    for line in lines:
        yield line.removesuffix(b"\r")
    if reader.rest and not reader.damage:
        yield reader.rest.removesuffix(b"\r")


def split_by_group(
    file: str, date: datetime.date, content: bytes, day: Day, bounds: Bounds = DEFAULT_BOUNDS
) -> tuple[dict[Group, Packed], list[BadLine]]:
    """A file of the directory of `date`: what it holds for each group, and its bad lines.

    Lines of the date reported on all count, good or bad. Of those of the days beside it only what
    `day` needs is kept, and of what is long before it where each life began and ended; nothing is
    said of bad ones: they are in their own day's report. Of a
    file that is left out nothing is kept, whatever its date: what it says might matter.
    """
    try:
        return _split(file, date, content, day, bounds)
    except LeftOutError as error:
        return {}, [BadLine(file, f"{LEFT_OUT}: {error}", "")]


def _split(
    file: str, date: datetime.date, content: bytes, day: Day, bounds: Bounds
) -> tuple[dict[Group, Packed], list[BadLine]]:
    reader = LineReader(content, bounds)
    is_reported = date == day.date
    decode, needs = _DECODER.decode, day.needs
    found = _Packer()
    bad = _BadLines(file, date)
    is_whole = content.startswith(GZIP)
    ends = _LifeEnds()
    for line in _ends_cut(reader, reader):
        try:
            head = decode(line)
        except (msgspec.DecodeError, ValueError, RecursionError):
            bad.add(line)
            is_whole = False
            continue
        if is_reported or (
            isinstance(head.ts, int) and isinstance(head.seq, int) and needs(head.ts, head.seq)
        ):
            found.add((head.cluster, head.broker), line)
        else:
            is_whole = False
            ends.add(head, line, day)
    for group, line in ends.lines():
        found.add(group, line)
    groups = found.packed()
    is_file = is_whole and len(groups) == 1 and not reader.damage
    if is_file:
        groups = dict.fromkeys(groups, content)
    packed = {group: Packed(file, date, some, is_file) for group, some in groups.items()}
    return packed, bad.rows(reader.damage) if is_reported else []


class _LifeEnds:
    """Of lines long before the window: the first ones of each life, and its last."""

    def __init__(self) -> None:
        self._found: dict[tuple[Group, int, str], tuple[_Ends, _Ends]] = {}

    def add(self, head: _Head, line: bytes, day: Day) -> None:
        """A line that `day` does not need."""
        ts, seq, boot, broker_id = head.ts, head.seq, head.boot, head.broker_id
        if not (isinstance(ts, int) and isinstance(seq, int) and day.is_long_before(ts)):
            return
        if not (isinstance(boot, str) and isinstance(broker_id, int)):
            return
        key = (head.cluster, head.broker), broker_id, boot
        firsts, lasts = self._found.setdefault(key, ([], []))
        for rank, some in ((-seq, firsts), (seq, lasts)):
            if len(some) < _ENDS_KEPT:
                heapq.heappush(some, (rank, line))
            elif (rank, line) > some[0]:
                heapq.heapreplace(some, (rank, line))

    def lines(self) -> Iterator[tuple[Group, bytes]]:
        """All of them, by group."""
        for (group, _, _), (firsts, lasts) in self._found.items():
            yield from ((group, line) for line in {line: None for _, line in firsts + lasts})


class _Packer:
    """Lines by group, compressed as they come: at no time more than a few MB are not."""

    def __init__(self) -> None:
        self._waiting: dict[Group, list[bytes]] = {}
        self._waiting_bytes = 0
        self._members: dict[Group, bytearray] = {}

    def add(self, group: Group, line: bytes) -> None:
        self._waiting.setdefault(group, []).append(line)
        self._waiting_bytes += len(line)
        if self._waiting_bytes > _MOST_WAITING:
            self._pack()

    def packed(self) -> dict[Group, bytes]:
        """Gzip, of one member or several."""
        self._pack()
        return {group: bytes(members) for group, members in self._members.items()}

    def _pack(self) -> None:
        for group, lines in self._waiting.items():
            packer = zlib.compressobj(_QUICK, wbits=_WITH_GZIP_HEADER)
            lines.append(b"")  # the next member begins with a line
            members = self._members.setdefault(group, bytearray())
            members += packer.compress(b"\n".join(lines)) + packer.flush()
        self._waiting, self._waiting_bytes = {}, 0


class _BadLines:
    """Rows of one file's bad lines. Raises LeftOutError when there are too many."""

    def __init__(self, file: str, date: datetime.date) -> None:
        self._file = file
        self._midnight_ms = midnight_ms(date)
        self._rows: list[BadLine] = []

    def add(self, line: bytes) -> None:
        try:
            decode_line(line, self._midnight_ms)
        except BadLineError as error:
            self._rows.append(BadLine(self._file, str(error), shown_text(line)))
            bad_lines_counted(len(self._rows))

    def rows(self, damage: str) -> list[BadLine]:
        """With that of the file itself, where it breaks off."""
        if not damage:
            return self._rows
        return [BadLine(self._file, str(broken_off(damage)), ""), *self._rows]
