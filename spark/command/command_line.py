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

from spark.command.arguments import Options, UsageError, parse_arguments
from spark.command.output import PROGRAM, complain, say_text
from spark.command.progress import Reporter, make_reporter
from spark.config.sla_config import SlaError
from spark.figures.report_data import EXIT_ERROR, worst_exit_code
from spark.job.java_home import JavaError

EXIT_INTERRUPTED: Final = 130
Clock = Callable[[], int]
"""Epoch ms."""


def main(arguments: Sequence[str], now_ms: Clock) -> int:
    """Runs the command; returns its exit code. `--help` ends the program."""
    try:
        subcommand = _SUBCOMMANDS.get(arguments[0]) if arguments else None
        if subcommand is not None:
            return subcommand(arguments[1:], now_ms)
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


# Each imports its own modules: a report needs none of them, and its own start is mostly imports.


def _import(arguments: Sequence[str], _now_ms: Clock) -> int:
    from spark.command import import_command

    return import_command.main(arguments)


def _rules(arguments: Sequence[str], _now_ms: Clock) -> int:
    from spark.command import rules_command

    return rules_command.main(arguments, os.environ)


def _openslo(arguments: Sequence[str], _now_ms: Clock) -> int:
    from spark.command import openslo_command

    return openslo_command.main(arguments, os.environ)


def _compact(arguments: Sequence[str], now_ms: Clock) -> int:
    from spark.command import compact_command

    return compact_command.main(arguments, now_ms)


def _exclude(arguments: Sequence[str], now_ms: Clock) -> int:
    from spark.command import exclude_command

    return exclude_command.main(arguments, now_ms)


def _sign(arguments: Sequence[str], _now_ms: Clock) -> int:
    from spark.command import evidence_command

    return evidence_command.sign_main(arguments)


def _verify(arguments: Sequence[str], _now_ms: Clock) -> int:
    from spark.command import evidence_command

    return evidence_command.verify_main(arguments)


_SUBCOMMANDS: Final[dict[str, Callable[[Sequence[str], Clock], int]]] = {
    "import": _import,
    "rules": _rules,
    "openslo": _openslo,
    "compact": _compact,
    "exclude": _exclude,
    "sign": _sign,
    "verify": _verify,
}


def _report(options: Options, now_ms: Clock) -> int:
    signal.signal(signal.SIGTERM, _interrupt)
    with contextlib.closing(make_reporter(PROGRAM, sys.stderr)) as reporter:
        return _run(options, now_ms, reporter)


def _run(options: Options, now_ms: Clock, reporter: Reporter) -> int:
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
