"""AllocateMappedFileService: commit log files are ready before the writer needs them.

Thread of the `store` process, the only one that creates log files. It keeps the file of the
writer's position and `ahead` more allocated (a full disk shows here, not in an append), and the
pages before the writer in memory, in small steps: fresh memory may cost more than copying into it.
The writer learns through `allocated_end` how far it may write. Corresponds to RocketMQ's
AllocateMappedFileService, and MappedFile's warm-up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ipc.service_thread import FailureHandler, ServiceThread
from store.errors import DiskFullError
from store.known_directories import KnownDirectories
from store.log_directories import IsFull
from store.log_file import LogFile
from store.mapped_file import create_allocated, sync_directory
from store.message_store_config import MessageStoreConfig
from store.running_flags import RunningFlag, RunningFlags

log = logging.getLogger(__name__)

_SMALL_FILE: Final = 64 << 20
_PREPARE_STEP: Final = 256 << 10
_PREPARE_AHEAD: Final = 256 << 20
_PREPARE_URGENT: Final = 64 << 20
"""While the log grows, pages are prepared only when less than this is ready for the writer. A
virtual machine may have to get fresh memory from its host (seen: 1.3 to 3 s a GB): that is better
done while nobody waits for an answer."""
_PAGE_SIZE: Final = 4096
_BLOCK: Final = 512
"""The unit of st_blocks."""
_NOT_BEGUN: Final = -1
_INTERVAL_MS: Final = 20
_RESTING_MS: Final = 500
"""While the log does not grow; whoever sees it grow calls `log_grows`."""
_RETRY_MS: Final = 1000


class AllocateMappedFileService(ServiceThread):
    """Owned by its thread, but for `begin_at` and `wakeup`.

    Without files and without `begin_at` it creates nothing: an empty slave's first file is where
    its master's log begins for it.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        flags: RunningFlags,
        *,
        writer_position: Callable[[], int],
        publish: Callable[[int], None],
        allows: Callable[[int], bool] = lambda size: True,
        is_full: IsFull = lambda path: False,
        known: KnownDirectories | None = None,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """writer_position: end of the published log. publish: gets allocated_end.
        allows: whether so many bytes of the disk may be taken now; whoever says no has refused
        writes already.
        is_full: one of several directories that gets no new file while another has room.
        known: hears of files made and removed.
        """
        super().__init__("AllocateMappedFileService", on_failure=on_failure)
        self._directories = config.log_directories
        self._is_full = is_full
        self._known = known
        self._file_size = file_size = config.mapped_file_size_commit_log
        self._flags = flags
        self._writer_position = writer_position
        self._publish = publish
        self._allows = allows
        self._ahead = 2 if file_size <= _SMALL_FILE else 1
        self._begin_lock = threading.Lock()
        self._begin: int | None = None
        self._first_start = _NOT_BEGUN
        self._allocated_end = _NOT_BEGUN
        self._prepared = 0
        self._position_before = 0
        """Where the writer was at the last look."""
        self._preparing: LogFile | None = None
        self._is_resting = False
        self._rested_at = -1
        """Where the writer was when nothing was due last."""

    # -- for other threads ---------------------------------------------------------------------

    def begin_at(self, phy_offset: int) -> None:
        """The log goes on at `phy_offset`: after recovery, or where an empty slave starts.

        The file of that offset is taken over if it exists, and created otherwise. Said again of
        a log that has no byte yet, it starts at the new place, and the empty files that this
        object has made go (those of an earlier process stay); wait until it is not
        `is_beginning` any more before the log is written there.
        """
        with self._begin_lock:
            self._begin = phy_offset
        self.wakeup()

    def log_grows(self) -> None:
        """Look closely again. Called after every step of dispatch, so it costs next to nothing."""
        if self._is_resting:
            self.wakeup()

    @property
    def is_beginning(self) -> bool:
        """Whether `begin_at` was not looked at yet."""
        with self._begin_lock:
            return self._begin is not None

    def begins_at(self, phy_offset: int) -> bool:
        """Whether the first file is that of `phy_offset`: `begin_at` is refused for a log that
        holds bytes."""
        return self._first_start == self._file_start(phy_offset)

    def delete_unused_files(self) -> None:
        """Delete the files that hold nothing: at a clean stop, after this thread and the writer.

        The file of the last byte stays, and the first file of a log that has no byte yet. Never
        call it while a writer lives: it would go on in a file without a name.
        """
        end = self._allocated_end
        if end <= self._first_start:
            return
        position = self._writer_position()
        last = self._file_start(max(position - 1, 0))
        keep_end = (last if self._path(last).exists() else position) + self._file_size
        for start in range(end - self._file_size, keep_end - 1, -self._file_size):
            self._publish(start)
            if not _holds_something(self._path(start)):
                self._remove(start)
        self._directories.sync()

    # -- the thread ----------------------------------------------------------------------------

    def step(self) -> None:
        """Create at most one file or prepare one step; sleep when nothing is due."""
        with self._begin_lock:
            if self._begin is not None:
                self._start_at(self._begin)
                self._begin = None
        if self._next_is_due():
            self._allocate(self._allocated_end)
        elif not self._prepare_step():
            self._rest()

    def _rest(self) -> None:
        position = self._writer_position()
        if position != self._rested_at:
            self._rested_at = position
            self.wait_for_running(_INTERVAL_MS)
            return
        self._is_resting = True
        # What was dispatched before it said so is seen here.
        if self._writer_position() == position:
            self.wait_for_running(_RESTING_MS)
        self._is_resting = False

    def finish(self) -> None:
        """The files stay: a writer that outlives this process may be about to enter the next."""
        self._stop_preparing()

    def _start_at(self, phy_offset: int) -> None:
        start = self._file_start(phy_offset)
        if self._allocated_end > self._first_start:
            files = range(self._first_start, self._allocated_end, self._file_size)
            if start == self._first_start:
                return
            if any(_holds_something(self._path(at)) for at in files):
                log.warning("%s: the log holds bytes, it cannot start at %s", self.name, phy_offset)
                return
            log.info("the empty log starts at %s, not at %s", start, self._first_start)
            self._stop_preparing()
            self._publish(start)
            for at in reversed(files):
                self._remove(at)
        self._first_start = self._allocated_end = start
        self._prepared = phy_offset

    def _next_is_due(self) -> bool:
        """Whether the next file is to be created. A writer beyond it has not said `begin_at`."""
        file = self._file_start(self._writer_position())
        wanted_end = file + (1 + self._ahead) * self._file_size
        return 0 <= self._allocated_end < wanted_end and file <= self._allocated_end

    def _allocate(self, start: int) -> None:
        path = self._path(start)
        try:
            self._directories.make()
            if not _is_allocated(path, self._file_size):
                if not self._allows(self._file_size):
                    self.wait_for_running(_RETRY_MS)
                    return
                path = self._create(path, start)
        except DiskFullError as error:
            self._flags.set(RunningFlag.DISK_FULL, str(error), by=self.name)
            self.wait_for_running(_RETRY_MS)
            return
        self._flags.clear(RunningFlag.DISK_FULL, f"{path} was allocated", by=self.name)
        self._allocated_end = start + self._file_size
        self._publish(self._allocated_end)

    def _create(self, path: Path, start: int) -> Path:
        """Complete the file at `path`, or make it where it belongs; its path. Raises DiskFullError:
        no directory has room."""
        places = [path]
        if not path.exists():
            places = self._directories.places_of_new(start, self._file_size, self._is_full)
        for place in places:
            try:
                create_allocated(place, self._file_size)
            except DiskFullError as error:
                if place is places[-1]:
                    raise
                log.warning("%s; trying the next directory", error)
                # That the half-made file is gone survives a power loss: it is not there twice.
                sync_directory(place.parent)
            else:
                path = place
                break
        sync_directory(path.parent)
        if self._known is not None:
            self._known.remember()
        return path

    def _remove(self, start: int) -> None:
        path = self._path(start)
        if self._known is not None:
            self._known.before_removal(path)
        self._directories.remove(path)

    # -- preparing -----------------------------------------------------------------------------

    def _prepare_step(self) -> bool:
        """Prepare one step ahead of the writer. False: nothing is due."""
        position = self._writer_position()
        if self._should_wait(position):
            return False
        start = max(self._prepared, position)
        file_start = self._file_start(start)
        start -= (start - file_start) % _PAGE_SIZE
        end = min(start + _PREPARE_STEP, file_start + self._file_size)
        if end > min(position + _PREPARE_AHEAD, self._allocated_end):
            return False
        self._prepare(start, end)
        self._prepared = end
        return True

    def _should_wait(self, position: int) -> bool:
        """Whether the writer is better left alone: the log grows, and enough is ready."""
        grown, self._position_before = position - self._position_before, position
        return grown > 0 and self._prepared - position >= _PREPARE_URGENT

    def _prepare(self, start: int, end: int) -> None:
        file_start = self._file_start(start)
        if self._preparing is None or self._preparing.start_offset != file_start:
            self._stop_preparing()
            self._preparing = LogFile(self._path(file_start), file_start)
        self._preparing.prepare(start - file_start, end - start)

    def _stop_preparing(self) -> None:
        preparing, self._preparing = self._preparing, None
        if preparing is not None:
            preparing.close()

    def _file_start(self, phy_offset: int) -> int:
        return phy_offset - phy_offset % self._file_size

    def _path(self, start: int) -> Path:
        return self._directories.path_of(start)


def _is_allocated(path: Path, size: int) -> bool:
    """False also for a file with holes, as Java and many copies leave it: a write to a mapped hole
    on a full disk is SIGBUS."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    return status.st_size >= size and status.st_blocks * _BLOCK >= size


def _holds_something(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return any(file.read(_PAGE_SIZE))
    except FileNotFoundError:
        return False
