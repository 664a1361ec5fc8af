"""Locks, durable writes and compression of the files of a metrics dump.

Called by metrics_dump_files.py on the dump's thread in the supervisor. Knows neither the names of
the files nor their lines.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from pathlib import Path
from typing import Final

from conf.atomic_file import sync_directory

_CHUNK: Final = 64 << 10
_GZIP: Final = 31
"""zlib's wbits for the largest window with a gzip header and trailer, without a timestamp."""


def is_written(path: Path) -> bool:
    """Whether another process holds the lock of an uncompressed file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return not lock(fd)
    finally:
        os.close(fd)


def lock(fd: int) -> bool:
    """Take the writer's lock, which closing the descriptor releases; False if another process holds
    it. On a file system without locks a second writer cannot be detected."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def whole_lines(fd: int) -> int:
    """The size of a file up to and including its last newline."""
    end = os.fstat(fd).st_size
    while end:
        start = max(end - _CHUNK, 0)
        at = os.pread(fd, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def write_packed(fd: int, packed: Path) -> None:
    """Write the compressed content of `fd` to `packed` atomically. Works in chunks, as zlib
    releases the GIL for each of them."""
    temporary = packed.with_name(f".{packed.name}.tmp")
    out = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            packer = zlib.compressobj(wbits=_GZIP)
            at = 0
            while data := os.pread(fd, _CHUNK, at):
                at += len(data)
                _write_all(out, packer.compress(data))
            _write_all(out, packer.flush())
            os.fsync(out)
        finally:
            os.close(out)
        os.rename(temporary, packed)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(packed.parent)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def make_directory(path: Path) -> None:
    """Create a directory and its parents, each synced to its parent. Raises OSError."""
    if path.is_dir():
        return
    make_directory(path.parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    sync_directory(path.parent)


def list_names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def file_size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
