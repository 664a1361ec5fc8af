"""Small files that are there whole or not at all: `atomic_write`.

For the store's words to its next start (clean.exit, resync.json). Any thread; one writer for each
file at a time. It knows no content. (conf.atomic_file does the same; this room may not import it.)
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from store.errors import FlushFailedError
from store.mapped_file import sync_directory


def atomic_write(path: Path, data: bytes) -> None:
    """Durable when it returns: temporary file, fsync, rename, fsync of the directory. A failure
    leaves what was there. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)
    try:
        sync_directory(path.parent)
    except FlushFailedError as error:
        # All of the file is written anew at the next try: nothing has to stop for that.
        raise OSError(errno.EIO, str(error)) from error
