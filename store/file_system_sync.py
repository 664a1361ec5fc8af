"""FileSystemSync: one system call that brings a whole file system to disk (syncfs).

For the consume queues of process `store`: thousands of files that are due together cost one journal
entry instead of one each. Linux reports a failed write through it since 5.8, to a descriptor that
was open before the write: older kernels and other systems are left to fdatasync. It knows no file.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import re
from pathlib import Path
from typing import Final

from store import disk_fault_hooks

log = logging.getLogger(__name__)

_REPORTS_SINCE: Final = (5, 8)


class FileSystemSync:
    """The file system of a directory. Any thread, one at a time."""

    def __init__(self, directory: Path) -> None:
        """Nothing is opened yet; the directory need not be there before `open`."""
        self._directory = directory
        self._fd = -1

    def open(self) -> None:
        """From now on failed writes are noticed; before the first one. Raises OSError."""
        if disk_fault_hooks.are_installed():
            return  # They see each file that is synced, and no file system.
        if self._fd < 0 and reports_failures(os.uname().release) and _syncfs() is not None:
            self._fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync(self) -> bool:
        """Everything written before is on disk; False: it may not be, ask for each file."""
        syncfs = _syncfs()
        if self._fd < 0 or syncfs is None:
            return False
        if syncfs(self._fd) == 0:
            return True
        reason = os.strerror(ctypes.get_errno())
        log.error("syncfs of %s: %s: syncing its files one by one", self._directory, reason)
        return False

    def close(self) -> None:
        """Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def reports_failures(release: str) -> bool:
    """Whether syncfs of a Linux of this release ("6.1.0-13-amd64") tells of failed writes."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and (int(found[1]), int(found[2])) >= _REPORTS_SINCE


@functools.cache
def _syncfs() -> ctypes._NamedFuncPointer | None:
    """The function of libc, which runs without the interpreter's lock; None: there is none."""
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
