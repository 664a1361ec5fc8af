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
