"""Copies a store directory, file by file, so that a copy that was cut off goes on.

One thread. Holes stay holes; times stay, as retention counts by them; hard links are never made,
since a broker writes into its files. Only files and directories are copied, and links at the top
(commitlog/ on another disk) are followed: a link elsewhere is refused by name. A file is written
under another name and renamed when it is on disk: what has its name is whole.

Tested by tests/adopt/test_copied_files.py.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from store.errors import DiskFullError, StoreError
from store.mapped_file import make_directory, sync_directory

SPARE: Final = 64 << 20
"""Bytes that must stay free beside the copy."""
_PART: Final = ".mqadopt.part"
_STEP: Final = 1 << 20
_ZEROS: Final = bytes(_STEP)


class Copied(NamedTuple):
    """One file: its path below the root, the bytes that it has, those that it takes."""

    path: Path
    size: int
    on_disk: int
    mtime_ns: int
    """A copy has the same: one of a file that was written since is made again."""


def files_below(root: Path, is_left_out: Callable[[Path], bool]) -> list[Copied]:
    """What is to be copied, in order. is_left_out: asked with the path below the root. Raises
    StoreError: something is neither file nor directory."""
    return sorted(_walk(root, Path(), is_left_out))


def _walk(root: Path, below: Path, is_left_out: Callable[[Path], bool]) -> Iterator[Copied]:
    for entry in sorted(os.scandir(root / below), key=lambda each: each.name):
        path = below / entry.name
        if is_left_out(path) or entry.name.endswith(_PART):
            continue
        follows = len(path.parts) == 1
        if entry.is_dir(follow_symlinks=follows):
            yield from _walk(root, path, is_left_out)
        elif entry.is_file(follow_symlinks=follows):
            found = entry.stat()
            on_disk = min(found.st_size, found.st_blocks * 512)
            yield Copied(path, found.st_size, on_disk, found.st_mtime_ns)
        else:
            raise StoreError(
                f"{root / path}: neither a file nor a directory (a link is followed at the top "
                "only): put what it names in its place, or remove it if no broker needs it"
            )


def check_room(files: list[Copied], target: Path, more: int = 0) -> int:
    """How much is needed, `more` bytes besides the files. Raises DiskFullError: more than there
    is."""
    needed = sum(each.on_disk for each in files if not _is_copied(each, target)) + more + SPARE
    there = next(each for each in (target, *target.absolute().parents) if each.is_dir())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise DiskFullError(
            f"{target}: {needed} bytes are needed, {free} are free: free some, or name another "
            "disk (--in-place copies nothing)"
        )
    return needed


def check_one_disk(root: Path, moved: Iterable[str]) -> None:
    """In place, things are moved aside, which goes within a file system only. Raises StoreError."""
    device = root.stat().st_dev
    for path in sorted({path for name in moved for path in root.glob(name)}):
        if path.lstat().st_dev != device:
            raise StoreError(
                f"{path}: on another disk than {root}: it cannot be moved aside there; say --to "
                "another directory"
            )


def _is_copied(file: Copied, target: Path) -> bool:
    path = target / file.path
    if not path.is_file():
        return False
    found = path.stat()
    return (found.st_size, found.st_mtime_ns) == (file.size, file.mtime_ns)


def copy_files(
    root: Path, files: list[Copied], target: Path, progress: Callable[[int, int], None]
) -> None:
    """Those that are not there yet. Raises OSError."""
    total, done = sum(each.size for each in files), 0
    directories = set()
    for file in files:
        path = target / file.path
        if not _is_copied(file, target):
            make_directory(path.parent)
            _copy(root / file.path, path)
            directories.add(path.parent)
        done += file.size
        progress(done, total)
    for directory in directories:
        sync_directory(directory)


def _copy(source: Path, path: Path) -> None:
    part = path.with_name(path.name + _PART)
    with source.open("rb") as read, part.open("wb") as written:
        found = os.fstat(read.fileno())
        while piece := read.read(_STEP):
            if piece == _ZEROS[: len(piece)]:
                written.seek(len(piece), os.SEEK_CUR)
            else:
                written.write(piece)
        written.truncate()
        written.flush()
        if written.tell() != found.st_size:
            raise StoreError(f"{source}: it changes while it is copied: a broker has it open")
        os.fsync(written.fileno())
        os.fchmod(written.fileno(), stat.S_IMODE(found.st_mode))
        os.utime(written.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
    part.rename(path)
