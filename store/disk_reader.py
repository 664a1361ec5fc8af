"""DiskReader: the bytes of one file as the disk returns them, not as the page cache has them.

Used by the scrub thread of process `store`. O_DIRECT, which neither trusts the cache nor fills it;
dirty pages of the range are written before. Where the file system knows no O_DIRECT (tmpfs), the
cache is told to drop the range before and after each read, which it does for pages that nobody has
mapped: the rest comes from the cache. What the disk cannot return at all reads as zeros. It knows
no records.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from store.closing import Closing

log = logging.getLogger(__name__)

READ_STEP: Final = 256 << 10
"""Bytes of one read."""
_ALIGNMENT: Final = 4096
"""Of place, length and memory of a direct read: no disk has larger blocks."""


class DiskReader(Closing):
    """A window that moves over the file. Owned by one thread."""

    def __init__(self, path: Path, on_read: Callable[[int], None] = lambda size: None) -> None:
        """on_read: gets the size before each read; what it raises ends the reading. Raises
        OSError."""
        self._path = path
        self._on_read = on_read
        self._fd, self.is_direct = _open(path)
        self.size: Final = os.fstat(self._fd).st_size
        self._memory = mmap.mmap(-1, 2 * READ_STEP)
        self._base = 0
        """Position in the file of the window's first byte."""
        self.loaded_end = 0
        """Position behind the window's last byte."""

    def window(self, position: int, size: int) -> tuple[memoryview, int]:
        """All loaded bytes, [position, position + size) among them as far as the file goes, and
        the position of the first. Lent until the next call. Raises OSError."""
        end = min(position + size, self.size)
        if position < self._base or end > self.loaded_end:
            self._load(position, end)
        return memoryview(self._memory)[: self.loaded_end - self._base], self._base

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _load(self, position: int, end: int) -> None:
        base = position - position % _ALIGNMENT
        needed = -(-max(end - base, READ_STEP) // _ALIGNMENT) * _ALIGNMENT
        memory = self._memory if needed <= len(self._memory) else mmap.mmap(-1, needed)
        kept = self.loaded_end - base if self._base <= base < self.loaded_end else 0
        memory[:kept] = self._memory[base - self._base : base - self._base + kept]
        self._memory, self._base, self.loaded_end = memory, base, base + kept
        while self.loaded_end < min(base + needed, self.size):
            size = min(READ_STEP, base + needed - self.loaded_end)
            self._on_read(min(size, self.size - self.loaded_end))
            self.loaded_end += self._read(self.loaded_end, size)

    def _read(self, position: int, size: int) -> int:
        """Into the window, at `position`; how many bytes the file has there."""
        at = position - self._base
        with memoryview(self._memory)[at : at + size] as target:
            try:
                count = self._read_once(target, position)
            except OSError as error:
                if error.errno == errno.EINVAL and self.is_direct:
                    os.close(self._fd)
                    self._fd, self.is_direct = (
                        os.open(self._path, os.O_RDONLY | os.O_CLOEXEC),
                        False,
                    )
                    count = self._read_once(target, position)
                elif error.errno == errno.EIO:
                    count = self._read_blocks(target, position)
                else:
                    raise
        if not count:
            raise OSError(errno.EIO, f"the file ends at {position}, it had {self.size} bytes")
        return count

    def _read_once(self, target: memoryview, position: int) -> int:
        if self.is_direct:
            return os.preadv(self._fd, [target], position)
        os.posix_fadvise(self._fd, position, len(target), os.POSIX_FADV_DONTNEED)
        count = os.preadv(self._fd, [target], position)
        os.posix_fadvise(self._fd, position, len(target), os.POSIX_FADV_DONTNEED)
        return count

    def _read_blocks(self, target: memoryview, position: int) -> int:
        """Block by block; those that cannot be read are zeros."""
        count = min(len(target), self.size - position)
        for at in range(0, count, _ALIGNMENT):
            block = target[at : at + _ALIGNMENT]
            try:
                self._read_once(block, position + at)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                log.error("%s: the disk cannot read the block at %s", self._path, position + at)
                block[:] = bytes(len(block))
        return count


def _open(path: Path) -> tuple[int, bool]:
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_DIRECT), True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return os.open(path, flags), False
