"""`--between first last`: the moments of the first and the last line of a date.

Called on the main thread before Spark is started; reads the dumps of this machine. For trying
things out: the report of a pair that was started a minute ago is of that minute, and not of ten
minutes of which nine are unknown. A night's report is of the whole date. Must not know Spark.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from spark.command.arguments import FIRST, LAST, Options
from spark.dumps.dump_files import read_lines
from spark.dumps.dump_line import BadLineError, decode_line
from spark.dumps.dump_text import Bounds, LeftOutError
from spark.reported_day import InputError, midnight_ms
from spark.vocabulary import DAY_MS, MASTER_ROLES, MINUTE_MS


def resolved(options: Options, date: datetime.date) -> Options:
    """The options, with `between` of the lines that `edges` name. Raises InputError.

    The first line is the first one in which a master tells of a replica: before it nothing can be
    promised. Of several groups that begin within two intervals the last one's counts. The last one
    is that of the group that wrote last, or of another one that still writes, whose last line is
    the earliest: behind it nothing is known of that group, and in a millisecond a thousand sends
    may be answered.
    """
    if options.edges is None:
        return options
    moments = _moments(options.dumps, date, options.bounds)
    if len({line.ts for line in moments}) < 2:
        raise InputError(
            f"--between: no two lines of {date} in {', '.join(options.dumps)} mention a replica;"
            " wait for a few intervals of the dump (5 s), or name another --date"
        )
    # Just before it: a replica that comes with it is a new one, and copies for the first time.
    first_ms = _begin_of_all(moments) - 1
    named = {FIRST: max(first_ms, midnight_ms(date)), LAST: _end_of_all(moments)}
    first, last = (
        (named[edge] - midnight_ms(date)) / MINUTE_MS if isinstance(edge, str) else edge
        for edge in options.edges
    )
    if first >= last:
        raise InputError("--between: no line lies between these times")
    return dataclasses.replace(options, between=(first, last), edges=None)


class _Told(NamedTuple):
    """A line in which a master tells of a replica: epoch ms, its group, and its interval."""

    ts: int
    group: tuple[str, str]
    interval_ms: int


def _begin_of_all(lines: Iterable[_Told]) -> int:
    """From when on all groups are known that were started with the first one."""
    first: dict[tuple[str, str], _Told] = {}
    for line in sorted(lines):
        first.setdefault(line.group, line)
    earliest = min(first.values())
    until_ms = earliest.ts + 2 * earliest.interval_ms
    return max(line.ts for line in first.values() if line.ts <= until_ms)


def _end_of_all(lines: Iterable[_Told]) -> int:
    """Up to when all groups that still write are known. One whose last line is older than two
    intervals writes no more: its end is in the window."""
    last: dict[tuple[str, str], _Told] = {}
    for line in sorted(lines):
        last[line.group] = line
    latest_ms = max(line.ts for line in last.values())
    return min(line.ts for line in last.values() if line.ts + 2 * line.interval_ms >= latest_ms)


def _moments(dumps: Iterable[str], date: datetime.date, bounds: Bounds) -> set[_Told]:
    """Of the masters' lines that tell of a replica, within the date. Files that the report leaves
    out are left out."""
    start_ms = midnight_ms(date)
    found = set()
    for path in dumps:
        place = Path(path, f"dt={date}")
        for file in sorted(place.rglob("*")):
            if file.name.startswith((".", "_")) or not file.is_file():
                continue
            try:
                bounds.check_stored(file.stat().st_size)
                lines, _ = read_lines(file.read_bytes(), bounds)
            except OSError as error:
                raise InputError(f"{file}: cannot be read: {error.strerror}") from error
            except LeftOutError:
                continue
            found |= set(_of_lines(lines, start_ms))
    return found


def _of_lines(lines: Iterable[bytes], start_ms: int) -> Iterable[_Told]:
    for text in lines:
        try:
            line = decode_line(text, start_ms)
        except BadLineError:
            continue
        is_told = line.role in MASTER_ROLES and line.replicas
        if is_told and start_ms <= line.ts < start_ms + DAY_MS:
            yield _Told(line.ts, (line.cluster, line.broker), line.interval_ms)
