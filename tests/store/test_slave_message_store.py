"""DefaultMessageStore of a slave: its log comes through a ReplicaLog, in pieces that end
anywhere."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipc.bell import Bell
from ipc.clock import SystemClock
from ipc.control_page import ProcessIndex
from ipc.queue_table import QueueTableReader, create_queue_table
from ipc.service_thread import ServiceThread
from store.commit_log_reader import CommitLogReader
from store.control_slots import (
    ALLOCATED_END,
    APPEND_END,
    DISPATCHED_OFFSET,
    FENCE_COUNT,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    STORE_STATE,
    SYNC_FLUSH_WANTED,
    StoreState,
)
from store.controller_mode import RoleNow
from store.default_message_store import DefaultMessageStore
from store.errors import StoreError
from store.mapped_file import file_name
from store.message_codec import encode_blank, encode_record
from store.message_store_config import BrokerRole, FlushDiskType, MessageStoreConfig
from store.replica_log import ReplicaLog
from store.store_checker import check_store
from store.store_checkpoint import StoreCheckpoint
from store.store_progress import StoreBells
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE, PRE_BLANK_SIZE
from tests.support.deadline import wait_until
from tests.support.memory_commit_log import message
from tests.support.shared_memory import fresh_page

SIZE = 16_384
_QUICK = {"flush_interval_commit_log": 10, "flush_commit_log_thorough_interval": 20}


class MasterBytes:
    """The bytes of a master's log from `start` on."""

    def __init__(
        self, start: int = 0, queue_offset: int = 0, properties: bytes = b"KEYS\x01key"
    ) -> None:
        self.start = start
        self._properties = properties
        self.data = bytearray()
        self.ends: list[int] = []
        self._queue_offset = queue_offset

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def add(self, count: int, body_size: int = 100, store_timestamp: int = 1_000) -> MasterBytes:
        for _ in range(count):
            plain = message(
                queue_offset=self._queue_offset,
                body=bytes(body_size),
                store_timestamp=store_timestamp,
                properties=self._properties,
            )
            left = SIZE - self.end % SIZE
            if len(encode_record(plain)) + 8 > left:
                self.data += encode_blank(left).ljust(left, b"\x55")
            self.data += encode_record(dataclasses.replace(plain, phy_offset=self.end))
            self.ends.append(self.end)
            self._queue_offset += 1
        return self


class SlaveLife:
    """One life of a slave's broker, but for process `remoting`."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.config = MessageStoreConfig(
            store_path_root_dir=str(root),
            broker_role=BrokerRole.SLAVE,
            mapped_file_size_commit_log=SIZE,
            mapped_file_size_consume_queue=2_000,
            max_hash_slot_num=100,
            max_index_num=400,
            disk_max_used_space_ratio=95,
            **{**_QUICK, **settings},
        )
        self.page = fresh_page()
        self.counters = self.page.counters
        self.table_fd = create_queue_table()
        self.table = QueueTableReader(self.table_fd)
        self.bell_fd = Bell.create()
        self.failures: list[Exception] = []
        self.rings = 0
        self.is_stopped = False
        self.clock = SystemClock()
        self.store = self.new_store()

    def bell(self) -> Bell:
        return Bell(self.page, ProcessIndex.STORE, self.bell_fd)

    def new_store(self) -> DefaultMessageStore:
        return DefaultMessageStore(
            self.config,
            self.page,
            self.table_fd,
            StoreBells(
                self.bell(), lambda: None, ring_replicator=self._ring_replicator, role=self.role()
            ),
            self.clock,
            self._fail,
        )

    def role(self) -> RoleNow | None:
        return None

    def _ring_replicator(self) -> None:
        self.rings += 1

    def _fail(self, service: ServiceThread, error: Exception) -> None:
        self.failures.append(error)

    def start(self) -> SlaveLife:
        self.store.open()
        self.store.start()
        self.log = ReplicaLog(self.config.commit_log_path, SIZE, self.page, self.bell().ring)
        self.log.open()
        return self

    def begin(self, phy_offset: int) -> None:
        """As HAClient does it."""
        self.log.reset_start()
        self.store.log_start.start_at(phy_offset, self.clock.monotonic_ms() + 2_000)
        self.log.begin(phy_offset)
        wait_until(lambda: self.log.has_room)

    def receive(self, data: bytes, *, publish: bool = True) -> None:
        """Bytes of the master, as frames that do not cross files."""
        while data:
            wait_until(lambda: self.log.has_room)
            size = min(len(data), self.log.left_in_file(self.log.position))
            self.log.make_room(size)
            self.log.write(0, data[:size])
            self.log.advance(size)
            data = data[size:]
            if publish:
                self.log.publish(self.log.position)
                self.log.ring()

    @property
    def end(self) -> int:
        return self.counters[MAX_PHY_OFFSET]

    def wait_dispatched(self, offset: int) -> None:
        wait_until(lambda: self.counters[DISPATCHED_OFFSET] == offset)

    def stop(self, *, writer_has_stopped: bool = True) -> None:
        self.is_stopped = True
        self.log.close()
        self.store.shutdown(writer_has_stopped=writer_has_stopped)
        os.close(self.table_fd)
        os.close(self.bell_fd)
        assert self.failures == []

    def files(self) -> list[int]:
        return sorted(int(path.name) for path in self.config.commit_log_path.iterdir())


@pytest.fixture
def life(tmp_path: Path) -> Iterator[SlaveLife]:
    life = SlaveLife(tmp_path / "store").start()
    yield life
    if not life.is_stopped:
        life.stop()


def check(life: SlaveLife) -> None:
    assert check_store(life.config.root, hash_slots=100).errors == []


# -- where the log begins ----------------------------------------------------------------------


def test_an_empty_slave_has_no_file_until_its_log_begins(life: SlaveLife) -> None:
    assert life.counters[STORE_STATE] == StoreState.READY
    assert (life.files(), life.counters[ALLOCATED_END]) == ([], 0)
    life.stop()
    again = SlaveLife(life.config.root).start()
    assert again.files() == []
    again.stop()
    assert not (life.config.root / "abort").exists()


def test_a_log_begins_in_the_middle(life: SlaveLife) -> None:
    """Queues begin at the queue offset of their first record, with blank units before it in the
    file, as the original makes them."""
    start = 5 * SIZE
    life.begin(start)
    for slot in (MIN_PHY_OFFSET, MAX_PHY_OFFSET, DISPATCHED_OFFSET, FLUSHED_OFFSET, APPEND_END):
        assert life.counters[slot] == start
    master = MasterBytes(start, queue_offset=250).add(300)
    life.receive(bytes(master.data))
    life.wait_dispatched(master.end)
    assert life.table.offsets("T", 0) == (250, 550)
    queue = life.config.consume_queue_path / "T" / "0"
    names = sorted(path.name for path in queue.iterdir())
    assert names[0] == file_name(200 * CQ_UNIT_SIZE)
    first = (queue / names[0]).read_bytes()
    assert first[: 50 * CQ_UNIT_SIZE] == CQ_UNIT.pack(0, PRE_BLANK_SIZE, 0) * 50
    assert CQ_UNIT.unpack_from(first, 50 * CQ_UNIT_SIZE)[0] == start
    wait_until(lambda: life.counters[FLUSHED_OFFSET] == master.end, 5)
    life.stop()
    check(life)
    again = SlaveLife(life.config.root).start()
    assert (again.counters[MIN_PHY_OFFSET], again.end) == (start, master.end)
    assert again.table.offsets("T", 0) == (250, 550)
    more = MasterBytes(master.end, queue_offset=550).add(5)
    again.receive(bytes(more.data))
    again.wait_dispatched(more.end)
    assert again.table.offsets("T", 0) == (250, 555)
    again.stop()
    check(again)


@pytest.mark.parametrize(("first", "second"), [(0, 7), (7, 2), (7, 7), (3, 0)])
def test_a_log_without_bytes_may_begin_again(life: SlaveLife, first: int, second: int) -> None:
    life.begin(first * SIZE)
    wait_until(lambda: len(life.files()) == 3)
    life.begin(second * SIZE)
    start = second * SIZE
    master = MasterBytes(start).add(30, body_size=2_000)
    life.receive(bytes(master.data))
    life.wait_dispatched(master.end)
    wait_until(lambda: life.counters[FLUSHED_OFFSET] == master.end, 5)
    assert life.files()[0] == start
    life.stop()
    check(life)


def test_a_restart_before_the_first_byte(life: SlaveLife) -> None:
    life.begin(3 * SIZE)
    life.stop()
    again = SlaveLife(life.config.root).start()
    assert again.counters[MIN_PHY_OFFSET] == again.end == 3 * SIZE
    assert again.log.is_empty
    again.begin(6 * SIZE)
    master = MasterBytes(6 * SIZE).add(3)
    again.receive(bytes(master.data))
    again.wait_dispatched(master.end)
    again.stop()
    check(again)


def test_a_log_with_bytes_begins_nowhere_else(life: SlaveLife) -> None:
    life.begin(0)
    life.receive(bytes(MasterBytes().add(1).data))
    with pytest.raises(StoreError, match="the log holds"):
        life.store.log_start.start_at(3 * SIZE, life.clock.monotonic_ms() + 1_000)
    assert life.counters[MIN_PHY_OFFSET] == 0


def test_a_log_begins_with_a_file(life: SlaveLife) -> None:
    with pytest.raises(StoreError, match="not the start of a file of 16384 bytes"):
        life.store.log_start.start_at(100, life.clock.monotonic_ms() + 1_000)


def test_a_masters_log_is_never_begun(tmp_path: Path) -> None:
    life = SlaveLife(tmp_path / "store")
    life.config = dataclasses.replace(life.config, broker_role=BrokerRole.ASYNC_MASTER)
    life.store = life.new_store()
    life.start()
    with pytest.raises(StoreError, match="a master's"):
        life.store.log_start.start_at(SIZE, life.clock.monotonic_ms() + 1_000)
    life.stop()


@pytest.mark.parametrize("begun", [False, True])
def test_a_restarted_store_process_rejoins_an_empty_log(life: SlaveLife, begun: bool) -> None:
    if begun:
        life.begin(4 * SIZE)
    rejoin(life)
    life.store.open()
    life.store.start()
    if not begun:
        life.begin(4 * SIZE)
    master = MasterBytes(4 * SIZE).add(5)
    life.receive(bytes(master.data))
    life.wait_dispatched(master.end)
    assert life.table.offsets("T", 0) == (0, 5)


def rejoin(life: SlaveLife) -> None:
    """Process store dies and is started again; the log's writer lives on."""
    life.store.shutdown(writer_has_stopped=False)
    life.counters[STORE_STATE] = StoreState.READY
    life.store = life.new_store()


@pytest.mark.parametrize("missing", ["index", "consumequeue", "nothing"])
def test_a_store_process_rejoins_a_log_that_ends_within_a_record(
    life: SlaveLife, caplog: pytest.LogCaptureFixture, missing: str
) -> None:
    """haAckLevel=received publishes records in part all the time."""
    life.begin(0)
    master = MasterBytes().add(10)
    cut = master.ends[-2] + 50
    life.receive(bytes(master.data[:cut]))
    life.wait_dispatched(master.ends[-2])
    rejoin(life)
    shutil.rmtree(life.config.root / missing, ignore_errors=True)
    life.store.open()
    assert ("is incomplete: rebuilding" in caplog.text) == (missing != "nothing")
    assert life.counters[DISPATCHED_OFFSET] == master.ends[-2]
    assert life.table.offsets("T", 0) == (0, 9)
    life.store.start()
    life.receive(bytes(master.data[cut:]))
    life.wait_dispatched(master.end)
    assert life.table.offsets("T", 0) == (0, 10)
    assert list(life.config.index_path.iterdir())
    life.stop()
    check(life)


def test_a_log_without_keys_is_not_dispatched_again_at_each_rejoin(
    life: SlaveLife, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no index file, and never had one."""
    life.begin(0)
    master = MasterBytes(properties=b"").add(10)
    life.receive(bytes(master.data))
    life.wait_dispatched(master.end)
    rejoin(life)
    life.store.open()
    assert "is incomplete: rebuilding" not in caplog.text
    assert not life.config.index_path.exists()
    life.store.start()
    assert life.table.offsets("T", 0) == (0, 10)


# -- records that are there in part ------------------------------------------------------------


def test_pieces_that_end_anywhere_are_dispatched_record_by_record(life: SlaveLife) -> None:
    master = MasterBytes().add(70, body_size=700)
    assert master.end > 3 * SIZE
    life.begin(0)
    for at in range(0, master.end, 331):
        life.receive(bytes(master.data[at : at + 331]))
    life.wait_dispatched(master.end)
    assert life.table.offsets("T", 0) == (0, 70)
    life.stop()
    check(life)


def test_one_zero_byte_harms_nothing(life: SlaveLife) -> None:
    """What an empty slave writes itself, to ask for the whole history."""
    life.begin(0)
    life.receive(b"\0")
    wait_until(lambda: life.counters[FLUSHED_OFFSET] == 1, 5)
    reader = CommitLogReader(life.config.commit_log_path, SIZE, life.page)
    assert reader.record_at(0) is None
    assert reader.store_timestamp_at(0) == -1
    reader.close()
    assert life.counters[DISPATCHED_OFFSET] == 0
    life.stop()
    assert not (life.config.root / "abort").exists()
    check(life)
    again = SlaveLife(life.config.root).start()
    assert (again.end, again.log.is_empty) == (0, True)
    again.begin(0)
    master = MasterBytes().add(3)
    again.receive(b"\0" + bytes(master.data[1:]))
    again.wait_dispatched(master.end)
    again.stop()
    check(again)


def test_one_zero_byte_after_a_crash_is_an_empty_log(life: SlaveLife) -> None:
    life.begin(0)
    life.receive(b"\0")
    life.stop(writer_has_stopped=False)
    again = SlaveLife(life.config.root).start()
    assert (again.end, again.log.is_empty) == (0, True)
    again.stop()


@pytest.mark.parametrize("cut", [1, 6, 9, 50, 150])
def test_an_orderly_stop_within_a_record_is_clean(life: SlaveLife, cut: int) -> None:
    master = MasterBytes().add(5)
    life.begin(0)
    life.receive(bytes(master.data[: master.ends[2] + cut]))
    life.wait_dispatched(master.ends[2])
    life.stop()
    assert (life.end, life.counters[FLUSHED_OFFSET]) == (master.ends[2],) * 2
    assert (life.config.root / "clean.exit").exists()
    assert not (life.config.root / "abort").exists()
    check(life)
    again = SlaveLife(life.config.root).start()
    assert again.end == master.ends[2]
    again.receive(bytes(master.data[again.end :]))
    again.wait_dispatched(master.end)
    again.stop()


def test_an_orderly_stop_within_a_blank_is_clean(life: SlaveLife) -> None:
    master = MasterBytes().add(30, body_size=1_000)
    last = max(end for end in master.ends if end < SIZE)
    life.begin(0)
    life.receive(bytes(master.data[: last + 20]))
    life.wait_dispatched(last)
    life.stop()
    assert life.end == last
    check(life)


def test_a_damaged_record_is_fenced_and_the_records_behind_it_are_dispatched(
    life: SlaveLife, caplog: pytest.LogCaptureFixture
) -> None:
    master = MasterBytes().add(6)
    bad = bytearray(master.data)
    bad[master.ends[2] + 4] ^= 0xFF
    life.begin(0)
    life.receive(bytes(bad))
    life.wait_dispatched(master.end)
    assert f"[{master.ends[2]}, {master.ends[3]})" in caplog.text
    assert life.counters[FENCE_COUNT] == 1
    assert life.table.offsets("T", 0) == (0, 6)
    life.stop()
    assert not (life.config.root / "abort").exists()
    again = SlaveLife(life.config.root).start()
    assert again.end == master.end
    assert again.counters[FENCE_COUNT] == 1
    assert again.table.offsets("T", 0) == (0, 6)
    again.stop()
    report = check_store(life.config.root)
    assert len(report.errors) == 1, report.lines()
    assert "fenced" in report.errors[0]


def test_a_record_that_is_not_whole_yet_is_no_damage(life: SlaveLife) -> None:
    """Its body looks like a record that lies at its place."""
    master = MasterBytes().add(2)
    inner_at = master.end + 88
    inner = encode_record(dataclasses.replace(message(), phy_offset=inner_at))
    outer = encode_record(
        dataclasses.replace(message(queue_offset=2, body=inner), phy_offset=master.end)
    )
    whole = bytes(master.data) + outer
    life.begin(0)
    life.receive(whole[:-1])
    life.wait_dispatched(master.end)
    life.receive(whole[-1:])
    life.wait_dispatched(len(whole))
    assert life.counters[FENCE_COUNT] == 0
    life.stop()
    check(life)


# -- flush -------------------------------------------------------------------------------------


def test_the_checkpoint_has_the_masters_timestamps(life: SlaveLife) -> None:
    master = MasterBytes().add(3, store_timestamp=5_000).add(3, store_timestamp=7_000)
    life.begin(0)
    life.receive(bytes(master.data))
    life.wait_dispatched(master.end)
    life.stop()
    checkpoint = StoreCheckpoint.load(life.config.checkpoint_path)
    assert checkpoint.physic_msg_timestamp == 7_000
    again = SlaveLife(life.config.root).start()
    again.receive(b"\0\0\0\xcc")  # flushed, and no record yet
    wait_until(lambda: again.counters[FLUSHED_OFFSET] == again.end, 5)
    again.stop()
    checkpoint = StoreCheckpoint.load(life.config.checkpoint_path)
    assert checkpoint.physic_msg_timestamp == 7_000


def test_a_slave_that_acknowledges_flushes_has_them_at_once(tmp_path: Path) -> None:
    """Without the half second of ASYNC_FLUSH."""
    life = SlaveLife(
        tmp_path / "store",
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        flush_interval_commit_log=500,
        flush_commit_log_thorough_interval=10_000,
    ).start()
    life.begin(0)
    rings = life.rings
    master = MasterBytes().add(40)
    at = 0
    for end in master.ends:
        life.counters[SYNC_FLUSH_WANTED] = end
        life.receive(bytes(master.data[at:end]))
        at = end
        wait_until(reached(life, end))
    assert life.rings >= rings + 40
    life.stop()
    check(life)


def reached(life: SlaveLife, end: int) -> Callable[[], bool]:
    return lambda: life.counters[FLUSHED_OFFSET] >= end


def test_the_replicator_is_told_of_new_files(life: SlaveLife) -> None:
    life.begin(0)
    rings = life.rings
    life.receive(bytes(MasterBytes().add(60, body_size=700).data))
    wait_until(lambda: life.rings >= rings + 3)
