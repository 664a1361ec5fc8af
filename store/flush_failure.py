"""A flush that failed, written down for the next start: `<root>/fsync_failed.json`.

After a failed fdatasync Linux calls the pages clean that it could not write: what is read from its
cache is what was written, the disk has something else, and the next fdatasync says "fine". So the
process ends, and the next start writes the cached pages again (store/cache_repair.py) before it
serves; only then the file goes. It is written by process `store`, in place and as far as it goes:
the disk that just failed may fail again. In the cache of the same boot it counts all the same, and
in another boot there is no cache left to distrust. Java ignores the file.

    flushed_offset  the commit log is on disk up to here; null: as far as recovery finds out
    error, time     what failed, and when (UTC), for people
    failures        how many failed since the last start that served
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from store.mapped_file import sync_directory

log = logging.getLogger(__name__)

UNKNOWN: Final = None
"""A flushed_offset that nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushFailure:
    """The content of the file; see the module."""

    flushed_offset: int | None
    error: str
    time: str
    failures: int


def note_flush_failure(path: Path, error: Exception, flushed_offset: int | None) -> None:
    """Write the failure down, with the lower flushed_offset where one is there already. Never
    raises: without the file the abort file makes the next start do the same."""
    before = read_flush_failure(path)
    if before is not None:
        flushed_offset = _lower(before.flushed_offset, flushed_offset)
    failure = FlushFailure(
        flushed_offset=flushed_offset,
        error=str(error),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        failures=(before.failures if before else 0) + 1,
    )
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, json.dumps(asdict(failure), indent=1).encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_directory(path.parent)
    except OSError as problem:
        log.critical("%s: not durable: %s", path, problem)
        return
    log.critical("recorded in %s: the log is on disk up to %s", path, flushed_offset)


def read_flush_failure(path: Path) -> FlushFailure | None:
    """What was written down; None: nothing. A file that cannot be understood says "unknown"."""
    try:
        found = json.loads(path.read_bytes())
        offset, failures = found["flushed_offset"], found["failures"]
        if (offset is not None and (type(offset) is not int or offset < 0)) or failures < 1:
            raise ValueError(f"flushed_offset {offset}, failures {failures}")
        return FlushFailure(
            flushed_offset=offset,
            error=str(found["error"]),
            time=str(found["time"]),
            failures=failures,
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("%s: not readable (%r): taken for a failure at an unknown place", path, error)
        return FlushFailure(flushed_offset=UNKNOWN, error="unknown", time="unknown", failures=1)


def remove_flush_failure(path: Path) -> None:
    """After the repair; on disk when it returns. Raises FlushFailedError, OSError."""
    if path.exists():
        path.unlink(missing_ok=True)
        sync_directory(path.parent)


def _lower(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)
