"""A small file system of its own that a test fills to the last page; needs the right to mount."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_PIECE = 1 << 16
_PAGE = 4096


class SmallDisk:
    """A mounted file system, and the file that fills it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    @property
    def free(self) -> int:
        """Bytes."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    @property
    def size(self) -> int:
        """Bytes."""
        found = os.statvfs(self.path)
        return found.f_blocks * found.f_frsize

    def fill(self) -> None:
        """Write until nothing more fits, however often others have freed something meanwhile."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (_PIECE, _PAGE):
                with contextlib.suppress(_FullError):
                    while True:
                        _write(file.fileno(), size)

    def make_room(self, size: int | None = None) -> None:
        """Give `size` bytes back, all of them without it."""
        if size is None:
            self._ballast.unlink()
        else:
            os.truncate(self._ballast, self._ballast.stat().st_size - size)


class _FullError(Exception):
    pass


def _write(fd: int, size: int) -> None:
    try:
        os.write(fd, b"b" * size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise _FullError from error


@contextlib.contextmanager
def small_disk(path: Path, size_mib: int, kind: str = "tmpfs") -> Iterator[SmallDisk]:
    """Mounted at `path`, which is made: a tmpfs, or an ext4 in a file beside it, which has delayed
    allocation and a journal. Skips the test where that is not possible."""
    path.mkdir(parents=True)
    if kind == "tmpfs":
        _run_or_skip("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", path)
    else:
        image = path.with_suffix(".image")
        with image.open("wb") as file:
            file.truncate(size_mib << 20)
        # No blocks that only root may use: the broker under test may be root's.
        _run_or_skip("mkfs.ext4", "-q", "-F", "-m", "0", image)
        _run_or_skip("mount", "-o", "loop", image, path)
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def _run_or_skip(*command: str | Path) -> None:
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"there is no {command[0]}")
    if done.returncode:
        pytest.skip(f"cannot {command[0]}: {done.stderr.decode()}")
