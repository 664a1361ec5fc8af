"""StoreLock: one broker on a store directory, whichever broker it is.

Taken by the supervisor before anything else touches the directory. The lock is an open file
description lock on byte [0, 1) of `<root>/lock`, content "lock": every child inherits the
descriptor, so it holds until the last process is gone, and it conflicts with the record lock of a
Java broker (FileChannel.lock) in both directions. Corresponds to RocketMQ's
DefaultMessageStore.start.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from store.errors import StoreError, StoreLockedError
from store.mapped_file import make_directory

_CONTENT: Final = b"lock"
_FLOCK: Final = struct.Struct("@hhqqi4x")
"""struct flock of Linux: type, whence, start, length, pid."""


class StoreLock:
    """Held from `acquire` until `release` and the end of every process that inherited it."""

    def __init__(self, root: Path) -> None:
        self.path = root / "lock"
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock. Raises StoreLockedError: in use; StoreError: no such right or place."""
        if self._fd >= 0:
            return
        try:
            make_directory(self.path.parent)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be opened: {error.strerror}") from error
        try:
            self._lock(fd)
            _write_content(fd)
            os.set_inheritable(fd, True)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def _lock(self, fd: int) -> None:
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise StoreError(f"{self.path}: cannot be locked: {error.strerror}") from error
            raise StoreLockedError(
                f"Lock failed,MQ already started: another broker uses {self.path.parent}; "
                "stop it (bin/mqshutdown broker), or set another storePathRootDir"
            ) from error

    def fileno(self) -> int:
        """The inheritable descriptor that holds the lock."""
        return self._fd

    def release(self) -> None:
        """Close this process' descriptor. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def is_locked(root: Path) -> bool:
    """Whether some broker has the store open; asks only, changes nothing. Raises StoreError: it may
    not be asked."""
    try:
        fd = os.open(root / "lock", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(f"{root / 'lock'}: cannot be opened: {error.strerror}") from error
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)


def _write_content(fd: int) -> None:
    if os.pread(fd, len(_CONTENT) + 1, 0) != _CONTENT:
        os.ftruncate(fd, len(_CONTENT))
        os.pwrite(fd, _CONTENT, 0)
