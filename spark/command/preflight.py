"""What is wrong with the paths that were given, said before Spark is started.

Called on the main thread by spark/command/command_line.py; looks at this machine's file system
only. Spark takes half a minute to start, and would then say the same. Must not know Spark.
"""

from __future__ import annotations

import datetime
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from spark.command.arguments import Options
from spark.command.catch_up import partition_date
from spark.reported_day import InputError

_MOST_RUNS: Final = 5
"""So many runs of dates are named, the last ones."""
_PROBE: Final = ".mqreport.probe"


def check_paths(
    options: Options, date: datetime.date, environment: Mapping[str, str]
) -> str | None:
    """A note for the user, or None. Raises InputError for --dumps that are not there, for --out
    that cannot be written, and for a date of which nothing could be said at all.

    Paths elsewhere (hdfs://, s3a://, or a Hadoop configuration that may mean other ones) are not
    looked at: Spark will.
    """
    if not _is_local(options, environment):
        return None
    local = [_local(path) for path in options.dumps]
    dumps = [path for path in local if path is not None]
    for path in dumps:
        _check_dumps(path)
    out = _local(options.out)
    if out is not None:
        _check_out(out)
    if len(dumps) < len(options.dumps) or out is None or options.catch_up is not None:
        return None
    there = dates_of(dumps)
    if date in there:
        return None
    known = f"there are dumps of {in_words(there)}" if there else "there are none of any date"
    missing = f"--date {date}: no dumps of it in {', '.join(map(str, dumps))}; {known}"
    neighbours = {date - datetime.timedelta(days=1), date + datetime.timedelta(days=1)}
    if not neighbours & there and not _has_results(out) and not options.sla.expect:
        raise InputError(f"{missing}; no earlier result and no `expect` names a replica either")
    return f"{missing}; the report says what is unknown of the date"


def dates_of(dumps: Iterable[Path]) -> set[datetime.date]:
    """The dates that directories of dumps have."""
    found = {partition_date(entry.name) for path in dumps for entry in path.iterdir()}
    return {date for date in found if date is not None}


def in_words(dates: Iterable[datetime.date]) -> str:
    """`2026-03-01 to 2026-03-09, 2026-03-12`; of many runs the last ones."""
    runs: list[list[datetime.date]] = []
    for date in sorted(dates):
        if runs and date - runs[-1][-1] == datetime.timedelta(days=1):
            runs[-1].append(date)
        else:
            runs.append([date])
    texts = [_run_in_words(run) for run in runs[-_MOST_RUNS:]]
    return ", ".join([*(["…"] if len(runs) > _MOST_RUNS else []), *texts])


def _run_in_words(run: Sequence[datetime.date]) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}"


def _is_local(options: Options, environment: Mapping[str, str]) -> bool:
    """Whether a path without a scheme is one of this machine."""
    return (
        options.master is not None
        and options.master.startswith("local")
        and not environment.get("HADOOP_CONF_DIR")
        and "spark.hadoop.fs.defaultFS" not in options.settings
    )


def _local(path: str) -> Path | None:
    scheme, separator, rest = path.partition("://")
    if separator:
        return Path(rest) if scheme == "file" and rest.startswith("/") else None
    return None if path.startswith("file:") else Path(path)


def _check_dumps(path: Path) -> None:
    if not path.exists():
        raise InputError(
            f"--dumps {path}: no such directory; give the metricsDumpPath of a broker"
            " (<storePathRootDir>/metrics)"
        )
    if not path.is_dir():
        raise InputError(f"--dumps {path}: is a file; give the directory that has dt=DATE in it")
    try:
        next(path.iterdir(), None)
    except OSError as error:
        raise InputError(f"--dumps {path}: cannot be read: {error.strerror}") from error


def _check_out(out: Path) -> None:
    """Makes nothing that stays: a directory is made when there is something to put into it."""
    place = next(path for path in (out, *out.absolute().parents) if path.exists())
    probe = place / f"{_PROBE}-{os.getpid()}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"--out {out}: cannot be written: {place}: {error.strerror}; give a directory of"
            " yours, or make room there"
        ) from error


def _has_results(out: Path) -> bool:
    stored = out / "parquet" / "replica_days"
    return stored.is_dir() and any(itertools.islice(stored.glob("dt=*"), 1))
