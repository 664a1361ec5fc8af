"""Whole-file writes that a crash cannot tear: write beside, fsync, rename, fsync the directory.

For small state files (config/*.json, settings, pid files). Any thread; one writer for each file
at a time is the caller's promise (the temporary file has a fixed name, so that a crash leaves one
file to overwrite instead of a heap). Knows nothing of what it writes.

Files of `path`: `path.tmp` being written, `path.bak.tmp` a second name of the old text for a
moment, `path.bak` the text before the last write.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def write_atomic(path: Path, data: bytes, *, backup: bool = False, mode: int | None = None) -> None:
    """Replaces the file whole; missing parent directories are made. Raises OSError.

    `mode`: permission bits of the new text, also while it is being written (files that hold keys);
    None: what the process gives to new files.

    With `backup` the text before it becomes `path.bak`, and only after the new text is in place:
    at every moment `path` or `path.bak` is whole, even when the old `path` was damaged (where the
    file system has no hard links: whole if the old one was). A symbolic link is followed, so that
    the file it names is replaced and not the link.
    """
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(target, ".tmp")
    _write_synced(temporary, data, mode)
    old = _keep_old(target) if backup else None
    os.replace(temporary, target)
    if old is not None:
        os.replace(old, backup_path(target))
    sync_directory(target.parent)


def backup_path(path: Path) -> Path:
    """Where `write_atomic(backup=True)` keeps the text before the last one."""
    return _beside(path, ".bak")


def sync_directory(directory: Path) -> None:
    """Makes renames, creations and deletions in `directory` durable. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _keep_old(target: Path) -> Path | None:
    """Gives the old text a second name; None when there is no old text or it is moved already."""
    second = _beside(target, ".bak.tmp")
    with contextlib.suppress(FileNotFoundError):
        second.unlink()
    try:
        os.link(target, second)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        with contextlib.suppress(FileNotFoundError):
            os.replace(target, backup_path(target))
        return None
    return second


def _write_synced(path: Path, data: bytes, mode: int | None) -> None:
    with open(path, "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
