"""Who writes below a local --out: one run of the report at a time; `mqreport verify` and `mqreport
sign` look at it only while nobody does.

Called on the main thread by the commands. Must not know Spark.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from spark.evidence.links import DIRECTORY

_LOCK = ".mqreport.lock"


class InUseError(Exception):
    """Another run writes there."""


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Makes the directory; nobody else writes there meanwhile. Raises OSError and InUseError."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / _LOCK).open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InUseError from error
        yield


def is_in_use(out: Path) -> bool:
    """Whether a run writes there now. A copy of results has no lock."""
    try:
        with (out / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # until it is closed, at once
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def state_of(out: Path) -> frozenset[tuple[str, int, int]]:
    """Another one once a run has made a result: links, and the files that results end with."""
    found = set()
    for path in (*(out / DIRECTORY).glob("*.json"), *(out / "report").glob("dt=*/summary.json")):
        with contextlib.suppress(OSError):
            status = path.stat()
            found.add((str(path), status.st_ino, status.st_mtime_ns))
    return frozenset(found)
