"""`mqreport import`: answers of a Prometheus server become metrics dumps (docs/metrics_dump.md).

Runs as its own command; starts no Spark. With `--print-queries` it prints a script that asks for
the answers. What a line is made of is the business of spark/prometheus_import.

Tested by tests/spark/command/test_command_line.py.
"""

from __future__ import annotations

import argparse
import datetime
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spark.command.arguments import RaisingParser, UsageError, date_type
from spark.command.failures import exit_code_of
from spark.command.output import PROGRAM, complain, say, say_text
from spark.prometheus_import.dump_writer import write_dumps
from spark.prometheus_import.lines import Imported, lines_of
from spark.prometheus_import.queries import queries
from spark.prometheus_import.response import read_responses

_DAY_S: Final = 86_400
_MOST_POINTS: Final = 11_000
"""That many moments Prometheus gives in one answer."""


def main(arguments: Sequence[str]) -> int:
    """Runs `mqreport import`; returns its exit code, 0 or 3. Raises UsageError."""
    given = _parser().parse_args(list(arguments))
    if given.print_queries:
        if given.files:
            raise UsageError("--print-queries takes no files: it prints how to get them")
        commands = _commands(given.server, given.date, given.step, given.match)
        say_text(sys.stdout, "\n".join(commands))
        return 0
    if not given.files or given.out is None:
        raise UsageError("import needs --out DUMPS and the files with Prometheus' answers")
    if given.match:
        raise UsageError("--match is only for --print-queries")
    return exit_code_of(lambda: _import(given))


def _import(given: argparse.Namespace) -> int:
    imported = lines_of(read_responses(given.files), dict(given.broker_id))
    count = write_dumps(Path(given.out), imported.lines)
    for note in imported.notes:
        complain(note)
    say(sys.stdout, f"{given.out}: {_summary(imported, count)}")
    return 0


def _summary(imported: Imported, files: int) -> str:
    count = imported.left_out
    left_out = f"; {count} target{'s' if count > 1 else ''} left out" if count else ""
    return (
        f"{len(imported.lines)} lines in {files} files; {imported.missing} timestamps have no"
        f" usable scrape and stay missing{left_out}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = RaisingParser(
        prog=f"{PROGRAM} import",
        allow_abbrev=False,
        description="Turns range-query answers (JSON) of a Prometheus server that scrapes brokers"
        " into metrics dumps that mqreport reads.",
        epilog='Exit codes: 0 done, 3 bad input. More: docs/nightly.md, "From Prometheus".',
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="answers of /api/v1/query_range; all files of one run together",
    )
    parser.add_argument("--out", metavar="DUMPS", help="directory that the dumps go to")
    parser.add_argument(
        "--broker-id",
        action="append",
        default=[],
        type=_broker_id,
        metavar="INSTANCE=ID",
        help="brokerId of a slave, by its label `instance`"
        " (needed where a group has several slaves)",
    )
    parser.add_argument(
        "--print-queries",
        action="store_true",
        help="print the commands that fetch the answers, and end",
    )
    parser.add_argument(
        "--server",
        default="http://localhost:9090",
        metavar="URL",
        help="of Prometheus, for --print-queries (default: %(default)s)",
    )
    parser.add_argument(
        "--date",
        type=date_type,
        metavar="YYYY-MM-DD",
        default=None,
        help="for --print-queries (default: yesterday)",
    )
    parser.add_argument(
        "--step",
        type=_step,
        default=15,
        metavar="SECONDS",
        help="for --print-queries: the scrape_interval (default: %(default)s)",
    )
    parser.add_argument(
        "--match",
        action="append",
        default=[],
        type=_matcher,
        metavar="MATCHER",
        help="for --print-queries: only such series, as 'node_id=\"broker-a\"'; may be repeated",
    )
    return parser


def _broker_id(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.+)=(\d+)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text}: write INSTANCE=ID, such as 10.0.0.7:5557=1")
    return match[1], int(match[2])


def _matcher(text: str) -> str:
    if re.fullmatch(r'[A-Za-z_]\w*(=|!=|=~|!~)"([^"\\\n]|\\.)*"', text) is None:
        raise argparse.ArgumentTypeError(f'{text}: write LABEL="VALUE", or !=, =~, !~')
    return text


def _step(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 3600:
        raise argparse.ArgumentTypeError(f"{text}: write whole seconds from 1 to 3600")
    return int(text)


def _commands(
    server: str, date: datetime.date | None, step_s: int, matchers: Sequence[str]
) -> list[str]:
    """A script: one curl for each query and part of the date, then the import of their answers.

    Ends at the first that fails. Of a refused query the import says the server's reason, which is
    in the answer.
    """
    if date is None:
        date = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)
    midnight = datetime.datetime.combine(date, datetime.time(), datetime.UTC)
    start = int(midnight.timestamp())
    # One step further than the date: what the last scrape of the date said is seen after it.
    moments = range(start, start + _DAY_S + step_s, step_s)
    parts = [moments[i : i + _MOST_POINTS] for i in range(0, len(moments), _MOST_POINTS)]
    commands, files = ["set -e"], []
    for name, query in queries(matchers).items():
        for number, part in enumerate(parts, 1):
            files.append(f"{name}-{date}-{number}.json")
            words = ["curl", "-sSG", f"{server.rstrip('/')}/api/v1/query_range"]
            words += ["--data-urlencode", f"query={query}"]
            words += ["-d", f"start={part[0]}", "-d", f"end={part[-1]}", "-d", f"step={step_s}"]
            words += ["-o", files[-1]]
            commands.append(shlex.join(words))
    commands.append(shlex.join([f"bin/{PROGRAM}", "import", "--out", "DUMPS", *files]))
    return commands
