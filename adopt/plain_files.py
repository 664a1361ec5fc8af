"""Reads files of a directory that may come from anywhere: no pipe, no more than is needed.

Pure but for the reading; one thread. Knows nothing of what is in them.

Tested by tests/adopt/test_plain_files.py.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from store.errors import StoreError

_STEP: Final = 1 << 20


def read_plain(path: Path, most: int) -> bytes:
    """All of it. Raises StoreError: it is no plain file, or has more than `most` bytes; OSError,
    FileNotFoundError among them."""
    # A pipe in its place would let the open wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise StoreError(f"{path}: not a plain file; put one in its place, or remove it")
    with open(descriptor, "rb") as file:
        if found.st_size > most:
            raise StoreError(
                f"{path}: {found.st_size} bytes, at most {most} are expected: not a broker's; move "
                "it away, or restore it from a copy"
            )
        return file.read(most)


def read_tail(path: Path, start: int) -> bytes:
    """What lies behind `start`, without the zeros at its end, which may be most of a large file.
    Raises OSError."""
    size = 0
    with path.open("rb") as opened:
        opened.seek(start)
        at = 0
        while piece := opened.read(_STEP):
            found = len(piece.rstrip(b"\0"))
            size = at + found if found else size
            at += len(piece)
        opened.seek(start)
        return opened.read(size)
