"""One run of the command: Java, Spark, the lock of --out, then a report for each date.

Run on the driver. What Spark throws becomes one line that says what to do; its log stays only when
it is needed. What is computed is the pipeline's (spark/sla_report.py).
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark.arguments import Options
from spark.days import missing_days, report_directory, window
from spark.hadoop_files import HadoopFiles
from spark.java_home import find_java
from spark.progress import Reporter
from spark.report_data import MET, ReportData, worst_first
from spark.sla_report import ReportRequest, run
from spark.spark_session import (
    count_tasks,
    explain,
    local_directory,
    start_session,
    stop_session,
)

EXIT_ERROR: Final = 3
_MAX_REASONS: Final = 3


class RunError(Exception):
    """A run that cannot begin; the text says why and the way out."""


class ReportRun:
    """A context that has Spark; `dates` and `report` belong inside it."""

    def __init__(self, options: Options, reporter: Reporter, now_ms: Callable[[], int]) -> None:
        self._options = options
        self._reporter = reporter
        self._now_ms = now_ms
        self._scratch = Path(tempfile.mkdtemp(prefix="mqreport-"))
        self._log = self._scratch / "spark.log"
        self._keep_log = False
        self._open = contextlib.ExitStack()
        self._spark: SparkSession

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            opening.callback(self._put_away)
            opening.enter_context(_logging_to(self._log, self._reporter))
            self._spark = opening.enter_context(self._session())
            opening.enter_context(_locked(local_directory(self._spark, self._options.out)))
            opening.callback(self._reporter.close)  # before Spark goes: it asks for its tasks
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    def dates(self, last: datetime.date) -> list[datetime.date]:
        """What is to be reported on, oldest first."""
        options, count = self._options, self._options.catch_up
        if count is None:
            return [last]
        files = HadoopFiles(self._spark)
        dates = missing_days(files, options.dumps, options.out, last, count)
        if not dates:
            self._reporter.note(
                f"nothing to catch up with: of {count} dates up to {last} none lacks its result"
            )
        return dates

    def report(self, date: datetime.date) -> int:
        """Makes one date's report and prints its line; returns its exit code.

        What Spark cannot do for this date is told and gives 3: the next date may go better.
        Raises InputError and FilesError, which the next date would, too.
        """
        self._reporter.heading(str(date))
        try:
            data = self._compute(date)
        except (PySparkException, Py4JError) as error:
            self._keep_log = True
            self._reporter.note(f"{date}: Spark gave up: {explain(error, self._log)}")
            return EXIT_ERROR
        self._reporter.pause()
        sys.stdout.write(verdict_line(data, self._page(date)) + "\n")
        sys.stdout.flush()
        return data.exit_code

    def _compute(self, date: datetime.date) -> ReportData:
        options = self._options
        day = window(date, options.between, self._now_ms())
        request = ReportRequest(day, options.dumps, options.out, options.sla)
        return run(self._spark, request, self._reporter)

    @contextlib.contextmanager
    def _session(self) -> Iterator[SparkSession]:
        options = self._options
        if options.master is not None:
            java = find_java(os.environ)
            for reason in java.passed_over:
                self._reporter.note(f"passed over: {reason}")
            self._reporter.note(f"starting Spark on Java {java.version} ({java.origin})")
            os.environ["JAVA_HOME"] = str(java.home)
        try:
            spark = start_session(options.master, options.settings, self._log)
        except BaseException:
            self._keep_log = True
            raise
        try:
            self._reporter.watch(lambda: count_tasks(spark))
            yield spark
        finally:
            stop_session(spark)

    def _page(self, date: datetime.date) -> str:
        local = local_directory(self._spark, self._options.out)
        return f"{report_directory(str(local or self._options.out), date)}/report.html"

    def _put_away(self) -> None:
        if self._keep_log and self._log.exists() and self._log.stat().st_size:
            self._reporter.note(f"Spark's log: {self._log}")
        else:
            shutil.rmtree(self._scratch)


class _Notes(logging.Handler):
    """Warnings of our own modules, for stderr."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        """See Handler."""
        self._reporter.note(record.getMessage())


@contextlib.contextmanager
def _logging_to(log: Path, reporter: Reporter) -> Iterator[None]:
    """What libraries log goes to the JVM's log: py4j logs every call that a Ctrl-C breaks off."""
    everything, notes = logging.FileHandler(log), _Notes(reporter)
    root, ours = logging.getLogger(), logging.getLogger("spark")
    root.addHandler(everything)
    ours.addHandler(notes)
    try:
        yield
    finally:
        root.removeHandler(everything)
        ours.removeHandler(notes)
        everything.close()


@contextlib.contextmanager
def _locked(out: Path | None) -> Iterator[None]:
    """Only one run writes to a local directory; it is made. Raises RunError."""
    if out is None:
        yield
        return
    path = out / ".mqreport.lock"
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise RunError(f"--out {out}: cannot be written: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(
                f"--out {out}: another mqreport is writing to it; wait for its end, or give another"
            ) from error
        yield


def verdict_line(data: ReportData, page: str) -> str:
    """What stdout gets: the date, the verdict, why, where the page is."""
    why = []
    for row in worst_first(data.replica_days):
        if row["verdict"] == data.verdict != MET:
            reasons = ", ".join(row["reasons"])
            why.append(f"{row['cluster']}/{row['broker']}/{row['replica']}: {reasons}")
    if not data.replica_days:
        why.append("no dump and no earlier result names a replica")
    more = len(why) - _MAX_REASONS
    shown = [*why[:_MAX_REASONS], *([f"and {more} more replicas"] if more > 0 else [])]
    count = len(data.replica_days)
    text = "; ".join(shown) or f"{count} replica{'s' if count != 1 else ''}"
    revised = f" (revision {data.revision})" if data.revision > 1 else ""
    return " ".join(f"{data.date} {data.verdict}{revised}: {text}; page: {page}".split())
