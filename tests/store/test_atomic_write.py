from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from store.atomic_write import atomic_write


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "word"
    for data in (b"first", b"", b"second"):
        atomic_write(path, data)
        assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["word"]


def test_a_short_write_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:3]))
    atomic_write(tmp_path / "word", b"more than three bytes")
    assert (tmp_path / "word").read_bytes() == b"more than three bytes"


def test_a_disk_that_becomes_full_leaves_the_old_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atomic_write(tmp_path / "word", b"old")
    sizes = iter((3,))
    write = os.write

    def fill(fd: int, data: memoryview) -> int:
        for size in sizes:
            return write(fd, data[:size])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", fill)
    with pytest.raises(OSError, match="No space"):
        atomic_write(tmp_path / "word", b"longer than that")
    assert (tmp_path / "word").read_bytes() == b"old"
