"""One run of the command: Java, Spark, the lock of --out, then a report for each date.

Runs on the driver. An exception of Spark becomes one line with the cause and the way out; its log
is kept only when it is needed. What is computed is the business of spark/job/sla_report.py.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark
from pyspark.sql import SparkSession

from spark.command.arguments import Options
from spark.command.catch_up import CatchUp
from spark.command.days import window
from spark.command.notifier import Notifier
from spark.command.out_lock import InUseError, locked
from spark.command.output import say
from spark.command.progress import Reporter
from spark.figures.report_data import EXIT_ERROR, ReportData
from spark.job.class_archive import ClassArchive
from spark.job.hadoop_files import FilesError, HadoopFiles
from spark.job.java_home import cache_directory, find_java
from spark.job.results import report_directory, summary_path
from spark.job.sla_report import ReportRequest, groups_to_revise, run
from spark.job.spark_session import (
    SPARK_ERRORS,
    count_tasks,
    explain,
    ship_modules,
    start_session,
    stop_session,
    was_interrupted,
)
from spark.page.headlines import one_line
from spark.reported_day import InputError

_MAX_REASONS: Final = 3
_ARCHIVE_S: Final = 180.0
"""What Java may take to write an archive of its classes."""
_Failure = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class RunError(Exception):
    """A run that cannot begin; the text says why and the way out."""


class ReportRun:
    """A context that has Spark; `exit_codes` belongs inside it. Main thread only."""

    def __init__(self, options: Options, reporter: Reporter, now_ms: Callable[[], int]) -> None:
        self._options = options
        self._reporter = reporter
        self._now_ms = now_ms
        self._scratch: Path
        self._log: Path
        self._keep_log = False
        self._has_reported = False
        self._notifier = Notifier(
            options.notify, lambda: self._files, options.out, reporter, now_ms
        )
        self._open = contextlib.ExitStack()
        self._spark: SparkSession
        self._files: HadoopFiles
        self._local_out: Path | None

    def __enter__(self) -> Self:
        self._scratch = _scratch_directory()
        self._log = self._scratch / "spark.log"
        with contextlib.ExitStack() as opening:
            opening.callback(self._put_away)
            opening.push(self._look_at)
            opening.enter_context(_logging_to(self._log, self._reporter))
            self._spark = opening.enter_context(self._session())
            self._files = HadoopFiles(self._spark)
            self._local_out = self._files.local_directory(self._options.out)
            opening.enter_context(_locked(self._local_out))
            self._open = opening.pop_all()
        return self

    def __exit__(self, *failure: *_Failure) -> None:
        self._open.__exit__(*failure)

    def exit_codes(self, last: datetime.date) -> list[int]:
        """Computes the reports that were requested; returns their exit codes, and those of earlier
        results that no exit code has reported yet (spark/command/catch_up.py).

        Raises InputError and FilesError, which would affect every other date as well.
        """
        try:
            return self._exit_codes(last)
        except (InputError, FilesError):  # who gets it tells it
            self._notifier.remember_failure(str(last))
            raise

    def _exit_codes(self, last: datetime.date) -> list[int]:
        options, count = self._options, self._options.catch_up
        if count is None:
            return self._report(last)
        catch_up = CatchUp(self._files, options.dumps, options.out, last, count)
        for date, code in catch_up.untold.items():
            self._reporter.note(
                f"{date}: its exit code {code} counts as well: the run that computed it did not"
                f" finish; {summary_path(options.out, date)}"
            )
        if not catch_up.missing:
            self._reporter.note(
                f"nothing to catch up: none of the {count} dates up to {last} lacks a result"
            )
        catch_up.begin()
        codes = [code for date in catch_up.missing for code in self._report(date)]
        if EXIT_ERROR not in codes:
            catch_up.end()
        return [*catch_up.untold.values(), *codes]

    def _report(self, date: datetime.date) -> list[int]:
        """Computes one date's report and prints its line; returns its exit code, and that of the
        day before if the date's first lines revise it (docs/sla_report.md)."""
        data = self._made(date)
        codes = []
        before = date - datetime.timedelta(days=1)
        if data is not None and self._options.between is None:
            groups = groups_to_revise(self._spark, self._options.out, data)
            if groups:
                self._reporter.note(
                    f"reporting {before} again, then {date}: there are lines now that show"
                    f" how it ended for {_listed(groups)}"
                )
                revised = self._made(before)
                codes.append(self._told(revised))
                data = self._made(date) if revised is not None else data
        return [*codes, self._told(data)]

    def _made(self, date: datetime.date) -> ReportData | None:
        """One date's report; None, after a note, when Spark fails: the next date may succeed."""
        self._reporter.heading(str(date))
        try:
            return self._compute(date)
        except SPARK_ERRORS as error:
            if was_interrupted(error):
                raise KeyboardInterrupt from error
            self._keep_log = True
            why = f"Spark failed: {explain(error, self._log)}"
            self._reporter.note(f"{date}: {why}")
            self._notifier.tell_failure(str(date), why)
            return None

    def _told(self, data: ReportData | None) -> int:
        """Prints a report's line; its exit code."""
        if data is None:
            return EXIT_ERROR
        self._reporter.pause()
        page = self._page(datetime.date.fromisoformat(data.date))
        line = verdict_line(data, page)
        if not say(sys.stdout, line):
            self._reporter.note(f"cannot write to stdout: {line}")
        self._notifier.tell(data, page)
        return data.exit_code

    def _compute(self, date: datetime.date) -> ReportData:
        options = self._options
        day = window(date, options.between, self._now_ms())
        request = ReportRequest(day, options.dumps, options.out, options.sla, options.bounds)
        data = run(self._spark, request, self._reporter.stage)
        self._has_reported = True
        return data

    @contextlib.contextmanager
    def _session(self) -> Iterator[SparkSession]:
        options, archive = self._options, None
        if options.master is not None:
            java = find_java(os.environ)
            for reason in java.passed_over:
                self._reporter.note(f"skipped: {reason}")
            self._reporter.note(f"starting Spark on Java {java.version} ({java.origin})")
            os.environ["JAVA_HOME"] = str(java.home)
            spark_home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
            archive = ClassArchive(java.home, spark_home, cache_directory(os.environ))
        java_options = archive.java_options() if archive is not None else ""
        spark = start_session(options.master, options.settings, self._log, java_options)
        try:
            ship_modules(spark, self._scratch)
            self._reporter.watch(lambda: count_tasks(spark))
            yield spark
        finally:
            self._reporter.close()  # it asks Spark for its tasks
            self._stop(spark, archive)

    def _stop(self, spark: SparkSession, archive: ClassArchive | None) -> None:
        if archive is None or not archive.is_being_made:
            stop_session(spark)
            return
        if self._has_reported:
            text = "archiving Spark's classes (once): later runs start faster"
            self._reporter.note(text)
            stop_session(spark, _ARCHIVE_S)
        else:
            stop_session(spark)
        archive.after_exit(is_whole=self._has_reported)

    def _page(self, date: datetime.date) -> str:
        return f"{report_directory(str(self._local_out or self._options.out), date)}/report.html"

    def _look_at(self, *failure: *_Failure) -> None:
        """Keeps Spark's log after a failure, unless the failure is one that we raise ourselves."""
        if isinstance(failure[1], Exception) and not isinstance(failure[1], RunError):
            self._keep_log = True

    def _put_away(self) -> None:
        if self._keep_log and self._log.exists() and self._log.stat().st_size:
            self._reporter.note(f"Spark's log: {self._log}")
        else:
            shutil.rmtree(self._scratch, ignore_errors=True)


def _scratch_directory() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="mqreport-"))
    except OSError as error:
        raise RunError(
            f"cannot create a scratch directory: {error.strerror}; make room, or set TMPDIR to"
            " another directory"
        ) from error


class _Notes(logging.Handler):
    """Warnings of our own modules, for stderr."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        """See Handler."""
        self._reporter.note(record.getMessage())


class _ScratchLog(logging.FileHandler):
    """A log on a full disk is not worth a traceback on stderr for each of its lines."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """See Handler."""


@contextlib.contextmanager
def _logging_to(log: Path, reporter: Reporter) -> Iterator[None]:
    """What libraries log goes to the JVM's log: py4j logs every call that a Ctrl-C breaks off."""
    everything, notes = _ScratchLog(log), _Notes(reporter)
    root, ours = logging.getLogger(), logging.getLogger("spark")
    root.addHandler(everything)
    ours.addHandler(notes)
    try:
        yield
    finally:
        root.removeHandler(everything)
        ours.removeHandler(notes)
        with contextlib.suppress(OSError):  # a full disk: what it still holds is lost
            everything.close()


@contextlib.contextmanager
def _locked(out: Path | None) -> Iterator[None]:
    """Only one run writes to a local directory; it is made. Raises RunError."""
    if out is None:
        yield
        return
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(locked(out))
        except InUseError as error:
            raise RunError(
                f"--out {out}: another mqreport is writing to it; wait until it ends, or use"
                " another"
            ) from error
        except OSError as error:
            raise RunError(f"--out {out}: cannot be written: {error.strerror}") from error
        yield


def _listed(groups: Sequence[str]) -> str:
    more = len(groups) - _MAX_REASONS
    return ", ".join([*groups[:_MAX_REASONS], *([f"and {more} more"] if more > 0 else [])])


def verdict_line(data: ReportData, page: str) -> str:
    """What stdout gets: the date, both verdicts, why, where the page is."""
    return f"{one_line(data)}; page: {page}"
