"""Batch consume queues in a store with its real services: stops, kills, lost files, retention."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ipc import queue_table
from store import batch_queue_reader
from store.batch_queue_reader import BatchQueueReader
from store.batch_topics import BatchTopics
from store.batch_units import BatchUnit, count_valid, parse_unit
from store.commit_log import CommitLog
from store.control_slots import (
    ALLOCATED_END,
    FLUSHED_OFFSET,
    MIN_PHY_OFFSET,
    STORE_STATE,
    StoreState,
)
from store.errors import DiskFullError, WrongFileSizeError
from store.inner_batch import inner_num, inner_place, prepare_inner_batch
from store.mapped_file import file_name
from store.message_codec import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, decode_record
from store.store_checker import check_store
from store.topic_queue_table import rebuild_topic_queue_table
from tests.store.test_default_message_store import FILE_SIZE, Life, record
from tests.support.deadline import wait_until

UNIT = 46
UNITS_PER_FILE = 10


class BatchLife(Life):
    """A store with the batch topic B, and what is written to it: three messages a record."""

    def __init__(self, root: Path, **settings: Any) -> None:
        size = UNITS_PER_FILE * UNIT
        super().__init__(root, mapper_file_size_batch_consume_queue=size, **settings)
        config = {"topicName": "B", "attributes": {"queue.type": "BatchCQ"}}
        self.config.config_path.mkdir(parents=True, exist_ok=True)
        path = self.config.config_path / "topics.json"
        path.write_text(json.dumps({"topicConfigTable": {"B": config}}))

    def put_batches(self, count: int, size: int = 100, ago_ms: int = 0) -> None:
        for _ in range(count):
            wait_until(lambda: self.counters[ALLOCATED_END] > self.log.position + FILE_SIZE)
            self.log.now_ms = self.clock.now_ms() - ago_ms
            made = record(bytes(size), b"KEYS\x01key\x02INNER_NUM\x013")
            batch = msgspec.structs.replace(made, sys_flag=192)
            self.log.append(self.log.topic("B"), [batch])
            self.log.commit()

    def units(self) -> list[BatchUnit]:
        """As a reader finds them."""
        low, high = self.table.offsets("B", 0)
        reader = BatchQueueReader(self.config, self.table.generation_of)
        found: list[BatchUnit] = []
        at = low
        while at < high and (read := reader.read_units("B", 0, at, 100, high)):
            found += read
            at = read[-1].following
        reader.close()
        return found

    @property
    def path(self) -> Path:
        return self.config.batch_consume_queue_path / "B" / "0"

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.path.iterdir())}


def killed(life: BatchLife) -> None:
    """Its services are stopped without a word."""
    life.log.close()
    life.store.shutdown(writer_has_stopped=False)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "store"
    assert check_store(tmp_path / "store", hash_slots=100).errors == []


def holds(life: BatchLife, records: int, first: int = 0) -> None:
    """The queue holds this many records of three messages, whole and right."""
    assert life.table.offsets("B", 0) == (3 * first, 3 * records)
    units = life.units()
    assert [unit.base for unit in units] == list(range(3 * first, 3 * records, 3))
    for unit in units:
        raw = life.reader.record_at(unit.phy_offset)
        assert raw is not None
        assert len(raw) == unit.size


def test_what_is_written_is_dispatched_and_indexed(root: Path) -> None:
    life = BatchLife(root).start()
    life.put_batches(25)
    life.put(3)
    life.put(2, "B")
    life.wait_dispatched()
    assert life.table.offsets("B", 0) == (0, 77)
    assert life.table.offsets("T", 0) == (0, 3)
    assert [unit.messages for unit in life.units()] == [3] * 25 + [1] * 2
    assert sorted(life.files()) == [file_name(start * UNIT) for start in (0, 10, 20)]
    assert not (life.config.consume_queue_path / "B").exists()
    assert life.table.has_moves()
    life.stop()


def test_who_reads_on_lists_no_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever others read in between; what was deleted and made again is found as it is now."""
    life = BatchLife(root).start()
    life.put_batches(25)
    life.wait_dispatched()
    listed: list[str] = []
    list_names = os.listdir
    monkeypatch.setattr(
        batch_queue_reader.os, "listdir", lambda path: listed.append(str(path)) or list_names(path)
    )
    reader = BatchQueueReader(life.config, life.table.generation_of)

    def read(at: int, count: int) -> list[int]:
        return [unit.base for unit in reader.read_units("B", 0, at, count, 75)]

    for number in range(25):
        assert read(3 * number, 1) == [3 * number]
        assert read(0, 2) == [0, 3]
    assert len(listed) <= 26, "the reads of 0, where none has ended"
    before = len(listed)
    assert read(31, 2) == [30, 33], "within a batch"
    assert len(listed) == before + 1
    deadline = life.clock.monotonic_ms() + 30_000
    assert life.store.queue_deletion.delete_topic("B", life.end, deadline) == 1
    life.log.forget_topic("B")
    life.put_batches(2, size=300)
    life.wait_dispatched()
    assert [unit.size > 300 for unit in reader.read_units("B", 0, 3, 9, 6)] == [True]
    reader.close()
    life.stop()


def test_a_clean_stop_and_a_new_start_lose_nothing(root: Path) -> None:
    for number in range(3):
        life = BatchLife(root).start()
        holds(life, 12 * number)
        assert life.log.topic("B").next_offsets.get(0, 0) == 36 * number
        life.put_batches(12)
        life.wait_dispatched()
        life.stop()


def _without_the_last(life: BatchLife) -> None:
    """As after a power failure: pages of units that were not on disk are zero."""
    with (life.path / file_name(0)).open("r+b") as file:
        file.seek(4 * UNIT)
        file.write(bytes(6 * UNIT))
    (life.path / file_name(10 * UNIT)).unlink()


def _torn(life: BatchLife) -> None:
    with (life.path / file_name(10 * UNIT)).open("r+b") as file:
        file.seek(4 * UNIT + 20)
        file.write(bytes(26))


def _deleted(life: BatchLife) -> None:
    shutil.rmtree(life.config.batch_consume_queue_path)


def _of_a_wrong_record(life: BatchLife) -> None:
    with (life.path / file_name(10 * UNIT)).open("r+b") as file:
        file.seek(4 * UNIT + 36)
        file.write(struct.pack(">q", 7))
        file.seek(4 * UNIT + 28)
        file.write(struct.pack(">q", 4_000))


def _begins_late(life: BatchLife) -> None:
    (life.path / file_name(0)).unlink()


def _short(life: BatchLife) -> None:
    with (life.path / file_name(0)).open("r+b") as file:
        file.truncate(3 * UNIT + 5)


def test_a_first_file_that_is_lost_is_built_again(root: Path) -> None:
    life = BatchLife(root).start()
    life.put_batches(15)
    life.wait_dispatched()
    before = life.files()
    life.stop()
    _begins_late(life)
    again = BatchLife(root).start()
    holds(again, 15)
    assert again.files() == before
    again.stop()


DAMAGES = [_without_the_last, _torn, _deleted, _of_a_wrong_record, _short]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
def test_units_that_are_lost_are_built_again(
    root: Path, damage: Callable[[BatchLife], None], clean: bool
) -> None:
    life = BatchLife(root).start()
    life.put_batches(15)
    life.put(3)
    life.wait_dispatched()
    before = life.files()
    if clean:
        life.stop()
    else:
        killed(life)
    damage(life)
    again = BatchLife(root).start()
    holds(again, 15)
    assert again.files() == before
    assert again.log.topic("B").next_offsets[0] == 45
    again.put_batches(1)
    again.wait_dispatched()
    holds(again, 16)
    again.stop()


def test_a_log_that_ends_earlier_takes_its_units_along(root: Path) -> None:
    life = BatchLife(root).start()
    life.put_batches(15)
    life.wait_dispatched()
    units = life.units()
    killed(life)
    for unit in units[12:]:
        path = life.config.commit_log_path / file_name(unit.phy_offset // FILE_SIZE * FILE_SIZE)
        with path.open("r+b") as file:
            file.seek(unit.phy_offset % FILE_SIZE)
            file.write(bytes(unit.size))
    (root / "checkpoint").unlink()
    again = BatchLife(root).start()
    holds(again, 12)
    again.put_batches(1)
    again.wait_dispatched()
    holds(again, 13)
    again.stop()


def test_a_restarted_store_rejoins_its_living_writer(root: Path) -> None:
    life = BatchLife(root).start()
    life.put_batches(12)
    life.wait_dispatched()
    life.store.shutdown(writer_has_stopped=False)
    life.counters[STORE_STATE] = StoreState.READY
    for _ in range(5):
        made = record(bytes(100), b"KEYS\x01key\x02INNER_NUM\x013")
        batch = msgspec.structs.replace(made, sys_flag=192)
        life.log.append(life.log.topic("B"), [batch])
    life.log.commit()
    life.store = life.new_store()
    life.store.open()
    life.store.start()
    life.wait_dispatched()
    holds(life, 17)
    life.stop()


def test_who_has_a_file_open_follows_a_restarted_store_that_makes_it_again(root: Path) -> None:
    life = BatchLife(root).start()
    life.put_batches(UNITS_PER_FILE + 1)
    life.wait_dispatched()
    reader = BatchQueueReader(life.config, life.table.generation_of)
    last = 3 * UNITS_PER_FILE
    before = reader.read_units("B", 0, last, 2, last + 3)
    assert [unit.base for unit in before] == [last]
    life.store.shutdown(writer_has_stopped=False)
    life.counters[STORE_STATE] = StoreState.READY
    with (life.path / file_name(UNITS_PER_FILE * UNIT)).open("r+b") as file:
        file.write(before[0]._replace(size=1).pack())
    life.store = life.new_store()
    life.store.open()
    life.store.start()
    life.put_batches(1)
    life.wait_dispatched()
    after = reader.read_units("B", 0, last, 2, last + 6)
    assert after == life.units()[-2:]
    assert after[0] == before[0]
    reader.close()
    holds(life, UNITS_PER_FILE + 2)
    life.stop()


def test_what_a_killed_store_has_not_flushed_its_successor_does(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: set[str] = set()
    fdatasync = os.fdatasync

    def note(fd: int) -> None:
        flushed.add(os.readlink(f"/proc/self/fd/{fd}"))
        fdatasync(fd)

    life = BatchLife(root).start()
    life.put_batches(2 * UNITS_PER_FILE)
    life.wait_dispatched()
    life.store.shutdown(writer_has_stopped=False)
    life.counters[STORE_STATE] = StoreState.READY
    life.store = life.new_store()
    life.store.open()
    life.store.start()
    monkeypatch.setattr(os, "fdatasync", note)
    life.stop()
    assert {str(path) for path in life.path.iterdir()} <= flushed


def test_files_before_a_missing_one_do_not_come_between(root: Path) -> None:
    """Readers list the directory: they must not find what the queue no longer has."""
    life = BatchLife(root).start()
    life.put_batches(80, size=2_000)
    life.wait_dispatched()
    wait_until(lambda: life.counters[FLUSHED_OFFSET] == life.end)
    low = 6 * FILE_SIZE
    for start in range(0, low, FILE_SIZE):
        (life.config.commit_log_path / file_name(start)).unlink()
    life.counters[MIN_PHY_OFFSET] = low
    assert life.store._derived.clean_queues(low, lambda: False) == 4
    first = life.units()[0].base // 3
    life.stop()
    (life.path / file_name(5 * UNITS_PER_FILE * UNIT)).unlink()
    again = BatchLife(root).start()
    holds(again, 80, first=first)
    again.stop()


def test_the_writer_counts_what_is_not_dispatched(root: Path) -> None:
    life = BatchLife(root).start()
    life.put_batches(2)
    life.wait_dispatched()
    life.store.shutdown(writer_has_stopped=False)
    made = record(b"", b"INNER_NUM\x015")
    life.log.append(life.log.topic("B"), [msgspec.structs.replace(made, sys_flag=128)])
    life.log.commit()
    other = CommitLog(life.config.commit_log_path, FILE_SIZE, life.page, life.clock, lambda: None)
    assert rebuild_topic_queue_table(other, life.page, life.table, life.reader) == 1
    assert other.next_offset("B", 0) == 11
    life.log.close()


def test_retention(root: Path) -> None:
    life = BatchLife(root).start()
    life.put_batches(40, size=2_000)
    life.wait_dispatched()
    wait_until(lambda: life.counters[FLUSHED_OFFSET] == life.end)
    low = 3 * FILE_SIZE
    kept = [unit for unit in life.units() if unit.phy_offset >= low]
    for start in range(0, low, FILE_SIZE):
        (life.config.commit_log_path / file_name(start)).unlink()
    life.counters[MIN_PHY_OFFSET] = low
    assert life.store._derived.clean_queues(low, lambda: False) == 2
    holds(life, 40, first=kept[0].base // 3)
    assert min(life.files()) == file_name(2 * UNITS_PER_FILE * UNIT)
    life.stop()
    again = BatchLife(root).start()
    holds(again, 40, first=kept[0].base // 3)
    again.stop()


def test_a_topic_is_deleted_and_an_expired_queue(root: Path) -> None:
    life = BatchLife(root).start()
    life.put_batches(12)
    deadline = life.clock.monotonic_ms() + 30_000
    assert life.store.queue_deletion.delete_topic("B", life.end, deadline) == 1
    assert (life.table.offsets("B", 0), life.path.exists()) == ((0, 0), False)
    life.log.forget_topic("B")
    life.put_batches(2)
    life.wait_dispatched()
    holds(life, 2)
    life.put(20, size=2_000)
    life.wait_dispatched()
    wait_until(lambda: life.counters[FLUSHED_OFFSET] == life.end)
    assert life.store.queue_deletion.delete_expired() == 0
    (life.config.commit_log_path / file_name(0)).unlink()
    life.counters[MIN_PHY_OFFSET] = FILE_SIZE
    assert life.store.queue_deletion.delete_expired() == 1
    assert life.table.offsets("B", 0) == (0, 0)
    life.stop()


def test_queues_of_the_wrong_kind_are_built_anew(root: Path) -> None:
    """A start finds that topics.json says otherwise than when they were built."""
    life = BatchLife(root)
    (life.config.config_path / "topics.json").unlink()
    life.start()
    life.put(12, "B")
    life.wait_dispatched()
    assert (life.config.consume_queue_path / "B").exists()
    life.stop()
    again = BatchLife(root).start()
    assert not (life.config.consume_queue_path / "B").exists()
    assert [(unit.base, unit.messages) for unit in again.units()] == [(n, 1) for n in range(12)]
    again.put_batches(1)
    again.wait_dispatched()
    assert again.table.offsets("B", 0) == (0, 15)
    again.stop()


def says(life: BatchLife, table: dict[str, dict[str, str]]) -> None:
    """topics.json has these topics now, with these attributes."""
    configs = {name: {"topicName": name, "attributes": each} for name, each in table.items()}
    path = life.config.config_path / "topics.json"
    path.write_text(json.dumps({"topicConfigTable": configs}))


def put_inner(
    life: BatchLife, topic: str, sys_flag: int = 192, queue_id: int = 0
) -> tuple[int, int]:
    made = record(bytes(100), b"KEYS\x01key\x02INNER_NUM\x013")
    batch = msgspec.structs.replace(made, sys_flag=sys_flag, queue_id=queue_id)
    (place,) = life.log.append(life.log.topic(topic), [batch])
    life.log.commit()
    return place


def test_an_inner_batch_does_not_make_a_simple_topic_another_one(root: Path) -> None:
    """4.9 stored whatever sysFlag a client sent: the topic's queue stays the one that is read."""
    life = BatchLife(root)
    says(life, {"B": {"queue.type": "BatchCQ"}, "T": {}})
    life.start()
    life.put(2)
    put_inner(life, "T")
    life.put(2)
    life.wait_dispatched()
    assert not (life.config.batch_consume_queue_path / "T").exists()
    assert life.store._derived.queues.find("T", 0) is not None
    life.stop()


@pytest.mark.parametrize("restart", [False, True], ids=["running", "start"])
def test_what_a_deleted_topic_has_left_goes_when_its_name_is_a_simple_topic_s(
    root: Path, restart: bool
) -> None:
    """Its queues were not deleted: dispatch was behind, or the broker died."""
    life = BatchLife(root).start()
    life.put_batches(12, size=500)
    life.put(2, "B")
    life.wait_dispatched()
    if restart:
        life.stop()
        life = BatchLife(root)
    says(life, {"B": {}, "T": {}})
    if restart:
        life.start()
    life.put(1)  # A topic that is new to dispatch: it looks at the settings at once.
    life.put(3, "B")
    life.wait_dispatched()
    assert not life.path.exists()
    assert life.table.offsets("B", 0)[1] == 41
    queue = life.store._derived.queues.find("B", 0)
    assert queue is not None
    for number, unit in enumerate(queue.read_units(36, 5)):
        raw = life.reader.record_at(int(unit["phy_offset"]))
        assert raw is not None
        assert decode_record(raw, 0)[0].queue_offset == 36 + number
    life.stop()


def test_what_is_built_anew_survives_a_power_failure(root: Path) -> None:
    """Both kinds of a queue must not be gone: its records are not dispatched again."""
    life = BatchLife(root)
    says(life, {})
    life.start()
    life.put(12, "B")
    life.wait_dispatched()
    life.stop()
    again = BatchLife(root)
    synced: list[bool] = []
    queues = again.store._derived.batch_queues
    give_up = again.store._derived.queues.give_up

    def watch(simple: Any) -> None:
        synced.append(all(not queue.is_dirty for queue in queues) and bool(len(queues)))
        give_up(simple)

    again.store._derived.queues.give_up = watch  # type: ignore[method-assign]
    again.start()
    assert synced == [True]
    again.stop()


def test_no_room_while_queues_are_built_anew(root: Path) -> None:
    """What was begun is done again when there is room; retention does not publish a part of it."""
    life = BatchLife(root)
    says(life, {})
    life.start()
    life.put(12, "B")
    life.wait_dispatched()
    derived = life.store._derived
    queues, published = derived.batch_queues, []
    rebuild, full = queues._rebuild, [True]

    def half(start: int, end: int, dispatcher: Any) -> None:
        rebuild(start, start + (end - start) // 2 if full else end, dispatcher)
        derived.clean_queues(0, lambda: False)
        published.append(life.table.offsets("B", 0))
        if full:
            full.clear()
            raise DiskFullError("no room")

    queues._rebuild = half
    says(life, {"B": {"queue.type": "BatchCQ"}})
    life.put(1)
    wait_until(lambda: len(published) == 2)
    life.wait_dispatched()
    assert published == [(0, 12), (0, 12)]
    assert [unit.base for unit in life.units()] == list(range(12))
    assert not (life.config.consume_queue_path / "B").exists()
    life.stop()


def test_a_prepared_inner_batch_takes_no_place(root: Path) -> None:
    """As every prepared message: it never gets a unit, and the next one has its queue offset."""
    life = BatchLife(root).start()
    life.put_batches(1)
    for kind in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
        assert put_inner(life, "B", 192 | kind)[1] == 0
    assert life.log.topic("B").next_offsets[0] == 3
    life.put_batches(1)
    life.wait_dispatched()
    holds(life, 2)
    life.stop()


def test_a_directory_that_is_deleted_after_a_kill_is_built_again(root: Path) -> None:
    """Of one of several queues; the start dispatches the end of the log only."""
    life = BatchLife(root).start()
    life.put_batches(24, size=2_000, ago_ms=3_600_000)
    put_inner(life, "B", queue_id=1)
    life.wait_dispatched()
    before = life.files()
    life.stop()
    life = BatchLife(root).start()
    life.put_batches(1)
    life.wait_dispatched()
    killed(life)
    shutil.rmtree(life.path)
    again = BatchLife(root).start()
    holds(again, 25)
    assert set(again.files()) == set(before)
    assert again.table.offsets("B", 1) == (0, 3)
    again.stop()


def test_an_offset_that_cannot_be_does_not_end_the_queue(tmp_path: Path) -> None:
    """As in simple queues: one such record gets no unit, a second one is believed."""
    life = BatchLife(tmp_path / "store").start()
    life.put_batches(2)
    offsets = life.log.topic("B").next_offsets
    offsets[0] = 1 << 40
    life.put(1, "B")
    offsets[0] = 6
    life.put_batches(1)
    life.wait_dispatched()
    assert [unit.base for unit in life.units()] == [0, 3, 6]
    offsets[0] = 9_000
    life.put_batches(2)
    life.wait_dispatched()
    assert [unit.base for unit in life.units()] == [0, 3, 6, 9_003]
    life.stop()


def test_files_of_another_size(root: Path) -> None:
    life = BatchLife(root).start()
    life.put_batches(1)
    life.wait_dispatched()
    life.stop()
    other = Life(root, mapper_file_size_batch_consume_queue=UNIT)
    with pytest.raises(
        WrongFileSizeError, match="mapperFileSizeBatchConsumeQueue is 46: set it"
    ) as at:
        other.store.open()
    assert "delete the batchconsumequeue directory" in str(at.value)
    other.store.shutdown(writer_has_stopped=True)


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_offsets_of_a_record_that_is_damaged_are_not_given_again(
    tmp_path: Path, crash: bool
) -> None:
    """Its messages may have been consumed: what got their offsets would be skipped."""
    root = tmp_path / "store"
    life = BatchLife(root).start()
    life.put_batches(5)
    life.put(3)
    life.wait_dispatched()
    last = life.units()[-1]
    if crash:
        killed(life)
    else:
        life.stop()
    with (life.config.commit_log_path / file_name(0)).open("r+b") as file:
        file.seek(last.phy_offset)
        file.write(bytes(16))
    for path in (root / "checkpoint", root / "clean.exit"):
        path.unlink(missing_ok=True)
    again = BatchLife(root).start()
    assert again.store._derived.source.fences.find(last.phy_offset) is not None
    assert put_inner(again, "B")[1] == 15
    again.wait_dispatched()
    assert again.table.offsets("B", 0) == (0, 18)
    again.stop()
    report = check_store(root, hash_slots=100)
    assert [error for error in report.errors if "batchconsumequeue" in error] == []


# -- small parts -------------------------------------------------------------------------------


def test_which_topics(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    topics = BatchTopics(path)
    assert (topics.refresh(), topics.names) == (False, frozenset())
    table: dict[str, Any] = {
        "A": {"attributes": {"queue.type": "BatchCQ"}},
        "B": {"attributes": {"queue.type": "SimpleCQ"}},
        "C": {"attributes": None},
        "D": {},
        "E": {"attributes": {"other": "BatchCQ"}},
    }
    path.write_text(json.dumps({"topicConfigTable": table}))
    assert (topics.refresh(), topics.names) == (True, {"A"})
    assert [name for name in "ABCDEF" if topics.says_simple(name)] == ["B", "C", "D", "E"]
    assert not topics.refresh()
    path.write_text("{'BatchCQ'")
    assert (topics.refresh(), topics.names) == (False, {"A"})
    path.write_text("{}")
    assert (topics.refresh(), topics.names) == (True, frozenset())


def test_units() -> None:
    unit = BatchUnit(1, 2, -3, 4, 5, 6)
    data = unit.pack()
    assert data == struct.pack(">qiqqqhii", 1, 2, -3, 4, 5, 6, -1, 0)
    assert (parse_unit(data), unit.record_end, unit.following) == (unit, 3, 11)
    assert parse_unit(bytes(UNIT)) is None
    assert parse_unit(data[:-1]) is None
    later = unit._replace(phy_offset=3, base=11)
    assert count_valid(data + later.pack() + bytes(UNIT)) == 2
    assert count_valid(data + unit.pack()) == 1
    assert count_valid(data + later._replace(base=4).pack()) == 1
    assert count_valid(b"") == 0


def test_marks_of_inner_batches() -> None:
    assert inner_num(0, b"INNER_NUM\x013") == 1
    assert inner_num(128, b"INNER_NUM\x013") == 3
    assert inner_num(128, b"INNER_NUM\x01x") == 1
    assert inner_num(128, b"INNER_NUM\x0140000") == 1
    assert inner_place(b"INNER_NUM\x013\x02INNER_BASE\x017") == (7, 3)
    assert inner_place(b"INNER_NUM\x013") is None
    assert inner_place(b"INNER_BASE\x017") is None
    assert prepare_inner_batch(b"A\x01b\x02INNER_BASE\x017\x02INNER_NUM\x013") == (
        b"A\x01b\x02INNER_NUM\x013"
    )


@pytest.mark.interpreted
def test_a_queue_without_a_row_is_built_and_read_when_there_is_room(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue table was full."""
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 1)
    life = BatchLife(root).start()
    life.put(3)
    life.wait_dispatched()
    life.put_batches(5)
    life.wait_dispatched()
    assert life.table.offsets("T", 0) == (0, 3)
    assert life.table.offsets("B", 0) == (0, 0)
    life.store.shutdown(writer_has_stopped=False)
    life.counters[STORE_STATE] = StoreState.READY
    life.store = life.new_store()
    life.store.open()
    life.store.start()
    life.put_batches(1)
    life.wait_dispatched()
    life.stop()
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 1 << 20)
    again = BatchLife(root).start()
    again.wait_dispatched()
    holds(again, 6)
    again.stop()
