"""The nightly report of one date: from dumps to stored tables and to the files that people read.

Runs on the driver: names the stages and hands values from one to the next. What is about one broker
group is computed by one job (spark/job/report_job.py), what is about several here. Starting Spark
and the exit code are the command's business (spark/command).
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import or_
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from spark.config.calendar_periods import periods_of
from spark.config.objectives import SlaConfig
from spark.dumps.dump_text import DEFAULT_BOUNDS, Bounds
from spark.figures.calendar_windows import first_dates
from spark.figures.cluster_calendar import without_left_out
from spark.figures.group_report import OF_GROUPS, row_tuple
from spark.figures.report_context import Context
from spark.figures.report_data import INSUFFICIENT, ReportData, is_any_left_out
from spark.figures.verdicts import waiting_groups, worst_of
from spark.figures.windows import clusters
from spark.job.calendar_files import update_calendar
from spark.job.dump_source import DumpSource
from spark.job.evidence_job import append_evidence
from spark.job.hadoop_files import HadoopFiles
from spark.job.report_job import GroupTables, Row, compute, frame_of
from spark.job.report_rows import dates_since, dates_until, report_data
from spark.job.results import Results, StagedDay, report_directory, summary_path
from spark.page.report_page import report_html
from spark.page.summary import (
    consumer_lag_csv,
    elections_csv,
    incidents_csv,
    replicas_csv,
    summary_json,
)
from spark.reported_day import Day
from spark.vocabulary import ANY_LEFT_OUT, DAY_MS, GROUP, REPLICA

STAGES: Final = (
    "looking at the stored results",
    "reading the dumps and computing",
    "clusters and the date",
    "writing the tables",
    "putting the results in place",
    "writing the report",
)
REMEMBERED_RESULTS: Final = 7
_BURN_DAYS: Final = 3
BeginStage = Callable[[str, int, int], None]
"""Called when a stage begins: what it does, its number (from 1), how many stages there are."""


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What is asked: the date and its window, directories of dumps, where results go, objectives.

    `dumps` and `out` are paths for Hadoop: local ones, hdfs://, s3a://.
    """

    day: Day
    dumps: Sequence[str]
    out: str
    sla: SlaConfig
    bounds: Bounds = DEFAULT_BOUNDS

    @property
    def source(self) -> DumpSource:
        """What is read."""
        return DumpSource(self.dumps, self.bounds)


def run(spark: SparkSession, request: ReportRequest, begin_stage: BeginStage) -> ReportData:
    """Computes the date, replaces its results below `out`, writes the report's files.

    Until the last but one stage nothing of the old result changes; from then until the last file
    is written there is no summary.json, and the date counts as not reported. Raises InputError (a
    path of dumps), FilesError (`out`), and what Spark raises.
    """
    with contextlib.ExitStack() as cleanup:
        return _Pipeline(spark, request, begin_stage, cleanup).run()


def groups_to_revise(spark: SparkSession, out: str, data: ReportData) -> list[str]:
    """Groups whose end of the day before was not known when that whole day was reported, and that
    have master's samples on the date of `data`: cluster/broker, sorted."""
    results = Results(spark, out)
    day = Day.whole(datetime.date.fromisoformat(data.date) - datetime.timedelta(days=1))
    date = str(day.date)
    reports, members = results.read("reports", [date]), results.read("group_days", [date])
    if reports is None or members is None:
        return []
    there = {(row["cluster"], row["broker"]) for row in data.group_days if row["samples"]}
    still_open = members.where("not closed").select(*GROUP).collect()
    found = sorted(there & {(row.cluster, row.broker) for row in still_open})
    windows = {(row.w0_ms, row.w1_ms) for row in reports.collect()} if found else set()
    return ["/".join(group) for group in found] if windows == {(day.w0_ms, day.w1_ms)} else []


class _Pipeline:
    """One run. `cleanup` frees what is kept on disk for the later stages."""

    def __init__(
        self,
        spark: SparkSession,
        request: ReportRequest,
        begin_stage: BeginStage,
        cleanup: contextlib.ExitStack,
    ) -> None:
        self._spark = spark
        self._day = request.day
        self._date = str(request.day.date)
        self._request = request
        self._sla = request.sla
        self._periods = periods_of(request.day.date, request.sla.calendars, request.sla.timezone)
        self._begin_stage = begin_stage
        self._cleanup = cleanup
        self._results = Results(spark, request.out)
        self._stages = iter(enumerate(STAGES, 1))
        self._past_left_out: list[str] = []
        """Dates before, in the windows and periods, of which files or replicas were left out."""

    def run(self) -> ReportData:
        """Every stage, in order."""
        self._next_stage()
        self._results.recover()
        staged = self._results.begin(self._date)
        self._cleanup.callback(staged.discard)
        context, stored = self._context(), self._stored()
        self._past_left_out = self._find_left_out()
        self._next_stage()
        groups = compute(self._spark, self._request.source, stored, context)
        self._cleanup.callback(groups.release)
        self._next_stage()
        of_several = self._of_several(groups)
        self._next_stage()
        for table in OF_GROUPS:
            staged.write(table, groups.frame(table) if groups.count(table) else None)
        for table, rows in of_several.items():
            self._write(staged, table, rows)
        self._next_stage()
        # From here on it would speak of tables that are others: see _write_files.
        HadoopFiles(self._spark).delete(summary_path(self._request.out, self._day.date))
        staged.commit()
        self._next_stage()
        data = report_data(
            *(self._results, groups, of_several, self._day, self._sla),
            past_left_out=self._past_left_out,
            since_ms=self._since_ms(),
        )
        self._write_files(data, groups)
        return data

    def _next_stage(self) -> None:
        number, name = next(self._stages)
        self._begin_stage(name, number, len(STAGES))

    def _context(self) -> Context:
        before = tuple(date for date in self._results.dates("replica_days") if date < self._date)
        sla = self._sla.within(self._day.w0_ms, self._day.w1_ms)
        return Context(self._day, sla, self._is_reported(), before, self._periods)

    def _since_ms(self) -> int:
        """Begin of the longest of the windows and calendar periods."""
        rolling_ms = (max(self._sla.windows) - 1) * DAY_MS
        midnight_ms = self._day.w0_ms - self._day.w0_ms % DAY_MS
        return min([midnight_ms - rolling_ms, *(period.from_ms for period in self._periods)])

    def _is_reported(self) -> bool:
        """Whether there is a result of the same window already."""
        frame = self._results.read("reports", [self._date])
        found = frame.collect() if frame is not None else []
        window = (self._day.w0_ms, self._day.w1_ms)
        return any((row.w0_ms, row.w1_ms) == window for row in found)

    def _find_left_out(self) -> list[str]:
        dates = dates_until(self._day.date, max(self._sla.windows))[1:]
        dates += dates_since(self._day.date, first_dates(self._periods))[1:]
        frame = self._results.read("bad_lines", dates)
        if frame is None:
            return []
        reason = frame["reason"]
        is_left_out = functools.reduce(or_, map(reason.startswith, ANY_LEFT_OUT))
        found = frame.where(is_left_out).select("dt")
        return sorted({str(row["dt"]) for row in found.collect()})

    def _stored(self) -> dict[str, DataFrame]:
        """What groups need of earlier results, and of D's own: see spark/job/report_tasks.py."""
        in_windows = dates_until(self._day.date, max(self._sla.windows))
        begins = first_dates(self._periods)
        in_periods = dates_since(self._day.date, begins)
        last = [date for date in self._results.dates("replica_days") if date < self._date]
        burning = dates_until(self._day.date, _BURN_DAYS + 1)[1:]
        frames = {
            "replica_days": self._results.read(
                "replica_days", [*in_windows, *in_periods, *last[-REMEMBERED_RESULTS:]]
            ),
            "group_days": self._results.read("group_days", in_windows),
            "minutes": self._results.read("minutes", burning),
            "hours": self._results.read("hours", begins),
        }
        found = {table: frame for table, frame in frames.items() if frame is not None}
        if "minutes" in found:
            minutes = found["minutes"].where("bad_ms > 0")
            found["minutes"] = minutes.select(*REPLICA, "minute", "bad_ms")
        return found

    def _of_several(self, groups: GroupTables) -> dict[str, list[Row]]:
        """Rows of tables that are not about a single group. `reports` has one also for a date
        without any replica."""
        replicas, members = groups.rows("replica_days"), groups.rows("group_days")
        verdicts = {row["verdict"] for row in replicas}
        is_whole = not is_any_left_out(groups.bad_lines())
        if waiting_groups(members, replicas) or not is_whole:
            verdicts.add(INSUFFICIENT)
        report: Row = {
            "w0_ms": self._day.w0_ms,
            "w1_ms": self._day.w1_ms,
            "verdict": worst_of(verdicts),
            "replicas": len(replicas),
            "bad_lines": groups.count("bad_lines"),
        }
        of_clusters = clusters(
            replicas,
            groups.rows("windows"),
            members,
            groups.rows("group_windows"),
            groups.rows("calendar_windows"),
        )
        left_out = [*self._past_left_out, *([] if is_whole else [self._date])]
        begins = {period.name: first_dates([period])[0] for period in self._periods}
        of_clusters = [
            without_left_out(row, self._day.date, left_out, begins) for row in of_clusters
        ]
        return {"clusters": of_clusters, "reports": [report]}

    def _write(self, staged: StagedDay, table: str, rows: Iterable[Row]) -> None:
        tuples: list[tuple[Any, ...]] = [row_tuple(table, row) for row in rows]
        spread = self._spark.sparkContext.parallelize(tuples, 1)
        staged.write(table, frame_of(self._spark, table, spread) if tuples else None)

    def _write_files(self, data: ReportData, groups: GroupTables) -> None:
        """summary.json last: where it is, the others are, and the evidence, which names it."""
        directory = report_directory(self._request.out, self._day.date)
        files = HadoopFiles(self._spark)
        files.make_directories(directory)
        summary = summary_json(data)
        content = {
            "report.html": report_html(data),
            "replicas.csv": replicas_csv(data),
            "incidents.csv": incidents_csv(data),
            **({"elections.csv": elections_csv(data)} if data.elections else {}),
            **({"consumer_lag.csv": consumer_lag_csv(data)} if data.consumer_lag else {}),
        }
        for name in {"elections.csv", "consumer_lag.csv"} - content.keys():
            files.delete(f"{directory}/{name}")  # Of an earlier result.
        for name, text in content.items():
            files.write(f"{directory}/{name}", text)
        below_out = {
            f"report/dt={self._date}/{name}": text
            for name, text in {**content, "summary.json": summary}.items()
        }
        request = self._request
        append_evidence(files, groups, request.out, self._day, request.sla, below_out)
        update_calendar(files, request.out, json.loads(summary))
        files.write(summary_path(self._request.out, self._day.date), summary)
