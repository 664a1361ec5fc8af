"""A light queue whose files cannot be written holds up no other, and lacks nothing in the end.

What is right is told by a store with the same messages in which nothing is in the way.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipc.queue_table import QueueTableWriter
from ipc.unwritten_units import MOST_MOVED, MOST_OF_QUEUE
from store.clean_consume_queue_service import clean_table
from store.control_slots import (
    LIGHT_QUEUES_UNWRITABLE,
    QUEUE_UNITS_LOST,
    STORE_STATE,
    StoreState,
)
from store.errors import DiskFullError, StoreError
from store.flush_consume_queue_service import FlushConsumeQueueService
from store.light_queue import LightQueue
from store.light_queue_files import LightQueueFiles
from store.light_queue_table import LightQueueTable
from store.rebuild_consume_queue_service import RebuildConsumeQueueService, _Gap
from store.store_checker import check_store
from store.store_checkpoint import StoreCheckpoint
from store.stored_units import CQ_UNIT_SIZE
from store.unit_runs import UnitRun
from tests.store.test_default_message_store import Life
from tests.store.test_light_queue_files import RECORD, Side, Twins
from tests.store.test_light_queue_files import light_side as twins_side
from tests.store.test_light_store import end_killed_store, in_files, killed, start, units
from tests.support.deadline import wait_until

BAD, GOOD = "%LMQ%bad", "%LMQ%good"
PUTS = [(BAD, 3), (GOOD, 3), (BAD, 40), (GOOD, 40), ("T", 5)]


def block(root: Path, topic: str = BAD) -> Path:
    """A file is where the queue's directory should be: nobody, root neither, can write there."""
    root.mkdir(parents=True, exist_ok=True)
    (root / topic).write_bytes(b"")
    return root / topic


def put_all(life: Life) -> None:
    for topic, count in PUTS:
        life.put(count, topic)
    life.wait_dispatched()


@pytest.fixture
def right(tmp_path: Path) -> Iterator[Life]:
    """The store in which nothing is in the way."""
    life = start(tmp_path / "right")
    put_all(life)
    yield life
    life.stop()


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = start(tmp_path / "store")
    block(life.config.consume_queue_path)
    yield life
    if life.counters[STORE_STATE] != StoreState.STOPPED:
        life.stop()


def light_side(root: Path) -> tuple[Side, Twins]:
    side, twins = twins_side(root)
    twins.following |= {BAD: 0, GOOD: 0}
    side.units._capacity = side.rows.unwritten._capacity = 200
    return side, twins


def flush(life: Life) -> None:
    """A thorough one."""
    services = life.store._services
    service = next(each for each in services if isinstance(each, FlushConsumeQueueService))
    service.flush_all()


def bring_back(life: Life, topic: str = BAD) -> None:
    (life.config.consume_queue_path / topic).unlink()
    retries = life.store.rebuild._retries
    assert retries is not None
    retries.due_ms = 0
    life.store.rebuild.wakeup()
    wait_until(lambda: life.counters[LIGHT_QUEUES_UNWRITABLE] == 0)


def checkpoint(life: Life) -> int:
    return StoreCheckpoint.load(life.config.checkpoint_path).logics_physical_offset


def test_consumers_never_see_a_gap_in_it(
    life: Life, right: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was left out comes in order, before anybody could look for damage."""
    monkeypatch.setattr(RebuildConsumeQueueService, "rebuild_once", lambda _self: False)
    put_all(life)
    for each in (life, right):
        each.put(MOST_OF_QUEUE, BAD)  # All of them in one file.
        each.wait_dispatched()
    bring_back(life)
    assert units(life, BAD) == units(right, BAD)


def test_others_go_on_and_it_lacks_nothing_in_the_end(life: Life, right: Life) -> None:
    put_all(life)
    flush(life)
    assert units(life, GOOD) == units(right, GOOD)
    assert in_files(life, GOOD)[: 43 * CQ_UNIT_SIZE] == units(right, GOOD)
    # It has as many units as there is room for, and says how far its offsets go.
    assert life.counters[LIGHT_QUEUES_UNWRITABLE] == 1
    assert life.table.offsets(BAD, 0) == (0, 43)
    assert 0 < len(units(life, BAD)) <= MOST_OF_QUEUE * CQ_UNIT_SIZE
    assert units(right, BAD).startswith(units(life, BAD))
    assert checkpoint(life) == 0
    bring_back(life)
    assert units(life, BAD) == units(right, BAD)
    life.put(1, BAD)
    life.wait_dispatched()
    assert life.table.offsets(BAD, 0) == (0, 44)
    flush(life)
    assert checkpoint(life) == life.end
    life.stop()
    assert (check_store(life.config.root, hash_slots=100).errors) == []
    assert not (life.config.root / "abort").exists()


def test_a_kill_loses_nothing_and_gives_no_offset_twice(
    life: Life, right: Life, tmp_path: Path
) -> None:
    put_all(life)
    flush(life)
    again = start(killed(life, tmp_path / "killed"))
    assert units(again, GOOD) == units(right, GOOD)
    assert again.table.offsets(BAD, 0) == (0, 43)
    assert again.counters[LIGHT_QUEUES_UNWRITABLE] == 1
    for each in (again, right):
        each.put(2, BAD)
        each.wait_dispatched()
    assert again.table.offsets(BAD, 0) == (0, 45)
    bring_back(again)
    assert units(again, BAD) == units(right, BAD)
    again.stop()
    assert check_store(again.config.root, hash_slots=100).errors == []


def test_a_stop_leaves_it_to_the_next_start(life: Life, right: Life) -> None:
    put_all(life)
    life.stop()
    assert (life.config.root / "abort").exists()
    assert in_files(life, GOOD)[: 43 * CQ_UNIT_SIZE] == units(right, GOOD)
    (life.config.consume_queue_path / BAD).unlink()
    again = start(life.config.root)
    assert units(again, BAD) == units(right, BAD)
    assert again.counters[LIGHT_QUEUES_UNWRITABLE] == 0
    again.stop()
    assert check_store(again.config.root, hash_slots=100).errors == []


def test_a_store_that_is_killed_alone(
    life: Life, right: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_all(life)
    flush(life)
    end_killed_store(life, monkeypatch)
    life.store = life.new_store()
    life.store.open()
    life.store.start()
    assert life.table.offsets(BAD, 0) == (0, 43)
    assert units(right, BAD).startswith(units(life, BAD))
    assert units(life, BAD)
    for each in (life, right):
        each.put(1, BAD)
        each.wait_dispatched()
    bring_back(life)
    assert units(life, BAD) == units(right, BAD)


def test_what_is_asked_for_meanwhile_is_answered_later(life: Life, right: Life) -> None:
    """A reader tells of the units that are not there."""
    put_all(life)
    rebuild = life.store.rebuild
    rebuild.request(BAD, 0, 40)
    life.store._derived.queues.damaged[_queue(life)] = None
    wait_until(lambda: not rebuild._places and not life.store._derived.queues.damaged)
    assert life.failures == []
    assert life.table.offsets(BAD, 0) == (0, 43)
    bring_back(life)
    assert units(life, BAD) == units(right, BAD)


def _queue(life: Life) -> LightQueue:
    queue = life.store._derived.queues.find(BAD, 0)
    assert isinstance(queue, LightQueue)
    return queue


def test_it_can_be_deleted_and_begins_anew(life: Life) -> None:
    put_all(life)
    assert life.store._derived.queues.delete_topic(BAD) == 1
    assert life.counters[LIGHT_QUEUES_UNWRITABLE] == 0
    assert life.table.offsets(BAD, 0) == (0, 0)
    flush(life)
    assert checkpoint(life) == life.end
    assert life.store._derived.publisher.unwritten.rows(10) == []


def test_retention_and_flushes_pass_it_by(tmp_path: Path) -> None:
    side, twins = light_side(tmp_path)
    side.table.append_runs([twins.run(BAD, 60), twins.run(GOOD, 60)])
    side.write_out()
    side.files.forget(BAD, 0)
    (side.root / BAD).rename(tmp_path / "aside")
    block(side.root)
    side.table.append_runs([twins.run(GOOD, 40), twins.run(BAD, 40)])
    assert unwritable(side) == [(BAD, 0)]
    assert side.table.flush(0) == 1
    clean_table(side.table, twins.phy - RECORD, lambda: False)
    assert [queue.topic for queue in side.table if queue.is_expired(twins.phy - RECORD)] == [GOOD]
    side.table.blank_out(twins.phy - 10 * RECORD, twins.phy)
    assert side.rows.offsets(BAD, 0)[1] == 100


def light_table(side: Side) -> LightQueueTable:
    assert isinstance(side.table, LightQueueTable)
    return side.table


def unwritable(side: Side) -> list[tuple[str, int]]:
    assert isinstance(side.files, LightQueueFiles)
    return list(side.files.unwritable)


@pytest.mark.parametrize("seed", range(4))
def test_twins_of_random_histories_of_which_one_is_in_the_way(tmp_path: Path, seed: int) -> None:
    """Its units go round the ring many times; readers see them, and all of the others."""
    lot = random.Random(seed)
    twins = Twins(tmp_path, lot)
    twins.light = Side(tmp_path / "light" / "consumequeue", is_light=True, capacity=100)
    bad = "%LMQ%a"
    blocked = block(twins.light.root, bad)
    left = MOST_OF_QUEUE
    for _ in range(150):
        name = lot.choice(["%LMQ%b", "%LMQ%$P$c", "%LMQ%d", "ordinary"])
        runs = [twins.run(name, lot.choice((1, 2, 5, 40)))]
        if left and not lot.randrange(4):
            runs.append(twins.run(bad, 1))
            left -= 1
        twins.both(lambda side, runs=runs: side.table.append_runs(runs))
        if not lot.randrange(5):
            twins.light.write_out()
        if not lot.randrange(5):
            twins.both(lambda side: side.table.flush(0) * 0)
        for topic, known in twins.plain.queues().items():
            assert twins.light.rows.offsets(topic, 0) == known[4]
            first = lot.randrange(known[4][1])
            # The files of an ordinary queue end within.
            want = twins.plain.reader.read_units(topic, 0, first, 1)
            assert twins.light.reader.read_units(topic, 0, first, 1) == want
    assert unwritable(twins.light) == [(bad, 0)]
    blocked.unlink()
    queue = twins.light.table.find(bad, 0)
    assert isinstance(queue, LightQueue)
    light_table(twins.light).try_again(queue)
    assert light_table(twins.light).end_unwritable(queue, 0)
    twins.light.write_out()
    assert twins.light.snapshot() == twins.plain.snapshot()


def test_what_is_left_out_counts_until_it_has_come(tmp_path: Path) -> None:
    side, twins = light_side(tmp_path)
    blocked = block(side.root)
    runs = [twins.run(BAD, 30), twins.run(BAD, 10), twins.run(BAD, 1)]
    side.table.append_runs(runs)
    queue = side.table.find(BAD, 0)
    assert isinstance(queue, LightQueue)
    assert (queue.bounds.end // CQ_UNIT_SIZE, queue.max_offset) == (MOST_OF_QUEUE, 41)
    assert side.table.reaches(BAD, 0, twins.phy)
    assert not side.table.reaches(BAD, 0, twins.phy + 1)
    with pytest.raises(StoreError, match=BAD):
        light_table(side).try_again(queue)
    blocked.unlink()
    assert light_table(side).try_again(queue) == runs[0].last_end + 2 * RECORD
    assert not light_table(side).end_unwritable(queue, twins.phy - 1)
    assert unwritable(side) == [(BAD, 0)]
    # The log has them no more: they stay blank, for their offsets are given.
    assert light_table(side).end_unwritable(queue, twins.phy)
    assert unwritable(side) == []
    assert queue.bounds.end == 41 * CQ_UNIT_SIZE
    assert side.table.take_damaged() == [queue]


def test_many_are_not_their_own_fault(tmp_path: Path) -> None:
    side, twins = light_side(tmp_path)
    side.root.parent.mkdir(parents=True)
    side.root.write_bytes(b"")
    side.units._capacity = side.rows.unwritten._capacity = 10_000
    names = [f"%LMQ%{number}" for number in range(MOST_MOVED + 1)]
    twins.following |= dict.fromkeys(names, 0)
    side.table.append_runs([twins.run(name, 1) for name in names])
    with pytest.raises(StoreError, match=f"%LMQ%{MOST_MOVED}/0"):
        side.write_out()
    assert len(unwritable(side)) == MOST_MOVED


@pytest.mark.parametrize(("number", "free", "is_own"), [
    (errno.EIO, 0, True),
    (errno.ENOSPC, 1 << 40, True),
    (errno.ENOSPC, 0, False),
    (errno.EMFILE, 1 << 40, False),
])  # fmt: skip
def test_whose_fault_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, free: int, *, is_own: bool
) -> None:
    side, twins = light_side(tmp_path)
    runs = [twins.run(BAD, 1), twins.run(GOOD, 1)]
    side.table.append_runs(runs)
    pwrite, statvfs = os.pwrite, os.statvfs

    def fail(fd: int, data: bytes, at: int) -> int:
        if BAD in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(number, os.strerror(number))
        return pwrite(fd, data, at)

    def has_room(path: Path) -> os.statvfs_result:
        found = list(statvfs(path))
        found[0], found[1], found[4] = 4096, 4096, free // 4096
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "pwrite", fail)
    monkeypatch.setattr(os, "statvfs", has_room)
    if not is_own:
        error = DiskFullError if number == errno.ENOSPC else StoreError
        with pytest.raises(error, match=BAD):
            side.write_out()
        assert unwritable(side) == []
        return
    side.write_out()
    assert unwritable(side) == [(BAD, 0)]
    assert side.reader.read_units(BAD, 0, 0, 1) == runs[0].units
    assert side.snapshot()[f"{GOOD}/0/{0:020}"][:CQ_UNIT_SIZE] == runs[1].units
    assert side.unwritten_units() == (side.units.end, -1)


def test_a_queue_without_a_row_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue table is full: nowhere to wait."""
    side, twins = light_side(tmp_path)
    blocked = block(side.root)
    run = twins.run(BAD, 2)
    with monkeypatch.context() as patched:
        patched.setattr(QueueTableWriter, "row", lambda *_: None)
        side.table.append_runs([run])
    queue = side.table.find(BAD, 0)
    assert isinstance(queue, LightQueue)
    assert (queue.bounds.end, queue.max_offset, queue.left_out_end) == (0, 2, twins.phy)
    blocked.unlink()
    assert light_table(side).try_again(queue) == 0


def catch_up(side: Side, runs: list[UnitRun]) -> LightQueue:
    """It can be written again, and all records come again."""
    queue = side.table.find(BAD, 0)
    assert isinstance(queue, LightQueue)
    light_table(side).try_again(queue)
    queue.catches_up = True
    for run in runs:
        queue.append(run.units, run.queue_offset, run.first_end, run.last_end)
    queue.catches_up = False
    return queue


def test_nothing_waits_any_more_when_it_can_be_written_again(tmp_path: Path) -> None:
    """The next checkpoint says what held when it could not be written, with all its units."""
    side, twins = light_side(tmp_path)
    blocked = block(side.root)
    runs = [twins.run(BAD, 30), twins.run(BAD, 10), twins.run(BAD, 1)]
    side.table.append_runs(runs)
    blocked.unlink()
    queue = catch_up(side, runs)
    assert light_table(side).end_unwritable(queue, twins.phy)
    assert side.units.rows(10) == []
    in_file = side.snapshot()[f"{BAD}/0/{0:020}"]
    assert in_file[: 41 * CQ_UNIT_SIZE] == b"".join(bytes(run.units) for run in runs)


def test_a_topic_that_is_made_anew_meanwhile_begins_at_0(tmp_path: Path) -> None:
    """As on a slave, whose log does not tell that it was deleted."""
    side, twins = light_side(tmp_path)
    blocked = block(side.root)
    runs = [twins.run(BAD, 30), twins.run(BAD, 30)]
    twins.following[BAD] = 0
    runs.append(twins.run(BAD, 2))
    side.table.append_runs(runs)
    blocked.unlink()
    queue = catch_up(side, runs)
    assert light_table(side).end_unwritable(queue, twins.phy)
    assert queue.max_offset == 2


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Life]:
    """A store in which a queue was written, and cannot be any more; nobody has noticed yet."""
    life = start(tmp_path / "store")
    put_all(life)
    flush(life)
    pwrite = os.pwrite

    def fail(fd: int, data: bytes, at: int) -> int:
        if BAD in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pwrite(fd, data, at)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail)
        yield life
    life.stop()


def damage_unit(life: Life, topic: str, queue_offset: int) -> None:
    path = life.config.consume_queue_path / topic / "0" / f"{0:020}"
    with path.open("r+b") as file:
        file.seek(queue_offset * CQ_UNIT_SIZE)
        file.write(b"\1" * CQ_UNIT_SIZE)


def test_a_rebuild_passes_it_by(broken: Life, right: Life) -> None:
    """It looks for both records in the same part of the log."""
    rebuild = broken.store.rebuild
    for topic, queue_offset in ((BAD, 5), (GOOD, 3)):
        damage_unit(broken, topic, queue_offset)
    with rebuild._lock:
        rebuild._places |= {(BAD, 0, 5): None, (GOOD, 0, 3): None}
    rebuild.wakeup()
    wait_until(lambda: not rebuild._places or broken.failures)
    assert broken.failures == []
    assert broken.counters[LIGHT_QUEUES_UNWRITABLE] == 1
    assert units(broken, GOOD) == units(right, GOOD)


def test_so_does_one_that_finds_a_file_in_place_of_its_directory(
    broken: Life, tmp_path: Path
) -> None:
    directory, rebuild = broken.config.consume_queue_path / BAD, broken.store.rebuild
    directory.rename(tmp_path / "aside")
    directory.touch()
    rebuild.request(BAD, 0, 5)
    wait_until(lambda: not rebuild._places or broken.failures)
    assert broken.failures == []
    assert broken.counters[LIGHT_QUEUES_UNWRITABLE] == 1


def test_so_does_one_that_finds_no_record(broken: Life) -> None:
    queue = _queue(broken)
    gap = _Gap(queue, 5, 6, 0, 0, queue.bounds.generation)
    broken.store.rebuild._finish_gaps([gap])
    assert broken.counters[LIGHT_QUEUES_UNWRITABLE] == 1
    assert broken.counters[QUEUE_UNITS_LOST] == 0


@pytest.mark.parametrize("way", ["blank_out", "reserve"])
def test_damage_in_the_log_passes_it_by(broken: Life, way: str) -> None:
    queues, low = broken.store._derived.queues, _queue(broken).record_end(1)
    if way == "blank_out":
        assert [found[0] for found in queues.blank_out(low, broken.end)] == [GOOD, "T"]
    else:
        queues.reserve(BAD, 0, 60)
        queues.reserve(GOOD, 0, 60)
        assert [broken.table.offsets(name, 0)[1] for name in (BAD, GOOD)] == [60, 60]
    assert broken.counters[LIGHT_QUEUES_UNWRITABLE] == 1


def test_retention_passes_by_what_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, twins = light_side(tmp_path)
    side.table.append_runs([twins.run(BAD, 120), twins.run(GOOD, 120)])
    side.write_out()
    unlink = os.unlink

    def fail(path: str) -> None:
        if BAD in path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(path)

    monkeypatch.setattr(os, "unlink", fail)
    clean_table(side.table, twins.phy - RECORD, lambda: False)
    assert unwritable(side) == [(BAD, 0)]
    good = side.table.find(GOOD, 0)
    assert good is not None
    assert good.start_offset == 100
