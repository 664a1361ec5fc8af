"""FileSystemSync: when it is used, what it says when it cannot or fails."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from store import file_system_sync
from store.file_system_sync import FileSystemSync, reports_failures


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("5.8.0", True),
        ("5.7.19-generic", False),
        ("4.19.0-27-amd64", False),
        ("6.1.0-13-amd64", True),
        ("10.0", True),
        ("unknown", False),
    ],
)
def test_kernels_that_tell_of_failed_writes(release: str, expected: bool) -> None:
    assert reports_failures(release) is expected


def test_it_syncs_after_it_was_opened_and_not_before(tmp_path: Path) -> None:
    system = FileSystemSync(tmp_path)
    assert not system.sync()
    system.open()
    system.open()
    expected = reports_failures(os.uname().release)
    assert system.sync() is expected
    system.close()
    system.close()
    assert not system.sync()


def test_a_missing_directory_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_system_sync, "reports_failures", lambda _release: True)
    with pytest.raises(FileNotFoundError):
        FileSystemSync(tmp_path / "missing").open()


def test_a_failed_sync_is_logged_and_left_to_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_fd: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(file_system_sync, "reports_failures", lambda _release: True)
    monkeypatch.setattr(file_system_sync, "_syncfs", lambda: failing)
    system = FileSystemSync(tmp_path)
    system.open()
    assert not system.sync()
    system.close()
    assert f"syncfs of {tmp_path}: Input/output error: syncing its files one by one" in (
        caplog.text
    )


def test_an_old_kernel_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_system_sync, "reports_failures", lambda _release: False)
    system = FileSystemSync(tmp_path)
    system.open()
    assert not system.sync()
