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

from spark.command.arguments import FIRST, LAST, Options
from spark.dumps.dump_files import read_lines
from spark.dumps.dump_line import BadLineError, decode_line
from spark.dumps.dump_text import Bounds, LeftOutError
from spark.reported_day import InputError, midnight_ms
from spark.vocabulary import DAY_MS, MASTER_ROLES, MINUTE_MS


def resolved(options: Options, date: datetime.date) -> Options:
    """The options, with `between` of the lines that `edges` name. Raises InputError.

    The first line is the first one in which a master tells of a replica: before it nothing can be
    promised. The last one is any master's.
    """
    if options.edges is None:
        return options
    moments = sorted(_moments(options.dumps, date, options.bounds))
    if len(moments) < 2:
        raise InputError(
            f"--between: no two lines of {date} in {', '.join(options.dumps)} tell of a replica;"
            " wait for a few intervals of the dump (5 s), or name another --date"
        )
    # Just before it: a replica that comes with it is a new one, and copies for the first time.
    named = {FIRST: max(moments[0] - 1, midnight_ms(date)), LAST: moments[-1]}
    first, last = (
        (named[edge] - midnight_ms(date)) / MINUTE_MS if isinstance(edge, str) else edge
        for edge in options.edges
    )
    if first >= last:
        raise InputError("--between: no line lies between these times")
    return dataclasses.replace(options, between=(first, last), edges=None)


def _moments(dumps: Iterable[str], date: datetime.date, bounds: Bounds) -> set[int]:
    """Of the masters' lines that tell of a replica; epoch ms, within the date. Files that the
    report leaves out are left out."""
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


def _of_lines(lines: Iterable[bytes], start_ms: int) -> Iterable[int]:
    for text in lines:
        try:
            line = decode_line(text, start_ms)
        except BadLineError:
            continue
        is_told = line.role in MASTER_ROLES and line.replicas
        if is_told and start_ms <= line.ts < start_ms + DAY_MS:
            yield line.ts
