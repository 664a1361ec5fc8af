"""ShortFileService: gives truncated files their length back, and touches nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.mapped_file import file_name
from store.short_file_service import ShortFileService
from tests.support.deadline import wait_until

SIZE = 8_192


@pytest.fixture
def service(tmp_path: Path) -> ShortFileService:
    """Two files are there, a third is being created."""
    for start, size in ((0, SIZE), (SIZE, SIZE), (2 * SIZE, 100)):
        (tmp_path / file_name(start)).write_bytes(b"x" * size)
    return ShortFileService(tmp_path, SIZE, allocated_end=lambda: 2 * SIZE)


@pytest.mark.parametrize("left", [0, 1, SIZE - 1])
def test_a_truncated_file_is_completed(
    service: ShortFileService, tmp_path: Path, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / file_name(0)
    path.write_bytes(b"x" * left)
    service.complete_once()
    assert path.read_bytes() == b"x" * left + bytes(SIZE - left)
    assert f"{path}: truncated to {left} bytes" in caplog.text
    caplog.clear()
    service.complete_once()
    assert caplog.text == ""


def test_whole_files_and_one_that_is_being_created_stay(
    service: ShortFileService, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    service.complete_once()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_cannot_be_completed_is_said_and_tried_again(
    service: ShortFileService,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / file_name(SIZE)
    path.write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr("os.posix_fallocate", _full)
        service.complete_once()
    assert "cannot be completed: [Errno 28]" in caplog.text
    service.complete_once()
    assert path.stat().st_size == SIZE


def _full(_fd: int, _offset: int, _size: int) -> None:
    raise OSError(28, "No space left on device")


def test_the_thread_looks(service: ShortFileService, tmp_path: Path) -> None:
    path = tmp_path / file_name(0)
    path.write_bytes(b"")
    service.start()
    service.wakeup()
    wait_until(lambda: path.stat().st_size == SIZE)
    assert service.shutdown()
