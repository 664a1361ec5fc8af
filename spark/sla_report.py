"""The nightly report of one date: from dumps to stored tables, and to the files people read.

The driver's part of the pipeline: names the stages and hands DataFrames from one to the next.
Lines, samples and segments are computed once and kept on disk meanwhile; only final tables come to
the driver. Who starts Spark, and what happens to the exit code, is the command line's matter
(spark/command_line.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from spark.at_once import at_once
from spark.dump_lines import read_lines
from spark.dump_words import GROUP, REPLICA, SYNC_RESULTS
from spark.events import events
from spark.figures import group_figures, replica_figures
from spark.hadoop_files import HadoopFiles
from spark.incidents import incident_sums, incidents
from spark.local_frames import local_frame
from spark.minutes import burn_rates, hours, largest_bad_ms, minute_counts, minutes
from spark.page import report_html
from spark.progress import Progress
from spark.report_data import INSUFFICIENT, ReportData
from spark.report_rows import dates_until, report_data
from spark.result_tables import TABLES
from spark.results import Results, StagedDay, report_directory, revised, summary_path
from spark.samples import renamed, replica_names, samples
from spark.schema import Day
from spark.segments import is_named_by, segments
from spark.sla_config import SlaConfig
from spark.summary import incidents_csv, replicas_csv, summary_json
from spark.verdicts import (
    budget_columns,
    budget_s,
    judged,
    objectives_frame,
    waiting_groups,
    worst,
    worst_of,
)
from spark.windows import clusters, group_windows, windows

STAGES: Final = (
    "looking at the stored results",
    "reading the dumps",
    "putting samples in order",
    "following each replica",
    "minutes and incidents",
    "figures of the day",
    "verdicts",
    "several days",
    "putting the results in place",
    "writing the report",
)
_REMEMBERED_RESULTS: Final = 7
_BURN_DAYS: Final = 3
_GROUP_CRITERIA: Final = (
    "samples",
    "unreplicated_bytes_max",
    "sync_ok_ratio",
    *(f"sync_{name}" for name in SYNC_RESULTS),
)


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What is asked: the date and its window, directories of dumps, where results go, objectives.

    `dumps` and `out` are paths for Hadoop: local ones, hdfs://, s3a://.
    """

    day: Day
    dumps: Sequence[str]
    out: str
    sla: SlaConfig


def run(spark: SparkSession, request: ReportRequest, progress: Progress) -> ReportData:
    """Computes the date, replaces its results below `out`, writes the report's files.

    Until the last but one stage nothing of the old result changes; from then until the last file
    is written there is no summary.json, and the date counts as not reported. Raises InputError (a
    path of dumps), FilesError (`out`), and what Spark raises.
    """
    with contextlib.ExitStack() as cleanup:
        return _Pipeline(spark, request, progress, cleanup).run()


class _Pipeline:
    """One run. `cleanup` gives up what lies on disk for the later stages."""

    def __init__(
        self,
        spark: SparkSession,
        request: ReportRequest,
        progress: Progress,
        cleanup: contextlib.ExitStack,
    ) -> None:
        self._spark = spark
        self._day = request.day
        self._date = str(request.day.date)
        self._request = request
        self._sla = request.sla
        self._progress = progress
        self._cleanup = cleanup
        self._results = Results(spark, request.out)
        self._stages = iter(enumerate(STAGES, 1))

    def run(self) -> ReportData:
        """Every stage, in order."""
        self._next_stage()
        self._results.recover()
        staged = self._results.begin(self._date)
        self._cleanup.callback(staged.discard)
        self._next_stage()
        lines = read_lines(self._spark, self._request.dumps, self._day)
        self._cleanup.callback(lines.release)
        staged.write("bad_lines", lines.bad)
        self._next_stage()
        found = staged.keep("samples", samples(lines, self._day))
        lines.release()
        self._next_stage()
        replicas = staged.keep("replicas", self._replicas(found))
        parts = staged.keep("segments", segments(found, replicas, self._sla.objectives, self._day))
        self._next_stage()
        at_once(
            lambda: self._write_minutes(staged, parts),
            lambda: staged.write("incidents", incidents(parts, self._day)),
        )
        self._next_stage()
        figures, groups, _ = at_once(
            lambda: staged.keep("figures", replica_figures(found, parts, self._day)),
            lambda: staged.keep("groups", group_figures(found, self._day)),
            lambda: staged.write("events", events(found, self._day)),
        )
        self._next_stage()
        self._write_verdicts(staged, self._replica_days(staged, figures), groups)
        self._next_stage()
        self._write_windows(staged)
        self._next_stage()
        self._write_report_row(staged)
        # From here on it would speak of tables that are others: see _write_files.
        HadoopFiles(self._spark).delete(summary_path(self._request.out, self._day.date))
        staged.commit()
        self._next_stage()
        data = report_data(self._results, self._day, self._sla)
        self._write_files(data)
        return data

    def _next_stage(self) -> None:
        number, name = next(self._stages)
        self._progress.stage(name, number, len(STAGES))

    def _replicas(self, found: DataFrame) -> DataFrame:
        """cluster, broker, replica, since_ms of D (as `segments` wants them): seen, remembered or
        expected, less the retired.

        Remembered are those of the last results before D. As these hold what they remembered
        themselves, nobody is forgotten but who is retired, however long the nights without report.
        Those of D's own result are remembered, too, but nobody misses them before their first row.
        """
        before = [date for date in self._results.dates("replica_days") if date < self._date]
        names = [astuple(name) for name in self._sla.expect]
        expected = local_frame(self._spark, dict.fromkeys(REPLICA, "string"), names)
        remembered = self._remembered(before[-_REMEMBERED_RESULTS:], since_ms=0)
        own = self._remembered([self._date], since_ms=self._day.w1_ms)
        unnamed = renamed(found, self._day)
        every = (
            replica_names(found, self._day)
            .unionByName(remembered.unionAll(own).join(unnamed, list(REPLICA), "left_anti"))
            .unionByName(expected.withColumn("since_ms", fn.lit(0)))
        )
        for retired in self._sla.retired:
            every = every.where(~is_named_by(retired.patterns))
        return every.groupBy(*REPLICA).agg(fn.min("since_ms").alias("since_ms"))

    def _remembered(self, dates: Sequence[str], since_ms: int) -> DataFrame:
        rows = self._results.read("replica_days", dates).select(*REPLICA)
        return rows.withColumn("since_ms", fn.lit(since_ms))

    def _write_minutes(self, staged: StagedDay, parts: DataFrame) -> None:
        """Tables minutes and hours."""
        staged.write("minutes", minutes(parts))
        staged.write("hours", hours(staged.read("minutes"), parts))

    def _replica_days(self, staged: StagedDay, figures: DataFrame) -> DataFrame:
        """Rows of replica_days, without verdict and revision; with the objective's columns."""
        key = list(REPLICA)
        before = dates_until(self._day.date, _BURN_DAYS + 1)[1:]
        of_day = staged.read("minutes")
        burnt = largest_bad_ms(of_day, self._results.read("minutes", before), self._day)
        rows = (
            figures.withColumnRenamed("objective", "objective_index")
            .join(minute_counts(of_day), key, "left")
            .join(burnt, key, "left")
            .join(incident_sums(staged.read("incidents")), key, "left")
            .join(
                fn.broadcast(objectives_frame(self._spark, self._sla.objectives)), "objective_index"
            )
            .withColumnRenamed("name", "objective")
        )
        rows = rows.fillna(0, ["incidents", "incidents_ended"])
        rows = rows.fillna(0.0, ["incident_s", "incident_ended_s", "longest_incident_s"])
        budget = budget_s(fn.col("availability_percent"), fn.col("window_s"))
        ended, count = fn.col("incidents_ended"), fn.col("incidents")
        return rows.withColumns(
            {
                "mttr_s": fn.when(ended > 0, fn.col("incident_ended_s") / ended),
                "mtbf_s": fn.when(count > 0, fn.col("good_s") / count),
                **budget_columns(budget, fn.col("bad_s")),
                **_carried(),
                **burn_rates(fn.col("availability_percent")),
            }
        )

    def _write_verdicts(self, staged: StagedDay, rows: DataFrame, groups: DataFrame) -> None:
        """Tables replica_days and group_days."""
        criteria = groups.select(*GROUP, *_GROUP_CRITERIA)
        rows = judged(rows.join(criteria, list(GROUP), "left"))
        before = self._results.read("replica_days", [self._date])
        staged.write("replica_days", revised(rows, before, reported=self._is_reported()))
        of_replicas = staged.read("replica_days").groupBy(*GROUP)
        verdicts = of_replicas.agg(
            worst(fn.col("verdict")).alias("verdict"), fn.max("revision").alias("revision")
        )
        # Groups without a sample have replicas nevertheless, groups with samples may have none.
        joined = groups.join(verdicts, list(GROUP), "full")
        joined = joined.fillna(0, ["samples"]).fillna(1, ["revision"])
        staged.write("group_days", joined.fillna(worst_of([]), ["verdict"]))

    def _is_reported(self) -> bool:
        """Whether there is a result of the same window already."""
        found = self._results.read("reports", [self._date]).collect()
        window = (self._day.w0_ms, self._day.w1_ms)
        return any((row.w0_ms, row.w1_ms) == window for row in found)

    def _write_windows(self, staged: StagedDay) -> None:
        """Tables windows, group_windows and clusters."""
        lengths = self._sla.windows
        before = dates_until(self._day.date, max(lengths))[1:]

        def days(table: str) -> DataFrame:
            return self._results.read(table, before).unionByName(staged.read(table))

        objectives = objectives_frame(self._spark, self._sla.objectives)
        staged.write("windows", windows(days("replica_days"), objectives, self._date, lengths))
        of_replicas = staged.read("windows")
        rows = group_windows(days("group_days"), of_replicas, self._date, lengths)
        staged.write("group_windows", rows)
        of_groups = staged.read("group_windows")
        replicas, groups = staged.read("replica_days"), staged.read("group_days")
        staged.write("clusters", clusters(replicas, of_replicas, groups, of_groups))

    def _write_report_row(self, staged: StagedDay) -> None:
        """That this date was reported, also when it has no replica."""
        replicas = staged.read("replica_days")
        verdicts = [row.verdict for row in replicas.select("verdict").distinct().collect()]
        if not waiting_groups(staged.read("group_days"), replicas).isEmpty():
            verdicts.append(INSUFFICIENT)
        row = {
            "w0_ms": self._day.w0_ms,
            "w1_ms": self._day.w1_ms,
            "verdict": worst_of(verdicts),
            "replicas": staged.rows("replica_days"),
            "bad_lines": staged.rows("bad_lines"),
        }
        columns = {name: TABLES["reports"][name] for name in row}
        staged.write("reports", local_frame(self._spark, columns, [list(row.values())]))

    def _write_files(self, data: ReportData) -> None:
        """summary.json last: where it is, the others are."""
        directory = report_directory(self._request.out, self._day.date)
        files = HadoopFiles(self._spark)
        files.make_directories(directory)
        files.write(f"{directory}/report.html", report_html(data))
        files.write(f"{directory}/replicas.csv", replicas_csv(data))
        files.write(f"{directory}/incidents.csv", incidents_csv(data))
        files.write(summary_path(self._request.out, self._day.date), summary_json(data))


def _carried() -> dict[str, Column]:
    """The first incident, when no good time comes before it: it may be the end of one of the day
    before."""
    good, first = fn.col("first_good_ms"), fn.col("first_start_ms")
    is_it = good.isNull() | (first < good)
    return {
        "carried_start_ms": fn.when(is_it, first),
        "carried_end_ms": fn.when(is_it, fn.col("first_end_ms")),
    }
