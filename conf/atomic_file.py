"""Atomic writes of whole files: write a temporary file, fsync, rename, fsync the directory.

For small state files (config/*.json, settings, pid files, what the store tells its next start).
Any thread; the caller ensures that a file has one writer at a time (the temporary file has a fixed
name, so that crashes do not leave more than one behind). Does not know what it writes. Open to the
rooms that write files and may not import `conf`: it needs the standard library only.

Files of `path`: `path.tmp` is being written, `path.bak.tmp` is briefly a second link to the old
content, `path.bak` has the content before the last write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def write_atomic(path: Path, data: bytes, *, backup: bool = False, mode: int | None = None) -> None:
    """`replace_file`, in a directory that is created, with its parents, if it is missing."""
    make_directory(_real(path).parent)
    replace_file(path, data, backup=backup, mode=mode)


def replace_file(path: Path, data: bytes, *, backup: bool = False, mode: int | None = None) -> None:
    """Replaces the file's content; durable when it returns, a failure leaves what was there. Raises
    OSError.

    `mode`: permission bits of the new file, also while it is being written (files that hold keys);
    the backup loses those that are not in it. None: the process's default.

    With `backup` the old content becomes `path.bak`, but only once the new content is in place: at
    any moment `path` or `path.bak` is complete, even if the old `path` was damaged (on a file
    system without hard links: if the old one was complete). A symbolic link is followed: the file
    that it names is replaced, not the link.
    """
    target = _real(path)
    temporary = _beside(target, ".tmp")
    _write_synced(temporary, data, mode)
    old = _keep_old(target, mode) if backup else None
    os.replace(temporary, target)
    if old is not None:
        os.replace(old, backup_path(target))
    sync_directory(target.parent)


def backup_path(path: Path) -> Path:
    """Where `backup` keeps the previous content."""
    return _beside(path, ".bak")


def sync_directory(directory: Path, sync: Callable[[int], None] | None = None) -> None:
    """Makes renames, creations and deletions in `directory` durable. Raises OSError.

    sync: is called with its descriptor in place of os.fsync, by callers that turn a failed fsync
    into an error of their own.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        (sync or os.fsync)(fd)
    finally:
        os.close(fd)


def make_directory(directory: Path, sync: Callable[[Path], None] = sync_directory) -> None:
    """Creates it with the parents that it lacks; their names survive a power loss, too. One that is
    there costs nothing. `sync` makes the names in a directory durable. Raises OSError."""
    if directory.is_dir():
        return
    if directory.parent != directory:
        make_directory(directory.parent, sync)
    directory.mkdir(exist_ok=True)
    sync(directory.parent)


def _keep_old(target: Path, mode: int | None) -> Path | None:
    """Links the old content to a second name; None if there is none or it is already moved."""
    if mode is not None:
        _restrict(target, mode)
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


def _restrict(path: Path, mode: int) -> None:
    """Takes the permissions that are not in `mode` from the file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        found = stat.S_IMODE(path.stat().st_mode)
        if found & ~mode:
            path.chmod(found & mode)


def _write_synced(path: Path, data: bytes, mode: int | None) -> None:
    if mode is not None:
        # A new file: who has opened one that a crash left behind does not see the keys.
        path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(path, flags, 0o666 if mode is None else 0o600), "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _real(path: Path) -> Path:
    """Without links. Path.resolve raises RuntimeError for one that leads to itself, as no caller
    expects: that one is replaced."""
    return Path(os.path.realpath(path))


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
