"""Small files of strangers' directories: pipes are not waited for, giants not read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adopt.plain_files import read_plain, read_tail
from store.errors import StoreError
from store.store_lock import is_locked


def test_what_is_read_and_what_is_not(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"12345")
    assert read_plain(place, 5) == b"12345"
    with pytest.raises(StoreError, match="file: 5 bytes, at most 4 are expected"):
        read_plain(place, 4)
    with pytest.raises(StoreError, match="not a plain file"):
        read_plain(tmp_path, 5)
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path / "none", 5)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="not a plain file"):
        read_plain(tmp_path / "pipe", 5)
    os.mkfifo(tmp_path / "lock")
    assert not is_locked(tmp_path)


def test_a_tail_ends_at_its_last_byte(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"begin")
    os.truncate(place, 3 << 20)
    assert read_tail(place, 5) == b""
    assert read_tail(place, 2) == b"gin"
    with place.open("r+b") as file:
        file.seek((2 << 20) + 7)
        file.write(b"x")
    assert read_tail(place, 5) == bytes((2 << 20) + 2) + b"x"
