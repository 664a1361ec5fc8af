"""What is cut off the commit log is kept: copies of bytes, and where they go.

Used by process `store` while nobody has the store open: by a re-synchronisation
(store/replica_resync.py) and by recovery, which cuts off what follows the last whole record. It
decides nothing about where a log ends.

    tail-<UTC>/<commitlog>/   what a recovery cut off; the newest _MOST_TAILS are kept
        <20 digits>                     a whole file
        <20 digits>.from-<phy_offset>   the bytes of a file from that offset on

Tested by tests/store/test_recovery.py.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from store import mapped_file
from store.errors import DiskFullError
from store.mapped_file import MappedFile, data_ranges, file_name, sync_directory
from store.mapped_file_queue import MappedFileQueue

log = logging.getLogger(__name__)

Beat = Callable[[], None]
"""Called now and then: the process lives."""

_STEP: Final = 1 << 20
_MOST_TAILS: Final = 8
_TAIL_NAME: Final = re.compile(r"tail-\d{8}T\d{6}\.\d{6}Z", re.ASCII)


# -- copies ------------------------------------------------------------------------------------


def backup_of(path: Path, name: str) -> Path:
    """Where the content of a store directory goes: on the same file system, so that a rename
    does it. Links are followed: the directory itself always stays where the operator put it."""
    real = path.resolve()
    return real / name if os.path.ismount(real) else real.parent / name / real.name


def make_directory(path: Path) -> None:
    """`path` with its parents, durably, also when a process that died made it. Raises OSError."""
    mapped_file.make_directory(path)
    sync_directory(path.parent)


def copy_from(
    file: Path,
    file_start: int,
    offset: int,
    target: Path,
    beat: Beat,
    way: str,
    *,
    spare: int = 0,
) -> bool:
    """Copy the bytes of a log file from `offset` on, without the zeros at its end, into the
    directory `target`; False when there are only zeros.

    The copy gets its name when it is whole: then, and only then, the bytes may be zeroed. A copy
    that is there already stays. way: what helps when the disk is full. spare: bytes that stay
    free beside it. Raises DiskFullError, OSError.
    """
    copy = target / f"{file_name(file_start)}.from-{offset}"
    if copy.exists():
        return True
    start = offset - file_start
    with MappedFile.open(file, file_start) as mapped, mapped.view() as view:
        end = end_of_data(file, view, start, beat)
        if end == start:
            return False
        make_directory(target.parent)
        make_directory(target)
        _check_room(target, end - start, spare, way)
        temporary = copy.with_name(copy.name + ".tmp")
        with temporary.open("wb") as out:
            for at in range(start, end, _STEP):
                out.write(view[at : min(at + _STEP, end)])
                beat()
            out.flush()
            os.fsync(out.fileno())
    os.replace(temporary, copy)
    sync_directory(target)
    return True


def end_of_data(file: Path, view: memoryview, start: int, beat: Beat) -> int:
    """Behind the last byte of `file` that is not zero, `start` when there is none. view: the whole
    file. What the file system knows to be empty is not read. Raises OSError."""
    for low, high in reversed(data_ranges(file, start, len(view))):
        end = _end_of_data(view, low, high, beat)
        if end > low:
            return end
    return start


def _end_of_data(view: memoryview, start: int, end: int, beat: Beat) -> int:
    zeros = bytes(_STEP)
    while end > start:
        at = max(start, end - _STEP)
        step = bytes(view[at:end])
        if step != zeros[: end - at]:
            return at + len(step.rstrip(b"\0"))
        end = at
        beat()
    return start


def _check_room(directory: Path, size: int, spare: int, way: str) -> None:
    status = os.statvfs(directory)
    free = status.f_bavail * status.f_frsize
    if free < size + spare:
        raise DiskFullError(
            f"{directory}: the backup of what is cut off the log needs {size} bytes, {free} are "
            f"free; {way}"
        )


# -- the tail that a recovery cuts off -----------------------------------------------------------


def keep_tail(queue: MappedFileQueue, tail: int, beat: Beat) -> Path | None:
    """Keep what lies behind `tail`: of its file a copy, later files with data are moved; where, of
    several directories the first place. None when all is zero. Durable when it returns. Raises
    DiskFullError, OSError."""
    name = f"tail-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    last = tail - tail % queue.file_size
    targets: dict[Path, None] = {}
    if last in queue.start_offsets:
        way = "free space, or move the end of the log away, and start again"
        path = queue.path_of(last)
        target = backup_of(path.parent, name)
        if copy_from(path, last, tail, target, beat, way):
            targets[target] = None
    # The newest first, those of zeros too: whenever it ends, no file is missing before another.
    for start in [start for start in reversed(queue.start_offsets) if start > last]:
        path = queue.path_of(start)
        if not _has_data(queue, start, beat):
            queue.directories.remove(path)
        else:
            target = backup_of(path.parent, name)
            make_directory(target.parent)
            make_directory(target)
            os.rename(path, target / path.name)
            sync_directory(target)
            sync_directory(path.parent)
            targets[target] = None
    for target in targets:
        _forget_old_tails(target)
    return next(iter(targets), None)


def _has_data(queue: MappedFileQueue, start: int, beat: Beat) -> bool:
    with queue.view_at(start) as view:
        return end_of_data(queue.path_of(start), view, 0, beat) > 0


def _forget_old_tails(newest: Path) -> None:
    """Delete the oldest beyond _MOST_TAILS; name those that are left."""
    own = newest if _TAIL_NAME.fullmatch(newest.name) else newest.parent
    tails = sorted(path for path in own.parent.iterdir() if _TAIL_NAME.fullmatch(path.name))
    for path in tails[:-_MOST_TAILS]:
        log.warning("%s: deleted, %s newer ones are kept", path, _MOST_TAILS)
        shutil.rmtree(path, ignore_errors=True)
    names = ", ".join(path.name for path in tails[-_MOST_TAILS:])
    log.warning("%s: kept what was cut off the log's end: %s", own.parent, names)
