"""LogSource and SourceFiles: the log's files for whoever sends them to a slave.

Owned by one thread: of process `ha`, or the loop of `remoting` while a connection is lent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ipc.control_page import ControlPage
from store.commit_log_reader import CommitLogReader
from store.log_directories import LogDirectories


@dataclass(frozen=True, slots=True)
class LogSource:
    """Where the bytes come from: the log's directory or directories, its file size and the page
    that says how far it may be read."""

    place: Path | LogDirectories
    file_size: int
    page: ControlPage


class SourceFiles:
    """The file that is being sent: its mapping, and its descriptor once sendfile needs it."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._reader = CommitLogReader(source.place, source.file_size, source.page, max_maps=1)
        self.begin = 0
        self.end = 0
        self._view: memoryview | None = None
        self._fd = -1

    def reach(self, offset: int) -> bool:
        """Make the file that holds `offset` the current one; False when it is gone."""
        if self.begin <= offset < self.end:
            return True
        self._let_go()
        view = self._reader.view_of_file(offset)
        if view is None:
            return False
        self._view = view
        self.begin = offset - offset % self._source.file_size
        self.end = self.begin + len(view)
        return True

    def slice(self, begin: int, end: int) -> memoryview:
        """Bytes of the current file, by their offsets in the log."""
        assert self._view is not None
        return self._view[begin - self.begin : end - self.begin]

    def descriptor(self) -> int:
        """The current file, opened for reading. Raises OSError."""
        if self._fd < 0:
            path = LogDirectories.of(self._source.place).path_of(self.begin)
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return self._fd

    def _let_go(self) -> None:
        self.begin = self.end = 0
        self._view = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Unmap and close; idempotent."""
        self._let_go()
        self._reader.close()
