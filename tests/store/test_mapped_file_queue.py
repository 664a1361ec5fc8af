from __future__ import annotations

from pathlib import Path

import pytest

from store.errors import StoreError, WrongFileSizeError
from store.mapped_file import file_name
from store.mapped_file_queue import MappedFileQueue, list_store_files

SIZE = 4096


def make(directory: Path, *starts: int, size: int = SIZE) -> None:
    directory.mkdir(exist_ok=True)
    for start in starts:
        (directory / file_name(start)).write_bytes(bytes((start // size + 1,)) * size)


@pytest.fixture
def queue(tmp_path: Path) -> MappedFileQueue:
    return MappedFileQueue(tmp_path / "log", SIZE, max_maps=2)


def test_loading_makes_the_directory(queue: MappedFileQueue) -> None:
    queue.load()
    assert queue.directories.first.is_dir()
    assert (queue.min_offset, queue.end_offset) == (None, 0)
    assert queue.find_file(0) is None


def test_files_are_ordered_and_found_by_offset(queue: MappedFileQueue) -> None:
    make(queue.directories.first, 3 * SIZE, SIZE, 2 * SIZE)
    queue.load()
    assert queue.start_offsets == [SIZE, 2 * SIZE, 3 * SIZE]
    assert (queue.min_offset, queue.end_offset) == (SIZE, 4 * SIZE)
    assert queue.find_file(SIZE - 1) is None
    assert queue.find_file(-1) is None
    assert queue.find_file(4 * SIZE) is None
    assert bytes(queue.view(2 * SIZE + 5, 3)) == b"\3\3\3"
    assert len(queue.view_at(4 * SIZE - 7)) == 7
    assert queue.next_file_offset(SIZE + 1) == queue.next_file_offset(SIZE) == 2 * SIZE
    with pytest.raises(StoreError, match="no file holds offset 5"):
        queue.view_at(5)
    with pytest.raises(StoreError, match="outside"):
        queue.view(2 * SIZE - 1, 2)


def test_maps_are_capped_and_views_stay(queue: MappedFileQueue) -> None:
    make(queue.directories.first, 0, SIZE, 2 * SIZE)
    queue.load()
    views = [queue.view_at(n * SIZE) for n in range(3)]
    maps = Path("/proc/self/maps").read_text()
    assert maps.count(str(queue.directories.first)) == 3
    views[0].release()
    maps = Path("/proc/self/maps").read_text()
    assert maps.count(str(queue.directories.first)) == 2
    queue.close()
    assert views[1][0] == 2


def test_strangers_are_ignored(queue: MappedFileQueue) -> None:
    make(queue.directories.first, 0)
    (queue.directories.first / "notes.txt").write_text("hello")
    (queue.directories.first / "0").write_text("hello")
    (queue.directories.first / file_name(SIZE)).mkdir()
    queue.load()
    assert queue.start_offsets == [0]


@pytest.mark.parametrize("size", [0, 1, SIZE - 1])
def test_a_short_last_file_is_completed(queue: MappedFileQueue, size: int) -> None:
    make(queue.directories.first, 0)
    (queue.directories.first / file_name(SIZE)).write_bytes(b"x" * size)
    queue.load()
    assert queue.start_offsets == [0, SIZE]
    assert (queue.directories.first / file_name(SIZE)).read_bytes() == b"x" * size + bytes(
        SIZE - size
    )


@pytest.mark.parametrize(("start", "size"), [(0, SIZE + 1), (SIZE, SIZE + 1), (SIZE, 2 * SIZE)])
def test_other_wrong_lengths_stop_the_start(queue: MappedFileQueue, start: int, size: int) -> None:
    make(queue.directories.first, 0, SIZE)
    path = queue.directories.first / file_name(start)
    path.write_bytes(b"x" * size)
    with pytest.raises(WrongFileSizeError, match=f"{path}: length {size} not matched.*{SIZE}"):
        queue.load()
    assert path.stat().st_size == size


@pytest.mark.parametrize("size", [0, SIZE - 1])
def test_a_file_that_somebody_truncated_is_completed(queue: MappedFileQueue, size: int) -> None:
    make(queue.directories.first, 0, SIZE, 2 * SIZE)
    path = queue.directories.first / file_name(SIZE)
    path.write_bytes(b"x" * size)
    queue.load()
    assert path.read_bytes() == b"x" * size + bytes(SIZE - size)


def test_files_that_are_all_short_are_of_another_size(queue: MappedFileQueue) -> None:
    make(queue.directories.first, 0, SIZE, size=SIZE // 2)
    with pytest.raises(WrongFileSizeError):
        queue.load()


def test_a_single_file_of_another_size_is_not_taken_for_a_short_one(
    queue: MappedFileQueue,
) -> None:
    make(queue.directories.first, 0, size=1024)
    with pytest.raises(WrongFileSizeError):
        queue.load()


def test_a_single_empty_file_is_completed(queue: MappedFileQueue) -> None:
    queue.directories.first.mkdir()
    (queue.directories.first / file_name(SIZE)).write_bytes(bytes(100))
    queue.load()
    assert queue.view_at(SIZE) == bytes(SIZE)


def test_names_must_be_multiples(queue: MappedFileQueue) -> None:
    make(queue.directories.first, 100)
    with pytest.raises(StoreError, match="multiple"):
        queue.load()


def test_gaps_are_named(queue: MappedFileQueue) -> None:
    make(queue.directories.first, 0, 2 * SIZE)
    with pytest.raises(StoreError, match=f"{file_name(SIZE)} is missing"):
        queue.load()


def test_readers_find_files_that_appear_later(queue: MappedFileQueue) -> None:
    make(queue.directories.first, 0)
    assert queue.view_at(0)[0] == 1
    assert queue.find_file(SIZE) is None
    make(queue.directories.first, SIZE, 2 * SIZE)
    assert queue.view_at(SIZE)[0] == 2
    assert queue.start_offsets == [0, SIZE, 2 * SIZE]


def test_readers_drop_what_is_deleted(queue: MappedFileQueue) -> None:
    make(queue.directories.first, 0, SIZE, 2 * SIZE)
    assert queue.view_at(0)[0] == 1
    queue.drop_below(SIZE + 5)
    assert queue.start_offsets == [SIZE, 2 * SIZE]
    assert str(queue.directories.first) not in Path("/proc/self/maps").read_text()
    queue.view_at(SIZE).release()
    (queue.directories.first / file_name(SIZE)).unlink()
    queue.refresh()
    assert queue.find_file(SIZE) is None
    assert str(queue.directories.first) not in Path("/proc/self/maps").read_text()


def test_a_file_that_vanishes_before_it_is_mapped(queue: MappedFileQueue) -> None:
    make(queue.directories.first, 0, SIZE)
    queue.load()
    (queue.directories.first / file_name(0)).unlink()
    assert queue.find_file(0) is None
    assert queue.start_offsets == [SIZE]


def test_deleting_from_an_offset(queue: MappedFileQueue) -> None:
    make(queue.directories.first, 0, SIZE, 2 * SIZE)
    queue.load()
    assert [path.name for path in queue.delete_from(1)] == [file_name(2 * SIZE), file_name(SIZE)]
    assert [file.start_offset for file in list_store_files(queue.directories.first)] == [0]
    assert queue.end_offset == SIZE
