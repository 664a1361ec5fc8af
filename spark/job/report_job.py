"""The one job of a report: reads the dumps, brings each group's lines together, computes its rows.

Called on the driver; what the tasks do is spark/job/report_tasks.py's. The result stays on disk
until it is released; the driver gets the rows of all tables but the long ones. Knows directories
and files, not what figures mean.
"""

from __future__ import annotations

import datetime
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark import RDD, StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark.evidence.dump_chain import LifeRecord
from spark.figures.report_context import Context
from spark.figures.result_tables import TABLES
from spark.job.dump_source import DumpFiles, DumpSource
from spark.job.hadoop_files import HadoopFiles
from spark.job.report_tasks import (
    FILE_PROBLEMS,
    LIVES,
    BadLines,
    Item,
    Key,
    Rows,
    bad_lines_by_reason,
    item_of_expected,
    items_of_file,
    items_of_large_file,
    items_of_rows,
    part_of,
    rows_of_part,
)
from spark.job.table_schema import schema_of
from spark.reported_day import Day, InputError

_LOG = logging.getLogger(__name__)

Row = dict[str, Any]
_BYTES_OF_A_PART: Final = 8_000_000
"""Of files as they lie there, gz mostly: 60,000 lines."""
_FEW_BYTES: Final = 250_000
"""A tenth of a second to compute, and a task costs as much."""
_BYTES_OF_A_FILE: Final = 64_000_000
_ATTEMPTS: Final = 3
"""Of reading, when files vanish meanwhile: the supervisor replaces a file by its compressed one."""
_LONG: Final = frozenset({"minutes", "bad_lines"})
"""Tables of which the driver gets the number of rows alone."""
_PATTERN_SIGNS: Final = frozenset("{}[]*?\\")
_READING_FAILED: Final = re.compile(
    r"FAILED_READ_FILE\S* Encountered error while reading file (\S+)\."
)
_NOT_FOUND: Final = re.compile(r"PATH_NOT_FOUND\S* Path does not exist: (\S+)\.")
"""Spark's messages when reading a file or a directory fails."""


class GroupTables:
    """Rows of every table that is about groups. Spark keeps them on disk until `release`."""

    def __init__(self, spark: SparkSession, computed: RDD[Rows]) -> None:
        """Runs the job. Raises what Spark raises."""
        self._spark = spark
        self._kept = computed.persist(StorageLevel.DISK_ONLY)
        self._counts: Counter[str] = Counter()
        tables = (*TABLES, LIVES, FILE_PROBLEMS)
        self._short: dict[str, list[Rows]] = {table: [] for table in tables}
        try:
            found = self._kept.map(_without_long_ones).collect()
        except BaseException:
            self.release()
            raise
        for rows in found:
            self._counts[rows.table] += rows.length
            self._short[rows.table].append(rows)

    def count(self, table: str) -> int:
        """How many rows a table has."""
        return self._counts[table]

    def rows(self, table: str) -> list[Row]:
        """Rows by column, of a table that is not a long one."""
        return [by_column(table, row) for rows in self._short[table] for row in rows.unpacked()]

    def long_rows(self, table: str, keys: Iterable[Key]) -> list[Row]:
        """Rows by column of some keys, of a long table."""
        wanted = frozenset(keys)
        found = self._of(table).filter(lambda rows: rows.key in wanted).flatMap(Rows.unpacked)
        return [by_column(table, row) for row in found.collect()]

    def bad_lines(self) -> list[Row]:
        """How many bad lines of how many files there are for each reason, with one example."""
        if not self.count("bad_lines"):
            return []
        found: dict[str, BadLines] = {}
        for of_key in self._of("bad_lines").map(bad_lines_by_reason).collect():
            for reason, some in of_key.items():
                found[reason] = found[reason].and_also(some) if reason in found else some
        return [
            {
                "reason": reason,
                "lines": some.lines,
                "files": len(some.files),
                "example_file": some.example[0],
                "example_text": some.example[1],
            }
            for reason, some in sorted(found.items())
        ]

    def life_records(self) -> list[LifeRecord]:
        """The lives of the date, sorted, for its evidence."""
        found = [record for rows in self._short[LIVES] for record in rows.unpacked()]
        return sorted(found, key=lambda record: record.life)

    def file_problems(self) -> list[str]:
        """What the evidence says of the date's files, sorted."""
        return sorted(text for rows in self._short[FILE_PROBLEMS] for text in rows.unpacked())

    def frame(self, table: str) -> DataFrame:
        """The rows of a table for Spark, without `dt`."""
        if table in _LONG:
            rows = self._of(table)
        else:
            short = self._short[table]
            size = sum(len(each.content) for each in short)
            rows = self._spark.sparkContext.parallelize(short, 1 + size // _BYTES_OF_A_FILE)
        return frame_of(self._spark, table, rows.flatMap(Rows.unpacked))

    def release(self) -> None:
        """Frees the disk."""
        self._kept.unpersist()

    def _of(self, table: str) -> RDD[Rows]:
        return self._kept.filter(lambda rows: rows.table == table)


def frame_of(spark: SparkSession, table: str, rows: RDD[tuple[Any, ...]]) -> DataFrame:
    """Rows of a table for Spark; their values are of the right types
    (spark/figures/group_report.py)."""
    return spark.createDataFrame(rows, schema_of(table, with_date=False), verifySchema=False)


def by_column(table: str, row: Sequence[Any]) -> Row:
    """Column -> value."""
    return dict(zip(TABLES[table], row, strict=True))


def _without_long_ones(rows: Rows) -> Rows:
    return rows._replace(content=b"") if rows.table in _LONG else rows


def compute(
    spark: SparkSession, source: DumpSource, stored: Mapping[str, DataFrame], context: Context
) -> GroupTables:
    """Reads the dumps of `source` and computes the tables of every broker group that they, the
    stored rows (spark/job/report_tasks.py, STORED) or `expect` name.

    Raises InputError for a path that is not there, and for a file that cannot be read; and what
    else Spark raises, of which a full disk is an example.
    """
    files = HadoopFiles(spark)
    for path in source.paths:
        _check(path, files)
    items = [_items_of_rows(table, frame) for table, frame in stored.items()]
    expected = sorted({(name.cluster, name.broker) for name in context.sla.expect})
    if expected:
        items.append(spark.sparkContext.parallelize(expected, 1).map(item_of_expected))
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            dumps = _Dumps(spark, files, source, context.day)
            known = [*dumps.items(), *items]
            every = spark.sparkContext.union(known or [spark.sparkContext.parallelize([], 1)])
            of_groups = every.partitionBy(dumps.parts(), part_of)
            part = partial(rows_of_part, context=context)
            return GroupTables(spark, of_groups.mapPartitions(part))
        except (Py4JJavaError, PySparkException) as error:
            file = _unread_file(error)
            if file is None:
                raise
            if files.exists(file) or attempt == _ATTEMPTS:
                raise InputError(f"{_shown(file)}: cannot be read: {_cause(error)}") from error
            _LOG.warning("%s disappeared before it was read; reading all files again", _shown(file))
    raise AssertionError("not reached")


def _check(path: str, files: HadoopFiles) -> None:
    if _PATTERN_SIGNS.intersection(path):
        raise InputError(
            f"{path}: Spark reads a name with one of {' '.join(sorted(_PATTERN_SIGNS))} as a"
            " pattern; rename the directory, or give --dumps a link to it"
        )
    if not files.exists(path):
        raise InputError(
            f"{path}: there is no such directory; --dumps is the metricsDumpPath of the"
            " brokers (or a copy of it), the directory that holds dt=YYYY-MM-DD"
        )


def _items_of_rows(table: str, frame: DataFrame) -> RDD[Item]:
    return frame.rdd.mapPartitions(
        lambda rows: items_of_rows(table, (row.asDict(recursive=True) for row in rows))
    )


def parts_of(size_bytes: int, cores: int) -> int:
    """Into how many parts the groups of files of this size go: each small enough for a task's
    memory, and every core has some, but for a few files. Without any (0) stored rows are all."""
    if 0 < size_bytes < _FEW_BYTES:
        return 1
    return max(cores, -(-size_bytes // _BYTES_OF_A_PART))


class _Dumps:
    """The files of the date and of those beside it, whose directories are there."""

    def __init__(
        self, spark: SparkSession, files: HadoopFiles, source: DumpSource, day: Day
    ) -> None:
        self._spark = spark
        self._day = day
        self._bounds = source.bounds
        dates = [day.date + datetime.timedelta(days=days) for days in (-1, 0, 1)]
        directories = [f"{path.rstrip('/')}/dt={date}" for path in source.paths for date in dates]
        there = [directory for directory in directories if files.exists(directory)]
        self._files = DumpFiles(spark, there, source.bounds) if there else None

    def items(self) -> list[RDD[Item]]:
        """What the files hold; nothing without any."""
        if self._files is None:
            return []
        day, bounds = self._day, self._bounds
        rows = self._files.frame.rdd
        found = [rows.flatMap(lambda row: items_of_file(row[0], bytes(row[1]), day, bounds))]
        if large := self._files.too_large:
            items = [
                item
                for path, size in large
                for item in items_of_large_file(path, size, day, bounds)
            ]
            found.append(self._spark.sparkContext.parallelize(items, 1))
        return found

    def parts(self) -> int:
        """Into how many parts the groups go."""
        size = self._files.size if self._files is not None else 0
        return parts_of(size, self._spark.sparkContext.defaultParallelism)


def _unread_file(error: Exception) -> str | None:
    """The file that Spark could not read; None when the trouble is another."""
    found = _READING_FAILED.search(str(error)) or _NOT_FOUND.search(str(error))
    return unquote(found[1]) if found else None


def _shown(file: str) -> str:
    return re.sub("^file:/+", "/", file)


def _cause(error: Exception) -> str:
    """The innermost reason of Spark's exception, one line."""
    causes = re.findall(r"^Caused by: (.+)$", str(error), re.MULTILINE)
    reason = causes[-1] if causes else str(error).strip().partition("\n")[0]
    return " ".join(reason.split())[:300]
