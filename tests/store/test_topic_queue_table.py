"""rebuild_topic_queue_table: the next queue offsets from the table and the rest of the log."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ipc.queue_table import QueueTableReader, QueueTableWriter, create_queue_table
from store.commit_log import CommitLog
from store.commit_log_reader import CommitLogReader
from store.control_slots import DISPATCHED_OFFSET, MAX_PHY_OFFSET
from store.errors import RecordDamagedError
from store.message_codec import SYS_FLAG_AT, decode_record
from store.topic_queue_table import claim_queue_offsets, rebuild_topic_queue_table
from tests.support.manual_clock import ManualClock
from tests.support.plain_log import FILE_SIZE, PlainLog
from tests.support.shared_memory import fresh_page


class World:
    def __init__(self, tmp_path: Path) -> None:
        self.log = PlainLog(tmp_path / "commitlog")
        self.page = fresh_page()
        fd = create_queue_table()
        self.writer, self.table = QueueTableWriter(fd), QueueTableReader(fd)

    def set_max(self, topic: str, queue_id: int, max_offset: int) -> None:
        self.writer.set_offsets(self.writer.row(topic, queue_id), 0, max_offset)

    def rebuild(self) -> tuple[CommitLog, int]:
        self.page.counters[MAX_PHY_OFFSET] = self.log.end
        writer = CommitLog(self.log.directory, FILE_SIZE, self.page, ManualClock(), lambda: None)
        reader = CommitLogReader(self.log.directory, FILE_SIZE, self.page)
        return writer, rebuild_topic_queue_table(writer, self.page, self.table, reader)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_empty_store(world: World) -> None:
    log, walked = world.rebuild()
    assert walked == 0
    assert log.topic("T").next_offsets == {}


def test_what_is_dispatched_comes_from_the_table(world: World) -> None:
    world.set_max("T", 0, 5)
    world.set_max("T", 3, 0)
    world.set_max("%RETRY%G", 0, 2**40)
    log, walked = world.rebuild()
    assert walked == 0
    assert log.topic("T").next_offsets == {0: 5}
    assert log.topic("%RETRY%G").next_offsets == {0: 2**40}


@pytest.mark.parametrize("dispatched", [0, 1, 7, 19, 20])
def test_what_is_not_dispatched_comes_from_the_log(world: World, dispatched: int) -> None:
    """The table is ahead of the walk, or equal: no offset is given twice."""
    starts = [world.log.append(bytes(300), queue_id=n % 3) for n in range(20)]
    starts.append(world.log.end)
    world.page.counters[DISPATCHED_OFFSET] = starts[dispatched]
    for queue_id in range(3):
        world.set_max("T", queue_id, len(range(queue_id, dispatched, 3)))
    log, walked = world.rebuild()
    assert log.topic("T").next_offsets == {0: 7, 1: 7, 2: 6}
    assert walked == 20 - dispatched
    assert world.log.end > FILE_SIZE


def test_dispatch_that_went_on_meanwhile_is_only_seen_twice(world: World) -> None:
    for _ in range(4):
        world.log.append(b"x")
    world.set_max("T", 0, 4)
    log, walked = world.rebuild()
    assert (log.topic("T").next_offsets, walked) == ({0: 4}, 4)


def test_a_queue_that_was_made_again_begins_at_0(world: World) -> None:
    """An offset of 0 in the rest of the log means that the queue was deleted before."""
    world.set_max("T", 0, 50)
    world.log.append(b"x")
    world.log.append(b"x")
    log, _ = world.rebuild()
    assert log.topic("T").next_offsets == {0: 2}


@pytest.mark.parametrize(("kind", "following"), [(0x0, 4), (0x8, 4), (0x4, 3), (0xC, 3)])
def test_half_and_rollback_records_do_not_count(world: World, kind: int, following: int) -> None:
    for _ in range(3):
        world.log.append(b"x")
    at = world.log.append(b"y")
    world.log.put(at + SYS_FLAG_AT, kind.to_bytes(4, "big"))
    log, walked = world.rebuild()
    assert (log.topic("T").next_offsets, walked) == ({0: following}, 4)


def test_a_damaged_rest_is_an_error(world: World) -> None:
    world.log.append(b"x")
    second = world.log.append(b"y")
    world.log.put(second, b"\0" * 8)
    with pytest.raises(RecordDamagedError):
        world.rebuild()


def test_a_missing_file_is_an_error(world: World) -> None:
    for _ in range(12):
        world.log.append(bytes(500))
    world.log.path(FILE_SIZE).unlink()
    with pytest.raises(RecordDamagedError, match=f"no file at {FILE_SIZE}"):
        world.rebuild()


def test_plain_log_numbers_as_expected(world: World) -> None:
    """The model's own offsets, which the tests above rely on."""
    for n in range(5):
        world.log.append(b"x", queue_id=n % 2)
    messages = [decode_record(raw, 0)[0] for _, raw in world.log.records]
    assert [m.queue_offset for m in messages] == [0, 0, 1, 1, 2]
    assert dataclasses.is_dataclass(messages[0])


def test_records_that_come_back_keep_their_queue_offsets(world: World) -> None:
    """Those at a queue's end are claimed; those that others have by now, or that belong to a queue
    that was deleted since, change nothing."""
    world.log.append(b"a", queue_id=0)
    world.log.append(b"b", queue_id=0)
    world.log.append(b"c", queue_id=1)
    world.log._queue_offsets["T", 2] = 500
    world.log.append(b"d", queue_id=2)
    data = memoryview(b"".join(raw for _at, raw in world.log.records))
    log, _ = World(world.log.directory.parent / "other").rebuild()
    log.topic("T").next_offsets.update({0: 1, 1: 7, 2: 3})
    claim_queue_offsets(log, data)
    assert log.topic("T").next_offsets == {0: 2, 1: 7, 2: 3}


def test_a_blank_between_records_is_stepped_over(world: World) -> None:
    while world.log.end < FILE_SIZE:
        world.log.append(b"x" * 300)
    data = memoryview(world.log.path(0).read_bytes() + world.log.path(FILE_SIZE).read_bytes())
    log, _ = World(world.log.directory.parent / "other").rebuild()
    claim_queue_offsets(log, data[: world.log.end])
    assert log.topic("T").next_offsets == {0: len(world.log.records)}


def test_the_topics_of_what_is_not_dispatched_are_told(world: World) -> None:
    starts = [world.log.append(bytes(30), queue_id=n) for n in (5, 1, 2)]
    world.page.counters[DISPATCHED_OFFSET] = starts[1]
    world.page.counters[MAX_PHY_OFFSET] = world.log.end
    writer = CommitLog(world.log.directory, FILE_SIZE, world.page, ManualClock(), lambda: None)
    reader = CommitLogReader(world.log.directory, FILE_SIZE, world.page)
    found: dict[str, int] = {}
    assert rebuild_topic_queue_table(writer, world.page, world.table, reader, found) == 2
    assert found == {"T": 3}
