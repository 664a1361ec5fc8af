"""ReplicaLog: the writing end of a slave's commit log.

Runs in process `ha`, on the thread that follows the master; on a slave nobody else writes the log,
APPEND_END or MAX_PHY_OFFSET. The master's bytes go verbatim where they were there: `make_room` says
for how many, `write` brings them, in pieces, `advance` says that they are there, `publish` shows
them to readers. What is filled and not published is zeroed by `discard`, and by `open` after a
crash. It knows no frames, no records and no timestamps; files are made by the `store` process.
Corresponds to RocketMQ's CommitLog.appendData.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from ipc.control_page import ControlPage
from store.control_slots import ALLOCATED_END, APPEND_END, MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.errors import StoreError
from store.log_directories import LogDirectories
from store.log_end import open_for_writing, zero_unpublished
from store.log_file import LogFile
from store.mapped_file import file_name


class ReplicaLog:
    """See the module. Owned by: the one thread that follows the master."""

    def __init__(
        self,
        place: Path | LogDirectories,
        file_size: int,
        page: ControlPage,
        on_publish: Callable[[], None],
    ) -> None:
        """place: the log's directory, or directories.

        `on_publish` rings the readers' bells; called by `ring`."""
        self.file_size = file_size
        self._directories = LogDirectories.of(place)
        self.page: Final = page
        self._counters = page.counters
        self._on_publish = on_publish
        self._file: LogFile | None = None
        self._file_start = self._file_end = 0
        self.position = 0
        """Where the next byte from the master goes; what lies before was filled."""

    # -- life ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Start writing at MAX_PHY_OFFSET; zero what a dead writer left. Raises StoreError."""
        zero_unpublished(self._directories, self.file_size, self.page)
        self.position = self._counters[MAX_PHY_OFFSET]

    def close(self) -> None:
        """Zero what is not published and release the file. Idempotent. Raises StoreError: a
        file is gone; the next `open` does what could not be done."""
        try:
            self.discard()
        finally:
            self._let_go()

    def discard(self) -> None:
        """Go back to what is published; bytes behind it become zero. Raises StoreError: a file is
        gone; call it again before anything is written."""
        if self._counters[APPEND_END] > self._counters[MAX_PHY_OFFSET]:
            zero_unpublished(self._directories, self.file_size, self.page)
        self.position = self._counters[MAX_PHY_OFFSET]

    # -- where the log begins ------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether no byte was ever filled: then the log may begin anywhere."""
        return self.position == self._counters[MAX_PHY_OFFSET] <= self._counters[MIN_PHY_OFFSET]

    @property
    def max_phy_offset(self) -> int:
        """The byte behind the last published one."""
        return self._counters[MAX_PHY_OFFSET]

    @property
    def min_phy_offset(self) -> int:
        """The first byte that is still there."""
        return self._counters[MIN_PHY_OFFSET]

    def reset_start(self) -> None:
        """The empty log shall begin elsewhere, earlier perhaps: until `begin` it ends at 0. Its
        files may be deleted now, so that none stays mapped."""
        self._let_go()
        self._counters[MAX_PHY_OFFSET] = 0
        self._counters[APPEND_END] = 0
        self.position = 0

    def begin(self, phy_offset: int) -> None:
        """The empty log begins at `phy_offset`, where the `store` process has begun it before
        (LogStart.start_at). Raises StoreError: it has not."""
        if self._counters[MIN_PHY_OFFSET] != phy_offset:
            raise StoreError(
                f"the log cannot start at {phy_offset}: process store says that it starts at "
                f"{self._counters[MIN_PHY_OFFSET]}"
            )
        self._let_go()
        self._counters[APPEND_END] = phy_offset
        self._counters[MAX_PHY_OFFSET] = phy_offset
        self.position = phy_offset
        self._on_publish()

    # -- writing -------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether the file of the next byte is allocated."""
        return self._counters[ALLOCATED_END] > self.position

    def left_in_file(self, phy_offset: int) -> int:
        """Bytes from `phy_offset` to its file's end."""
        return self.file_size - phy_offset % self.file_size

    def make_room(self, size: int) -> None:
        """The next `size` bytes are going to be written, and unpublished until `publish`.

        Raises NextFileNotReadyError: try again when the bell rings; StoreError: [position,
        position + size) crosses a file's end.
        """
        start = self.position
        end = start + size
        if not self._file_start <= start < self._file_end:
            self._open_file(start - start % self.file_size)
        if end > self._file_end:
            raise StoreError(
                f"[{start}, {end}) crosses the end of commit log file {file_name(self._file_start)}"
            )
        if end > self._counters[APPEND_END]:
            self._counters[APPEND_END] = end

    def write(self, at: int, data: bytes | memoryview) -> None:
        """Write `data`, `at` bytes behind `position`, within the room. Raises StoreError."""
        assert self._file is not None
        self._file.write(self.position - self._file_start + at, data)

    def advance(self, size: int) -> None:
        """The first `size` bytes of the room are written."""
        self.position += size

    def publish(self, end: int) -> None:
        """Show everything before `end` to readers; `ring` tells those who sleep."""
        self._counters[MAX_PHY_OFFSET] = end

    def ring(self) -> None:
        """Wake the readers of what was published."""
        self._on_publish()

    def file_view(self, phy_offset: int) -> memoryview:
        """The whole file that holds `phy_offset`: the one of the last room. Borrowed."""
        if not self._file_start <= phy_offset < self._file_end:
            self._open_file(phy_offset - phy_offset % self.file_size)
        assert self._file is not None
        return self._file.view()

    def _open_file(self, file_start: int) -> None:
        following = open_for_writing(self._directories, file_start, self.file_size, self.page)
        self._let_go()
        self._file = following
        self._file_start, self._file_end = following.start_offset, following.end_offset

    def _let_go(self) -> None:
        file, self._file = self._file, None
        self._file_start = self._file_end = 0
        if file is not None:
            file.close()
