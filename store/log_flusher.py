"""LogFlusher: puts the commit log on disk up to the published end.

Used by the one flush service that runs (group_commit_service or flush_real_time_service), on its
thread. fdatasync also writes pages that another process dirtied through its mapping, and it
releases the GIL. A failed fdatasync is never repeated: the kernel may have dropped the pages, and
a second call would say "fine" (the process ends instead; docs/ARCHITECTURE.md).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from store.errors import FlushFailedError
from store.log_directories import LogDirectories
from store.store_checkpoint import StoreCheckpoint


class LogFlusher:
    """Keeps a descriptor of each file not wholly flushed: errors are told per descriptor."""

    def __init__(
        self,
        place: Path | LogDirectories,
        file_size: int,
        checkpoint: StoreCheckpoint,
        *,
        flushed_offset: int,
        max_phy_offset: Callable[[], int],
        store_timestamp: Callable[[], int],
        publish: Callable[[int], None],
        fdatasync: Callable[[int], None] | None = None,
    ) -> None:
        """place: the log's directory, or directories.

        flushed_offset: on disk already (the log's end after recovery).

        max_phy_offset, store_timestamp (ms of the newest record): the writer's counters.
        publish: gets the offset up to which the log is on disk, after each flush.
        """
        self.flushed_offset = flushed_offset
        self._directories = LogDirectories.of(place)
        self._file_size = file_size
        self._checkpoint = checkpoint
        self._max_phy_offset = max_phy_offset
        self._store_timestamp = store_timestamp
        self._publish = publish
        self._fdatasync = fdatasync or os.fdatasync
        self._fds: dict[int, int] = {}
        self._lock = threading.Lock()
        """Guards: flushed_offset and the check point's time of the log, where a cut lowers them."""

    def begin_at(self, phy_offset: int) -> None:
        """The log, which has no byte yet, begins here: there is nothing to flush before. Any
        thread, before the writer moves max_phy_offset."""
        self.flushed_offset = phy_offset

    def end_at(self, phy_offset: int, time_ms: int) -> None:
        """The log, whose writer has moved max_phy_offset back, is cut here, behind a record of
        `time_ms`: what comes in place of the rest is not flushed. Any thread."""
        with self._lock:
            self._checkpoint.end_at(phy_offset, time_ms)
            if phy_offset < self.flushed_offset:
                self.flushed_offset = phy_offset
                self._publish(phy_offset)

    @property
    def unflushed(self) -> int:
        """Bytes that are published and not flushed."""
        return max(0, self._max_phy_offset() - self.flushed_offset)

    @property
    def has_full_file(self) -> bool:
        """Whether a file is full and not flushed."""
        left = self._file_size - self.flushed_offset % self._file_size
        return self.unflushed >= left

    def flush(self) -> bool:
        """One fdatasync for each file that holds unflushed bytes. False: there were none, but the
        timestamp may be known only now (a slave's, once the records are dispatched).

        Raises FlushFailedError.
        """
        with self._lock:
            return self._flush()

    def _flush(self) -> bool:
        timestamp = self._store_timestamp()
        target = self._max_phy_offset()
        if target <= self.flushed_offset:
            self._checkpoint.physic_msg_timestamp = timestamp
            return False
        start = self.flushed_offset - self.flushed_offset % self._file_size
        for file_start in range(start, target, self._file_size):
            self._flush_file(file_start)
        self.flushed_offset = target
        self._checkpoint.physic_msg_timestamp = timestamp
        self._publish(target)
        self._close_below(target)
        return True

    def close(self) -> None:
        """Close the descriptors."""
        while self._fds:
            os.close(self._fds.popitem()[1])

    def _flush_file(self, file_start: int) -> None:
        path = self._directories.path_of(file_start)
        try:
            fd = self._fds.get(file_start)
            if fd is None:
                fd = self._fds[file_start] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            self._fdatasync(fd)
        except OSError as error:
            raise FlushFailedError(
                f"{path}: fdatasync failed: {error.strerror or error}; what the disk holds is "
                "unknown. The broker stops; check the disk (dmesg), then start it: it recovers"
            ) from error

    def _close_below(self, offset: int) -> None:
        for file_start in [at for at in self._fds if at + self._file_size <= offset]:
            os.close(self._fds.pop(file_start))
