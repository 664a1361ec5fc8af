"""sync_range: which files of the log it brings to disk, and what a failure says."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from store.errors import FlushFailedError
from store.log_directories import LogDirectories
from store.log_end import sync_range
from store.mapped_file import file_name

SIZE = 4096


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were brought to disk."""
    for start in range(0, 4 * SIZE, SIZE):
        (tmp_path / file_name(start)).write_bytes(bytes(SIZE))
    names: list[str] = []
    monkeypatch.setattr(
        os, "fdatasync", lambda fd: names.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
    )
    return names


@pytest.mark.parametrize(
    ("start", "end", "files"),
    [
        (0, 0, []),
        (SIZE, SIZE, []),
        (2 * SIZE, SIZE, []),
        (10, 11, [0]),
        (SIZE - 1, SIZE, [0]),
        (SIZE - 1, SIZE + 1, [0, SIZE]),
        (SIZE, 3 * SIZE, [SIZE, 2 * SIZE]),
        (SIZE + 5, 3 * SIZE + 5, [SIZE, 2 * SIZE, 3 * SIZE]),
    ],
)
def test_every_file_of_the_range(
    tmp_path: Path, synced: list[str], start: int, end: int, files: list[int]
) -> None:
    sync_range(LogDirectories((tmp_path,)), SIZE, start, end)
    assert synced == [file_name(each) for each in files]


def test_a_failure_stops_the_broker(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(FlushFailedError, match=f"{file_name(0)}: fdatasync failed"):
        sync_range(LogDirectories((tmp_path,)), SIZE, 0, 1)
