"""One record whose queue offset cannot be never damages its queue."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_table import ConsumeQueueTable
from store.message_store_config import MessageStoreConfig
from store.record_arrays import parse_records
from store.record_properties import PropertyExtractor
from tests.support.memory_commit_log import MemoryCommitLog, RecordingPublisher, message

FILE_SIZE = 4000
FAR = 68_719_476_774
"""What one flipped bit made of 38 on a real link."""


class World:
    """A log with one queue, and the table that it is dispatched to."""

    def __init__(self, root: Path, start: int = 0) -> None:
        self.root = root
        self.log = MemoryCommitLog(start=start)
        self.left_out = 0
        self.publisher = RecordingPublisher()
        files = ConsumeQueueFiles(root, FILE_SIZE, writable=True)
        self.table = ConsumeQueueTable(files, self.publisher, on_left_out=self._count)
        self._dispatched = 0

    def _count(self) -> None:
        self.left_out += 1

    def add(self, *offsets: int, at_once: bool = False) -> None:
        """Records with these queue offsets, dispatched one by one, or in one batch."""
        for number, offset in enumerate(offsets, 1):
            self.log.append(message("T", 0, offset, body=b"b" * 20))
            if not at_once or number == len(offsets):
                self.dispatch()

    def dispatch(self) -> None:
        data = memoryview(self.log.data)[self._dispatched :]
        records = parse_records(
            data,
            self.log.start + self._dispatched,
            PropertyExtractor(MessageStoreConfig().delay_level_ms),
        )
        self._dispatched += records.consumed
        self.table.dispatch(records)

    def sizes(self) -> list[int]:
        """The record size in each unit of the queue; of a blank one 0."""
        queue = self.table.find("T", 0)
        assert queue is not None
        units = queue.read_units(queue.min_offset, queue.max_offset)
        return np.where(units["size"] == 0x7FFFFFFF, 0, units["size"]).tolist()

    def files(self) -> list[str]:
        return sorted(path.name for path in (self.root / "T" / "0").iterdir())


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("at_once", [True, False])
def test_an_offset_of_billions_gets_no_unit(
    world: World, at_once: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world.add(*range(38), at_once=True)
    world.add(FAR, 39, 40, at_once=at_once)
    size = len(world.log.data) // 41
    assert world.sizes() == [size] * 38 + [0] + [size] * 2
    assert world.left_out == 1
    assert f"says queue offset {FAR}" in caplog.text
    assert world.publisher.of("T", 0) == (0, 41)
    assert int(world.files()[-1]) < 41 * 20


@pytest.mark.parametrize("first", [FAR, 1 << 40])
def test_the_first_record_of_a_queue_may_be_the_damaged_one(world: World, first: int) -> None:
    world.add(first, 1, 2)
    assert world.left_out == 1
    assert world.publisher.of("T", 0) == (1, 3)
    assert all(world.sizes())
    assert world.files() == ["0".zfill(20)]


def test_a_small_jump_for_which_the_log_has_no_room(world: World) -> None:
    world.add(*range(20))
    before = world.sizes()
    world.add(20 + 64)
    assert world.sizes() == before
    world.add(21, 22)
    assert world.left_out == 1
    assert world.publisher.of("T", 0) == (0, 23)


def test_two_in_a_row_are_believed(world: World) -> None:
    """The queue's own end was wrong, as after a consume queue of which a part was lost."""
    world.log.append(message("Other", 0, 0, body=b"o" * 8000))
    world.add(0, 1, 60, 61)
    assert world.left_out == 1
    assert world.publisher.of("T", 0) == (0, 62)


def test_two_in_a_row_are_believed_however_far(world: World) -> None:
    """Also where the queue begins anew: the log has room, but not since the queue's last record."""
    world.log.append(message("Other", 0, 0, body=b"o" * 900_000))
    world.add(0, 1, 5_000)
    assert world.publisher.of("T", 0) == (0, 2)
    world.add(5_001, 5_002)
    assert world.left_out == 1
    assert world.publisher.of("T", 0) == (5_001, 5_003)


def test_a_single_record_never_deletes_a_queue(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has room for what may lie between, but it would be a queue of one record."""
    world.add(0, 1, 2)
    world.log.append(message("Other", 0, 0, body=b"o" * 900_000))
    world.add(5_000, 3, 4)
    assert world.left_out == 1
    assert "would be deleted for a single record" in caplog.text
    assert world.publisher.of("T", 0) == (0, 5)
    assert all(world.sizes())


def test_never_further_than_the_log_is_long(world: World) -> None:
    world.add(0, 1)
    world.add(FAR, FAR + 1, FAR + 2, at_once=True)
    world.add(FAR + 3)
    assert world.left_out == 4
    assert world.files() == ["0".zfill(20)]
    world.add(6, 7)
    assert [size > 0 for size in world.sizes()] == [True] * 2 + [False] * 4 + [True] * 2


def test_a_log_that_begins_later_begins_its_queues_later(tmp_path: Path) -> None:
    world = World(tmp_path, start=1 << 30)
    world.add(5_000_000, 5_000_001)
    assert world.left_out == 0
    assert world.publisher.of("T", 0) == (5_000_000, 5_000_002)


def test_units_that_were_lost_are_a_gap_with_room(world: World) -> None:
    world.add(*range(10))
    queue = world.table.find("T", 0)
    assert queue is not None
    with world.table.lock:
        queue.truncate(len(world.log.data) // 2)
    assert queue.max_offset == 5
    world.add(10)
    assert world.left_out == 0
    assert world.publisher.of("T", 0) == (0, 11)
    assert [size > 0 for size in world.sizes()] == [True] * 5 + [False] * 5 + [True]


def test_a_deleted_queue_is_forgotten(world: World) -> None:
    world.log.append(message("Other", 0, 0, body=b"o" * 4000))
    world.add(0, 40)
    assert world.left_out == 1
    world.table.delete_topic("T")
    world.add(0, 41)
    assert world.left_out == 2
