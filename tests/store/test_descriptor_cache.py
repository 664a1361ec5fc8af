"""DescriptorCache: bounded, and deleted files are given back."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.descriptor_cache import DescriptorCache, FileKey


class Files:
    """A cache over files of a directory, made when they are opened."""

    def __init__(self, root: Path, capacity: int) -> None:
        self.root = root
        self.opened = 0
        self.cache = DescriptorCache(capacity, self._open)

    def path(self, key: FileKey) -> Path:
        return self.root / f"{key[0]}-{key[1]}-{key[2]}"

    def _open(self, key: FileKey) -> int:
        self.opened += 1
        return os.open(self.path(key), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)

    def is_open(self, key: FileKey) -> bool:
        named = [_target(fd) for fd in os.listdir("/proc/self/fd")]
        return any(name.split(" ")[0] == str(self.path(key)) for name in named)


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        return ""  # The listing's own.


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    made = Files(tmp_path, 100)
    yield made
    made.cache.close()


def test_no_more_are_open_than_it_may_have(tmp_path: Path) -> None:
    files = Files(tmp_path, 2)
    keys = [("T", number, 0) for number in range(5)]
    for key in keys:
        fd = files.cache.get(key)
        assert os.readlink(f"/proc/self/fd/{fd}") == str(files.path(key))
        assert files.cache.get(key) == fd
    assert [files.is_open(key) for key in keys].count(True) == len(files.cache) == 2
    assert files.is_open(keys[-1])
    files.cache.forget_queue("T", 4)
    assert not files.is_open(keys[-1])
    assert len(files.cache) == 1
    files.cache.close()
    assert not any(files.is_open(key) for key in keys)


def test_going_round_more_files_than_may_be_open_finds_some_of_them_open(tmp_path: Path) -> None:
    """With the least recently used giving way none would be."""
    files = Files(tmp_path, 75)
    keys = [("T", number, 0) for number in range(100)]
    for key in keys * 3:
        files.cache.get(key)
    found = 0
    for key in keys:
        before = files.opened
        files.cache.get(key)
        found += files.opened == before
    assert 25 < found < 75
    files.cache.close()


def test_every_file_is_found_again_whatever_gave_way(tmp_path: Path) -> None:
    files = Files(tmp_path, 20)
    lot = random.Random(7)
    keys = [("T", number, start) for number in range(10) for start in (0, 2_000, 4_000)]
    for _ in range(2_000):
        key = lot.choice(keys)
        if lot.random() < 0.1:
            files.cache.forget_file(key)
        else:
            fd = files.cache.get(key)
            assert os.readlink(f"/proc/self/fd/{fd}") == str(files.path(key))
        assert len(files.cache) <= 20
    files.cache.close()
    assert len(files.cache) == 0


def test_files_of_deleted_topics_do_not_add_up(files: Files) -> None:
    """A topic of four queues comes, is read and goes; some that stay are read now and then."""
    for stays in range(10):
        files.cache.get(("stays", stays, 0))
    for topic in range(200):
        keys = [(f"topic{topic}", queue_id, 0) for queue_id in range(4)]
        for key in keys:
            files.cache.get(key)
        for key in keys:
            files.path(key).unlink()
    assert len(files.cache) < 40
    assert all(files.is_open(("stays", stays, 0)) for stays in range(10))


def test_what_was_deleted_is_closed_and_not_only_forgotten(files: Files) -> None:
    fd = files.cache.get(("T", 0, 0))
    files.path(("T", 0, 0)).unlink()
    for number in range(1, 5):
        files.cache.get(("T", number, 0))
    assert not os.path.exists(f"/proc/self/fd/{fd}") or os.fstat(fd).st_nlink
