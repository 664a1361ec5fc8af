"""Durable writes of dump files: whole or not at all, directories synced, errors that name the file.

Used by `mqreport import` and `mqreport compact`, without Spark. Must not know what files hold.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
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


def replace_file(path: Path, data: bytes) -> None:
    """Writes a file that is there whole or not at all, and synced; its directory is not synced yet.

    While it is written it has a hidden name that begins like `path`'s. Raises OSError that names
    `path`.
    """
    with naming(path):
        prefix = f".{path.name.removeprefix('.')}-"
        descriptor, hidden = tempfile.mkstemp(dir=path.parent, prefix=prefix)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(descriptor, 0o644)
                os.fsync(descriptor)
            os.replace(hidden, path)
        except BaseException:
            os.unlink(hidden)
            raise


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError of a read, a write or an fsync names no file, one of a temporary file another one:
    here it names `path`. BadGzipFile passes: the file is damaged, the disk is not."""
    try:
        yield
    except gzip.BadGzipFile:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
