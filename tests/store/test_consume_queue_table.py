"""All queues: building from batches, loading, publishing, deleting, flushing; golden bytes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from store.clean_consume_queue_service import clean_table
from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_table import ConsumeQueueTable
from store.errors import DiskFullError
from store.message_store_config import MessageStoreConfig
from store.record_arrays import ScanEnd, parse_records
from store.record_properties import PropertyExtractor
from store.stored_units import CQ_UNIT
from tests.support.memory_commit_log import MemoryCommitLog, RecordingPublisher, message

LEVELS = MessageStoreConfig().delay_level_ms
FILE_SIZE = 200
GOLDEN = Path(__file__).parents[1] / "golden" / "store-G"


def open_table(
    root: Path, file_size: int = FILE_SIZE, open_files: int = 3
) -> tuple[ConsumeQueueTable, RecordingPublisher]:
    files = ConsumeQueueFiles(root, file_size, writable=True, open_files=open_files)
    publisher = RecordingPublisher()
    return ConsumeQueueTable(files, publisher), publisher


def dispatch(table: ConsumeQueueTable, log: MemoryCommitLog, start: int = 0) -> None:
    data = memoryview(log.data)[start:]
    table.dispatch(parse_records(data, log.start + start, PropertyExtractor(LEVELS)))


def snapshot(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("node", ["master", "slave", "slave2"])
def test_golden_consume_queues(tmp_path: Path, node: str) -> None:
    """The Java broker's commit log gives the Java broker's consume queues, byte for byte."""
    golden = GOLDEN / node
    table, _ = open_table(tmp_path, 2000, 400)
    for path in sorted((golden / "commitlog").iterdir()):
        records = parse_records(
            memoryview(path.read_bytes()), int(path.name), PropertyExtractor(LEVELS)
        )
        last = records.end is ScanEnd.INVALID
        assert last or records.end is ScanEnd.BLANK
        assert records.count
        table.dispatch(records)
    assert snapshot(tmp_path) == snapshot(golden / "consumequeue")


@pytest.mark.parametrize("node", ["master", "slave", "slave2"])
def test_golden_consume_queues_load(node: str) -> None:
    """Reading only: what recovery makes of the Java broker's files is what they hold."""
    root = GOLDEN / node / "consumequeue"
    table, publisher = open_table(root, 2000, 400)
    table._files._mode = 0  # Read-only: nothing may be repaired here.
    assert table.load() == len(list(root.glob("*/*")))
    table.recover()
    low = int(min((GOLDEN / node / "commitlog").iterdir()).name)
    table.publish_all(min_phy_offset=low)
    for queue in table:
        units = queue.read_units(queue.min_offset, 1000)
        assert queue.max_phy_offset == int(units["phy_offset"][-1]) + int(units["size"][-1])
        assert int(units["phy_offset"][0]) >= low
        assert publisher.of(queue.topic, queue.queue_id) == (queue.min_offset, queue.max_offset)


def test_a_batch_is_sorted_into_its_queues(tmp_path: Path) -> None:
    log = MemoryCommitLog()
    expected: dict[tuple[str, int], bytes] = {}
    rng = np.random.default_rng(7)
    offsets: dict[tuple[str, int], int] = {}
    for n in range(600):
        key = (f"Topic{int(rng.integers(4))}", int(rng.integers(3)))
        kind = int(rng.choice([0, 0, 0, 4, 8, 12]))
        counted = kind in (0, 8)
        offset = offsets.get(key, 0) if counted else 0
        at = log.append(
            message(*key, offset, sys_flag=kind, body=bytes(n % 50), properties=b"TAGS\x01a")
        )
        if counted:
            offsets[key] = offset + 1
            unit = CQ_UNIT.pack(at, len(log.data) - at, 97)
            expected[key] = expected.get(key, b"") + unit
    table, publisher = open_table(tmp_path)
    dispatch(table, log)
    for (topic, queue_id), data in expected.items():
        files = sorted((tmp_path / topic / str(queue_id)).iterdir())
        assert b"".join(path.read_bytes() for path in files)[: len(data)] == data
        assert publisher.of(topic, queue_id) == (0, len(data) // 20)
    assert len(table) == len(expected)
    assert sorted(publisher.moves) == sorted(publisher.rows.values())


def test_dispatching_again_changes_nothing(tmp_path: Path) -> None:
    log = MemoryCommitLog()
    for n in range(100):
        log.append(message("T", n % 3, n // 3))
    table, publisher = open_table(tmp_path)
    dispatch(table, log)
    before = snapshot(tmp_path)
    publisher.moves.clear()
    dispatch(table, log)
    assert snapshot(tmp_path) == before
    assert publisher.moves == []


def test_offsets_that_jump_within_a_batch(tmp_path: Path) -> None:
    """A topic deleted and made anew between two records of one batch."""
    log = MemoryCommitLog()
    for offset in (0, 1, 2, 0, 1):
        log.append(message("T", 0, offset))
    table, publisher = open_table(tmp_path)
    dispatch(table, log)
    assert publisher.of("T", 0) == (0, 2)
    assert publisher.resets == [0]
    assert table.max_phy_offset() == len(log.data)


def test_a_backup_is_no_topic(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It lies in a mount point; a topic may have a name that begins like one."""
    (tmp_path / "backup-20260101T000000Z-0123abcd" / "T" / "0").mkdir(parents=True)
    (tmp_path / "backup-20260101T000000Z-0123abcd" / "7").mkdir()
    (tmp_path / "backup-orders" / "3").mkdir(parents=True)
    table, _ = open_table(tmp_path)
    assert table.load() == 1
    assert table.find("backup-orders", 3) is not None
    assert caplog.text == ""


def test_load_and_recover(tmp_path: Path) -> None:
    log = MemoryCommitLog()
    for n in range(90):
        log.append(message("%RETRY%G", n % 3, n // 3))
    table, _ = open_table(tmp_path)
    dispatch(table, log)
    table.close()
    for stranger in ("%RETRY%G/x", "%RETRY%G/-1", "%RETRY%G/01", "T/99999999999"):
        (tmp_path / stranger).mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    (tmp_path / "%RETRY%G" / "7").mkdir()
    again, publisher = open_table(tmp_path)
    assert again.load() == 4
    seen: list[tuple[int, int]] = []
    again.recover(lambda done, count: seen.append((done, count)))
    assert seen == [(0, 4), (4, 4)]
    again.publish_all(min_phy_offset=0)
    assert again.max_phy_offset() == len(log.data)
    assert publisher.of("%RETRY%G", 2) == (0, 30)
    assert publisher.of("%RETRY%G", 7) == (0, 0)
    assert open_table(tmp_path / "missing")[0].load() == 0


@pytest.mark.parametrize("topic", ["../x", "a/b", "..", ".", ""])
def test_topics_that_would_escape_get_no_queue(
    tmp_path: Path, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryCommitLog()
    for n in range(3):
        log.append(message(topic, 0, n))
    log.append(message("T", -1, 0))
    log.append(message("T", 0, 0))
    root = tmp_path / "consumequeue"
    table, publisher = open_table(root)
    dispatch(table, log)
    assert caplog.text.count("not building a consume queue") == 2
    assert list(publisher.rows) == [("T", 0)]
    found = {path.name for path in tmp_path.rglob("*")}
    assert found == {"consumequeue", "T", "0", f"{0:020d}"}


def filled(root: Path) -> tuple[ConsumeQueueTable, RecordingPublisher, MemoryCommitLog]:
    log = MemoryCommitLog()
    for n in range(120):
        log.append(message(f"T{n % 4}", 0, n // 4, body=bytes(100)))
    table, publisher = open_table(root)
    dispatch(table, log)
    return table, publisher, log


def test_truncate_and_rebuild(tmp_path: Path) -> None:
    table, _, log = filled(tmp_path)
    before = snapshot(tmp_path)
    size = len(log.data) // 120
    for queue in table:
        queue.truncate(size * 50)
    assert table.max_phy_offset() == size * 50
    dispatch(table, log)
    assert snapshot(tmp_path) == before


def test_deleting_topics(tmp_path: Path) -> None:
    table, publisher, log = filled(tmp_path)
    assert table.delete_topic("T0") == 1
    assert publisher.of("T0", 0) == (0, 0)
    assert publisher.resets == [publisher.rows["T0", 0]]
    assert table.delete_topic("T3") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["T1", "T2"]
    assert table.delete_expired_queues(len(log.data), {"T2"}) == 1
    assert table.find("T1", 0) is None
    assert table.find("T2", 0) is not None


def test_cleaning(tmp_path: Path) -> None:
    table, publisher, log = filled(tmp_path)
    publisher.moves.clear()
    low = len(log.data) // 2
    assert clean_table(table, low, lambda: False) == 4
    assert publisher.of("T0", 0) == (15, 30)
    assert publisher.moves == []
    assert clean_table(table, len(log.data), lambda: True) == 1


def test_flush_keeps_what_is_dirty(tmp_path: Path) -> None:
    table, _ = open_table(tmp_path, 20_000)
    log = MemoryCommitLog()
    for n in range(500):
        log.append(message("Busy", 0, n))
    log.append(message("Idle", 0, 0))
    dispatch(table, log)
    assert table.flush(2) == 1
    assert table.flush(2) == 0
    assert table.flush(0) == 1
    assert table.flush(0) == 0


def test_units_that_change_while_a_file_is_flushed_are_flushed_again(tmp_path: Path) -> None:
    """The fdatasync runs beside the lock: what is written after it is not on disk by it."""
    table, _, log = filled(tmp_path)
    synced: list[bytes] = []
    changes = iter([lambda: table.blank_out(0, len(log.data))])

    def sync(topic: str, queue_id: int, start: int) -> None:
        synced.append((tmp_path / topic / str(queue_id) / f"{start:020d}").read_bytes())
        for change in changes:
            change()

    table._files.sync = sync  # type: ignore[method-assign]
    table.flush(0)
    table.flush(0)
    on_disk = set(synced)
    assert {each.read_bytes() for each in tmp_path.glob("*/*/0*")} <= on_disk


def test_a_full_disk_half_way_is_caught_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryCommitLog()
    for n in range(30):
        log.append(message("T", n % 3, n // 3))
    table, publisher = open_table(tmp_path)
    write, calls = os.pwrite, [0]

    def write_until_full(fd: int, data: memoryview, position: int) -> int:
        calls[0] += 1
        if calls[0] == 2:
            raise OSError(errno.ENOSPC, "no space left on device")
        return write(fd, data, position)

    monkeypatch.setattr(os, "pwrite", write_until_full)
    with pytest.raises(DiskFullError, match="consume queue T/1"):
        dispatch(table, log)
    assert publisher.of("T", 0) == (0, 10)
    dispatch(table, log)
    assert [publisher.of("T", n) for n in range(3)] == [(0, 10)] * 3


def test_the_name_of_a_file_that_could_not_be_written_at_first_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss takes the names that a directory got after its last fsync."""
    durable: set[str] = set()
    write, fsync = os.pwrite, os.fsync
    failures = iter([errno.ENOSPC])

    def write_when_there_is_room(fd: int, data: memoryview, position: int) -> int:
        for number in failures:
            raise OSError(number, os.strerror(number))
        return write(fd, data, position)

    def note_names(fd: int) -> None:
        fsync(fd)
        place = os.readlink(f"/proc/self/fd/{fd}")
        durable.update(f"{place}/{name}" for name in os.listdir(place))

    monkeypatch.setattr(os, "pwrite", write_when_there_is_room)
    monkeypatch.setattr(os, "fsync", note_names)
    table, _ = open_table(tmp_path)
    log = one_message_each(1)
    with pytest.raises(DiskFullError):
        dispatch(table, log)
    dispatch(table, log)
    table.flush(0)
    assert {str(path) for path in tmp_path.rglob("*")} <= durable


def test_the_names_of_files_that_recovery_makes_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = open_table(tmp_path, 100)
    log = MemoryCommitLog()
    for n in range(30):
        log.append(message("T0", 0, n))
    dispatch(table, log)
    missing = sorted(tmp_path.glob("T0/0/*"))[1]
    missing.unlink()
    named: list[tuple[str, int]] = []
    again, _ = open_table(tmp_path, 100)
    monkeypatch.setattr(again._files, "sync_names", lambda *key: named.append(key))
    again.load()
    again.recover()
    assert missing.exists()
    again.flush(0)
    assert ("T0", 0) in named


@pytest.mark.fault(32)
def test_more_queues_than_descriptors(tmp_path: Path) -> None:
    log = MemoryCommitLog()
    for n in range(2000):
        log.append(message(f"T{n % 50}", n // 50 % 8, n // 400))
    table, publisher = open_table(tmp_path, open_files=5)
    used = len(list(Path("/proc/self/fd").iterdir()))
    dispatch(table, log)
    assert len(table) == 400
    assert len(list(Path("/proc/self/fd").iterdir())) <= used + 5
    assert set(publisher.offsets.values()) == {(0, 5)}


def one_message_each(queues: int) -> MemoryCommitLog:
    log = MemoryCommitLog()
    for queue_id in range(queues):
        log.append(message("T", queue_id))
    return log


def test_many_dirty_queues_are_flushed_by_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = open_table(tmp_path)
    table.load()
    dispatch(table, one_message_each(70))
    each: list[tuple[str, int, int]] = []
    answers = [True]
    monkeypatch.setattr(table._files, "sync_all", answers.pop)
    monkeypatch.setattr(table._files, "sync", lambda *key: each.append(key))
    monkeypatch.setattr(table._files, "sync_names", lambda *key: None)
    assert table.flush(0) == 70
    assert (answers, each) == ([], [])
    assert not any(queue.is_dirty for queue in table)


def test_where_one_call_does_not_do_the_queues_are_flushed_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = open_table(tmp_path)
    dispatch(table, one_message_each(70))
    each: list[tuple[str, int, int]] = []
    named: list[tuple[str, int]] = []
    monkeypatch.setattr(table._files, "sync_all", lambda: False)
    monkeypatch.setattr(table._files, "sync", lambda *key: each.append(key))
    monkeypatch.setattr(table._files, "sync_names", lambda *key: named.append(key))
    assert table.flush(0) == 70
    assert each == [("T", queue_id, 0) for queue_id in range(70)]
    assert named == [("T", queue_id) for queue_id in range(70)]
    assert not any(queue.is_dirty for queue in table)
