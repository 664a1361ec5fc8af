"""The format `rocketmq_dumps`: metrics dumps (docs/metrics_dump.md) as a table of typed lines.

    spark.read.format("rocketmq_dumps").load("/var/rocketmq/metrics")
    spark.read.format("rocketmq_dumps").option("table", "bad_lines").load(...)

Driver: files and partitions; executors: lines. What a line and a bad line is, and which files are
left out, is spark/dumps' matter, as for the nightly report. The report itself reads its files by
Spark's binaryFile: that knows hdfs:// and s3a://, and needs no pyarrow.

Tested by tests/spark/sources/test_rocketmq_dumps.py.
"""

from __future__ import annotations

import datetime
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.dumps.dump_files import all_lines, date_of
from spark.dumps.dump_line import BadLineError, Line, shown_text
from spark.dumps.dump_text import DEFAULT_MOST_MB, Bounds, LeftOutError
from spark.reported_day import midnight_ms
from spark.sources.data_source import ConfiguredSource, Shipped, check_columns
from spark.sources.dump_schema import BAD_LINES_SCHEMA, LINES_SCHEMA, values_of
from spark.sources.errors import OptionError, SourceError
from spark.vocabulary import LEFT_OUT

LINES: Final = "lines"
BAD_LINES: Final = "bad_lines"
_SCHEMAS: Final = {LINES: LINES_SCHEMA, BAD_LINES: BAD_LINES_SCHEMA}
_SUFFIXES: Final = (".jsonl", ".jsonl.gz")
_HIDDEN: Final = (".", "_")
_BYTES_OF_A_PART: Final = 8_000_000
_FILES_OF_A_PART: Final = 1_000
_LINES_OF_A_BATCH: Final = 1_000
Found = tuple[bytes, Line | BadLineError]
"""A line, and what it is."""


@dataclass
class DumpPartition(InputPartition):
    """Some files."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """Checked. Picklable."""

    paths: tuple[str, ...]
    bounds: Bounds
    table: str


class RocketmqDumpsSource(ConfiguredSource):
    """See the module."""

    KNOWN = ("path", "paths", "table", "maxDumpFileMb")

    @classmethod
    def name(cls) -> str:
        """Of the format."""
        return "rocketmq_dumps"

    def schema(self) -> StructType:
        """Of the table that is asked for."""
        return _SCHEMAS[self._options().table]

    def reader(self, schema: StructType) -> DataSourceReader:
        """A schema of the user's own has some of the columns. OptionError."""
        options = self._options()
        check_columns(schema, _SCHEMAS[options.table])
        kind = PushingDumpReader if self.DEFAULTS.pushes_filters else DumpReader
        return kind(options, schema)

    def _options(self) -> DumpOptions:
        options = self.checked_options()
        table = options.text("table", LINES)
        if table not in _SCHEMAS:
            raise OptionError(f"option table: {table!r} is neither {LINES} nor {BAD_LINES}")
        paths = options.names("path", "paths")
        if not paths:
            raise OptionError("no dumps are named: give load(...) a directory that holds dt=...")
        most_mb = options.whole("maxDumpFileMb", DEFAULT_MOST_MB, least=1)
        return DumpOptions(paths, Bounds(most_mb), table)


class DumpReader(Shipped, DataSourceReader):
    """Reads a table. `days`: whether a date is wanted."""

    def __init__(self, options: DumpOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.wanted: tuple[tuple[str, Any], ...] = ()

    def partitions(self) -> list[InputPartition]:
        """Files of some MB together. OptionError, SourceError."""
        files = [
            found
            for path in self.options.paths
            for found in find_dumps(path)
            if self._wants(date_of(found[0]))
        ]
        return list(_parts(files)) or [DumpPartition(())]

    def _wants(self, date: datetime.date) -> bool:
        return all(_HOLDS[how](date, value) for how, value in self.wanted)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Arrow batches. SourceError: a file cannot be read."""
        schema: Any = to_arrow_schema(self.schema, timezone="UTC")
        rows: list[dict[str, Any]] = []
        for file in partition.files:
            for row in self._rows(file):
                rows.append(row)
                if len(rows) == _LINES_OF_A_BATCH:
                    yield pa.RecordBatch.from_pylist(rows, schema=schema)
                    rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)

    def _rows(self, file: str) -> Iterator[dict[str, Any]]:
        place = {"dt": date_of(file), "file": file}
        wants_bad = self.options.table == BAD_LINES
        for text, found in read_dump(file, self.options.bounds):
            if not isinstance(found, BadLineError):
                if not wants_bad:
                    yield place | values_of(found)
            elif wants_bad:
                yield place | {"reason": str(found), "text": shown_text(text)}


class PushingDumpReader(DumpReader):
    """A DumpReader for sessions in which Spark hands over filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Those of `dt` choose files; Spark applies all of them again."""
        self.wanted = tuple(
            (type(each).__name__, each.value)
            for each in filters
            if isinstance(each, _KNOWN) and each.attribute == ("dt",) and _are_dates(each.value)
        )
        return filters


_KNOWN: Final = (EqualTo, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
_HOLDS: Final[dict[str, Any]] = {
    "EqualTo": lambda date, value: date == value,
    "In": lambda date, values: date in values,
    "GreaterThan": lambda date, value: date > value,
    "GreaterThanOrEqual": lambda date, value: date >= value,
    "LessThan": lambda date, value: date < value,
    "LessThanOrEqual": lambda date, value: date <= value,
}


def _are_dates(value: Any) -> bool:
    values = value if isinstance(value, tuple | list) else (value,)
    return all(type(each) is datetime.date for each in values)


def find_dumps(path: str) -> Iterator[tuple[str, int]]:
    """The files of dumps below a directory, sorted, and their sizes; not the hidden ones. A file
    that is removed meanwhile was compressed. OptionError."""
    place = Path(path.removeprefix("file://")).absolute()
    if not place.is_dir():
        raise OptionError(f"{path}: no directory that the driver sees (hdfs:// and s3a:// are not)")
    found = []
    for directory, below, names in os.walk(place):
        below[:] = [name for name in below if not name.startswith(_HIDDEN)]
        for name in names:
            file = os.path.join(directory, name)
            if name.endswith(_SUFFIXES) and not name.startswith(_HIDDEN) and _has_date(file):
                found.append(file)
    for file in sorted(found):
        try:
            status = os.stat(file)
            if stat.S_ISREG(status.st_mode):
                yield file, status.st_size
        except FileNotFoundError:
            continue


def _has_date(file: str) -> bool:
    try:
        return bool(date_of(file))
    except (IndexError, ValueError):
        return False


def _parts(files: Iterable[tuple[str, int]]) -> Iterator[DumpPartition]:
    part: list[str] = []
    size = 0
    for file, length in files:
        if part and (size + length > _BYTES_OF_A_PART or len(part) >= _FILES_OF_A_PART):
            yield DumpPartition(tuple(part))
            part, size = [], 0
        part.append(file)
        size += length
    if part:
        yield DumpPartition(tuple(part))


def read_dump(file: str, bounds: Bounds) -> Iterator[Found]:
    """The lines of a file, each with what it is; of a file that is left out one bad line that says
    why. SourceError."""
    try:
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode):
            raise SourceError(f"{file}: no regular file")
        size = status.st_size
        if size > bounds.stored_bytes:
            yield b"", BadLineError(f"{LEFT_OUT}: {bounds.stored_problem(size)}")
            return
        content = Path(file).read_bytes()
    except FileNotFoundError:
        raise SourceError(
            f"{file}: gone since the query was planned: brokers replace a file by its compressed "
            "one; run the query again, or this executor lacks the directory"
        ) from None
    except OSError as error:
        raise SourceError(f"{file}: {error.strerror}") from None
    midnight = midnight_ms(date_of(file))
    try:
        # Twice: a file may turn out to be left out at its end, and all its lines fill a memory.
        deque(all_lines(content, midnight, bounds), maxlen=0)
        yield from all_lines(content, midnight, bounds)
    except LeftOutError as error:
        yield b"", BadLineError(f"{LEFT_OUT}: {error}")
