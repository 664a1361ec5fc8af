"""`mqreport compact`: the many files of a dump directory's dates become few.

Runs as its own command; starts no Spark. How files are merged is the business of
spark/dumps/compaction.py.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from spark.command.arguments import RaisingParser, UsageError, date_type
from spark.command.failures import exit_code_of
from spark.command.output import PROGRAM, complain, say
from spark.dumps.compaction import Compacted, compact

_DATE: Final = re.compile(r"dt=(\d{4}-\d{2}-\d{2})")


def main(arguments: Sequence[str], now_ms: Callable[[], int]) -> int:
    """Runs `mqreport compact`; returns its exit code, 0 or 3. Raises UsageError."""
    given = _parser().parse_args(list(arguments))
    for path in given.dumps:
        if "://" in path:
            raise UsageError(
                f"{path}: compact works on local directories; run it before the files are copied"
            )
        if not Path(path).is_dir():
            raise UsageError(f"{path}: there is no such directory; give metricsDumpPath")
    now = datetime.datetime.fromtimestamp(now_ms() / 1000, datetime.UTC)
    return exit_code_of(lambda: _compact(given, now))


def _compact(given: argparse.Namespace, now: datetime.datetime) -> int:
    done = Compacted()
    for path in given.dumps:
        for day in _dates(Path(path), given.date, now.date()):
            for place in sorted(day.glob("cluster=*/broker=*")):
                compact(place, now, done)
    for note in done.notes:
        complain(note)
    left = f"; {len(done.notes)} left as they are" if done.notes else ""
    say(sys.stdout, f"{done.files} files became {done.merged}{left}")
    return 0


def _dates(dumps: Path, asked: Sequence[datetime.date], today: datetime.date) -> list[Path]:
    """Directories of the dates that were asked for, else of all that are over."""
    found = []
    for place in sorted(dumps.glob("dt=*")):
        match = _DATE.fullmatch(place.name)
        if match is None:
            continue
        date = datetime.date.fromisoformat(match[1])
        if date in asked or (not asked and date < today):
            found.append(place)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = RaisingParser(
        prog=f"{PROGRAM} compact",
        allow_abbrev=False,
        description="Merges the closed files of metrics dumps: one for each date and life of a"
        " broker. The report of such a date stays the same.",
        epilog="Exit codes: 0 done, 3 bad input or error. A run that was killed is completed by"
        " the next one. More: docs/sla_at_scale.md.",
    )
    parser.add_argument(
        "--dumps",
        nargs="+",
        action="extend",
        required=True,
        metavar="PATH",
        help="local metricsDumpPath of one or more brokers; may be repeated",
    )
    parser.add_argument(
        "--date",
        action="append",
        default=[],
        type=date_type,
        metavar="YYYY-MM-DD",
        help="only this date (UTC); may be repeated (default: all that are over)",
    )
    return parser
