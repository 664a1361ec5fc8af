"""The command `mqreport`: arguments, Spark, one report for each date, exit code.

Runs on the driver, called by spark/__main__.py, that is by bin/mqreport or spark-submit. stdout
gets one line for each report: the verdict, why, and where the page is; everything else goes to
stderr. What the figures are is the business of spark/job and spark/figures.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final

from spark.command import (
    compact_command,
    evidence_command,
    exclude_command,
    import_command,
    openslo_command,
    rules_command,
)
from spark.command.arguments import Options, UsageError, parse_arguments
from spark.command.output import PROGRAM, complain, say_text
from spark.command.progress import Reporter, make_reporter
from spark.config.sla_config import SlaError
from spark.figures.report_data import EXIT_ERROR, worst_exit_code
from spark.job.java_home import JavaError

EXIT_INTERRUPTED: Final = 130


def main(arguments: Sequence[str], now_ms: Callable[[], int]) -> int:
    """Runs the command; returns its exit code. `--help` ends the program."""
    try:
        if arguments[:1] == ["import"]:
            return import_command.main(arguments[1:])
        if arguments[:1] == ["rules"]:
            return rules_command.main(arguments[1:], os.environ)
        if arguments[:1] == ["openslo"]:
            return openslo_command.main(arguments[1:], os.environ)
        if arguments[:1] == ["compact"]:
            return compact_command.main(arguments[1:], now_ms)
        if arguments[:1] == ["exclude"]:
            return exclude_command.main(arguments[1:], now_ms)
        if arguments[:1] == ["sign"]:
            return evidence_command.sign_main(arguments[1:])
        if arguments[:1] == ["verify"]:
            return evidence_command.verify_main(arguments[1:])
        return _report(parse_arguments(arguments, os.environ), now_ms)
    except UsageError as error:
        complain(f"{error} ({PROGRAM} --help)")
    except SlaError as error:
        for problem in error.problems:
            complain(problem)
    except KeyboardInterrupt:
        complain("interrupted: whatever was not finished keeps its previous result")
        return EXIT_INTERRUPTED
    except ImportError as error:
        complain(f"{error}; requirements: docs/nightly.md")
    except Exception:  # noqa: BLE001 - a bug; Python's own exit code would say "breached"
        say_text(sys.stderr, traceback.format_exc().rstrip())
        complain("this is a bug in mqreport: please report it with the lines above")
    return EXIT_ERROR


def _report(options: Options, now_ms: Callable[[], int]) -> int:
    signal.signal(signal.SIGTERM, _interrupt)
    with contextlib.closing(make_reporter(PROGRAM, sys.stderr)) as reporter:
        return _run(options, now_ms, reporter)


def _run(options: Options, now_ms: Callable[[], int], reporter: Reporter) -> int:
    # Imported now: help and mistakes in the arguments need no PySpark.
    from spark.command.days import parse_date, window
    from spark.command.first_and_last import resolved
    from spark.command.notifier import tell_failure
    from spark.command.preflight import check_paths
    from spark.command.report_run import ReportRun, RunError
    from spark.job.hadoop_files import FilesError
    from spark.job.spark_session import SessionError, was_interrupted
    from spark.reported_day import InputError

    date = options.date
    try:
        last = parse_date(options.date, now_ms())
        date = str(last)
        window(last, options.between, now_ms())  # what is to come: no Spark is needed to say so
        if note := check_paths(options, last, os.environ):
            reporter.note(note)
        options = resolved(options, last)
        reporter.note(f"objectives: {options.sla.source}")
        with ReportRun(options, reporter, now_ms) as run:
            return worst_exit_code(run.exit_codes(last))
    except (InputError, FilesError, JavaError, SessionError, RunError) as error:
        if was_interrupted(error):
            raise KeyboardInterrupt from error
        reporter.note(str(error))
        tell_failure(options.notify, date, str(error), reporter, now_ms())
        return EXIT_ERROR
    except Exception:  # a bug, which main shows
        tell_failure(options.notify, date, "a bug in mqreport", reporter, now_ms())
        raise


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
