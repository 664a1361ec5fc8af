"""LogFile: what is written is what everybody reads, at once; what does not fit is refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from store.errors import StoreError, WrongFileSizeError
from store.log_file import LogFile
from store.mapped_file import MappedFile, create_allocated, file_name


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / file_name(8192)
    create_allocated(path, 8192)
    return path


def test_written_bytes_are_seen_by_all_maps(path: Path) -> None:
    with LogFile(path, 8192) as file, MappedFile.open(path, 8192) as reader:
        own = file.view()
        file.write(100, b"hello")
        file.write(105, memoryview(b" world"))
        for view in (reader.view(), own):
            assert bytes(view[99:112]) == b"\0hello world\0"
        assert (file.start_offset, file.end_offset, len(own)) == (8192, 16384, 8192)
        file.write(8190, b"ab")
    assert path.read_bytes()[-3:] == b"\0ab"
    file.close()


def test_what_does_not_fit_is_refused(path: Path) -> None:
    with LogFile(path, 8192) as file:
        for position in (-1, 8190):
            with pytest.raises(StoreError, match="outside its 8192 bytes"):
                file.write(position, b"abc")
    assert path.read_bytes() == bytes(8192)


def test_a_write_that_stops_in_the_middle_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def a_little(fd: int, data: Any, offset: int) -> int:
        return pwrite(fd, bytes(data)[:3], offset)

    with LogFile(path, 8192) as file:
        monkeypatch.setattr(os, "pwrite", a_little)
        file.write(5, b"0123456789")
    assert path.read_bytes()[:16] == b"\0\0\0\0\x000123456789\0"


def test_errors_name_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, data: Any, offset: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with LogFile(path, 8192) as file:
        monkeypatch.setattr(os, "pwrite", refuse)
        with pytest.raises(StoreError, match=f"{path}: cannot be written at 7: Input/output error"):
            file.write(7, b"x")
    path.unlink()
    with pytest.raises(StoreError, match=f"{path}: cannot be opened: No such file"):
        LogFile(path, 8192)


def test_preparing_changes_nothing(path: Path) -> None:
    with LogFile(path, 8192) as file:
        file.write(0, b"x" * 8192)
        file.prepare(4096, 1 << 20)
    assert path.read_bytes() == b"x" * 8192


def test_a_file_that_somebody_truncates_is_not_written(path: Path) -> None:
    with LogFile(path, 8192) as file:
        file.write(0, b"before")
        os.truncate(path, 4096)
        with pytest.raises(WrongFileSizeError, match="length 4096, expected 8192"):
            file.write(6000, b"behind its end")
    assert path.stat().st_size == 4096
