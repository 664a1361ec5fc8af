"""What Spark's tasks do for a report: files to groups, then groups to rows.

Runs in the executors (msgspec and the standard library). Between the two is the shuffle, by
broker group; what travels is small: compressed lines, stored rows, names. Rows of the result leave
pickled by group and table, so that whoever wants one table does not open the others.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from spark.dumps.dump_files import BadLine, Group, Packed, date_of, split_by_group
from spark.dumps.dump_line import FileLines
from spark.dumps.dump_text import DEFAULT_BOUNDS, Bounds
from spark.evidence.dump_chain import record_of
from spark.evidence.file_chain import (
    FileChain,
    Life,
    Stretch,
    left_out_problem,
    stretches_of_file,
)
from spark.figures.group_report import group_rows
from spark.figures.report_context import Context
from spark.figures.stored_minutes import packed_minutes
from spark.reported_day import Day
from spark.vocabulary import LEFT_OUT

Key = tuple[str, ...]
"""A broker group, or the file of lines that no group has."""
Item = tuple[Key, tuple[str, Any]]
"""What is known of a key: a kind (below, or the name of a stored table), and one thing of it."""
_LINES: Final = "lines"
_EXPECTED: Final = "expected"
_BAD_LINES: Final = "bad_lines"
_STRETCH: Final = "stretch"
LIVES: Final = "life_records"
"""Of a group: its lives of the date, for the evidence; beside the tables of a result."""
FILE_PROBLEMS: Final = "file_problems"
"""Of a file of the date: what the evidence says is wrong with it."""
_ROWS: Final = ("replica_days", "group_days", "hours")
_MINUTES: Final = "minutes"
STORED: Final = (*_ROWS, _MINUTES)
"""Tables of which a group needs its stored rows."""


class Rows(NamedTuple):
    """Rows of one table (or of LIVES or FILE_PROBLEMS) that were made for one key, pickled."""

    table: str
    key: Key
    length: int
    content: bytes

    def unpacked(self) -> list[Any]:
        """The rows: tuples in the order of the table's columns."""
        found: list[Any] = pickle.loads(self.content)
        return found


def items_of_file(
    path: str, content: bytes, day: Day, bounds: Bounds = DEFAULT_BOUNDS
) -> Iterator[Item]:
    """What a file below `dt=` holds for each group, and its bad lines; of one of the date also what
    the evidence says of it, unless the file itself goes to its group: then that is said there, and
    no digests of lines travel. `path` as Hadoop writes it."""
    date = date_of(path)
    file = path.removeprefix("file:")
    packed, bad = split_by_group(file, date, content, day, bounds)
    for group, lines in packed.items():
        yield group, (_LINES, lines)
    if bad:
        yield (file,), (_BAD_LINES, bad)
    if date != day.date or any(lines.is_file for lines in packed.values()):
        return
    stretches, problems = stretches_of_file(_below_dt(file), content, bounds)
    for life, stretch in stretches.items():
        yield (life.cluster, life.broker), (_STRETCH, (life, stretch))
    if problems:
        yield (file,), (FILE_PROBLEMS, problems)


def items_of_large_file(path: str, size: int, day: Day, bounds: Bounds) -> Iterator[Item]:
    """Of a file that is not even read: it has more bytes as it lies there than `bounds` allow."""
    file, why = path.removeprefix("file:"), bounds.stored_problem(size)
    yield (file,), (_BAD_LINES, [BadLine(file, f"{LEFT_OUT}: {why}", "")])
    if date_of(path) == day.date:
        yield (file,), (FILE_PROBLEMS, [left_out_problem(_below_dt(file), why)])


def _below_dt(path: str) -> str:
    """A file is named by what its path has in every place that it may be copied to."""
    return path[path.rfind("/dt=") + 1 :]


def item_of_expected(group: Group) -> Item:
    """A group that is reported also when nothing else names it."""
    return group, (_EXPECTED, None)


def items_of_rows(table: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[Item]:
    """Stored rows; minutes of a replica as one thing."""
    if table == _MINUTES:
        yield from ((group, (_MINUTES, some)) for group, some in packed_minutes(rows))
        return
    for row in rows:
        yield (row["cluster"], row["broker"]), (table, row)


def part_of(key: Key) -> int:
    """Where a key goes in the shuffle, the same in every process."""
    return zlib.crc32("\0".join(key).encode("utf-8", "surrogatepass"))


def rows_of_part(items: Iterable[Item], context: Context) -> Iterator[Rows]:
    """Every row of the groups that came to one part of the shuffle. Lines stay compressed until it
    is their group's turn."""
    found: dict[Key, dict[str, list[Any]]] = {}
    for key, (kind, thing) in items:
        found.setdefault(key, {}).setdefault(kind, []).append(thing)
    for key in sorted(found):
        things = found.pop(key)
        for bad in things.get(_BAD_LINES, ()):
            yield _packed(_BAD_LINES, key, list(map(tuple, bad)))
        for problems in things.get(FILE_PROBLEMS, ()):
            yield _packed(FILE_PROBLEMS, key, problems)
        if len(key) == 2:
            yield from _of_group((key[0], key[1]), things, context)


def _packed(table: str, key: Key, rows: list[Any]) -> Rows:
    return Rows(table, key, len(rows), pickle.dumps(rows))


def _of_group(group: Group, things: Mapping[str, list[Any]], context: Context) -> Iterator[Rows]:
    """A group's tables and its lives of the date."""
    files = _GroupFiles(things, context.day)
    stored = {table: things.get(table, ()) for table in _ROWS}
    for table, rows in group_rows(group, files, stored, things.get(_MINUTES, ()), context):
        yield _packed(table, group, rows)
    for file, problems in files.problems:
        yield _packed(FILE_PROBLEMS, (file,), problems)
    if files.lives:
        records = [record_of(life, some) for life, some in files.lives.items()]
        yield _packed(LIVES, group, records)


class _GroupFiles:
    """The lines of a group's files, one file after the other: each is unpacked once. When all were
    read, `lives` are the group's of the date, and `problems` what is wrong with the files that came
    whole."""

    def __init__(self, things: Mapping[str, list[Any]], day: Day) -> None:
        self._packed: list[Packed] = sorted(things.get(_LINES, ()))
        self._date = day.date
        self.problems: list[tuple[str, list[str]]] = []
        self.lives: dict[Life, list[Stretch]] = {}
        for life, stretch in things.get(_STRETCH, ()):
            self.lives.setdefault(life, []).append(stretch)

    def __iter__(self) -> Iterator[FileLines]:
        for each in self._packed:
            if each.is_file and each.date == self._date:
                yield self._with_evidence(each)
            else:
                yield each.unpacked()

    def _with_evidence(self, packed: Packed) -> FileLines:
        chain = FileChain(_below_dt(packed.file))
        lines = packed.unpacked(chain)
        stretches, problems = chain.found()
        for life, stretch in stretches.items():
            self.lives.setdefault(life, []).append(stretch)
        if problems:
            self.problems.append((packed.file, problems))
        return lines


class BadLines(NamedTuple):
    """Bad lines of one reason: how many of which files, and an example (file, text)."""

    lines: int
    files: frozenset[str]
    example: tuple[str, str]

    def and_also(self, other: BadLines) -> BadLines:
        """Both."""
        example = min(self.example, other.example)
        return BadLines(self.lines + other.lines, self.files | other.files, example)


def bad_lines_by_reason(rows: Rows) -> dict[str, BadLines]:
    """Reason -> the bad lines of one key."""
    found: dict[str, BadLines] = {}
    for file, reason, text in rows.unpacked():
        one = BadLines(1, frozenset((file,)), (file, text))
        found[reason] = found[reason].and_also(one) if reason in found else one
    return found
