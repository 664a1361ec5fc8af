"""EmergencySpace: room on the disk that is kept for what must be written when it is full.

`<storePathRootDir>/emergency.space` holds allocated zeros, nothing else. When the partition is
nearly full the file is deleted, and sends are refused (DISK_FULL) from that moment: the room is for
consume queues and index of messages that are acknowledged already, for offsets and tables
(config/*.json), the checkpoint, fences, and the words of an orderly stop. The commit log gets none
of it: its files are allocated ahead. The file is made again when there is room for it twice over,
several looks on end; then sends are accepted. A thread of process `store`, the only one that makes
and deletes the file; other processes, whose writes are tried again anyway, need not ask for it. It
must not know who writes. Java ignores the file.

Its size is emergencyReservedBytes, but at most a twentieth of the partition, so that it never
refuses what diskSpaceWarningLevelRatio (90 %) would accept, and at most one commit log file.
Boundary: it is worth what posix_fallocate is worth (ext4, XFS, tmpfs; not on a file system that
compresses), and only for what is under storePathRootDir.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipc.service_thread import FailureHandler, ServiceThread
from store.errors import DiskFullError, FlushFailedError
from store.mapped_file import create_allocated, make_directory
from store.message_store_config import MessageStoreConfig
from store.running_flags import RunningFlag, RunningFlags

log = logging.getLogger(__name__)

LOOK_MS: Final = 1_000
CALM_LOOKS: Final = 3
"""So many looks on end there must be room before the file is made again: what somebody frees and
fills at once brings no sends back."""
_PARTITION_SHARE: Final = 20
_LOW_SHARE: Final = 4
_ROOM_FACTOR: Final = 2
_PAGE_SIZE: Final = 4096


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Bytes of a partition: all of them, and those that may be written without being root."""

    total: int
    free: int


Look = Callable[[Path], DiskSpace]
"""The space of a path's partition. Raises OSError."""


def look_at_disk(path: Path) -> DiskSpace:
    """statvfs."""
    found = os.statvfs(path)
    return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def size_of_reserve(config: MessageStoreConfig, partition_bytes: int) -> int:
    """Bytes of the file: see the module. Whole pages; 0: there is none."""
    share = partition_bytes // _PARTITION_SHARE
    size = min(config.emergency_reserved_bytes, share, config.mapped_file_size_commit_log)
    return size - size % _PAGE_SIZE


class EmergencySpace(ServiceThread):
    """See the module. `release` and `allows_log_file`: any thread."""

    def __init__(
        self,
        config: MessageStoreConfig,
        flags: RunningFlags,
        *,
        publish: Callable[[int], None],
        look: Look = look_at_disk,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """publish gets the bytes that are held."""
        super().__init__("EmergencySpace", on_failure=on_failure)
        self._config = config
        self._path = config.emergency_space_path
        self._flags = flags
        self._publish = publish
        self._look = look
        self._lock = threading.Lock()
        self._size = 0
        self._held = 0
        self._calm_looks = 0
        self._problem = ""
        """What was logged last; only another text is logged again."""

    # -- the start -----------------------------------------------------------------------------

    def open(self) -> None:
        """Before anything else is written at a start: a disk that is full gets its room now.
        Raises OSError."""
        make_directory(self._path.parent)
        space = self._look(self._path.parent)
        self._size = size_of_reserve(self._config, space.total)
        self._held = self._find_held()
        self._publish(self._held)
        if not self._size:
            return
        if self._held:
            self._release_if_low(space.free)
        elif space.free >= self._wanted:
            self._reserve()
        else:
            self._refuse(f"{_mib(space.free)} are free")

    def _find_held(self) -> int:
        """What an earlier start has left, in the size that counts now."""
        try:
            status = os.stat(self._path)
            if not self._size:
                self._path.unlink()
                return 0
            if status.st_size > self._size:
                os.truncate(self._path, self._size)
        except FileNotFoundError:
            return 0
        is_whole = status.st_size >= self._size and status.st_blocks * 512 >= self._size
        return self._size if is_whole else self._drop()

    def _drop(self) -> int:
        self._path.unlink(missing_ok=True)
        return 0

    # -- for the writers -----------------------------------------------------------------------

    @property
    def _wanted(self) -> int:
        return _ROOM_FACTOR * self._size

    @property
    def is_out(self) -> bool:
        """Whether the file is gone, and sends are refused for that."""
        return self._flags.is_held(RunningFlag.DISK_FULL, by=self.name)

    def release(self, why: str) -> bool:
        """A write found no room. True: there is some now, try again; sends are refused from now on.
        False: nothing is left to give."""
        with self._lock:
            if not self._held:
                return False
            self._refuse(why)
            self._path.unlink(missing_ok=True)
            self._held = self._calm_looks = 0
        self._publish(0)
        return True

    def allows_log_file(self, size: int) -> bool:
        """Whether a commit log file of `size` bytes leaves what was released to those it is for."""
        return not self.is_out or self._look(self._path.parent).free >= self._wanted + size

    # -- the thread ----------------------------------------------------------------------------

    def step(self) -> None:
        """Wait, then look."""
        self.wait_for_running(LOOK_MS)
        if not self.stopped:
            self.look_once()

    def look_once(self) -> None:
        """Release or make the file if it is time."""
        if not self._size:
            return
        try:
            free = self._look(self._path.parent).free
        except OSError as error:
            self._report(error)
            return
        if self._held:
            self._release_if_low(free)
            return
        self._calm_looks = self._calm_looks + 1 if free >= self._wanted else 0
        if self._calm_looks >= CALM_LOOKS:
            self._reserve()

    def _release_if_low(self, free: int) -> None:
        if free < self._size // _LOW_SHARE:
            self.release(f"{_mib(free)} were free")

    def _reserve(self) -> None:
        """Make the file; sends are accepted again if this object has refused them. Without room
        after all nothing changes."""
        try:
            create_allocated(self._path, self._size)
        except (DiskFullError, FlushFailedError, OSError) as error:
            self._report(error)
            return
        with self._lock:
            self._held, self._problem = self._size, ""
        self._publish(self._size)
        log.info("%s: %s reserved for a full disk", self._path, _mib(self._size))
        self._flags.clear(RunningFlag.DISK_FULL, "there is room again", by=self.name)

    def _report(self, error: Exception) -> None:
        if str(error) != self._problem:
            log.warning("no emergency space on the disk: %s", error)
        self._problem = str(error)

    def _refuse(self, why: str) -> None:
        reason = (
            f"{self._path.parent}: no space left ({why}); what is left is for consume queues and "
            f"offsets; free space on this partition: sends are accepted again {CALM_LOOKS} s after "
            f"{_mib(self._wanted)} are free"
        )
        self._flags.set(RunningFlag.DISK_FULL, reason, by=self.name)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
