"""Which pages of a file are in the page cache (mincore). No state, any thread; it knows no record.

The file is mapped for the question only: nothing is read, and no page is touched. The kernel
answers for files that the caller owns or may write; for others it says that all is resident.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64),
)
_LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_MAP_FAILED: Final = ctypes.c_void_p(-1).value


def sampled_residency(path: Path, step: int) -> bytes:
    """One byte for each `step`-th page of `path`, bit 0 set if the page is resident; one byte is
    0.1 us of the kernel's time. Does not hold the GIL while it asks. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size == 0:
            return b""
        address = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    finally:
        os.close(fd)
    if address == _MAP_FAILED:
        raise _error(path)
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    try:
        if _LIBC.mincore(address, size, pages) != 0:
            raise _error(path)
    finally:
        _LIBC.munmap(address, size)
    return bytes(pages[::step])


def _error(path: Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), str(path))
