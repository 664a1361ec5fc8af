"""ReplicaLog: rooms, publication, what a dead writer left; over a real page and real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.control_slots import ALLOCATED_END, APPEND_END, MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.errors import StoreError
from store.log_end import NextFileNotReadyError
from store.mapped_file import create_allocated, file_name
from store.replica_log import ReplicaLog
from tests.support.shared_memory import fresh_page

SIZE = 4096


class World:
    def __init__(self, directory: Path, files: int = 2, start: int = 0) -> None:
        self.directory = directory
        self.page = fresh_page()
        self.counters = self.page.counters
        self.rings: list[int] = []
        self.counters[MIN_PHY_OFFSET] = self.counters[MAX_PHY_OFFSET] = start
        self.counters[APPEND_END] = start
        for at in range(start, start + files * SIZE, SIZE):
            self.allocate(at)
        self.log = self.open()

    def open(self) -> ReplicaLog:
        log = ReplicaLog(self.directory, SIZE, self.page, self._ring)
        log.open()
        return log

    def _ring(self) -> None:
        self.rings.append(self.counters[MAX_PHY_OFFSET])

    def allocate(self, start: int) -> None:
        create_allocated(self.directory / file_name(start), SIZE)
        self.counters[ALLOCATED_END] = start + SIZE

    def bytes_of(self, start: int) -> bytes:
        return (self.directory / file_name(start)).read_bytes()

    def put(self, data: bytes) -> None:
        self.fill(data)
        self.log.advance(len(data))

    def fill(self, data: bytes, size: int | None = None) -> None:
        """Write the beginning of `size` bytes."""
        self.log.make_room(len(data) if size is None else size)
        self.log.write(0, data)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_order_of_publication(world: World) -> None:
    world.log.make_room(10)
    assert (world.counters[APPEND_END], world.counters[MAX_PHY_OFFSET]) == (10, 0)
    world.log.write(5, b"56789")
    world.log.write(0, b"01234")
    world.log.advance(10)
    assert world.counters[MAX_PHY_OFFSET] == 0
    world.log.publish(10)
    assert world.counters[MAX_PHY_OFFSET] == 10
    assert world.rings == []
    world.log.ring()
    assert world.rings == [10]
    assert world.bytes_of(0)[:11] == b"0123456789\0"


def test_rooms_follow_each_other_into_the_next_file(world: World) -> None:
    world.put(b"a" * SIZE)
    world.put(b"b" * 100)
    world.log.publish(SIZE + 100)
    assert world.bytes_of(0) == b"a" * SIZE
    assert world.bytes_of(SIZE) == (b"b" * 100).ljust(SIZE, b"\0")


def test_a_room_never_crosses_a_file(world: World) -> None:
    world.put(b"a" * (SIZE - 10))
    with pytest.raises(StoreError, match=f"crosses the end of commit log file {file_name(0)}"):
        world.log.make_room(11)
    world.log.make_room(10)
    with pytest.raises(StoreError, match="is outside its 4096 bytes"):
        world.log.write(0, bytes(11))
    assert world.bytes_of(SIZE) == bytes(SIZE)


def test_a_file_that_is_not_allocated_is_waited_for(world: World) -> None:
    world.put(b"a" * SIZE)
    world.put(b"b" * SIZE)
    assert [world.log.has_room] == [False]
    with pytest.raises(NextFileNotReadyError, match=file_name(2 * SIZE)):
        world.log.make_room(1)
    assert world.counters[APPEND_END] == 2 * SIZE
    world.allocate(2 * SIZE)
    world.put(b"c")
    assert world.bytes_of(2 * SIZE)[:2] == b"c\0"


def test_discarded_bytes_are_zero_and_overwritten(world: World) -> None:
    world.put(b"good")
    world.log.publish(4)
    world.put(b"part")
    world.fill(b"x" * 50, 100)
    world.log.discard()
    assert world.log.position == 4 == world.counters[APPEND_END]
    assert world.bytes_of(0) == b"good".ljust(SIZE, b"\0")
    world.put(b"new")
    world.log.publish(7)
    assert world.bytes_of(0)[:8] == b"goodnew\0"


def test_what_a_killed_writer_left_is_zeroed(world: World) -> None:
    """The process dies between filling and publishing; the next one has page and files only."""
    world.put(b"good")
    world.log.publish(4)
    world.fill(b"x" * (SIZE - 4))
    again = world.open()
    assert again.position == 4
    assert world.bytes_of(0) == b"good".ljust(SIZE, b"\0")
    assert world.counters[APPEND_END] == 4


def test_a_writer_killed_at_a_files_end_left_bytes_in_the_next_only(world: World) -> None:
    world.put(b"a" * SIZE)
    world.log.publish(SIZE)
    world.fill(b"x" * 9)
    assert world.open().position == SIZE
    assert world.bytes_of(0) == b"a" * SIZE
    assert world.bytes_of(SIZE) == bytes(SIZE)


def test_what_lies_in_several_files_is_zeroed_in_all(world: World) -> None:
    world.put(b"good")
    world.log.publish(4)
    world.put(b"x" * (SIZE - 4))
    world.put(b"y" * 1000)
    world.log.discard()
    assert world.bytes_of(0) == b"good".ljust(SIZE, b"\0")
    assert world.bytes_of(SIZE) == bytes(SIZE)
    assert world.log.position == world.counters[APPEND_END] == 4


def test_what_cannot_be_zeroed_now_is_zeroed_later(world: World) -> None:
    world.put(b"x" * 100)
    path = world.directory / file_name(0)
    path.rename(world.directory / "away")
    with pytest.raises(StoreError, match=file_name(0)):
        world.log.discard()
    (world.directory / "away").rename(path)
    world.log.open()
    assert world.log.position == world.counters[APPEND_END] == 0
    assert world.bytes_of(0) == bytes(SIZE)


def test_closing_leaves_nothing_unpublished(world: World) -> None:
    world.put(b"good")
    world.log.publish(4)
    world.put(b"rest")
    world.log.close()
    world.log.close()
    assert world.bytes_of(0) == b"good".ljust(SIZE, b"\0")
    assert world.counters[APPEND_END] == 4


def test_an_empty_log_begins_where_the_store_has_begun_it(tmp_path: Path) -> None:
    world = World(tmp_path, files=0)
    assert [world.log.is_empty] == [True]
    with pytest.raises(StoreError, match="cannot start at 12288"):
        world.log.begin(3 * SIZE)
    world.counters[MIN_PHY_OFFSET] = 3 * SIZE
    world.log.begin(3 * SIZE)
    assert world.counters[MAX_PHY_OFFSET] == world.counters[APPEND_END] == 3 * SIZE
    assert [world.log.is_empty] == [True]
    world.allocate(3 * SIZE)
    world.put(b"first")
    assert [world.log.is_empty] == [False]
    world.log.publish(3 * SIZE + 5)
    assert world.bytes_of(3 * SIZE)[:5] == b"first"


def test_an_empty_log_may_begin_again_earlier(tmp_path: Path) -> None:
    world = World(tmp_path, files=1, start=3 * SIZE)
    assert world.log.is_empty
    world.log.reset_start()
    assert world.log.is_empty
    assert world.counters[MAX_PHY_OFFSET] == 0
    assert world.open().is_empty
    world.counters[MIN_PHY_OFFSET] = SIZE
    world.log.begin(SIZE)
    assert world.counters[MAX_PHY_OFFSET] == SIZE


def test_a_log_that_begins_again_writes_into_the_files_that_are_there_now(world: World) -> None:
    """Process store has deleted the empty files and made others of the same names."""
    world.fill(b"old", 100)
    world.log.discard()
    world.log.reset_start()
    (world.directory / file_name(0)).unlink()
    world.allocate(0)
    world.log.begin(0)
    world.put(b"new")
    world.log.publish(3)
    assert world.bytes_of(0)[:4] == b"new\0"


def test_a_log_with_one_byte_is_not_empty(world: World) -> None:
    world.put(b"\0")
    assert not world.log.is_empty
    world.log.publish(1)
    assert not world.open().is_empty
