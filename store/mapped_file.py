"""MappedFile: one store file and its mapping, to be read.

The only owner of an `mmap`: it lends memoryviews and copes with views that are still out when it is
closed (the pages live until the last of them is gone). It also creates files: allocated with
posix_fallocate, so that a full disk is an error here and never a SIGBUS in an append. Owned by one
thread; several processes may map the same file. It knows no record. Corresponds to RocketMQ's
MappedFile.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from pathlib import Path
from typing import Final, Self

from conf.atomic_file import make_directory as _make_directory
from conf.atomic_file import sync_directory as _sync_directory
from store.closing import Closing
from store.errors import DiskFullError, FlushFailedError, StoreError

NAME_DIGITS: Final = 20
_ZERO_STEP: Final = 1 << 20
_FALLOC_FL_ZERO_RANGE: Final = 0x10
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Of an OSError: the disk, or its user's quota, is full."""


def file_name(start_offset: int) -> str:
    """Name of the file whose first byte is `start_offset`: 20 decimal digits."""
    return f"{start_offset:0{NAME_DIGITS}d}"


def find_start_offset(name: str) -> int | None:
    """The start offset that a file name says, None when it is not a store file's name."""
    if len(name) != NAME_DIGITS or not (name.isascii() and name.isdigit()):
        return None
    return int(name)


def create_allocated(path: Path, size: int) -> None:
    """Create `path` with `size` allocated zero bytes, or complete a shorter file.

    What the file holds stays. A file that was new is removed again when it fails. Raises
    DiskFullError, FlushFailedError, OSError.
    """
    is_new = not path.exists()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(fd, 0, size)
        _sync(fd, path)
    except (OSError, FlushFailedError) as error:
        if is_new:
            path.unlink(missing_ok=True)
        if isinstance(error, FlushFailedError):
            raise
        if error.errno in NO_SPACE:
            raise DiskFullError(
                f"{path}: no room for {size} bytes ({error.strerror}); "
                "free space on this partition or lower fileReservedTime (a new store may have "
                "smaller files: mappedFileSizeCommitLog)"
            ) from error
        raise
    finally:
        os.close(fd)


def sync_directory(directory: Path) -> None:
    """As conf.atomic_file, but a failed fsync is a FlushFailedError. Raises it, OSError."""
    _sync_directory(directory, lambda fd: _sync(fd, directory))


def make_directory(directory: Path) -> None:
    """As conf.atomic_file, but a failed fsync is a FlushFailedError. Raises it, OSError."""
    _make_directory(directory, sync_directory)


def _sync(fd: int, path: Path) -> None:
    """fsync. No room on the disk is an OSError, everything else a FlushFailedError."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        raise FlushFailedError(
            f"{path}: fsync failed: {error.strerror or error}; what the disk holds is unknown. The "
            "broker stops; check the disk (dmesg), then start it: it recovers"
        ) from error


def zero_range(path: Path, start: int, end: int) -> None:
    """Make [start, end) of a file zero, on disk when it returns. Blocks stay allocated.

    One FALLOC_FL_ZERO_RANGE where the file system can (ext4, XFS), written zeros elsewhere.
    Mappings of the file see it. Raises FlushFailedError, OSError.
    """
    if start >= end:
        return
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if not _fallocate_zero(fd, start, end - start):
            _write_zeros(fd, start, end)
        _sync(fd, path)
    finally:
        os.close(fd)


def _fallocate_zero(fd: int, start: int, size: int) -> bool:
    if _LIBC.fallocate(fd, _FALLOC_FL_ZERO_RANGE, start, size) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EOPNOTSUPP, errno.ENOSYS):
        return False
    raise OSError(number, os.strerror(number))


def _write_zeros(fd: int, start: int, end: int) -> None:
    zeros = bytes(min(_ZERO_STEP, end - start))
    at = start
    while at < end:
        at += os.pwrite(fd, zeros[: end - at], at)


def data_ranges(path: Path, start: int, end: int) -> list[tuple[int, int]]:
    """The parts of [start, end) that may hold anything but zeros; all of it when the file system
    cannot tell. Raises OSError.

    A list, made before any of it is read: to read a part has the kernel read ahead of it, and what
    is in memory counts as data, so that who asked again at each end would read the whole file.
    """
    found: list[tuple[int, int]] = []
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while start < end:
            try:
                low = os.lseek(fd, start, os.SEEK_DATA)
                high = os.lseek(fd, low, os.SEEK_HOLE)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    found.append((start, end))
                break
            if low >= end:
                break
            found.append((low, min(high, end)))
            start = high
    finally:
        os.close(fd)
    return found


class MappedFile(Closing):
    """A mapped file. A lent view stays readable after `close`, but keeps the pages alive."""

    __slots__ = ("_map", "_view", "path", "size", "start_offset")

    def __init__(self, path: Path, start_offset: int, file_map: mmap.mmap) -> None:
        self.path = path
        self.start_offset = start_offset
        self.size = len(file_map)
        self._map: mmap.mmap | None = file_map
        self._view = memoryview(file_map)

    @classmethod
    def open(cls, path: Path, start_offset: int) -> Self:
        """Map an existing file whole. Raises StoreError: missing, empty, or not mappable."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(f"{path}: cannot be opened: {error.strerror}") from error
        try:
            return cls(path, start_offset, mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: cannot be mapped: {error}") from error
        finally:
            os.close(fd)

    @property
    def end_offset(self) -> int:
        """Start offset of the next file."""
        return self.start_offset + self.size

    @property
    def is_open(self) -> bool:
        """False after `close`."""
        return self._map is not None

    def view(self, position: int = 0, size: int | None = None) -> memoryview:
        """Lend [position, position + size), to the file's end without size.

        Release it soon, or let it go: while it lives, a deleted file frees no space.
        """
        end = self.size if size is None else position + size
        if not 0 <= position <= end <= self.size:
            raise StoreError(f"{self.path}: [{position}, {end}) is outside its {self.size} bytes")
        return self._view[position:end]

    def advise(self, advice: int) -> None:
        """Tell the kernel how the file is read (mmap.MADV_…). Raises OSError."""
        if self._map is not None:
            self._map.madvise(advice)

    def close(self) -> None:
        """Unmap now, or with the last lent view. Idempotent."""
        file_map, self._map = self._map, None
        if file_map is None:
            return
        self._view.release()
        try:
            file_map.close()
        except BufferError:
            # Views are still out: the mapping ends with the last reference to it.
            return
