"""The result tables on disk: `<out>/parquet/<table>/dt=D/`, replaced for one date at a time.

Called on the driver. All tables of a date are first written beside the others, below `_staging`; a
marker then says that they are whole, and renames put them in place. Whoever comes after a crash
either finishes the renames (marker there) or throws the staged tables away (no marker), so that
the old or the new result of the date is there, never a mixture. One run at a time for one `out`.
Beside them is `<out>/report/dt=D/`, written by spark/job/sla_report.py. Knows the tables, not what
their figures mean.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from spark.figures.result_tables import TABLES
from spark.job.hadoop_files import FilesError, HadoopFiles
from spark.job.table_schema import schema_of

_MARKER: Final = "_COMMITTED"


def report_directory(out: str, date: datetime.date) -> str:
    """Where the page and the files for programs of a date are."""
    return f"{out.rstrip('/')}/report/dt={date}"


def summary_path(out: str, date: datetime.date) -> str:
    """The file that says that a date's result is complete: written last, removed first."""
    return f"{report_directory(out, date)}/summary.json"


class Results:
    """The results below one `out`, a local path or any that Hadoop knows.

    Raises FilesError for what cannot be read or written.
    """

    def __init__(self, spark: SparkSession, out: str) -> None:
        self._spark = spark
        self._files = HadoopFiles(spark)
        self._root = f"{out.rstrip('/')}/parquet"

    def recover(self) -> None:
        """Brings every date that a crash left half replaced to its old or its new result."""
        for name in self._files.names(f"{self._root}/_staging"):
            staging = f"{self._root}/_staging/{name}"
            marker = f"{staging}/{_MARKER}"
            if self._files.exists(marker):
                self._put_in_place(name, json.loads(self._files.read_text(marker)))
            self._files.delete(staging)

    def dates(self, table: str) -> list[str]:
        """The dates (YYYY-MM-DD) that a table has, sorted."""
        names = self._files.names(f"{self._root}/{table}")
        return [name.removeprefix("dt=") for name in names if name.startswith("dt=")]

    def read(self, table: str, dates: Iterable[str]) -> DataFrame | None:
        """The rows of those of the dates that are there, column `dt` last; None without any.

        Columns that an earlier version did not write are null.
        """
        wanted = set(dates)
        found = [date for date in self.dates(table) if date in wanted]
        if not found:
            return None
        root = f"{self._root}/{table}"
        reader = self._spark.read.schema(schema_of(table, with_date=True)).option("basePath", root)
        return reader.parquet(*(f"{root}/dt={date}" for date in found))

    def begin(self, date: str) -> StagedDay:
        """Begins a new result of a date; nothing that can be read changes before its commit."""
        self._files.delete(f"{self._root}/_staging/dt={date}")
        return StagedDay(self, self._files, f"{self._root}/_staging/dt={date}", date)

    def _put_in_place(self, partition: str, tables: dict[str, bool]) -> None:
        """Replaces a date's partition of each table; may be repeated after a crash in it."""
        for table, has_rows in tables.items():
            staged = f"{self._root}/_staging/{partition}/{table}"
            target = f"{self._root}/{table}/{partition}"
            if not has_rows:
                self._files.delete(target)
            elif self._files.exists(staged):
                self._files.delete(target)
                self._files.make_directories(f"{self._root}/{table}")
                self._files.rename(staged, target)


class StagedDay:
    """A date's new tables while they are written; `commit` makes them the result."""

    def __init__(self, results: Results, files: HadoopFiles, path: str, date: str) -> None:
        self._results = results
        self._files = files
        self._path = path
        self._date = date
        self._has_rows: dict[str, bool] = {}

    def write(self, table: str, rows: DataFrame | None) -> None:
        """Computes and writes a table; its columns are the table's. None: no rows, and no work."""
        if rows is not None:
            rows.write.mode("overwrite").parquet(f"{self._path}/{table}")
        self._has_rows[table] = rows is not None

    def discard(self) -> None:
        """Gives up what was not committed; nothing to do after a commit. What cannot be removed
        now, the next run removes: the failure before it is the one to tell."""
        with contextlib.suppress(FilesError):
            if not self._files.exists(f"{self._path}/{_MARKER}"):
                self._files.delete(self._path)

    def commit(self) -> None:
        """Replaces the date's partition of every table, also by nothing."""
        if missing := sorted(TABLES.keys() - self._has_rows.keys()):
            raise ValueError(f"result of {self._date}: not written: {', '.join(missing)}")
        self._files.write(f"{self._path}/{_MARKER}", json.dumps(self._has_rows).encode())
        self._results.recover()
