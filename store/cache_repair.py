"""CacheRepair: what the page cache holds of the commit log is written to disk again.

Run by the main thread of process `store` before it serves, after a stop that was not clean: a flush
may have failed before it, and then pages of the log count as clean that the disk does not have
(store/flush_failure.py). Reading a page and writing the same bytes makes it dirty again; a flush
that succeeds then is to be believed. (Dropping the cached pages and recovering what the disk
returns would be right, too, but would throw away what producers were told to be in memory.) When
the machine went down in between there is no such cache, and nothing is written. It knows bytes, no
records.

A living writer may append meanwhile: only published bytes are written, which no one changes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from store.clean_exit import is_of_another_boot
from store.errors import FlushFailedError
from store.flush_failure import FlushFailure, read_flush_failure, remove_flush_failure
from store.mapped_file_queue import list_store_files
from store.message_store_config import MessageStoreConfig

log = logging.getLogger(__name__)

_STEP: Final = 1 << 20
_PAGE_SIZE: Final = 4096


class CacheRepair:
    """What one start has to write again. Owned by the main thread of process `store`."""

    def __init__(
        self,
        config: MessageStoreConfig,
        beat: Callable[[], None] = lambda: None,
        fdatasync: Callable[[int], None] | None = None,
    ) -> None:
        """Look before anything of the store is changed. beat: the process lives."""
        self._config = config
        self._beat = beat
        self._fdatasync = fdatasync or os.fdatasync
        self.failure: FlushFailure | None = read_flush_failure(config.fsync_failed_path)
        """What the process before this one wrote down."""
        crashed = config.abort_path.exists()
        self.is_due = self.failure is not None or (
            crashed and not is_of_another_boot(config.abort_path)
        )
        """Whether the cache may hold what the disk does not have, and counts as clean."""
        if self.failure is not None:
            log.warning(
                "%s: %s (%s); the log was on disk up to %s",
                config.fsync_failed_path,
                self.failure.error,
                self.failure.time,
                "an unknown place" if self.flushed_offset is None else self.flushed_offset,
            )

    @property
    def flushed_offset(self) -> int | None:
        """Up to where the log was on disk; None: as far as recovery says."""
        return self.failure.flushed_offset if self.failure else None

    def rewrite_log(self, start: int, end: int) -> None:
        """Write [start, end) of the log again and bring it to disk. Raises FlushFailedError."""
        size = self._config.mapped_file_size_commit_log
        start -= start % _PAGE_SIZE
        written = 0
        for file_start in range(start - start % size, end, size):
            low, high = max(start, file_start), min(end, file_start + size)
            path = self._config.log_directories.path_of(file_start)
            written += self._rewrite(path, low - file_start, high - file_start)
        if written:
            log.warning(
                "wrote the cached pages again: %s bytes of the log, [%s, %s), are on disk now",
                written,
                start,
                end,
            )

    def rewrite_files(self) -> None:
        """Write all files of the log again from the flushed offset on, before they are moved out of
        the store; without one nothing is known to be missing. Raises FlushFailedError."""
        if self.flushed_offset is not None:
            files = list_store_files(self._config.log_directories)
            size = self._config.mapped_file_size_commit_log
            starts = (file.start_offset for file in files)
            self.rewrite_log(self.flushed_offset, max(starts, default=-size) + size)

    def finish(self) -> None:
        """Everything is on disk: the failure is forgotten. Raises FlushFailedError, OSError."""
        remove_flush_failure(self._config.fsync_failed_path)

    def _rewrite(self, path: Path, low: int, high: int) -> int:
        """How many bytes; 0 for a file that is gone."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        at = low
        try:
            while at < high:
                data = os.pread(fd, min(_STEP, high - at), at)
                if not data:
                    break
                rest = memoryview(data)
                while rest:
                    done = os.pwrite(fd, rest, at)
                    rest, at = rest[done:], at + done
                self._beat()
            self._fdatasync(fd)
        except OSError as error:
            raise FlushFailedError(
                f"{path}: writing the cached pages again failed: {error.strerror or error}; the "
                "store is not opened: check the disk (dmesg), then start it again"
            ) from error
        finally:
            os.close(fd)
        return at - low
