"""What writing dumps durably needs: directories on the disk, and errors that name their file.

Called by the commands that write dumps (`mqreport import`, `mqreport compact`), no Spark. Must not
know what the files hold.
"""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterator
from pathlib import Path


def sync_directory(place: Path) -> None:
    """Puts the names that a directory holds on the disk. Raises OSError that names it."""
    with naming(place):
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError of a read, a write or an fsync names no file, one of a temporary file another one:
    here it names `path`. A damaged gzip file is no trouble with the disk, and stays what it is."""
    try:
        yield
    except gzip.BadGzipFile:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
