"""`mqreport import`: answers of a Prometheus server become metrics dumps (docs/metrics_dump.md).

Plain Python, run as its own command; starts no Spark. Prints the queries to ask
(`--print-queries`) and writes files that are there whole or not at all; the same answers give
the same files.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import os
import re
import shlex
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

from spark.arguments import PROGRAM, ArgumentParser, UsageError
from spark.prometheus_lines import (
    NAMES,
    PER_TOPIC,
    PROCESS_START,
    READY,
    SCRAPED_AT,
    Line,
    lines_of,
)
from spark.prometheus_response import ResponseError, read_responses

_DAY_S: Final = 86_400
_MOST_POINTS: Final = 11_000
"""That many moments Prometheus gives in one answer."""
_LABELLED: Final = f'label_replace(timestamp({READY}), "__name__", "{SCRAPED_AT}", "", "")'
QUERIES: Final = {
    "broker": f'{{__name__=~"{"|".join(NAMES)}"}}',
    "topics": f'{{__name__=~"{"|".join(PER_TOPIC)}"}}',
    "starts": f"{PROCESS_START} and on (instance, job) {READY}",
    "scrapes": _LABELLED,
}
"""File name to query: all that a line is made of."""


def main(arguments: Sequence[str]) -> int:
    """Runs `mqreport import`; returns its exit code, 0 or 3. Raises UsageError."""
    given = _parser().parse_args(list(arguments))
    if given.print_queries:
        if given.files:
            raise UsageError("--print-queries takes no files: it says how to get them")
        sys.stdout.write("\n".join(_commands(given.server, given.date, given.step)) + "\n")
        return 0
    if not given.files or given.out is None:
        raise UsageError("import needs --out DUMPS and the files with Prometheus' answers")
    try:
        imported = lines_of(read_responses(given.files), dict(given.broker_id))
        count = write_dumps(Path(given.out), imported.lines)
    except ResponseError as error:
        sys.stderr.write(f"{PROGRAM}: {error}\n")
        return 3
    except OSError as error:
        sys.stderr.write(f"{PROGRAM}: {error.filename}: {error.strerror}\n")
        return 3
    for note in imported.notes:
        sys.stderr.write(f"{PROGRAM}: {note}\n")
    lines = len(imported.lines)
    sys.stdout.write(
        f"{lines} lines in {count} files below {given.out}; {imported.missing} moments have no"
        " usable scrape and stay missing\n"
    )
    return 0


def write_dumps(directory: Path, lines: Iterable[Line]) -> int:
    """Writes lines as a broker does: a file for each hour, broker and boot. Returns their number.

    Raises OSError.
    """
    files: dict[tuple[str, str, str, int, str], list[Line]] = defaultdict(list)
    for line in lines:
        hour = _moment(line).strftime("%Y-%m-%dT%H")
        key = (hour, line["cluster"], line["broker"], line["broker_id"], line["boot"])
        files[key].append(line)
    for some in files.values():
        first = some[0]
        place = directory / f"dt={_moment(first):%Y-%m-%d}"
        place = place / f"cluster={_component(first['cluster'])}"
        place = place / f"broker={_component(first['broker'])}"
        place.mkdir(parents=True, exist_ok=True)
        boot = f"{first['boot'][:8]}-{first['seq']:08d}"
        name = f"{_moment(first):%H%M}-{first['broker_id']}-{boot}.jsonl.gz"
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in some)
        _write(place / name, gzip.compress(text.encode(), mtime=0))
    return len(files)


def _write(path: Path, data: bytes) -> None:
    descriptor, hidden = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, 0o644)
        os.replace(hidden, path)
    except BaseException:
        os.unlink(hidden)
        raise


def _moment(line: Line) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(line["ts"] / 1000, datetime.UTC)


def _component(name: str) -> str:
    """`name` as part of a path: docs/metrics_dump.md, "Files"; quote alone would keep `~`."""
    return quote(name, safe="").replace("~", "%7E")


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
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
        type=_date,
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
    return parser


def _broker_id(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.+)=(\d+)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text}: write INSTANCE=ID, such as 10.0.0.7:5557=1")
    return match[1], int(match[2])


def _date(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: write YYYY-MM-DD (UTC)") from error


def _step(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 3600:
        raise argparse.ArgumentTypeError(f"{text}: write whole seconds from 1 to 3600")
    return int(text)


def _commands(server: str, date: datetime.date | None, step_s: int) -> list[str]:
    """One curl for each query and part of the date."""
    if date is None:
        date = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)
    midnight = datetime.datetime.combine(date, datetime.time(), datetime.UTC)
    start = int(midnight.timestamp())
    moments = range(start, start + _DAY_S, step_s)
    parts = [moments[i : i + _MOST_POINTS] for i in range(0, len(moments), _MOST_POINTS)]
    commands = []
    for name, query in QUERIES.items():
        for number, part in enumerate(parts, 1):
            words = ["curl", "-fsSG", f"{server.rstrip('/')}/api/v1/query_range"]
            words += ["--data-urlencode", f"query={query}"]
            words += ["-d", f"start={part[0]}", "-d", f"end={part[-1]}", "-d", f"step={step_s}"]
            words += ["-o", f"{name}-{date}-{number}.json"]
            commands.append(shlex.join(words))
    commands.append(f"bin/{PROGRAM} import --out DUMPS *-{date}-*.json")
    return commands
