"""Compaction logs when something fails: a full disk, a flush, a record, a process at a bad time."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from store.compaction import compaction_files, compaction_reader, compaction_store, partition_log
from store.compaction.compaction_files import finish_replacement
from store.compaction.compaction_log import NOTHING_PENDING
from store.compaction.partition_log import PartitionLog
from store.consume_queue_table import ConsumeQueueTable
from store.errors import DiskFullError, FlushFailedError
from store.flush_failure import note_flush_failure
from store.mapped_file import file_name
from store.message_codec import HEAD_SIZE, decode_record
from store.running_flags import RunningFlag
from tests.support.compaction_life import CompactionLife
from tests.support.compaction_world import LIMITS, TOPIC, CrashError, World, crash_after
from tests.support.deadline import wait_until

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# -- the commit log stays as long as it is needed ----------------------------------------------


def test_a_start_needs_the_commit_log_until_its_first_flush(world: World) -> None:
    """What the process before wrote may not be on disk."""
    world.fill(10)
    assert world.log.pending_phy_offset == NOTHING_PENDING
    world.open()
    assert world.log.pending_phy_offset == 0
    world.log.flush()
    assert world.log.pending_phy_offset == NOTHING_PENDING


def test_a_cut_log_is_flushed_before_the_commit_log_may_go(world: World) -> None:
    world.fill(10)
    world.log.cut(5, lambda at: -1)
    assert world.log.pending_phy_offset == 0
    world.log.cut(0, lambda at: -1)
    assert world.log.max_offset == 0


def test_a_record_that_is_too_large_keeps_nothing(world: World) -> None:
    """The commit log would never be deleted again."""
    world.fill(10)
    record = world.reader.read(TOPIC, 0, 0, LIMITS, lambda tags, record: True).records[0]
    body_at = HEAD_SIZE - 4
    (body,) = struct.unpack_from(">i", record, body_at)
    large = bytearray(record)
    large[HEAD_SIZE:HEAD_SIZE] = bytes(world.sizes.log)
    struct.pack_into(">i", large, body_at, body + world.sizes.log)
    struct.pack_into(">i", large, 0, len(large))
    assert world.log.take(bytes(large), 77, 0)
    assert (world.log.next_offset, world.log.max_offset) == (11, 10)
    assert world.log.pending_phy_offset == NOTHING_PENDING


# -- a full disk ---------------------------------------------------------------------------------


def test_what_a_full_disk_kept_back_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When there is room, without another message."""
    life = CompactionLife(tmp_path).start()
    life.put("key", b"first")
    life.wait_followed()
    with monkeypatch.context() as patch:

        def write(fd: int, pending: bytearray, end: int) -> None:
            if pending:
                raise FULL

        patch.setattr(partition_log, "_write", write)
        life.put("key", b"second")
        wait_until(lambda: life.store._flags.is_set(RunningFlag.DISK_FULL))
    life.wait_followed()
    assert [message.body for message in life.read_all()] == [b"first", b"second"]
    wait_until(lambda: not life.store._flags.is_set(RunningFlag.DISK_FULL))
    life.stop()


def test_a_file_that_was_closed_takes_nothing_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the record for which it was closed does not come again."""
    world.fill(10)
    files = PartitionLog(world.directories, world.sizes, TOPIC, 0)
    files.open(check_all=False)
    with monkeypatch.context() as patch:

        def create(path: Path, size: int) -> None:
            raise FULL

        patch.setattr(partition_log, "_create", create)
        with pytest.raises(DiskFullError):
            files.append(bytes(world.sizes.log - 100), 0, 0, 10)
    files.append(bytes(100), 0, 0, 11)
    assert files.starts == [0, world.sizes.log]
    files.close()


def test_a_decision_that_fails_is_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its name already when the directory cannot be flushed."""
    world.fill(60)
    with monkeypatch.context() as patch:

        def sync(directory: Path) -> None:
            raise OSError("injected")

        patch.setattr("conf.atomic_file.sync_directory", sync)
        with pytest.raises(OSError, match="injected"):
            world.compact()
    before = sorted(path.name for path in world.directories.log.glob("0*"))
    world.log.give_up_run()
    assert sorted(path.name for path in world.directories.log.glob("0*")) == before
    assert world.compact()
    world.ledger.check(world.read_all())


# -- a failed flush ------------------------------------------------------------------------------


def test_after_a_failed_flush_the_last_file_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pages may count as clean without being on disk."""
    life = CompactionLife(tmp_path).start()
    life.put("key", b"value")
    life.wait_followed()
    life.stop()
    rewritten = []
    real = partition_log._rewrite

    def rewrite(fd: int, end: int) -> None:
        rewritten.append(end)
        real(fd, end)

    monkeypatch.setattr(partition_log, "_rewrite", rewrite)
    CompactionLife(tmp_path).start().stop()
    assert rewritten == []
    note_flush_failure(life.config.fsync_failed_path, FlushFailedError("injected"), 0)
    life = CompactionLife(tmp_path).start()
    assert len(rewritten) == 2
    assert rewritten[1] == 46
    assert [message.body for message in life.read_all()] == [b"value"]
    life.stop()


def test_rewritten_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = os.urandom((1 << 20) + 77)
    path.write_bytes(data)
    fd = os.open(path, os.O_RDWR)
    partition_log._rewrite(fd, len(data))
    os.close(fd)
    assert path.read_bytes() == data


# -- damage --------------------------------------------------------------------------------------


def test_after_a_power_loss_damage_ends_no_log_that_was_on_disk(world: World) -> None:
    """Of what the commit log lost long ago, what follows a damaged record stays."""
    world.fill(7)
    assert len(world.log._files.starts) == 1
    units = (world.directories.queue / file_name(0)).read_bytes()
    (position,) = struct.unpack_from(">q", units, 46 * 3)
    with (world.directories.log / file_name(0)).open("r+b") as file:
        file.seek(position + HEAD_SIZE + 2)
        file.write(b"\xff\xfe\xfd")
    world.log.open(check_all=True, copied_again_from=4)
    assert world.log.max_offset == 7
    world.log.open(check_all=True, copied_again_from=3)
    assert world.log.max_offset == 3


def test_a_damaged_first_record_stops_no_start(world: World) -> None:
    world.fill(60)
    with (world.directories.log / file_name(0)).open("r+b") as file:
        file.write(struct.pack(">i", 77))
    world.open()
    assert [message.queue_offset for message in world.read_all()] == list(range(1, 60))


@pytest.mark.parametrize(("at", "data"), [(0, struct.pack(">i", 77)), (4, b"\xda\xa3\x21\xa7")])
def test_readers_pass_over_a_damaged_record(
    world: World, caplog: pytest.LogCaptureFixture, at: int, data: bytes
) -> None:
    """Its size, or its magic."""
    world.fill(60)
    units = (world.directories.queue / file_name(0)).read_bytes()
    (position,) = struct.unpack_from(">q", units, 46 * 3)
    with (world.directories.log / file_name(0)).open("r+b") as file:
        file.seek(position + at)
        file.write(data)
    found = [message.queue_offset for message in world.read_all()]
    assert found == [offset for offset in range(60) if offset != 3]
    assert f"no record at {position}: skipping it" in caplog.text


def test_readers_wait_where_files_are_just_being_replaced(world: World) -> None:
    """What does not agree then is not damaged."""
    world.fill(60)
    decision = world.directories.compacting.log / compaction_files._DECISION
    decision.parent.mkdir()
    decision.touch()
    with (world.directories.log / file_name(0)).open("r+b") as file:
        file.write(struct.pack(">i", 77))
    found = world.reader.read(TOPIC, 0, 0, LIMITS, lambda tags, record: True)
    assert (found.looked_at, found.next_offset) == (0, 0)


# -- a death at a bad time -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_files_that_were_replaced_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The process died before it published them; a reader that opens each file anew finds every
    newest message."""
    monkeypatch.setattr(compaction_reader, "_OPEN_FILES", 1)
    world = World(tmp_path)
    world.fill(150, seed)
    world.ledger.check(world.read_all())
    known = world.reader._known[TOPIC, 0]
    run = world.log.find_run(1 << 20, 1 << 60)
    assert run is not None
    for _ in run.steps():
        pass
    run.decide()
    finish_replacement(world.directories)
    newest = sorted(at for at, body in world.ledger.newest.values() if body)
    for offset in range(newest[-1] + 1):
        world.reader._known[TOPIC, 0] = known
        found = world.reader.read(TOPIC, 0, offset, LIMITS, lambda tags, record: True)
        following = next(at for at in newest if at >= offset)
        assert decode_record(found.records[0], 0)[0].queue_offset <= following


def test_a_crash_at_each_step_of_a_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start finds all of the log or nothing."""
    crashed, step = True, -1
    results = set()
    while crashed:
        step += 1
        world = World(tmp_path / str(step))
        world.fill(40)
        with monkeypatch.context() as patch:
            crash_after(patch, step)
            try:
                world.log.remove()
                crashed = False
            except CrashError:
                pass
        world.open()
        results.add(world.log.max_offset)
        world.fill(40)
    assert step > 5
    assert results == {0, 40}


def _has_logs(root: Path) -> bool:
    return any((root / "compaction").rglob("0*"))


def test_the_logs_of_a_topic_go_before_its_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log without its queue would be that of a new topic of the name. Looked at while the queues
    are being deleted: one that is still there later is followed again by the thread."""
    life = CompactionLife(tmp_path).start()
    life.put("key", b"value")
    life.wait_followed()
    had_logs = [_has_logs(tmp_path)]

    def delete(self: ConsumeQueueTable, topic: str) -> int:
        had_logs.append(_has_logs(tmp_path))
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(ConsumeQueueTable, "delete_topic", delete)
        with pytest.raises(CrashError):
            life.store.queue_deletion.delete_topic(
                TOPIC, life.log.position, life.clock.monotonic_ms() + 9_000
            )
    assert had_logs == [True, False]
    wait_until(lambda: [message.body for message in life.read_all()] == [b"value"])
    life.stop()


def test_the_thread_makes_no_log_of_a_topic_that_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told that the queue moved, and looks at it."""
    life = CompactionLife(tmp_path).start()
    life.put("key", b"value")
    life.wait_followed()
    looked: list[tuple[int, bool]] = []
    take_some = compaction_store.CompactionStore._take_some

    def take(self: compaction_store.CompactionStore, *queue: Any) -> tuple[int, bool]:
        taken = take_some(self, *queue)
        if not life.table.offsets(TOPIC, 0)[1]:
            looked.append(taken)
        return taken

    monkeypatch.setattr(compaction_store.CompactionStore, "_take_some", take)
    deadline_ms = life.clock.monotonic_ms() + 9_000
    assert life.store.queue_deletion.delete_topic(TOPIC, life.log.position, deadline_ms) == 1
    wait_until(lambda: looked)
    assert set(looked) == {(0, True)}
    assert not _has_logs(tmp_path)
    life.stop()


def test_a_long_way_to_go_holds_no_stop_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = CompactionLife(tmp_path).start()
    life.put("key", b"value")
    life.wait_followed()
    monkeypatch.setattr(compaction_store, "_FINISH_MS", 20)
    monkeypatch.setattr(compaction_store.CompactionStore, "_follow", lambda self: 1)
    life.stop()
    assert (tmp_path / "clean.exit").exists()


# -- logs of queues that are gone ----------------------------------------------------------------


def _left_by_java(root: Path) -> None:
    """A store of which Java has deleted the topic: its compaction log is there."""
    life = CompactionLife(root).start()
    for _ in range(3):
        life.put("key", b"old")
    life.wait_followed()
    life.stop()
    for name in ("commitlog", "consumequeue", "index", "queues.exit", "clean.exit"):
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@pytest.mark.parametrize("count", [1, 7])
def test_a_topic_that_java_deleted_is_created_anew(tmp_path: Path, count: int) -> None:
    """While this broker runs; the old log's messages are not served, the new ones are, however
    many there are when the topic is found."""
    _left_by_java(tmp_path)
    topics: list[str] = []
    life = CompactionLife(tmp_path)
    compaction = life.store._compaction
    assert compaction is not None
    compaction._followed._find_topics = lambda: frozenset(topics)
    life.start()
    assert life.table.compacted(TOPIC, 0) == (0, 0)
    for number in range(count):
        assert life.put("key", b"new") == number
    wait_until(lambda: life.table.offsets(TOPIC, 0)[1] == count)
    topics.append(TOPIC)
    life.wait_followed()
    assert [message.body for message in life.read_all()] == [b"new"] * count
    life.stop()


def test_a_damaged_record_does_not_say_that_a_queue_is_another_one(
    tmp_path: Path,
) -> None:
    """Everything that is kept would go for it: what can only be a guess is not asked."""
    life = CompactionLife(tmp_path).start()
    for _ in range(5):
        life.put("key", b"value")
    life.wait_followed()
    compaction = life.store._compaction
    assert compaction is not None
    followed = compaction._followed
    with compaction._lock:
        assert followed.stored_ms(TOPIC, 0, 4) > 0
        phy_offset = followed.phy_offset_at(TOPIC, 0, 4)
        with (tmp_path / "commitlog" / file_name(0)).open("r+b") as file:
            file.seek(phy_offset + HEAD_SIZE)
            file.write(b"V")
        assert followed.stored_ms(TOPIC, 0, 4) == -1
        assert followed.stored_ms(TOPIC, 0, 9) == -1
    life.stop()
