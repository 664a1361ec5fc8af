"""ShortFileService: completes log files that somebody else has truncated.

A thread of process `store`, the keeper of the log's files; and a step of its start beside a living
writer, before it looks at the log itself. Whoever touches the missing part of a mapped file is
killed by SIGBUS, and a process that starts again refuses a file of the wrong length; with its
length back, filled up with zeros, the file reads as damage, which is handled as any other
(docs/operations.md). It must not know records, and never creates a file: one that is deleted
meanwhile stays deleted. RocketMQ has no such service.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from ipc.service_thread import FailureHandler, ServiceThread
from store.log_directories import LogDirectories
from store.mapped_file_queue import list_store_files, log_truncated

log = logging.getLogger(__name__)

_INTERVAL_MS: Final = 2_000
"""Well below the time in which six deaths of a process end the broker."""


class ShortFile(NamedTuple):
    """A file of the log that was truncated to `size` bytes."""

    start_offset: int
    size: int


class ShortFileService(ServiceThread):
    """The service."""

    def __init__(
        self,
        place: Path | LogDirectories,
        file_size: int,
        *,
        allocated_end: Callable[[], int],
        on_failure: FailureHandler | None = None,
    ) -> None:
        """place: the log's directory, or directories.

        allocated_end: a file that ends behind it is still being created."""
        super().__init__("ShortFileService", on_failure=on_failure)
        self._place = place
        self._file_size = file_size
        self._allocated_end = allocated_end

    def step(self) -> None:
        """Wait one interval, then look."""
        self.wait_for_running(_INTERVAL_MS)
        if not self.stopped:
            self.complete_once()

    def complete_once(self) -> None:
        """Complete every short file. What cannot be completed now is tried again."""
        try:
            complete_short_files(self._place, self._file_size, self._allocated_end())
        except OSError as error:
            log.error("%s: truncated files cannot be completed: %s", self._place, error)


def complete_short_files(
    place: Path | LogDirectories, file_size: int, allocated_end: int
) -> list[ShortFile]:
    """Complete every short file but one that ends behind `allocated_end`; which they were. Raises
    OSError."""
    found = [
        ShortFile(file.start_offset, file.size)
        for file in list_store_files(place)
        if file.size < file_size and file.start_offset + file_size <= allocated_end
    ]
    directories = LogDirectories.of(place)
    for file in found:
        _complete(directories.path_of(file.start_offset), file.size, file_size)
    return found


def _complete(path: Path, size: int, file_size: int) -> None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.posix_fallocate(fd, 0, file_size)
    finally:
        os.close(fd)
    log_truncated(path, size, file_size)
