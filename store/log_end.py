"""The end of the commit log, as both its writers see it: CommitLog (master), ReplicaLog (slave).

Runs where the log is written. The writer announces APPEND_END before it copies bytes and
MAX_PHY_OFFSET after; what lies between the two was published to nobody and must never come back
to life. It knows no records.
"""

from __future__ import annotations

import logging
import os

from ipc.control_page import ControlPage
from store.control_slots import ALLOCATED_END, APPEND_END, MAX_PHY_OFFSET
from store.errors import FlushFailedError, StoreError, WrongFileSizeError
from store.log_directories import LogDirectories
from store.log_file import LogFile
from store.mapped_file import file_name

log = logging.getLogger(__name__)


class NextFileNotReadyError(StoreError):
    """The current file is full and the `store` process has not made the next one yet."""


def open_for_writing(
    directories: LogDirectories, file_start: int, file_size: int, page: ControlPage
) -> LogFile:
    """The file that begins at `file_start`. Raises NextFileNotReadyError; StoreError: it cannot be
    opened, or somebody has truncated it (`store` gives it its length back within seconds)."""
    if page.counters[ALLOCATED_END] < file_start + file_size:
        raise NextFileNotReadyError(f"commit log file {file_name(file_start)} is not allocated yet")
    file = LogFile(directories.path_of(file_start), file_start)
    if file.end_offset != file_start + file_size:
        file.close()
        length = file.end_offset - file_start
        raise WrongFileSizeError(f"{file.path}: length {length}, expected {file_size}")
    return file


def zero_unpublished(directories: LogDirectories, file_size: int, page: ControlPage) -> None:
    """Zero [MAX_PHY_OFFSET, APPEND_END), over all files it lies in; APPEND_END comes back.

    Only the log's writer may call it. Raises StoreError: a file is gone; nothing is forgotten,
    the next call begins anew.
    """
    counters = page.counters
    start, end = counters[MAX_PHY_OFFSET], counters[APPEND_END]
    if end > start:
        log.warning("unpublished bytes at the end of the log: zeroing [%s, %s)", start, end)
        for at in range(start - start % file_size, end, file_size):
            with LogFile(directories.path_of(at), at) as file:
                low = max(start, at)
                file.write(low - at, bytes(min(end, file.end_offset) - low))
    counters[APPEND_END] = start


def sync_range(directories: LogDirectories, file_size: int, start: int, end: int) -> None:
    """Have [start, end) on disk when this returns, whatever the flush service does. Any process.

    Raises FlushFailedError: what the disk holds is unknown; the broker has to stop.
    """
    for at in range(start - start % file_size, end, file_size) if end > start else ():
        path = directories.path_of(at)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise FlushFailedError(
                f"{path}: fdatasync failed: {error.strerror or error}; what the disk holds is "
                "unknown. The broker stops; check the disk (dmesg), then start it: it recovers"
            ) from error
