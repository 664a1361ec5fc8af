"""The files of one compaction log: crashes while they are replaced, torn ends, damage, sizes."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import struct
from pathlib import Path

import pytest

from store.compaction.compaction_files import FileSizes, finish_replacement, list_logs
from store.compaction.offset_map import OffsetMap, digest_of
from store.compaction.partition_log import PartitionLog
from store.compaction.position_checkpoint import PositionCheckpoint
from store.descriptor_cache import FileKey
from store.errors import RecordDamagedError, StoreError
from store.mapped_file import file_name
from store.message_codec import HEAD_SIZE, decode_record
from tests.support.compaction_client import Ledger
from tests.support.compaction_world import LIMITS, TOPIC, CrashError, World, crash_after


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_crash_at_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are the old files or the new ones, never neither; a reader that was there before sees
    every newest message, too."""
    World(tmp_path / "first").fill(60)
    crashed, step = True, -1
    results = set()
    while crashed:
        step += 1
        root = tmp_path / str(step)
        shutil.copytree(tmp_path / "first", root)
        world = World(root)
        world.ledger = _same_ledger(tmp_path / "first")
        world.ledger.check(world.read_all())
        with monkeypatch.context() as patch:
            crash_after(patch, step)
            try:
                world.compact()
                crashed = False
            except CrashError:
                pass
        world.ledger.check(world.read_all())
        world.open()
        found = world.read_all()
        world.ledger.check(found)
        results.add(len(found))
        assert not list(root.rglob("compacting"))
        world.compact()
        world.ledger.check(world.read_all(), compacted_below=_closed_below(world))
        shutil.rmtree(root)
    assert step > 20
    assert len(results) == 2


@pytest.mark.parametrize("opened", range(12))
def test_files_replaced_between_any_two_that_a_reader_opens(tmp_path: Path, opened: int) -> None:
    """It passes over no newest message, wherever it reads, before the new files are published."""
    for start in range(3, 150, 16):
        world = World(tmp_path / str(start))
        world.fill(150)
        run = world.log.find_run(1 << 20, 1 << 60)
        assert run is not None
        for _ in run.steps():
            pass
        run.decide()
        with pytest.MonkeyPatch.context() as patch:
            _replace_before_open(patch, world, opened)
            found = world.reader.read(TOPIC, 0, start, LIMITS, lambda tags, record: True)
        newest = (at for at, body in world.ledger.newest.values() if body and at >= start)
        assert decode_record(found.records[0], 0)[0].queue_offset <= min(newest)


def _replace_before_open(patch: pytest.MonkeyPatch, world: World, opened: int) -> None:
    """Files are replaced when the reader has opened so many."""
    real = world.reader._open
    turns = itertools.count()

    def open_file(key: FileKey, *, is_queue: bool) -> int:
        if next(turns) == opened:
            finish_replacement(world.directories)
        return real(key, is_queue=is_queue)

    patch.setattr(world.reader, "_open", open_file)


def _same_ledger(root: Path) -> Ledger:
    found = World(root)
    messages = found.read_all()
    keys = [message.find_property("KEYS") or "" for message in messages]
    return Ledger(
        [(each.queue_offset, key, each.body) for each, key in zip(messages, keys, strict=True)]
    )


def _closed_below(world: World) -> int:
    last = max(world.directories.queue.glob("0*"))
    return int.from_bytes(last.read_bytes()[28:36])


def test_a_java_broker_that_died_while_it_replaced_files(world: World) -> None:
    """It renames the old files away first; its own next start fails then."""
    world.fill(100)
    whole = {path: path.read_bytes() for path in world.directories.log.glob("0*")}
    for path in sorted(whole)[:3]:
        path.rename(path.with_name(path.name + ".delete"))
    for directory in world.directories.compacting.both:
        directory.mkdir()
        (directory / file_name(0)).write_bytes(bytes(world.sizes.log))
    world.open()
    assert {path: path.read_bytes() for path in whole} == whole
    world.ledger.check(world.read_all())


def test_a_torn_end(world: World) -> None:
    """Units without their records, and what is behind them, go; what comes next takes their
    place."""
    world.fill(39)
    world.put("last", b"body")
    world.log.publish()
    last = max(world.directories.queue.glob("0*"))
    log = world.directories.log / last.name
    number = sum(unit[8:12] != bytes(4) for unit in _units(last)) - 1
    (position,) = struct.unpack(">q", _units(last)[number][:8])
    with log.open("r+b") as file:
        file.seek(position - int(last.name) + HEAD_SIZE)
        file.write(b"B")
    world.open()
    assert world.log.max_offset == 40, "a body is looked at after a loss of power only"
    world.open(check_all=True)
    assert world.log.max_offset == 39
    world.ledger.events.pop()
    world.ledger.check(world.read_all())
    world.fill(30, seed=2)
    world.ledger.check(world.read_all())


def _units(path: Path) -> list[bytes]:
    data = path.read_bytes()
    return [data[at : at + 46] for at in range(0, len(data), 46)]


def test_a_file_that_was_being_made(world: World) -> None:
    world.fill(40)
    following = file_name(max(world.log._files.starts) + world.sizes.log)
    (world.directories.log / following).write_bytes(bytes(world.sizes.log))
    world.open()
    assert not (world.directories.log / following).exists()
    (world.directories.log / following).touch()
    (world.directories.queue / following).touch()
    world.open()
    assert world.log.max_offset == 40
    world.fill(30)
    world.ledger.check(world.read_all())


def test_directories_that_do_not_belong_together(world: World) -> None:
    world.fill(60)
    first, second = sorted(world.directories.log.glob("0*"))[:2]
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    with pytest.raises(StoreError, match="do not belong together"):
        world.open()
    first.write_bytes(content)
    (world.directories.queue / first.name).unlink()
    with pytest.raises(StoreError, match="only one of them has 00000000000000000000"):
        world.open()


def test_a_damaged_record_is_not_compacted(world: World) -> None:
    """Its files stay as they are."""
    world.fill(60)
    path = world.directories.log / file_name(0)
    with path.open("r+b") as file:
        file.write(struct.pack(">i", 77))
    run = world.log.find_run(1 << 20, 1 << 60)
    assert run is not None
    with pytest.raises(RecordDamagedError, match="no record at position 0 for queue offset 0"):
        for _ in run.steps():
            pass
    world.log.give_up_run()
    assert not list(world.directories.log.rglob("compacting"))
    assert len(list(world.directories.log.glob("0*"))) > 2


def test_more_keys_than_the_map_holds(world: World) -> None:
    """Each compaction goes as far as the map; in the end all are the newest."""
    for number in range(280):
        world.put(f"key {number % 130}", b"%d" % number)
    world.log.publish()
    world.log.flush()
    rounds = 0
    while world.compact(memory_size=0):
        rounds += 1
        world.ledger.check(world.read_all())
    assert rounds > 1
    newest = {at for at, _ in world.ledger.newest.values()}
    offsets = [message.queue_offset for message in world.read_all()]
    assert len(offsets) < 170
    assert newest <= set(offsets)


def test_compaction_waits_for_the_commit_log(world: World) -> None:
    """What is not flushed there may be lost, and nothing may have gone because of it."""
    world.fill(40)
    assert world.log.find_run(1 << 20, 5_000) is None
    assert world.log.find_run(1 << 20, 40_000) is not None


def test_the_offset_map() -> None:
    """Against a dict, beyond what it keeps as one."""
    chooser = random.Random(4)
    found, expected = OffsetMap(1 << 30), {}
    for offset in range(70_000):
        key = b"%d" % (offset if offset < 66_000 else chooser.randrange(70_000))
        assert found.put(digest_of(key), offset)
        expected[key] = offset
    keys = [b"%d" % number for number in range(70_000)]
    offsets = found.newest([digest_of(key) for key in keys])
    assert offsets.tolist() == [expected.get(key, -1) for key in keys]
    assert found.last_offset == 69_999


def test_a_full_offset_map_takes_known_keys_only() -> None:
    found = OffsetMap(0)
    assert all(found.put(digest_of(b"%d" % at), at) for at in range(100))
    assert not found.put(digest_of(b"new"), 100)
    assert found.last_offset == 99
    assert found.put(digest_of(b"7"), 101)
    assert found.newest([digest_of(b"7"), digest_of(b"new")]).tolist() == [101, -1]


@pytest.mark.parametrize(
    ("log_size", "queue_size", "expected"),
    [
        (100 << 20, 10 << 20, (104_857_460, 10_485_746)),
        (1 << 20, 10 << 20, (52_428_730, 10_485_746)),
        (46 * 60, 46 * 10, (46 * 70, 46 * 10)),
        (46 * 64, 46 * 10, (46 * 60, 46 * 10)),
        (46 * 65, 46 * 10, (46 * 70, 46 * 10)),
    ],
)
def test_file_sizes(log_size: int, queue_size: int, expected: tuple[int, int]) -> None:
    """RocketMQ's rounding (CompactionLog.getCompactionLogSize)."""
    sizes = FileSizes.of(log_size, queue_size)
    assert (sizes.log, sizes.queue) == expected


def test_records_larger_than_a_file_are_left_out(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    files = PartitionLog(world.directories, world.sizes, TOPIC, 0)
    files.open(check_all=False)
    assert not files.append(bytes(world.sizes.log), 0, 0, 0)
    assert "is larger than a file" in caplog.text


def test_strange_names_are_left_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.fill(1)
    for strange in (b"Compacted/seven", b"Compacted/07", b"\xff/0"):
        os.makedirs(os.fsencode(world.directories.log.parents[1]) + b"/" + strange)
    assert list_logs(world.config.compaction_path) == [(TOPIC, 0)]
    assert caplog.text.count("ignored: no queue") == 3


@pytest.mark.parametrize("text", ["", "{", "[]", '{"queueOffsetMap": 3}', '{"other": {}}'])
def test_a_bad_position_checkpoint_counts_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "position-checkpoint"
    path.write_text(text)
    found = PositionCheckpoint(path)
    found.load()
    assert found.find("T", 0) == -1
    found.put("T", 0, 7)
    again = PositionCheckpoint(path)
    again.load()
    assert again.find("T", 0) == 7
