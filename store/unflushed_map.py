"""Small mapped files that are written by plain stores and never flushed: they outlive processes.

Used on the loop thread of `remoting`, for what a kill must not forget and a crash of the machine
may. A store to a page without a block kills the process on a full disk (SIGBUS), so blocks are
taken before. Knows no content.
"""

from __future__ import annotations

import logging
import mmap
import os
from pathlib import Path

from store.clean_exit import boot_id
from store.mapped_file import NO_SPACE

log = logging.getLogger(__name__)


def take_blocks(fd: int, start: int, size: int) -> bool:
    """Whether the file has blocks for [start, start + size) now, and for the whole pages that a
    store there touches (blocks may be smaller); False: the disk is full. Raises OSError."""
    first = start - start % mmap.PAGESIZE
    end = -(-(start + size) // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        os.posix_fallocate(fd, first, min(end, os.fstat(fd).st_size) - first)
    except OSError as error:
        if error.errno in NO_SPACE:
            return False
        raise
    return True


def boot_mark() -> bytes:
    """The boot id in ASCII, 64 bytes with zeros behind: what such files are believed by."""
    return boot_id().encode()[:64].ljust(64, b"\0")


def open_unflushed(path: Path, size: int) -> tuple[mmap.mmap, bool]:
    """Map a file of `size` bytes, all with blocks, made or made that long where it is not; and
    whether it was not. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        is_new = os.fstat(fd).st_size != size
        os.ftruncate(fd, size)
        return map_unflushed(fd, size, size, path), is_new
    finally:
        os.close(fd)


def map_unflushed(fd: int, size: int, taken: int, path: Path) -> mmap.mmap:
    """Map the first `size` bytes, of which `taken` have blocks. On a full disk it is memory that no
    file has: what it holds is lost with the process, and an error line says so. Raises OSError."""
    if take_blocks(fd, 0, taken):
        return mmap.mmap(fd, size)
    log.error(
        "%s: no space left on the disk: kept in memory only until the next start; if this process "
        "is killed before, messages may be delivered again",
        path,
    )
    return mmap.mmap(-1, size)
