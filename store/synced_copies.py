"""SyncedCopies: what the disk has of a store's files, for the power cuts of bin/mqchaos.

Used by the hooks of store/disk_fault_hooks.py only, in any thread of any process of a broker whose
disk mqchaos breaks; a lock file lets one of them in at a time. It knows no fault and no record. The
directory, which mqchaos reads once all processes have ended (tools/chaos/power_cut.py):

- `<inode>.disk`: a file as it was synced last, or as a sync that was under way leaves it.
- `<inode>.link`: a second name of the file: its inode number is not used again.
- `<inode>.names`: the names of a directory as it was synced last, JSON, `{name: inode}`.
- `<inode>.lost`: after a failed sync, JSON: the numbers of the pages (4,096 bytes) that Linux calls
  clean though the disk does not have them; `<inode>.clean` is what they hold. They reach the disk
  once they are changed or written again.

Tested by tests/store/test_disk_fault_hooks.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PAGE: Final = 4096
_COPY: Final = 1 << 20


class SyncedCopies:
    """See the module."""

    def __init__(self, directory: Path) -> None:
        """Nothing is touched yet."""
        self._disk = directory

    def open(self) -> None:
        """Make the directory, if it is not there. Raises OSError."""
        self._disk.mkdir(exist_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process and thread at a time."""
        fd = os.open(self._disk / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _of(self, inode: int, kind: str) -> Path:
        return self._disk / f"{inode}.{kind}"

    def keep_names(self, fd: int) -> None:
        """A directory was synced."""
        inode = os.fstat(fd).st_ino
        with self._locked(), os.scandir(f"/proc/self/fd/{fd}") as entries:
            names = {entry.name: entry.inode() for entry in entries}
            temporary = self._of(inode, "names.tmp")
            temporary.write_text(json.dumps(names))
            temporary.replace(self._of(inode, "names"))

    def keep(self, fd: int, path: str) -> None:
        """A file was synced. path: one of its names."""
        with self._locked():
            self._keep(fd, path, os.fstat(fd).st_ino)

    def _keep(self, fd: int, path: str, inode: int) -> None:
        with contextlib.suppress(OSError):  # It has one, or was deleted meanwhile.
            os.link(path, self._of(inode, "link"))
        lost = self._lost(inode)
        with _reader(fd) as source, _writer(self._of(inode, "disk")) as disk:
            if not lost:
                _copy(source, disk)
                return
            still = {page for page in lost if self._is_clean(inode, source, page)}
            size = os.fstat(source).st_size
            os.ftruncate(disk, size)
            for page in range(-(-size // PAGE)):
                if page not in still:
                    os.pwrite(disk, os.pread(source, PAGE, page * PAGE), page * PAGE)
        self._save_lost(inode, still)

    def lose(self, fd: int) -> None:
        """A sync failed: its pages are clean now, and the disk has none of them."""
        with self._locked():
            self._lose(fd, os.fstat(fd).st_ino)

    def _lose(self, fd: int, inode: int) -> None:
        lost = self._lost(inode)
        with _reader(fd) as source, _writer(self._of(inode, "disk")) as disk:
            pages = range(-(-os.fstat(source).st_size // PAGE))
            for page in pages:
                known = os.pread(disk, PAGE, page * PAGE).ljust(PAGE, b"\0")
                if os.pread(source, PAGE, page * PAGE).ljust(PAGE, b"\0") != known:
                    lost.add(page)
            with _writer(self._of(inode, "clean")) as clean:
                _copy(source, clean)
        self._save_lost(inode, lost)

    def _is_clean(self, inode: int, source: int, page: int) -> bool:
        with _writer(self._of(inode, "clean")) as clean:
            return os.pread(clean, PAGE, page * PAGE) == os.pread(source, PAGE, page * PAGE)

    def rewritten(self, inode: int, start: int, end: int) -> None:
        """[start, end) of a file was written again: its pages are dirty again."""
        if not self._of(inode, "lost").exists():
            return
        with self._locked():
            lost = self._lost(inode)
            lost.difference_update(range(start // PAGE, -(-end // PAGE)))
            self._save_lost(inode, lost)

    def _lost(self, inode: int) -> set[int]:
        try:
            return set(json.loads(self._of(inode, "lost").read_bytes()))
        except FileNotFoundError:
            return set()

    def _save_lost(self, inode: int, lost: set[int]) -> None:
        if not lost:
            self._of(inode, "lost").unlink(missing_ok=True)
            return
        temporary = self._of(inode, "lost.tmp")
        temporary.write_text(json.dumps(sorted(lost)))
        temporary.replace(self._of(inode, "lost"))


class NoCopies(SyncedCopies):
    """Where no power cut comes: nothing is kept, and syncs cost what they cost."""

    def open(self) -> None:
        """Nothing is made."""

    def keep_names(self, _fd: int) -> None:
        """Nothing."""

    def keep(self, _fd: int, _path: str) -> None:
        """Nothing."""

    def lose(self, _fd: int) -> None:
        """Nothing."""


@contextlib.contextmanager
def _reader(fd: int) -> Iterator[int]:
    """The same file, for reading: the caller's descriptor may be for writing only."""
    opened = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield opened
    finally:
        os.close(opened)


@contextlib.contextmanager
def _writer(path: Path) -> Iterator[int]:
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield opened
    finally:
        os.close(opened)


def _copy(source: int, target: int) -> None:
    """The whole file; what the file system knows to be empty is made a hole."""
    size = os.fstat(source).st_size
    kept = os.fstat(target).st_size
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
        except OSError:
            start = size
        end = os.lseek(source, start, os.SEEK_HOLE) if start < size else size
        if at < min(start, kept):
            _zero(target, at, min(start, kept))
        while start < end:
            start += os.sendfile(_at(target, start), source, start, min(_COPY, end - start))
        at = end
    os.ftruncate(target, size)


def _at(fd: int, offset: int) -> int:
    """The descriptor, with its offset there."""
    os.lseek(fd, offset, os.SEEK_SET)
    return fd


def _zero(fd: int, start: int, end: int) -> None:
    """A part that became a hole. Seldom: files of a store grow."""
    for at in range(start, end, _COPY):
        size = min(_COPY, end - at)
        if os.pread(fd, size, at).strip(b"\0"):
            os.pwrite(fd, bytes(size), at)
