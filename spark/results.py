"""The result tables on disk: `<out>/parquet/<table>/dt=D/`, replaced for one date at a time.

Called on the driver. All tables of a date are first written beside the others, below `_staging`; a
marker then says that they are whole, and renames put them in place. Whoever comes after a crash
either finishes the renames (marker there) or throws the staged tables away (no marker), so that
the old or the new result of the date is there, never a mixture. One run at a time for one `out`.
Beside them is `<out>/report/dt=D/`, written by spark/sla_report.py. Knows the tables, not what
their figures mean.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn

from spark.dump_words import GROUP, REPLICA
from spark.hadoop_files import FilesError, HadoopFiles
from spark.local_frames import local_frame
from spark.result_tables import TABLES, ddl

_MARKER: Final = "_COMMITTED"
_ORDER: Final[dict[str, tuple[str, ...]]] = {
    "replica_days": REPLICA,
    "group_days": GROUP,
    "windows": (*REPLICA, "days"),
    "group_windows": (*GROUP, "days"),
    "clusters": ("cluster", "days"),
    "incidents": (*REPLICA, "number"),
    "events": (*GROUP, "ts", "broker_id", "kind", "text"),
    "minutes": (*REPLICA, "minute"),
    "hours": (*REPLICA, "hour"),
    "bad_lines": ("file", "reason", "text"),
    "reports": ("w0_ms",),
}
_MANY_FILES: Final = {"minutes", "bad_lines"}
"""Tables that may be large: written by as many tasks as computed them. Others are one file each."""


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

    def read(self, table: str, dates: Iterable[str]) -> DataFrame:
        """The rows of those of the dates that are there; column `dt` is last.

        Columns that an earlier version did not write are null.
        """
        wanted = set(dates)
        found = [date for date in self.dates(table) if date in wanted]
        if not found:
            return local_frame(self._spark, TABLES[table] | {"dt": "string"}, [])
        root = f"{self._root}/{table}"
        reader = self._spark.read.schema(ddl(table)).option("basePath", root)
        return reader.parquet(*(f"{root}/dt={date}" for date in found))

    def begin(self, date: str) -> StagedDay:
        """Begins a new result of a date; nothing that can be read changes before its commit."""
        self._files.delete(f"{self._root}/_staging/dt={date}")
        return StagedDay(self, self._spark, self._files, f"{self._root}/_staging/dt={date}", date)

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
    """A date's new tables while they are written; `commit` makes them the result.

    Different tables may be written on different threads.
    """

    def __init__(
        self, results: Results, spark: SparkSession, files: HadoopFiles, path: str, date: str
    ) -> None:
        self._results = results
        self._spark = spark
        self._files = files
        self._path = path
        self._date = date
        self._rows: dict[str, int] = {}

    def write(self, table: str, frame: DataFrame) -> None:
        """Computes a table and writes it; columns are taken by name and cast to its types."""
        rows = frame.select(*(fn.col(n).cast(kind).alias(n) for n, kind in TABLES[table].items()))
        if table not in _MANY_FILES:
            # Not coalesce(1): that would have one task compute everything before it, too.
            rows = rows.repartition(1)
        path = f"{self._path}/{table}"
        seen = Observation()
        rows = rows.sortWithinPartitions(*_ORDER[table]).observe(seen, fn.count("*").alias("rows"))
        rows.write.mode("overwrite").parquet(path)
        self._rows[table] = int(seen.get["rows"])

    def rows(self, table: str) -> int:
        """How many rows a table has that was written."""
        return self._rows[table]

    def keep(self, name: str, frame: DataFrame) -> DataFrame:
        """Computes what later stages need more than once; on disk until the commit.

        Unlike a persisted frame it does not drag along the plan that it came from, which Spark
        would go through again for everything that is computed from it, and no executor that goes
        away takes it along.
        """
        path = f"{self._path}/_kept/{name}"
        # What is read once or twice and deleted is not worth the dictionaries of its columns.
        writer = frame.write.mode("overwrite").option("parquet.enable.dictionary", "false")
        writer.parquet(path)
        return self._spark.read.schema(frame.schema).parquet(path)

    def discard(self) -> None:
        """Gives up what was not committed; nothing to do after a commit. What cannot be removed
        now, the next run removes: the failure before it is the one to tell."""
        with contextlib.suppress(FilesError):
            if not self._files.exists(f"{self._path}/{_MARKER}"):
                self._files.delete(self._path)

    def read(self, table: str) -> DataFrame:
        """What was written, with `dt`: of use until the commit."""
        return self._staged(table).withColumn("dt", fn.lit(self._date))

    def commit(self) -> None:
        """Replaces the date's partition of every table, also by nothing."""
        if missing := sorted(TABLES.keys() - self._rows.keys()):
            raise ValueError(f"result of {self._date}: not written: {', '.join(missing)}")
        has_rows = {table: count > 0 for table, count in self._rows.items()}
        self._files.write(f"{self._path}/{_MARKER}", json.dumps(has_rows).encode())
        self._results.recover()

    def _staged(self, table: str) -> DataFrame:
        reader = self._spark.read.schema(ddl(table, with_date=False))
        return reader.parquet(f"{self._path}/{table}")


def revised(rows: DataFrame, before: DataFrame, *, reported: bool) -> DataFrame:
    """Adds `revision`, `late` and `first_received` to a date's replica rows.

    `before`: the stored rows of the date, `reported`: whether the date was reported for the same
    window before. The first report is revision 1. A replica's revision rises when its samples,
    its objective, its seconds or its verdict are others than before, or when it was not there.
    `late` counts samples beyond those of the first report; they are the group's, and so is a
    replica's first report that did not have it. Another window begins anew.
    """
    if not reported:
        return rows.withColumns(
            {"revision": fn.lit(1), "late": fn.lit(0), "first_received": fn.col("received")}
        )
    old = before.select(
        *REPLICA,
        fn.struct(*_RESULT).alias("_result"),
        fn.col("revision").alias("_revision"),
        fn.col("first_received").alias("_first"),
    )
    of_groups = before.groupBy(*GROUP).agg(fn.max("first_received").alias("_first_of_group"))
    same = fn.col("_result").eqNullSafe(fn.struct(*_RESULT))
    known = fn.coalesce("_revision", fn.lit(1))
    first = fn.coalesce("_first", "_first_of_group", fn.lit(0))
    return (
        rows.join(old, list(REPLICA), "left")
        .join(of_groups, list(GROUP), "left")
        .withColumns(
            {
                "revision": fn.when(same, known).otherwise(known + 1),
                "late": fn.greatest(fn.col("received") - first, fn.lit(0)),
                "first_received": first,
            }
        )
        .drop("_result", "_revision", "_first", "_first_of_group")
    )


_RESULT: Final = (
    "objective",
    "verdict",
    "reasons",
    "window_s",
    "good_s",
    "bad_s",
    "unknown_s",
    "input_digest",
)
