"""Where the files of compaction logs are, and how the files of one are replaced as a whole.

    <root>/compaction/position-checkpoint               up to where each queue is compacted
    <root>/compaction/compactionLog/<topic>/<queueId>/  records, files of one size
    <root>/compaction/compactionCq/<topic>/<queueId>/   sparse queue, a file for each of those, of
                                                        the same name
        compacting/<name>                               both: what will replace files
    .../compactionLog/.../compacting/replace.json       ours: the replacement has begun

A replacement is decided by replace.json, which is written when all new files are on disk: without
it they are discarded, with it the renames are done, by the next start if need be. (RocketMQ renames
the old files away first: a crash in between leaves a store that it cannot load.) New files go over
old ones in order, log first, so that a reader that opens files meanwhile finds every record in the
first file that has its offset. Used by the owner of a CompactionLog.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conf.atomic_file import replace_file
from store.errors import StoreError
from store.mapped_file import file_name, make_directory, sync_directory
from store.mapped_file_queue import list_store_files
from store.message_store_config import BATCH_UNIT_SIZE

log = logging.getLogger(__name__)

COMPACTING: Final = "compacting"
_REPLICATING: Final = "replicating"
"""Where a Java slave keeps what it fetches."""
_DECISION: Final = "replace.json"
_DELETED_BY_JAVA: Final = ".delete"
_QUEUE_ID: Final = re.compile(r"0|[1-9]\d{0,8}", re.ASCII)
_LEAST_LOG: Final = 5
"""A log file has room for at least so many sizes of a queue file."""


@dataclass(frozen=True, slots=True)
class FileSizes:
    """Bytes of a log file, and of a queue file."""

    log: int
    queue: int

    @classmethod
    def of(cls, log_size: int, queue_size: int) -> FileSizes:
        """From compactionMappedFileSize and compactionCqMappedFileSize, rounded as by RocketMQ:
        whole units, and a log file of whole queue files."""
        queue = queue_size // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE
        times, rest = divmod(log_size, queue)
        if times < _LEAST_LOG:
            return cls(queue * _LEAST_LOG, queue)
        return cls(queue * (times if 0 < rest < queue >> 1 else times + 1), queue)


@dataclass(frozen=True, slots=True)
class CompactionDirectories:
    """The two directories of one queue."""

    log: Path
    queue: Path

    @classmethod
    def of(cls, root: Path, topic: str, queue_id: int) -> CompactionDirectories:
        """root: <storePathRootDir>/compaction."""
        place = Path(topic, str(queue_id))
        return cls(root / "compactionLog" / place, root / "compactionCq" / place)

    @property
    def compacting(self) -> CompactionDirectories:
        """Where new files are made."""
        return CompactionDirectories(self.log / COMPACTING, self.queue / COMPACTING)

    @property
    def both(self) -> tuple[Path, Path]:
        """Log, then queue."""
        return self.log, self.queue


def list_logs(root: Path) -> list[tuple[str, int]]:
    """(topic, queue id) of every compaction log that there is. Other names are left alone, with a
    warning."""
    found = []
    logs = root / "compactionLog"
    for topic in sorted(logs.iterdir()) if logs.is_dir() else ():
        for queue in sorted(topic.iterdir()) if topic.is_dir() else ():
            if queue.is_dir() and _QUEUE_ID.fullmatch(queue.name) and _is_text(topic.name):
                found.append((topic.name, int(queue.name)))
            else:
                log.warning("compaction: %r ignored: no queue", str(queue))
    return found


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def list_starts(directories: CompactionDirectories, sizes: FileSizes) -> list[int]:
    """Where the files of a queue begin, in order.

    A last file that only one of the directories has was being made in a crash: it is deleted.
    Raises StoreError: sizes are wrong, or the two directories do not belong together.
    """
    starts = [_starts(directories.log, sizes.log, "compactionMappedFileSize")]
    starts.append(_starts(directories.queue, sizes.queue, "compactionCqMappedFileSize"))
    for start in set(starts[0]) ^ set(starts[1]):
        if start != max(starts[0] + starts[1]):
            raise StoreError(
                f"{directories.log} and {directories.queue}: only one of them has "
                f"{file_name(start)}; restore both from a copy, or delete both: what the commit "
                "log still holds is compacted again"
            )
        for directory in directories.both:
            (directory / file_name(start)).unlink(missing_ok=True)
    return sorted(set(starts[0]) & set(starts[1]))


def _starts(directory: Path, size: int, key: str) -> list[int]:
    found = list_store_files(directory)
    for file in found:
        if file is found[-1] and not file.size:
            os.truncate(file.path, size)  # It was being made.
        elif file.size != size or file.start_offset < 0:
            raise StoreError(
                f"{file.path} has {file.size} bytes, by {key} it must have {size}: set the size "
                "that the files were made with"
            )
    return [file.start_offset for file in found]


# -- replacing ---------------------------------------------------------------------------------


def decide_replacement(
    directories: CompactionDirectories, old: list[int], new: list[int], position: int
) -> None:
    """The files `new` in `compacting`, which are on disk, replace `old`; position: up to where the
    queue is compacted then. It happens with `finish_replacement`, now or at the next start. Raises
    OSError."""
    for directory in directories.compacting.both:
        make_directory(directory)  # Nothing may be left.
        sync_directory(directory)
    decision = {"old": old, "new": new, "position": position}
    path = directories.compacting.log / _DECISION
    try:
        replace_file(path, json.dumps(decision).encode())
    except OSError:
        # It may have got its name: who gives up must not find it.
        path.unlink(missing_ok=True)
        raise


def remove_log(directories: CompactionDirectories, starts: list[int]) -> None:
    """Delete all files of a queue, and the topic's directories if they are empty. `starts` are
    replaced by nothing first, so that a crash in between leaves no half of it. Raises StoreError,
    OSError."""
    finish_replacement(directories)
    try:
        decide_replacement(directories, starts, [], -1)
    except OSError as error:
        # A full disk is no reason to keep them.
        log.warning("%s: removing it without a record of that: %s", directories.log, error)
    finish_replacement(directories)
    for directory in directories.both:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory)
        with contextlib.suppress(OSError):
            directory.parent.rmdir()


def is_being_replaced(directories: CompactionDirectories) -> bool:
    """Whether old and new files may be mixed now."""
    return (directories.compacting.log / _DECISION).exists()


def finish_replacement(directories: CompactionDirectories) -> int | None:
    """Do what was decided, if something was; up to where the queue is compacted then. Whatever else
    is in `compacting` is deleted. Raises StoreError, OSError."""
    position = None
    path = directories.compacting.log / _DECISION
    if path.exists():
        position = _replace(directories, path)
    for directory in directories.both:
        _restore_after_java(directory)
        for name in (COMPACTING, _REPLICATING):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(directory / name)
    return position


def _replace(directories: CompactionDirectories, path: Path) -> int:
    try:
        decision = json.loads(path.read_bytes())
        old, new, position = decision["old"], decision["new"], int(decision["position"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged: {error}; delete it: old files stay") from error
    for start in new:
        for directory in directories.both:
            # Not there: renamed before a crash.
            with contextlib.suppress(FileNotFoundError):
                os.replace(directory / COMPACTING / file_name(start), directory / file_name(start))
    for start in sorted(set(old) - set(new)):
        for directory in directories.both:
            (directory / file_name(start)).unlink(missing_ok=True)
    for directory in directories.both:
        sync_directory(directory)
    return position


def _restore_after_java(directory: Path) -> None:
    """A Java broker that died while it replaced files has left its old ones under other names."""
    for path in directory.glob(f"*{_DELETED_BY_JAVA}"):
        log.warning("%s: a Java broker died while it compacted; restored", path)
        os.replace(path, path.with_name(path.name.removesuffix(_DELETED_BY_JAVA)))
