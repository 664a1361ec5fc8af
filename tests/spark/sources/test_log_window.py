"""Windows over a file: what is loaded, and what a disk does not return."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from spark.sources.errors import SourceError
from spark.sources.log_window import WINDOW, FileWindow


def write(directory: Path, size: int) -> tuple[str, bytes]:
    data = random.Random(1).randbytes(size)
    path = directory / "file"
    path.write_bytes(data)
    return str(path), data


def test_any_part_of_a_file(tmp_path: Path) -> None:
    path, data = write(tmp_path, 2 * WINDOW + 1000)
    choice = random.Random(2)
    with FileWindow(path) as window:
        for _ in range(30):
            at, size = choice.randrange(len(data)), choice.choice([1, 100, WINDOW + 5])
            view, base = window.view(at, size)
            assert view[at - base : at - base + size] == data[at : at + size]
            assert len(view) <= 2 * (WINDOW + 5)


def test_a_fifo(tmp_path: Path) -> None:
    """It may have come in the place of a file since the query was planned."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SourceError, match="no regular file"):
        FileWindow(str(tmp_path / "fifo"))


def test_what_is_loaded_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = write(tmp_path, 10_000)
    with FileWindow(path) as window:
        window.view(0, 1)
        monkeypatch.setattr(os, "preadv", None)
        window.view(9_000, 1000)


def test_bad_blocks_are_zeros_and_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, data = write(tmp_path, 20_000)
    read = os.preadv

    def preadv(fd: int, buffers: list[memoryview], position: int) -> int:
        if position // 4096 == 2:
            raise OSError(errno.EIO, "Input/output error")
        size = 8192 - position if position < 8192 else len(buffers[0])
        return read(fd, [buffers[0][:size]], position)

    monkeypatch.setattr(os, "preadv", preadv)
    with FileWindow(path) as window:
        view, base = window.view(5, 19_000)
        assert base == 5
        assert view[: 8192 - 5] == data[5:8192]
        assert view[8192 - 5 : 12288 - 5] == bytes(4096)
        assert view[12288 - 5 :] == data[12288:]
        assert not window.why_unreadable(0, 8192)
        assert "Input/output" in window.why_unreadable(8000, 8193)
        assert not window.why_unreadable(12288, 20_000)


def test_a_mount_that_is_gone_is_no_rot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = write(tmp_path, 20_000)

    def preadv(*_: object) -> int:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "preadv", preadv)
    with FileWindow(path) as window, pytest.raises(SourceError, match=r"file: Stale file handle"):
        window.view(0, 10)


def test_holes_are_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(64 << 20)
        file.seek(32 << 20)
        file.write(b"x")
    with FileWindow(str(path)) as window:
        found = window.next_data(0)
        assert found in (0, 32 << 20)
        assert window.next_data(33 << 20) in (33 << 20, 64 << 20)
