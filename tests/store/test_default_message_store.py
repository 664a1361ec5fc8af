"""DefaultMessageStore with its real services: open, follow a writer, delete, stop, come back."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ipc.bell import Bell
from ipc.clock import SystemClock
from ipc.control_page import ProcessIndex
from ipc.queue_table import QueueTableReader, create_queue_table
from ipc.service_thread import ServiceThread
from store.clean_commit_log_service import RetentionRules
from store.commit_log import CommitLog, own_record
from store.commit_log_reader import CommitLogReader
from store.consume_queue_reader import ConsumeQueueReader
from store.consume_queue_table import ConsumeQueueTable
from store.control_slots import (
    ALLOCATED_END,
    DISPATCHED_OFFSET,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    STORE_STATE,
    SYNC_FLUSH_WANTED,
    StoreState,
)
from store.default_message_store import DefaultMessageStore
from store.errors import DiskFullError, StoreError, WrongFileSizeError
from store.flush_consume_queue_service import FlushConsumeQueueService
from store.generation_aware_reader import GenerationAwareReader
from store.index_service import IndexReader
from store.java_hash import TAG_KEY
from store.light_queue_files import LightQueueFiles
from store.mapped_file import file_name
from store.message_codec import encode_host
from store.message_store_config import FlushDiskType, MessageStoreConfig
from store.queue_recovery import QueueRecovery
from store.record import Record
from store.store_checker import check_store
from store.store_progress import StoreBells
from store.stored_units import CQ_UNIT
from store.timer.timer_slots import TIMER_COMMIT_QUEUE_OFFSET
from store.topic_queue_table import rebuild_topic_queue_table
from tests.support.deadline import wait_until
from tests.support.shared_memory import fresh_page

FILE_SIZE = 16_384
HOST = encode_host("127.0.0.1", 10911)


def record(body: bytes, properties: bytes) -> Record:
    """A message for queue 0."""
    return own_record(0, body, properties, now_ms=0, store_host=HOST, store_host_flag=0)


class Life:
    """One life of a broker: shared memory, the store, and the log's writer."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.config = MessageStoreConfig(
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=FILE_SIZE,
            mapped_file_size_consume_queue=2_000,
            max_hash_slot_num=100,
            max_index_num=400,
            disk_max_used_space_ratio=95,
            flush_interval_commit_log=10,
            flush_commit_log_thorough_interval=20,
            **settings,
        )
        self.page = fresh_page()
        self.counters = self.page.counters
        self.table_fd = create_queue_table()
        self.table = QueueTableReader(self.table_fd)
        self.bell_fd = Bell.create()
        self.failures: list[Exception] = []
        self.rings = 0
        self.clock = SystemClock()
        self.store = self.new_store()

    def new_store(self) -> DefaultMessageStore:
        return DefaultMessageStore(
            self.config,
            self.page,
            self.table_fd,
            StoreBells(Bell(self.page, ProcessIndex.STORE, self.bell_fd), self._ring_readers),
            self.clock,
            self._fail,
        )

    def _ring_readers(self) -> None:
        self.rings += 1

    def _fail(self, service: ServiceThread, error: Exception) -> None:
        self.failures.append(error)

    def start(self) -> Life:
        self.store.open()
        self.store.start()
        bell = Bell(self.page, ProcessIndex.STORE, self.bell_fd)
        self.log = CommitLog(
            self.config.commit_log_path, FILE_SIZE, self.page, self.clock, bell.ring
        )
        self.reader = CommitLogReader(self.config.commit_log_path, FILE_SIZE, self.page)
        rebuild_topic_queue_table(self.log, self.page, self.table, self.reader)
        self.log.open(HOST)
        wait_until(lambda: self.counters[ALLOCATED_END] >= FILE_SIZE)
        return self

    def put(self, count: int, topic: str = "T", size: int = 100) -> None:
        for _ in range(count):
            wait_until(lambda: self.counters[ALLOCATED_END] > self.log.position + FILE_SIZE)
            self.log.now_ms = self.clock.now_ms()
            entry = self.log.topic(topic)
            self.log.append(entry, (record(bytes(size), b"KEYS\x01key\x02TAGS\x01A"),))
            self.log.commit()

    @property
    def end(self) -> int:
        return self.counters[MAX_PHY_OFFSET]

    def wait_dispatched(self) -> None:
        wait_until(lambda: self.counters[DISPATCHED_OFFSET] == self.end)

    def stop(self, *, writer_has_stopped: bool = True) -> None:
        self.log.close()
        self.store.shutdown(writer_has_stopped=writer_has_stopped)
        self.reader.close()
        os.close(self.table_fd)
        os.close(self.bell_fd)
        assert self.failures == []

    def queue(self, topic: str = "T") -> list[int]:
        """phy_offsets of the queue's units."""
        low, high = self.table.offsets(topic, 0)
        reader = ConsumeQueueReader(self.config, self.table)
        found = [reader.find_unit(topic, 0, n) for n in range(low, high)]
        reader.close()
        return [-1 if unit is None else unit[0] for unit in found]


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = Life(tmp_path / "store").start()
    yield life
    if life.counters[STORE_STATE] != StoreState.STOPPED:
        life.stop()
    report = check_store(tmp_path / "store", hash_slots=100)
    assert report.errors == []


def test_a_fresh_store_is_ready_and_says_that_it_is_open(tmp_path: Path) -> None:
    life = Life(tmp_path / "store")
    assert life.counters[STORE_STATE] == StoreState.STARTING
    life.start()
    root = tmp_path / "store"
    assert life.counters[STORE_STATE] == StoreState.READY
    assert life.rings
    assert (root / "abort").exists()
    assert not (root / "clean.exit").exists()
    life.stop()
    assert life.counters[STORE_STATE] == StoreState.STOPPED
    assert not (root / "abort").exists()
    assert (root / "clean.exit").exists()


def test_what_is_written_is_dispatched_indexed_and_flushed(life: Life) -> None:
    life.put(50)
    life.put(3, "Other")
    life.wait_dispatched()
    assert life.table.offsets("T", 0) == (0, 50)
    assert life.table.offsets("Other", 0) == (0, 3)
    assert [life.reader.record_at(o) is not None for o in life.queue()] == [True] * 50
    index = IndexReader(life.config.index_path, 100, 400)
    assert len(index.query("Other", "key", 64, 0, 2**62).phy_offsets) == 3
    wait_until(lambda: life.counters[FLUSHED_OFFSET] == life.end)
    assert life.table.has_moves()


def test_messages_are_found_by_their_tags(life: Life) -> None:
    life.put(20)
    life.put(3, "Other")
    life.wait_dispatched()
    index = IndexReader(life.config.index_path, 100, 400)
    assert len(index.query("T", f"{TAG_KEY}A", 64, 0, 2**62).phy_offsets) == 20
    assert index.query("T", f"{TAG_KEY}B", 64, 0, 2**62).phy_offsets == []
    index.close()


@pytest.mark.parametrize("name", ["message_index_enable", "index_file_write_enable"])
def test_without_its_settings_there_is_no_index(tmp_path: Path, name: str) -> None:
    life = Life(tmp_path / "store", **{name: False}).start()
    life.put(3)
    life.wait_dispatched()
    life.stop()
    assert not life.config.index_path.exists() or not any(life.config.index_path.iterdir())


def test_the_rocksdb_of_a_5_5_broker_is_left_alone(tmp_path: Path) -> None:
    """Each has one, empty with its default settings; RocksDB does not like what changes it."""
    other = tmp_path / "store" / "rocksdbstore"
    other.mkdir(parents=True)
    files = {"CURRENT": b"MANIFEST-000005\n", "000004.log": b"", "LOCK": b""}
    for name, data in files.items():
        (other / name).write_bytes(data)
    for clean in (True, False, True):
        life = Life(tmp_path / "store").start()
        life.put(3)
        life.wait_dispatched()
        life.stop(writer_has_stopped=clean)
    assert {path.name: path.read_bytes() for path in other.iterdir()} == files
    report = check_store(tmp_path / "store", hash_slots=100)
    assert (report.errors, report.notes) == ([], [])


def test_files_are_made_ahead_of_the_writer(life: Life) -> None:
    life.put(40, size=2000)
    assert life.end > 4 * FILE_SIZE
    assert life.counters[ALLOCATED_END] > life.end
    assert (life.config.commit_log_path / file_name(4 * FILE_SIZE)).stat().st_size == FILE_SIZE


def test_sync_flush_follows_what_is_wanted(tmp_path: Path) -> None:
    root = tmp_path / "store"
    life = Life(root, flush_disk_type=FlushDiskType.SYNC_FLUSH).start()
    for _ in range(20):
        entry = life.log.topic("T")
        life.log.append(entry, (record(b"x", b""),))
        life.counters[SYNC_FLUSH_WANTED] = life.log.position
        life.log.commit()
        wait_until(lambda: life.counters[FLUSHED_OFFSET] >= life.end)
    life.stop()
    assert check_store(root, hash_slots=100).errors == []


@pytest.mark.parametrize("lives", [1, 3])
def test_a_clean_stop_and_a_new_start_lose_nothing(tmp_path: Path, lives: int) -> None:
    root = tmp_path / "store"
    for number in range(lives + 1):
        life = Life(root).start()
        assert life.table.offsets("T", 0) == (0, 30 * number)
        assert life.log.topic("T").next_offsets.get(0, 0) == 30 * number
        life.put(30)
        life.wait_dispatched()
        life.stop()
        assert check_store(root, hash_slots=100).errors == []


def test_one_queue_that_was_deleted_while_stopped_comes_back(tmp_path: Path) -> None:
    root = tmp_path / "store"
    life = Life(root).start()
    for _ in range(5):
        life.put(3)
        life.put(2, "Other")
    life.wait_dispatched()
    before = life.queue("T"), life.queue("Other")
    life.stop()
    shutil.rmtree(life.config.consume_queue_path / "T")
    again = Life(root).start()
    wait_until(lambda: (again.queue("T"), again.queue("Other")) == before)
    again.stop()
    assert check_store(root, hash_slots=100).errors == []


def test_after_a_kill_the_rest_is_dispatched_again(tmp_path: Path) -> None:
    """The services of the first life are stopped without a word: as if the power of both
    processes had gone."""
    root = tmp_path / "store"
    life = Life(root).start()
    life.put(30)
    life.wait_dispatched()
    end = life.end
    life.log.close()
    life.store.shutdown(writer_has_stopped=False)
    assert (root / "abort").exists()
    assert not (root / "clean.exit").exists()
    queue_file = life.config.consume_queue_path / "T" / "0" / file_name(0)
    with queue_file.open("r+b") as file:
        file.seek(10 * CQ_UNIT.size)
        file.write(bytes(20 * CQ_UNIT.size))
    again = Life(root).start()
    assert again.end == end
    assert again.table.offsets("T", 0) == (0, 30)
    assert len(set(again.queue())) == 30
    again.put(1)
    again.wait_dispatched()
    again.stop()
    assert check_store(root, hash_slots=100).errors == []


def test_a_restarted_store_rejoins_its_living_writer(life: Life) -> None:
    """The writer goes on while the store is away; nothing of the log is touched."""
    life.put(20)
    life.wait_dispatched()
    old = life.store
    old.shutdown(writer_has_stopped=False)
    life.counters[STORE_STATE] = StoreState.READY
    room = life.counters[ALLOCATED_END] - life.end
    for _ in range(room // 400):
        life.log.append(life.log.topic("T"), (record(bytes(100), b"KEYS\x01key"),))
        life.log.commit()
    written = 20 + room // 400
    end = life.end
    life.store = life.new_store()
    life.store.open()
    assert life.end == end
    life.store.start()
    life.wait_dispatched()
    assert life.table.offsets("T", 0) == (0, written)
    assert len(set(life.queue())) == written
    life.put(5)
    life.wait_dispatched()
    assert life.table.offsets("T", 0) == (0, written + 5)


def test_who_has_a_file_open_follows_a_restarted_store_that_makes_it_again(life: Life) -> None:
    """The unit that begins the second file names no record: the file goes, dispatch makes it."""
    life.put(101)
    life.wait_dispatched()
    reader = ConsumeQueueReader(life.config)
    units = GenerationAwareReader(reader, life.table)
    right = units.read_units("T", 0, 100, 1)
    life.store.shutdown(writer_has_stopped=False)
    life.counters[STORE_STATE] = StoreState.READY
    path = life.config.consume_queue_path / "T" / "0" / file_name(100 * CQ_UNIT.size)
    with path.open("r+b") as file:
        file.write(CQ_UNIT.pack(0, 1, 0))
    life.store = life.new_store()
    life.store.open()
    life.store.start()
    life.put(1)
    life.wait_dispatched()
    read = units.read_units("T", 0, 100, 2)
    assert [unit[0] for unit in CQ_UNIT.iter_unpack(read)] == life.queue()[100:]
    assert read[: CQ_UNIT.size] == right
    reader.close()


def test_what_a_killed_store_has_not_flushed_its_successor_does(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the checkpoint says of units that they are on disk, and a power loss takes them."""
    flushed: set[str] = set()
    fdatasync = os.fdatasync

    def note(fd: int) -> None:
        flushed.add(os.readlink(f"/proc/self/fd/{fd}"))
        fdatasync(fd)

    life.put(150)
    life.wait_dispatched()
    with monkeypatch.context() as patch:  # Killed: it flushes nothing.
        patch.setattr(FlushConsumeQueueService, "flush_all", lambda _self: None)
        life.store.shutdown(writer_has_stopped=False)
    life.counters[STORE_STATE] = StoreState.READY
    life.store = life.new_store()
    life.store.open()
    life.store.start()
    monkeypatch.setattr(os, "fdatasync", note)
    life.stop()
    written = (life.config.consume_queue_path / "T" / "0").iterdir()
    assert {str(path) for path in written} <= flushed


def test_delete_topic_waits_for_the_barrier(life: Life) -> None:
    life.put(10)
    life.put(10, "Other")
    deadline = life.clock.monotonic_ms() + 5_000
    assert life.store.queue_deletion.delete_topic("T", life.end, deadline) == 1
    assert life.counters[DISPATCHED_OFFSET] == life.end
    assert life.table.offsets("T", 0) == (0, 0)
    assert not (life.config.consume_queue_path / "T" / "0" / file_name(0)).exists()
    assert life.table.offsets("Other", 0) == (0, 10)
    assert life.store.queue_deletion.delete_topic("unknown", life.end, deadline) == 0
    life.log.forget_topic("T")
    life.put(2)
    life.wait_dispatched()
    assert life.table.offsets("T", 0) == (0, 2)


@pytest.mark.parametrize("name", ["..", "../config", ".", "", "/", "a/b", "nul\0"])
def test_delete_topic_never_leaves_the_queues(life: Life, name: str) -> None:
    life.put(1)
    life.wait_dispatched()
    deadline = life.clock.monotonic_ms() + 1_000
    assert life.store.queue_deletion.delete_topic(name, 0, deadline) == 0
    assert life.config.commit_log_path.exists()


def test_a_barrier_that_is_never_reached_times_out(life: Life) -> None:
    life.put(1)
    with pytest.raises(TimeoutError, match="bytes behind; try again"):
        life.store.queue_deletion.delete_topic("T", life.end + 1000, life.clock.monotonic_ms() + 30)
    life.wait_dispatched()
    assert life.table.offsets("T", 0) == (0, 1)


def test_expired_queues_are_deleted(life: Life) -> None:
    life.put(2, "Old")
    life.put(20, size=2000)
    life.wait_dispatched()
    wait_until(lambda: life.counters[FLUSHED_OFFSET] == life.end)
    assert life.store.queue_deletion.delete_expired() == 0
    (life.config.commit_log_path / file_name(0)).unlink()
    life.counters[MIN_PHY_OFFSET] = FILE_SIZE
    assert life.store.queue_deletion.delete_expired() == 1
    assert life.table.offsets("Old", 0) == (0, 0)
    assert life.table.offsets("T", 0)[1] == 20


def test_retention_changes_while_the_store_runs(life: Life) -> None:
    life.put(20, size=2000)
    wait_until(lambda: life.counters[FLUSHED_OFFSET] == life.end)
    life.wait_dispatched()
    assert (life.config.commit_log_path / file_name(0)).exists()
    every_hour = ";".join(f"{hour:02d}" for hour in range(24))
    with pytest.raises(StoreError, match="deleteWhen = 24"):
        life.store.clean_commit_log.use_rules(
            RetentionRules.of(replace(life.config, delete_when="24"))
        )
    changed = replace(life.config, delete_when=every_hour, file_reserved_time=0)
    life.store.clean_commit_log.use_rules(RetentionRules.of(changed))
    wait_until(lambda: not (life.config.commit_log_path / file_name(0)).exists())
    assert life.counters[MIN_PHY_OFFSET] >= FILE_SIZE


def test_files_of_timers_that_wait_stay(life: Life) -> None:
    """However old they are (RocketMQ deletes them)."""
    due_ms = life.clock.now_ms() + 3_600_000
    record = own_record(
        0,
        b"timer",
        b"TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01T" % due_ms,
        now_ms=life.clock.now_ms(),
        store_host=HOST,
        store_host_flag=0,
    )
    life.put(10, size=2000)
    life.log.append(life.log.topic("rmq_sys_wheel_timer"), (record,))
    life.log.commit()
    life.put(10, size=2000)
    wait_until(lambda: life.counters[FLUSHED_OFFSET] == life.end)
    life.wait_dispatched()
    wait_until(lambda: life.counters[TIMER_COMMIT_QUEUE_OFFSET] == 1)
    every_hour = ";".join(f"{hour:02d}" for hour in range(24))
    rules = RetentionRules.of(replace(life.config, delete_when=every_hour, file_reserved_time=0))
    clean = life.store.clean_commit_log
    clean.use_rules(rules)
    # The new minimum is published before the file goes.
    first = life.config.commit_log_path / f"{0:020d}"
    wait_until(lambda: life.counters[MIN_PHY_OFFSET] == FILE_SIZE and not first.exists())
    assert life.store.clean_commit_log.run_once() == 0
    assert life.counters[MIN_PHY_OFFSET] == FILE_SIZE


def test_a_wrong_file_size_stops_the_opening(tmp_path: Path) -> None:
    life = Life(tmp_path / "store").start()
    life.put(10, size=2000)
    life.wait_dispatched()
    life.stop()
    for path in life.config.commit_log_path.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(WrongFileSizeError, match="mappedFileSizeCommitLog"):
        Life(tmp_path / "store").store.open()


def reads_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Topics whose queues are read from now on."""
    topics: list[str] = []
    recover = QueueRecovery.recover

    def noted(recovery: QueueRecovery, complete_until_ms: int = 0) -> None:
        topics.append(recovery.queue.topic)
        recover(recovery, complete_until_ms)

    monkeypatch.setattr(QueueRecovery, "recover", noted)
    return topics


def test_after_a_clean_stop_no_queue_is_read(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    life.put(50)
    life.put(3, "Other")
    life.wait_dispatched()
    life.stop()
    topics = reads_of(monkeypatch)
    again = Life(life.config.root).start()
    assert topics == []
    assert again.table.offsets("T", 0) == (0, 50)
    again.put(2)
    again.wait_dispatched()
    assert again.table.offsets("T", 0) == (0, 52)
    assert again.table.offsets("Other", 0) == (0, 3)
    again.stop()


def test_after_a_kill_only_queues_that_were_written_are_read(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.put(50)
    life.put(3, "Other")
    life.wait_dispatched()
    life.stop()
    killed = Life(life.config.root).start()
    killed.put(2, "Other")
    killed.wait_dispatched()
    killed.stop(writer_has_stopped=False)
    topics = reads_of(monkeypatch)
    again = Life(life.config.root).start()
    assert topics == ["Other"]
    assert again.table.offsets("T", 0) == (0, 50)
    assert again.table.offsets("Other", 0) == (0, 5)
    again.stop()


def test_after_the_machine_went_down_every_queue_is_read(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times of the files may be older than what is in them."""
    life.put(50)
    life.wait_dispatched()
    life.stop()
    (life.config.abort_path).write_text("another boot")
    topics = reads_of(monkeypatch)
    again = Life(life.config.root).start()
    assert topics == ["T"]
    assert again.table.offsets("T", 0) == (0, 50)
    again.stop()


# -- what 5.5 believes after a crash: up to which log offset units are on disk --------------------


def logics_physical_offset(config: MessageStoreConfig) -> int:
    """As 5.5 reads it."""
    return int(struct.unpack_from(">q", config.checkpoint_path.read_bytes(), 40)[0])


def flush_queues(life: Life) -> None:
    """What the service does once a minute."""
    (service,) = [s for s in life.store._services if isinstance(s, FlushConsumeQueueService)]
    service.flush_all()


def test_a_clean_stop_says_that_all_units_are_on_disk(life: Life) -> None:
    life.put(50, size=1000)
    life.wait_dispatched()
    life.stop()
    assert logics_physical_offset(life.config) == life.end > 3 * FILE_SIZE


def test_a_store_of_a_broker_that_does_not_say_so(life: Life) -> None:
    """Of 5.3.3, or one that was killed before it said so: 5.5 may refuse to open it
    (enableAcceleratedRecovery). It is said soon, though no message comes."""
    life.put(5)
    life.wait_dispatched()
    life.stop()
    raw = life.config.checkpoint_path.read_bytes()
    life.config.checkpoint_path.write_bytes(raw[:40] + bytes(8) + raw[48:])
    again = Life(life.config.root, flush_interval_consume_queue=1).start()
    wait_until(lambda: logics_physical_offset(life.config) == again.end)
    assert life.config.checkpoint_path.read_bytes()[:24] == raw[:24]
    again.stop()


def test_a_kill_leaves_what_was_true_at_the_last_thorough_flush(life: Life) -> None:
    life.put(5)
    life.wait_dispatched()
    first = life.end
    flush_queues(life)
    assert logics_physical_offset(life.config) == first
    life.put(5)
    life.wait_dispatched()
    assert logics_physical_offset(life.config) == first


@pytest.mark.parametrize("is_lost", ["the end of the log", "a queue"])
def test_units_that_are_made_again_are_not_said_to_be_on_disk(tmp_path: Path, is_lost: str) -> None:
    """Another crash may follow before they are flushed, and 5.5 then opens the store."""
    life = Life(tmp_path / "store").start()
    life.put(60, size=1000)
    life.wait_dispatched()
    life.stop(writer_has_stopped=False)
    flushed = logics_physical_offset(life.config)
    assert flushed == life.end
    if is_lost == "a queue":
        shutil.rmtree(life.config.consume_queue_path / "T")
    else:
        last = max(life.config.commit_log_path.iterdir())
        while not any(last.read_bytes()):
            last.unlink()
            last = max(life.config.commit_log_path.iterdir())
        last.write_bytes(bytes(FILE_SIZE))
    again = Life(life.config.root, flush_interval_consume_queue=3_600_000).start()
    assert again.end < flushed if is_lost != "a queue" else again.end == flushed
    assert logics_physical_offset(life.config) <= (0 if is_lost == "a queue" else again.end)
    again.stop(writer_has_stopped=False)
    assert logics_physical_offset(life.config) == again.end


# -- light queues, whose units wait in memory --------------------------------------------------


@pytest.fixture
def light(tmp_path: Path) -> Life:
    life = Life(tmp_path / "store", enable_lmq=True, enable_multi_dispatch=True).start()
    for _ in range(20):
        for topic in LIGHT:
            life.put(1, topic)
    life.wait_dispatched()
    assert {path.name for path in life.config.consume_queue_path.iterdir()} == {"T"}
    return life


LIGHT = ("%LMQ%a", "T", "%LMQ%b")


def queues(life: Life) -> dict[str, list[int]]:
    return {topic: life.queue(topic) for topic in LIGHT}


def test_a_clean_stop_writes_the_units_of_light_queues(light: Life) -> None:
    known = queues(light)
    assert len({place for places in known.values() for place in places}) == 60
    light.stop()
    for topic, places in known.items():
        data = (light.config.consume_queue_path / topic / "0" / file_name(0)).read_bytes()
        assert [unit[0] for unit in CQ_UNIT.iter_unpack(data[: 20 * CQ_UNIT.size])] == places
    assert check_store(light.config.root, hash_slots=100).errors == []
    again = Life(light.config.root, enable_lmq=True, enable_multi_dispatch=True).start()
    assert queues(again) == known
    again.stop()


def test_after_a_kill_light_queues_are_built_from_the_log(light: Life, tmp_path: Path) -> None:
    known = queues(light)
    killed = tmp_path / "killed"
    # What is just being replaced would be gone while it is copied.
    shutil.copytree(light.config.root, killed, ignore=shutil.ignore_patterns("*.tmp"))
    again = Life(killed, enable_lmq=True, enable_multi_dispatch=True).start()
    assert queues(again) == known
    again.put(1, "%LMQ%a")
    again.wait_dispatched()
    assert len(again.queue("%LMQ%a")) == 21
    again.stop()
    assert check_store(again.config.root, hash_slots=100).errors == []
    light.stop()


@pytest.mark.parametrize("is_full", [False, True], ids=["", "the disk is full"])
def test_a_restarted_store_has_what_waited_in_memory(
    light: Life, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    known = queues(light)
    seen: list[dict[str, list[int]]] = []
    with monkeypatch.context() as killed:
        killed.setattr(LightQueueFiles, "write_out", lambda *_: None)
        light.store.shutdown(writer_has_stopped=False)
    assert queues(light) == known
    light.counters[STORE_STATE] = StoreState.READY
    light.store = light.new_store()
    with monkeypatch.context() as full:
        if is_full:
            full.setattr(LightQueueFiles, "_write_out", _no_room)
        else:
            # Its readers live on, and read while it opens.
            load = ConsumeQueueTable.load
            full.setattr(
                ConsumeQueueTable, "load", lambda table: (seen.append(queues(light)), load(table))
            )
        light.store.open()
    assert seen == ([] if is_full else [known])
    assert queues(light) == known
    light.store.start()
    light.put(1, "%LMQ%b")
    light.wait_dispatched()
    light.stop()
    assert check_store(light.config.root, hash_slots=100).errors == []


def _no_room(*_: object) -> None:
    raise DiskFullError("full")


def test_a_stop_without_room_for_light_queues_is_not_clean(
    light: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = queues(light)
    with monkeypatch.context() as full:
        full.setattr(LightQueueFiles, "_write_out", _no_room)
        light.stop()
    assert light.config.abort_path.exists()
    again = Life(light.config.root, enable_lmq=True, enable_multi_dispatch=True).start()
    assert queues(again) == known
    again.stop()
    assert not light.config.abort_path.exists()
