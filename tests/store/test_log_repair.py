"""Fences as a file, what readers know of them, and bytes of a replica in the place of damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipc.control_page import ControlPage
from store.commit_log_reader import CommitLogReader
from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_table import ConsumeQueueTable
from store.control_slots import FENCE_COUNT, FENCED_BYTES, MAX_PHY_OFFSET
from store.errors import StoreError
from store.fence_keeper import FenceKeeper
from store.log_damage import LogDamage
from store.log_dispatch import dispatch_range
from store.log_fences import LogFences, fences_path, load_fences, new_fence, save_fences
from store.log_repair import LogRepair
from store.record_properties import PropertyExtractor
from tests.support.memory_commit_log import RecordingPublisher
from tests.support.plain_log import FILE_SIZE, PlainLog
from tests.support.shared_memory import fresh_page


class Desk:
    """A log of three files with its queue, and all that deals with damage."""

    def __init__(self, root: Path) -> None:
        self.log = PlainLog(root / "commitlog")
        while self.log.end < 2 * FILE_SIZE + 1000:
            self.log.append(b"body" * 50)
        self.page: ControlPage = fresh_page()
        self.page.counters[MAX_PHY_OFFSET] = self.log.end
        self.path = fences_path(self.log.directory)
        self.keeper = FenceKeeper(self.path, self.page)
        self.reader = CommitLogReader(self.log.directory, FILE_SIZE, self.page)
        self.publisher = RecordingPublisher()
        self.queues = ConsumeQueueTable(
            ConsumeQueueFiles(root / "consumequeue", 2_000, writable=True), self.publisher
        )
        self.damage = LogDamage(self.keeper, self.queues, self.reader)
        self.repair = LogRepair(
            self.log.directory, FILE_SIZE, self.damage, self.queues, PropertyExtractor({})
        )
        dispatch_range(self.reader, 0, self.log.end, PropertyExtractor({}), [self.queues.dispatch])

    def sizes(self) -> list[int]:
        queue = self.queues.find("T", 0)
        assert queue is not None
        return [int(size) for size in queue.read_units(0, 1_000)["size"]]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_fence_is_on_disk_and_readers_step_over_it(desk: Desk) -> None:
    whole = desk.sizes()
    (start, _), (end, _) = desk.log.records[3], desk.log.records[5]
    assert desk.reader.record_at(start) is not None
    desk.damage.fence_off(start, end, "damaged for a test")
    assert desk.reader.record_at(start) is None
    assert desk.reader.record_at(end) is not None
    assert (desk.page.counters[FENCE_COUNT], desk.page.counters[FENCED_BYTES]) == (1, end - start)
    assert [s == w for s, w in zip(desk.sizes(), whole, strict=True)].count(False) == 2
    (fence,) = load_fences(desk.path)
    assert (fence.start, fence.end, fence.reason) == (start, end, "damaged for a test")
    assert ("T", 0, 5) in fence.queues
    # Pulls that have read the queue before read it again.
    assert desk.publisher.renewals == [0]


@pytest.mark.parametrize(("first", "behind"), [(3, 4), (0, 2), (5, 14)])
def test_bytes_of_a_replica_are_put_back(
    desk: Desk, tmp_path: Path, first: int, behind: int
) -> None:
    whole = desk.sizes()
    start, end = desk.log.records[first][0], desk.log.records[behind][0]
    raw = b"".join(path.read_bytes() for path in sorted(desk.log.directory.iterdir()))
    desk.log.put(start + 100, b"damage")
    desk.damage.fence_off(start, end, "a test")
    source = tmp_path / "bytes"
    source.write_bytes(raw[start:end])
    desk.repair.put_back(start, end, source)
    assert b"".join(path.read_bytes() for path in sorted(desk.log.directory.iterdir())) == raw
    assert desk.sizes() == whole
    assert not load_fences(desk.path)
    assert desk.reader.record_at(start) == desk.log.records[first][1]
    (kept,) = tmp_path.glob("commitlog-damaged-*")
    assert b"damage" in kept.read_bytes()


def test_the_last_record_of_a_queue_comes_back_to_its_end(desk: Desk, tmp_path: Path) -> None:
    """A start finds damage, nothing of this queue behind it, and records of other queues there:
    the queue ends before the damage until that is repaired."""
    before = desk.log.end
    desk.log.append(b"first", queue_id=1)
    start = desk.log.append(b"last", queue_id=1)
    end = desk.log.append(b"of another queue", queue_id=2)
    desk.page.counters[MAX_PHY_OFFSET] = desk.log.end
    raw = desk.log.path(start).read_bytes()[start % FILE_SIZE : end % FILE_SIZE]
    desk.damage.fence_off(start, end, "a test")
    dispatched = [desk.queues.dispatch]
    dispatch_range(desk.reader, before, desk.log.end, PropertyExtractor({}), dispatched)
    queue = desk.queues.find("T", 1)
    assert queue is not None
    assert queue.max_offset == 1
    source = tmp_path / "bytes"
    source.write_bytes(raw)
    desk.repair.put_back(start, end, source)
    assert queue.max_offset == 2
    assert int(queue.read_units(1, 1)["phy_offset"][0]) == start


def test_a_place_that_another_message_got_meanwhile_stays_its(desk: Desk, tmp_path: Path) -> None:
    before = desk.log.end
    desk.log.append(b"first", queue_id=1)
    start = desk.log.append(b"last", queue_id=1)
    end = desk.log.append(b"of another queue", queue_id=2)
    raw = desk.log.path(start).read_bytes()[start % FILE_SIZE : end % FILE_SIZE]
    desk.log._queue_offsets["T", 1] = 1
    later = desk.log.append(b"given the same offset", queue_id=1)
    desk.page.counters[MAX_PHY_OFFSET] = desk.log.end
    desk.damage.fence_off(start, end, "a test")
    dispatched = [desk.queues.dispatch]
    dispatch_range(desk.reader, before, desk.log.end, PropertyExtractor({}), dispatched)
    source = tmp_path / "bytes"
    source.write_bytes(raw)
    desk.repair.put_back(start, end, source)
    queue = desk.queues.find("T", 1)
    assert queue is not None
    assert [int(at) for at in queue.read_units(1, 5)["phy_offset"]] == [later]


def test_what_is_no_whole_record_is_not_put_back(desk: Desk, tmp_path: Path) -> None:
    (start, raw), (end, _) = desk.log.records[3], desk.log.records[4]
    desk.damage.fence_off(start, end, "a test")
    source = tmp_path / "bytes"
    other = desk.log.records[2][1]
    for data in (raw[:-1], raw[:100] + b"?" + raw[101:], other, bytes(len(raw))):
        source.write_bytes(data)
        with pytest.raises(StoreError):
            desk.repair.put_back(start, end, source)
    source.write_bytes(raw)
    with pytest.raises(StoreError, match="not fenced"):
        desk.repair.put_back(start, end + 1, source)
    assert len(load_fences(desk.path)) == 1
    assert not list(tmp_path.glob("commitlog-damaged-*"))


def test_fences_are_clipped_merged_and_found() -> None:
    fences = LogFences([new_fence(10, 20, "a"), new_fence(30, 40, "b")])
    assert [fences.find(at) is not None for at in (9, 10, 19, 20, 30)] == [0, 1, 1, 0, 1]
    assert (fences.next_start(0), fences.next_start(10)) == (10, 30)
    assert [(f.start, f.end) for f in fences.within(15, 35)] == [(10, 20), (30, 35)]
    assert [(f.start, f.end) for f in fences.with_fence(new_fence(15, 35, "c"))] == [(15, 35)]


def test_a_damaged_fences_file_is_moved_aside(desk: Desk) -> None:
    save_fences(desk.path, LogFences([new_fence(0, 5, "a")]))
    assert desk.keeper.load()
    desk.path.write_text("{")
    assert not desk.keeper.load()
    assert desk.path.with_name(desk.path.name + ".bad").read_text() == "{"
