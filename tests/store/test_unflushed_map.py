"""Maps that kills survive: their pages have blocks before they are written."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

import pytest

from store.unflushed_map import map_unflushed, take_blocks


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "map"
    path.touch()
    os.truncate(path, 10 * mmap.PAGESIZE + 100)
    return path


@pytest.mark.parametrize(
    ("start", "size", "pages"),
    [(0, 64, 1), (mmap.PAGESIZE - 1, 2, 2), (mmap.PAGESIZE, 1, 1), (10 * mmap.PAGESIZE, 100, 1)],
)
def test_whole_pages_get_blocks(path: Path, start: int, size: int, pages: int) -> None:
    with path.open("r+b") as file:
        assert take_blocks(file.fileno(), start, size)
        status = os.fstat(file.fileno())
    assert status.st_size == 10 * mmap.PAGESIZE + 100
    assert status.st_blocks * 512 >= pages * mmap.PAGESIZE


def test_on_a_full_disk_it_is_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with path.open("r+b") as file, map_unflushed(file.fileno(), 100, 100, path) as found:
        found[:4] = b"kept"
        assert found[:4] == b"kept"
    assert path.read_bytes()[:4] == bytes(4)
    assert "no space left on the disk" in caplog.text


def test_other_errors_are_raised(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "posix_fallocate", broken)
    with path.open("r+b") as file, pytest.raises(OSError, match="Input/output"):
        map_unflushed(file.fileno(), 100, 100, path)
