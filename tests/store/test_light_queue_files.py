"""Light queues whose units wait in memory: twins of queues whose units are written at once."""

from __future__ import annotations

import errno
import functools
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ipc.queue_table import MAX_QUEUES, QueueTableReader, QueueTableWriter, create_queue_table
from ipc.unwritten_units import MOST_OF_QUEUE, UnwrittenUnits, UnwrittenUnitsReader
from store import light_queue_files
from store.clean_consume_queue_service import clean_table
from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_reader import ConsumeQueueReader
from store.consume_queue_table import ConsumeQueueTable
from store.errors import DiskFullError
from store.flush_consume_queue_service import FlushConsumeQueueService
from store.generation_aware_reader import GenerationAwareReader
from store.light_queue_files import LightQueueFiles
from store.light_queue_table import LightQueueTable
from store.message_store_config import MessageStoreConfig
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE
from store.unit_runs import UnitRun
from tests.support.manual_clock import ManualClock

FILE_SIZE = 50 * CQ_UNIT_SIZE
RECORD = 100
NAMES = ["%LMQ%a", "%LMQ%b", "%LMQ%$P$c", "%LMQ%d", "ordinary"]
CAPACITY = 40
"""Units in memory: few, so that the oldest must go often."""


class Side:
    """The queues of one store, and a reader as of another process."""

    def __init__(
        self, root: Path, *, is_light: bool, capacity: int = CAPACITY, fd: int | None = None
    ) -> None:
        self.root = root
        self.fd = create_queue_table() if fd is None else fd
        table = QueueTableWriter(self.fd)
        rows = QueueTableReader(self.fd)
        table.unwritten = UnwrittenUnits(table._unwritten, MAX_QUEUES, capacity)
        rows.unwritten = UnwrittenUnitsReader(rows._unwritten, MAX_QUEUES, capacity)
        self.units, self.rows = table.unwritten, rows
        self.files = (
            LightQueueFiles(root, FILE_SIZE, table, open_files=3)
            if is_light
            else ConsumeQueueFiles(root, FILE_SIZE, writable=True, open_files=3)
        )
        if isinstance(self.files, LightQueueFiles):
            self.files.defers = True
        self.table = (
            LightQueueTable(self.files, table)
            if isinstance(self.files, LightQueueFiles)
            else ConsumeQueueTable(self.files, table)
        )
        config = MessageStoreConfig(
            store_path_root_dir=str(root.parent), mapped_file_size_consume_queue=FILE_SIZE
        )
        reader = ConsumeQueueReader(config, rows)
        reader._files.root, reader._files._root_text = root, str(root)
        self.reader = GenerationAwareReader(reader, rows)

    def write_out(self) -> None:
        until = self.units.end
        while self.write_units(until):
            pass

    def flush_queues(self, least_pages: int) -> int:
        return self.table.flush(least_pages)

    def unwritten_units(self) -> tuple[int, int]:
        is_unwritable = isinstance(self.files, LightQueueFiles) and self.files.unwritable
        return self.units.end, -1 if is_unwritable else self.units.begin

    def write_units(self, until: int) -> bool:
        return isinstance(self.files, LightQueueFiles) and self.files.write_out(
            until, self.table.lock
        )

    def queues(self) -> dict[str, tuple[object, ...]]:
        """What the store knows of its queues, and what others are told."""
        return {
            queue.topic: (
                *(queue.min_offset, queue.max_offset, queue.start_offset, queue.max_phy_offset),
                self.rows.offsets(queue.topic, queue.queue_id),
                queue.whole,
            )
            for queue in self.table
        }

    def snapshot(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file()
        }


class Twins:
    """Two stores with the same history."""

    def __init__(self, root: Path, lot: random.Random) -> None:
        self.lot = lot
        self.light = Side(root / "light" / "consumequeue", is_light=True)
        self.plain = Side(root / "plain" / "consumequeue", is_light=False)
        self.phy = RECORD
        self.following = dict.fromkeys(NAMES, 0)

    def both(self, do: Callable[[Side], object]) -> None:
        assert do(self.light) == do(self.plain)

    def run(self, name: str, count: int) -> UnitRun:
        first = self.following[name]
        units = b"".join(
            CQ_UNIT.pack(self.phy + number * RECORD, RECORD, first + number)
            for number in range(count)
        )
        begin, self.phy = self.phy, self.phy + count * RECORD
        self.following[name] = first + count
        return UnitRun(name, 0, first, memoryview(units), begin + RECORD, self.phy)

    # -- what happens --------------------------------------------------------------------------

    def append(self) -> None:
        names = self.lot.sample(NAMES, self.lot.randrange(1, len(NAMES)))
        runs = [self.run(name, self.lot.choice((1, 1, 1, 2, 5, 40))) for name in names]
        self.both(lambda side: side.table.append_runs(runs))
        if not self.lot.randrange(4):
            self.both(lambda side: side.table.append_runs(runs))

    def repeat_a_record(self) -> None:
        """It has a unit in the queue, and does not get another."""
        name = self.lot.choice(NAMES)
        queue = self.plain.table.find(name, 0)
        if queue is not None and queue.max_phy_offset:
            at = queue.max_phy_offset
            unit = memoryview(CQ_UNIT.pack(at - RECORD, RECORD, 0))
            runs = [UnitRun(name, 0, queue.max_offset, unit, at, at)]
            self.both(lambda side: side.table.append_runs(runs))

    def leave_a_gap(self) -> None:
        name = self.lot.choice(NAMES)
        self.following[name] += self.lot.choice((1, 3, 60))
        runs = [self.run(name, 2)]
        self.both(lambda side: side.table.append_runs(runs))

    def cut(self) -> None:
        """The log ends earlier, and goes on with other records."""
        at = max(self.phy - RECORD * self.lot.choice((1, 7, 60)), RECORD)
        self.both(lambda side: [queue.truncate(at) for queue in side.table])
        self.both(lambda side: side.table.publish_all(min_phy_offset=0))
        self.phy = at
        for queue in self.plain.table:
            self.following[queue.topic] = queue.max_offset

    def drop_last(self) -> None:
        for queue in self.plain.table:
            if queue.bounds.end:
                self.following[queue.topic] = queue.max_offset - 1
        self.both(lambda side: [q.drop_last() for q in side.table if q.bounds.end])
        self.both(lambda side: side.table.publish_all(min_phy_offset=0))

    def retain(self) -> None:
        low = self.phy - RECORD * self.lot.choice((3, 30, 200))
        self.both(lambda side: clean_table(side.table, low, lambda: False))

    def delete(self) -> None:
        name = self.lot.choice(NAMES)
        self.both(lambda side: side.table.delete_topic(name))
        self.following[name] = 0

    def damage(self) -> None:
        low = max(self.phy - RECORD * self.lot.randrange(1, 30), 0)
        self.both(lambda side: side.table.blank_out(low, low + 5 * RECORD))

    def reserve(self) -> None:
        name = self.lot.choice(NAMES)
        self.following[name] += 2
        self.both(lambda side: side.table.reserve(name, 0, self.following[name]))

    def flush(self) -> None:
        least = self.lot.choice((0, 1))
        for side in (self.light, self.plain):
            side.table.flush(least)

    def write_out(self) -> None:
        until = self.lot.randint(self.light.units.begin, self.light.units.end)
        assert isinstance(self.light.files, LightQueueFiles)
        self.light.files.write_out(until, self.light.table.lock)

    # -- what is to be seen --------------------------------------------------------------------

    def compare(self) -> None:
        assert self.light.queues() == self.plain.queues()
        for queue in self.plain.table:
            low, high = queue.start_offset, queue.max_offset
            first = self.lot.randint(low, high)
            count = self.lot.choice((1, 3, 100))
            self.both(functools.partial(read_by_store, queue.topic, first, count))
            count = min(count, high - first)
            # At a file's end readers read again; only what the file has may be fewer.
            fewest = self.plain.reader.read_units(queue.topic, 0, first, count)
            found = self.light.reader.read_units(queue.topic, 0, first, count)
            assert len(found) >= len(fewest)
            one = functools.partial(self.plain.reader.read_units, queue.topic, 0)
            assert b"".join(one(first + n, 1) for n in range(count)).startswith(found)
            if not self.lot.randrange(10):
                position = first * CQ_UNIT_SIZE
                self.both(lambda side, at=position, q=queue: side.files.read(q.topic, 0, at, 300))
        assert self.light.units.end - self.light.units.begin <= CAPACITY


def read_by_store(topic: str, first: int, count: int, side: Side) -> bytes:
    queue = side.table.find(topic, 0)
    assert queue is not None
    return queue.read_units(first, count).tobytes()


@pytest.mark.parametrize("seed", range(6))
def test_twins_of_random_histories(tmp_path: Path, seed: int) -> None:
    lot = random.Random(seed)
    twins = Twins(tmp_path, lot)
    often = [twins.append] * 8 + [twins.flush, twins.write_out] * 2
    rarely = [twins.leave_a_gap, twins.cut, twins.drop_last, twins.retain, twins.delete]
    for _ in range(120):
        lot.choice([*often, *rarely, twins.damage, twins.reserve, twins.repeat_a_record])()
        twins.compare()
    twins.light.write_out()
    assert twins.light.snapshot() == twins.plain.snapshot()
    for side in (twins.light, twins.plain):
        side.table.flush(0)
        assert not side.table._dirty
        assert not any(queue.is_dirty for queue in side.table)


# -- what is written when --------------------------------------------------------------------------


def light_side(root: Path) -> tuple[Side, Twins]:
    twins = Twins(root, random.Random(1))
    return twins.light, twins


def test_single_units_of_a_light_queue_are_written_together(tmp_path: Path) -> None:
    side, twins = light_side(tmp_path)
    side.units._capacity = side.rows.unwritten._capacity = 1000
    for _ in range(MOST_OF_QUEUE):
        side.table.append_runs([twins.run("%LMQ%a", 1), twins.run("ordinary", 1)])
    assert side.snapshot().keys() == {f"ordinary/0/{0:020}"}
    assert side.rows.offsets("%LMQ%a", 0) == (0, MOST_OF_QUEUE)
    assert len(side.reader.read_units("%LMQ%a", 0, 0, 100)) == MOST_OF_QUEUE * CQ_UNIT_SIZE
    side.table.append_runs([twins.run("%LMQ%a", 1)])
    assert side.units.count(side.rows.find_row("%LMQ%a", 0) or 0) == 1
    assert len(side.snapshot()) == 2


def test_a_queue_without_files_that_is_deleted_never_gets_one(tmp_path: Path) -> None:
    side, twins = light_side(tmp_path)
    side.table.append_runs([twins.run("%LMQ%a", 3)])
    assert side.table.delete_topic("%LMQ%a") == 1
    side.write_out()
    assert not side.root.exists() or list(side.root.iterdir()) == []
    assert side.rows.offsets("%LMQ%a", 0) == (0, 0)
    assert side.reader.read_units("%LMQ%a", 0, 0, 3) == b""


def test_few_new_files_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An orderly stop has to make them."""
    monkeypatch.setattr(light_queue_files, "MOST_NEW_FILES", 3)
    side, twins = light_side(tmp_path)
    names = [f"%LMQ%{number}" for number in _names(twins, 5)]
    for name in names:
        side.table.append_runs([twins.run(name, 1)])
    assert {name.split("/")[0] for name in side.snapshot()} == {"%LMQ%3", "%LMQ%4"}
    side.table.append_runs([twins.run("%LMQ%4", 1)])
    side.table.delete_topic("%LMQ%0")
    side.table.append_runs([twins.run("%LMQ%a", 1), twins.run("%LMQ%b", 1)])
    assert [side.rows.offsets(name, 0)[1] for name in names] == [0, 1, 1, 1, 2]
    assert len(side.reader.read_units("%LMQ%4", 0, 0, 2)) == 40
    assert "%LMQ%a/0/" + "0" * 20 not in side.snapshot()
    assert "%LMQ%b/0/" + "0" * 20 in side.snapshot()
    side.write_out()
    assert len(side.snapshot()) == 6


def test_what_is_not_written_is_not_flushed(tmp_path: Path) -> None:
    side, twins = light_side(tmp_path)
    side.table.append_runs([twins.run("%LMQ%a", 3)])
    assert side.table.flush(0) == 0
    side.write_out()
    queue = side.table.find("%LMQ%a", 0)
    assert queue is not None
    assert queue.is_dirty
    assert queue.names_unsynced
    side.table.append_runs([twins.run("%LMQ%a", 2)])
    assert side.table.flush(0) == 1
    assert not queue.is_dirty
    assert queue.bounds.flushed == 3 * CQ_UNIT_SIZE


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    side, twins = light_side(tmp_path)
    side.table.append_runs([twins.run("%LMQ%a", 3), twins.run("%LMQ%b", 2)])
    row = side.rows.find_row("%LMQ%a", 0) or 0

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", full)
        patched.setattr(os, "statvfs", full)
        with pytest.raises(DiskFullError):
            side.write_out()
        more = twins.run("%LMQ%b", CAPACITY)
        with pytest.raises(DiskFullError):
            side.table.append_runs([more])
    assert side.units.count(row) == 3
    side.table.append_runs([more])
    side.write_out()
    assert side.units.count(row) == 0
    assert {topic: known[1] for topic, known in side.queues().items()} == {
        "%LMQ%a": 3,
        "%LMQ%b": 2 + CAPACITY,
    }
    assert side.table.flush(0) == 2


# -- kills -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_next_process_writes_what_a_killed_one_left(tmp_path: Path, seed: int) -> None:
    """Readers, which live on, see all of it at any time."""
    lot = random.Random(seed)
    twins = Twins(tmp_path, lot)
    for _ in range(lot.randrange(5, 40)):
        lot.choice([twins.append, twins.append, twins.write_out])()
    published = {
        name: (
            twins.light.rows.offsets(name, 0)[1],
            twins.light.reader.read_units(name, 0, 0, 1000),
        )
        for name in NAMES
    }
    following = Side(twins.light.root, is_light=True, fd=twins.light.fd)
    assert isinstance(following.files, LightQueueFiles)
    following.files.take_over()
    assert following.units.rows(following.rows.row_count) == []
    assert following.snapshot() == twins.plain.snapshot()
    for name, (end, units) in published.items():
        assert following.rows.offsets(name, 0)[1] == end
        found = following.reader.read_units(name, 0, 0, 1000)
        assert found[: len(units)] == units[: len(found)]
    following.table.load()
    following.table.recover()
    runs = [twins.run(name, 3) for name in NAMES]
    for side in (following, twins.plain):
        side.table.append_runs(runs)
        side.write_out()
    assert following.snapshot() == twins.plain.snapshot()


@pytest.mark.parametrize("seed", range(6))
def test_the_checkpoint_promises_what_is_in_files(tmp_path: Path, seed: int) -> None:
    """A machine that goes down has the files, and the log from the checkpoint on."""
    lot = random.Random(seed)
    twins = Twins(tmp_path, lot)
    side, clock = twins.light, ManualClock()
    promised: list[int] = []
    all_runs: list[UnitRun] = []
    service = FlushConsumeQueueService(
        MessageStoreConfig(flush_consume_queue_thorough_interval=1),
        side,
        clock,
        dispatched_offset=lambda: twins.phy,
        dispatched_timestamp=lambda: twins.phy,
        on_flushed=lambda _timestamp, offset: promised.append(offset),
    )
    for _ in range(40):
        runs = [twins.run(lot.choice(NAMES), 1) for _ in range(lot.randrange(12))]
        all_runs += runs
        for run in runs:
            side.table.append_runs([run])
        if lot.randrange(3):
            continue
        dispatched = twins.phy
        clock.advance(2)
        service.flush_once()
        snapshot = side.snapshot()
        for run in all_runs:
            if promised and run.last_end <= promised[-1]:
                at = run.queue_offset * CQ_UNIT_SIZE
                name = f"{run.topic}/0/{at - at % FILE_SIZE:020}"
                at %= FILE_SIZE
                assert snapshot[name][at : at + CQ_UNIT_SIZE] == run.units
        clock.advance(2)
        service.flush_once()
        # Nothing waits for longer than to the flush after the next.
        assert promised[-1] >= dispatched
    assert promised == sorted(promised)
    service.flush_all()
    assert promised[-1] == twins.phy
    assert side.units.rows(side.rows.row_count) == []


def test_writing_leaves_the_lock_to_others(tmp_path: Path) -> None:
    side, twins = light_side(tmp_path)
    side.units._capacity = side.rows.unwritten._capacity = 1000
    side.table.append_runs([twins.run(f"%LMQ%{n}", 1) for n in _names(twins, 100)])
    turns = 1
    while side.write_units(side.units.end):
        assert not side.table.lock.locked()
        turns += 1
    assert turns >= 5
    assert len(side.snapshot()) == 100


def _names(twins: Twins, count: int) -> range:
    twins.following |= {f"%LMQ%{number}": 0 for number in range(count)}
    return range(count)
