from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from store import mapped_file
from store.errors import DiskFullError, FlushFailedError, StoreError
from store.mapped_file import (
    MappedFile,
    create_allocated,
    file_name,
    find_start_offset,
    make_directory,
    sync_directory,
    zero_range,
)


def test_names_are_twenty_digits() -> None:
    assert file_name(1 << 30) == "00000000001073741824"
    assert find_start_offset(file_name(1 << 30)) == 1 << 30
    for name in ("0", "0" * 19, "0" * 21, "0" * 19 + "x", "٠" * 20, "-" + "0" * 19, ".tmp"):
        assert find_start_offset(name) is None


def test_created_files_have_their_blocks(tmp_path: Path) -> None:
    path = tmp_path / file_name(0)
    create_allocated(path, 1 << 20)
    status = path.stat()
    assert status.st_size == 1 << 20
    assert status.st_blocks * 512 >= 1 << 20


def test_completing_keeps_what_a_short_file_holds(tmp_path: Path) -> None:
    path = tmp_path / file_name(0)
    path.write_bytes(b"abc")
    create_allocated(path, 4096)
    assert path.read_bytes() == b"abc" + bytes(4093)


def test_a_full_disk_is_an_error_that_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    path = tmp_path / file_name(0)
    with pytest.raises(DiskFullError, match=str(path)):
        create_allocated(path, 4096)
    assert not path.exists()


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, FlushFailedError), (errno.ENOSPC, OSError)]
)
def test_a_directory_that_cannot_be_synced_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    """What was created or removed in it may be undone by a power cut: the caller has to know."""

    def fail(_fd: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(kind, match=os.strerror(number)) as caught:
        sync_directory(tmp_path)
    assert kind is OSError or str(tmp_path) in str(caught.value)
    with pytest.raises(kind):
        make_directory(tmp_path / "topic")


def test_the_names_of_new_directories_are_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[Path, list[str]]] = []
    fsync = os.fsync

    def note(fd: int) -> None:
        place = Path(os.readlink(f"/proc/self/fd/{fd}"))
        synced.append((place, sorted(os.listdir(place))))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    make_directory(tmp_path / "a" / "b")
    assert synced == [(tmp_path, ["a"]), (tmp_path / "a", ["b"])]
    make_directory(tmp_path / "a" / "b")
    assert len(synced) == 2, "those that are there cost nothing"


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / file_name(0)
    create_allocated(path, 4096)
    with MappedFile.open(path, 0) as file:
        assert (file.end_offset, len(file.view(4090))) == (4096, 6)
        for position in (-1, 4094):
            with pytest.raises(StoreError, match="outside"):
                file.view(position, 3)


def test_closing_with_views_out_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / file_name(0)
    path.write_bytes(b"x" * 4096)
    file = MappedFile.open(path, 0)
    view = file.view(10, 5)
    file.close()
    file.close()
    assert not file.is_open
    path.unlink()
    assert bytes(view) == b"xxxxx"
    assert mapped_count(path) == 1
    view.release()
    assert mapped_count(path) == 0


def mapped_count(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="opened"):
        MappedFile.open(tmp_path / file_name(0), 0)
    (tmp_path / file_name(0)).touch()
    with pytest.raises(StoreError, match="mapped"):
        MappedFile.open(tmp_path / file_name(0), 0)


@pytest.mark.parametrize("kernel_can", [True, False])
def test_zeroing_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel_can: bool) -> None:
    if not kernel_can:
        monkeypatch.setattr(mapped_file, "_fallocate_zero", lambda fd, start, size: False)
    size = (1 << 20) + 5000
    path = tmp_path / file_name(0)
    path.write_bytes(b"x" * size)
    with MappedFile.open(path, 0) as reader:
        zero_range(path, 1001, size)
        assert reader.view() == b"x" * 1001 + bytes(size - 1001)
    zero_range(path, 5, 5)
    assert path.stat().st_size == size
