"""The arguments of the report's command, checked before anything is started.

Reads sla.yaml, so that its mistakes are reported first; knows nothing of Spark.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from spark.command.output import PROGRAM
from spark.command.receiver import ALWAYS, CHANGE, FORMATS, JSON, OCCASIONS, Receiver, receiver_of
from spark.command.webhook import AddressError
from spark.config.exclusion_log import LogError, entries_of, exclusions_in_force
from spark.config.objectives import EXIT_POLICIES, SlaConfig
from spark.config.sla_config import default_sla, read_sla
from spark.dumps.dump_text import DEFAULT_BOUNDS, DEFAULT_MOST_MB, SETTING, Bounds
from spark.job.spark_submit import is_under_spark_submit

DEFAULT_MASTER: Final = "local[*]"
NOTIFY_VARIABLE: Final = "MQREPORT_NOTIFY_URL"
_MOST_DAYS: Final = 400
_MOST_MB: Final = 8_000
"""Of which a quarter, as a file lies there, is what Java's arrays hold."""
_CLOCK_TIME: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])|24:00")
_TAKEN_SETTINGS: Final = {
    "spark.master": "use --master",
    "spark.sql.session.timeZone": "the report computes in UTC",
}


FIRST: Final = "first"
LAST: Final = "last"
"""Of --between: the moments of a date's first and last line."""


class UsageError(Exception):
    """Arguments that cannot be used: says which, and the way out."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. `date` is as written, `between` minutes of the date; `master` is None
    under spark-submit."""

    date: str
    dumps: tuple[str, ...]
    out: str
    sla: SlaConfig
    master: str | None
    between: tuple[float, float] | None
    catch_up: int | None
    settings: Mapping[str, str]
    notify: Receiver | None = None
    edges: tuple[float | str, float | str] | None = None
    """`--between` with FIRST or LAST in it, of which spark/command/first_and_last.py makes
    `between`."""
    bounds: Bounds = DEFAULT_BOUNDS


class RaisingParser(argparse.ArgumentParser):
    """Raises UsageError where argparse would exit with 2: that says "insufficient data" here."""

    def error(self, message: str) -> NoReturn:
        """See argparse."""
        raise UsageError(message)


def parse_arguments(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """The options. Raises UsageError and SlaError; --help ends the program."""
    parser = _parser()
    _check_flags(parser, arguments)
    given = parser.parse_args(list(arguments))
    if given.catch_up is not None and given.between is not None:
        raise UsageError("--between is for one date, --catch-up for several: give one of them")
    submitted = is_under_spark_submit(environment)
    if submitted and (given.master or given.conf):
        raise UsageError(
            "under spark-submit --master and --conf are options of spark-submit:"
            " put them before the name of the program"
        )
    between, edges = _between(*given.between) if given.between else (None, None)
    sla = find_sla(given.sla, environment)
    if given.exclusions is not None:
        sla = _with_exclusions(sla, Path(given.exclusions))
    if given.exit_on is not None:
        sla = dataclasses.replace(sla, exit_policy=given.exit_on)
    return Options(
        date=given.date,
        dumps=tuple(given.dumps),
        out=given.out,
        sla=sla,
        master=None if submitted else given.master or DEFAULT_MASTER,
        between=between,
        edges=edges,
        catch_up=given.catch_up,
        settings=dict(given.conf),
        notify=_receiver(given, environment),
        bounds=Bounds(given.max_dump_file_mb),
    )


def _check_flags(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """argparse would name the required ones that are missing, not the one that is misspelt."""
    known = [flag for action in parser._actions for flag in action.option_strings]
    for argument in arguments:
        flag = argument.partition("=")[0]
        if flag.startswith("--") and flag not in known:
            near = difflib.get_close_matches(flag, known, n=1)
            way_out = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"unknown argument {flag}{way_out}")


def _parser() -> argparse.ArgumentParser:
    parser = RaisingParser(
        prog=PROGRAM,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="The nightly replication report: reads the metrics dumps of brokers, computes"
        "\nlag, availability, incidents and budgets of each replica, writes Parquet,"
        "\nJSON, CSV and one HTML page.",
        epilog="`mqreport import --help`: dumps from a Prometheus server's answers."
        "\n`mqreport rules --help`: Prometheus rules for the objectives of sla.yaml."
        "\n`mqreport openslo --help`: these objectives as OpenSLO documents, and back."
        "\n`mqreport compact --help`: merges dump files of dates that are over."
        "\n`mqreport exclude --help`: exclusions and annotations after the event."
        "\n`mqreport sign --help`: signs results. `mqreport verify --help`: what is proved."
        "\nExit codes: 0 met, 1 breached, 2 insufficient data, 3 bad input or error,"
        "\n130 interrupted."
        "\nAll dates and times are UTC. More: docs/nightly.md.",
    )
    paths = parser.add_argument_group("what to read and write (local, hdfs://, s3a://)")
    paths.add_argument(
        "--dumps",
        nargs="+",
        action="extend",
        required=True,
        type=_path,
        metavar="PATH",
        help="metricsDumpPath of one or more brokers; may be repeated",
    )
    paths.add_argument(
        "--out",
        required=True,
        type=_path,
        metavar="PATH",
        help="results: PATH/parquet and PATH/report/dt=DATE/report.html",
    )
    add_bounds_option(paths)
    add_sla_option(paths)
    paths.add_argument(
        "--exclusions",
        metavar="FILE",
        help="exclusions and annotations after the event, which mqreport exclude writes",
    )
    when = parser.add_argument_group("which dates")
    when.add_argument(
        "--date", default="yesterday", help="YYYY-MM-DD, today (so far) or yesterday (default)"
    )
    when.add_argument(
        "--between",
        nargs=2,
        type=_minutes,
        metavar=("HH:MM", "HH:MM"),
        help=f"only this part of the date; `{FIRST}` and `{LAST}` are the moments of its first and"
        " last line",
    )
    when.add_argument(
        "--catch-up",
        type=_count,
        metavar="DAYS",
        help="report every one of the last DAYS dates up to --date without a result in --out",
    )
    notification = parser.add_argument_group("notification")
    notification.add_argument(
        "--exit-on",
        choices=EXIT_POLICIES,
        help="which verdicts set the exit code; window: the longest one, and calendar periods"
        " (default: exit_on in sla.yaml, else day)",
    )
    notification.add_argument(
        "--notify",
        metavar="URL",
        help=f"POST the verdict to this URL as JSON; to keep it out of ps, give @FILE, a file that"
        f" holds it, or set {NOTIFY_VARIABLE}",
    )
    notification.add_argument(
        "--notify-on",
        choices=OCCASIONS,
        help=f"{CHANGE}: only when a verdict or a step of the error-budget policy differs from what"
        f" was sent last (default: {ALWAYS})",
    )
    notification.add_argument(
        "--notify-format",
        choices=FORMATS,
        help=f"what is posted (default: {JSON}); or in front of the URL: slack+https://...",
    )
    engine = parser.add_argument_group("Spark (under spark-submit these are its own options)")
    engine.add_argument("--master", help="local[*] (default), local[2], yarn, k8s://...")
    engine.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting of Spark, such as spark.driver.memory=4g; may be repeated",
    )
    return parser


def _with_exclusions(sla: SlaConfig, path: Path) -> SlaConfig:
    """Those in force count before the maintenance of sla.yaml. Raises UsageError."""
    try:
        content = path.read_bytes()
        entries = entries_of(content, str(path))
    except OSError as error:
        raise UsageError(f"--exclusions {path}: cannot be read: {error.strerror}") from error
    except LogError as error:
        raise UsageError(f"--exclusions {error}") from error
    return dataclasses.replace(
        sla,
        exclusions=(*exclusions_in_force(entries), *sla.exclusions),
        log=entries,
        exclusion_log=content,
    )


def _path(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("is empty: give a path")
    return text


def _minutes(text: str) -> int | str:
    if text in (FIRST, LAST):
        return text
    match = _CLOCK_TIME.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text} is not a time of day; write HH:MM, up to 24:00")
    return 24 * 60 if match[1] is None else int(match[1]) * 60 + int(match[2])


def _between(
    first: int | str, last: int | str
) -> tuple[tuple[int, int] | None, tuple[int | str, int | str] | None]:
    if first == LAST or last == FIRST:
        raise UsageError(f"--between: `{FIRST}` is a beginning, and `{LAST}` an end")
    if isinstance(first, str) or isinstance(last, str):
        return None, (first, last)
    if first >= last:
        raise UsageError(
            "--between: the first time has to be before the second; a night needs two runs, one for"
            " each date"
        )
    return (first, last), None


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{text} is not a number of days from 1 to {_MOST_DAYS}")
    return int(text)


def _setting(text: str) -> tuple[str, str]:
    match = re.fullmatch(r"(spark\.[^=\s]+)=(.*)", text, re.DOTALL)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting: write spark.some.key=value")
    if match[1] in _TAKEN_SETTINGS:
        raise argparse.ArgumentTypeError(f"{match[1]}: {_TAKEN_SETTINGS[match[1]]}")
    return match[1], match[2]


def _receiver(options: argparse.Namespace, environment: Mapping[str, str]) -> Receiver | None:
    """Who is told the verdict. Errors name the source of the address, never the address."""
    given: str | None = options.notify
    source, address = "--notify", given
    if given is None:
        source, address = NOTIFY_VARIABLE, environment.get(NOTIFY_VARIABLE) or None
    elif given.startswith("@"):
        source = f"--notify {given}"
        try:
            address = Path(given[1:]).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UsageError(f"{source}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{source}: is not UTF-8 text") from error
    if address is None:
        for flag, value in (("on", options.notify_on), ("format", options.notify_format)):
            if value is not None:
                raise UsageError(f"--notify-{flag} {value}: needs --notify URL")
        return None
    try:
        return receiver_of(address, options.notify_format, options.notify_on)
    except AddressError as error:
        raise UsageError(f"{source}: {error}") from error


def date_type(text: str) -> datetime.date:
    """A date of the command line, for argparse."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: write YYYY-MM-DD (UTC)") from error


def add_bounds_option(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """--max-dump-file-mb, an integer for `Bounds`."""
    parser.add_argument(
        SETTING,
        type=_megabytes,
        default=DEFAULT_MOST_MB,
        metavar="MB",
        help="a dump's file that unpacks to more, or has more than a quarter of it as it lies"
        " there, is left out (default: %(default)s)",
    )


def _megabytes(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,4}", text) is None or not 1 <= int(text) <= _MOST_MB:
        raise argparse.ArgumentTypeError(f"{text} is not a number of MB from 1 to {_MOST_MB}")
    return int(text)


def add_sla_option(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """--sla; `find_sla` reads what it names."""
    parser.add_argument(
        "--sla", metavar="FILE", help="objectives (default: conf/sla.yaml of the installation)"
    )


def find_sla(path: str | None, environment: Mapping[str, str]) -> SlaConfig:
    """The named file, else the installation's, else what is built in (which is the same).

    Raises SlaError.
    """
    if path is not None:
        return read_sla(Path(path))
    home = environment.get("ROCKETMQ_HOME") or Path(__file__).resolve().parents[2]
    installed = Path(home, "conf", "sla.yaml")
    return read_sla(installed) if installed.exists() else default_sla()
