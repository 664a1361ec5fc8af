"""Several directories of one commit log: where files go, and all that works on them as on one."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from store import allocate_mapped_file_service, log_directories
from store.allocate_mapped_file_service import AllocateMappedFileService
from store.clean_commit_log_service import CleanCommitLogService
from store.control_slots import MAX_PHY_OFFSET
from store.dledger.unfinished_import import QUEUES_NAME, REPORT_NAME
from store.errors import DiskFullError, StoreError
from store.known_directories import KnownDirectories
from store.log_directories import LogDirectories
from store.log_fences import LogFences, new_fence, save_fences
from store.mapped_file import create_allocated, file_name
from store.mapped_file_queue import MappedFileQueue, list_store_files
from store.message_store_config import MessageStoreConfig
from store.recovery import LogClues, RecoveryMode, recover_commit_log
from store.replica_resync import perform_request
from store.resync_backups import list_backups
from store.resync_request import ResyncAction, ResyncRequest, write_request
from store.running_flags import RunningFlag, RunningFlags
from store.store_checker import check_store
from store.store_checkpoint import StoreCheckpoint
from tests.faults.store_world import StoreDesk, World, Writer, walk
from tests.support.manual_clock import ManualClock
from tests.support.plain_log import FILE_SIZE, PlainLog

SIZE = 8192


def two(root: Path, *, read_only: tuple[str, ...] = ()) -> LogDirectories:
    """a and b below `root`, which exist; and `read_only` ones."""
    found = LogDirectories((root / "b", root / "a"), tuple(root / name for name in read_only))
    for path in found:
        path.mkdir(parents=True, exist_ok=True)
    return found


def spread(log: PlainLog, directories: LogDirectories) -> None:
    """The files of a plain log, in turn into `directories`."""
    for file in list_store_files(log.directory):
        (place, *_) = directories.places_of_new(file.start_offset, log.file_size, lambda _: False)
        shutil.move(file.path, place)


# -- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "named", "read_only"),
    [
        ({}, ["/s/commitlog"], []),
        ({"store_path_commit_log": "/x/log"}, ["/x/log"], []),
        ({"store_path_commit_log": " /y/b/,/x , ,/x"}, ["/y/b", "/x"], []),
        (
            {"store_path_commit_log": "/x;/y", "rocketmq_broker_multi_path_splitter": ";"},
            ["/x", "/y"],
            [],
        ),
        (
            {"store_path_commit_log": "/x,/y", "read_only_commit_log_store_paths": "/y,/z"},
            ["/x", "/y"],
            ["/y", "/z"],
        ),
    ],
)
def test_settings(settings: dict[str, str], named: list[str], read_only: list[str]) -> None:
    config = MessageStoreConfig(store_path_root_dir="/s", **settings)
    config.validate()
    found = config.log_directories
    assert list(map(str, found.named)) == named
    assert list(map(str, found.read_only)) == read_only
    assert str(config.commit_log_path) == named[0]
    assert list(map(str, found)) == list(dict.fromkeys(named + read_only))


# -- where files go --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read_only", "full", "expected"),
    [
        # Worked out from MultiPathMappedFileQueue.tryCreateMappedFile for a, b and c.
        ("", "", "abcabc"),
        ("b", "", "acacac"),
        ("", "a", "bcbcbc"),
        ("a", "b", "cccccc"),
        ("", "abc", "abcabc"),
        ("c", "ab", "ababab"),
    ],
)
def test_the_file_of_an_offset_has_its_turn(read_only: str, full: str, expected: str) -> None:
    found = LogDirectories(tuple(map(Path, "cab")), tuple(map(Path, read_only)))
    places = [found.places_of_new(n * SIZE, SIZE, lambda path: path.name in full) for n in range(6)]
    assert "".join(place[0].parent.name for place in places) == expected
    assert places[1][0].name == file_name(SIZE)
    for place in places:
        assert {path.parent.name for path in place} == set("abc") - set(read_only)


def test_one_directory_costs_no_look(tmp_path: Path) -> None:
    assert LogDirectories.of(tmp_path).path_of(SIZE) == tmp_path / file_name(SIZE)
    assert LogDirectories.of(tmp_path).places_of_new(0, SIZE, lambda _: True) == [
        tmp_path / file_name(0)
    ]


def test_files_are_found_where_they_are(tmp_path: Path) -> None:
    found = two(tmp_path, read_only=("c",))
    for name, start in (("c", 0), ("b", SIZE), ("a", 2 * SIZE)):
        create_allocated(tmp_path / name / file_name(start), SIZE)
    queue = MappedFileQueue(found, SIZE)
    queue.load()
    assert queue.start_offsets == [0, SIZE, 2 * SIZE]
    assert queue.path_of(2 * SIZE) == tmp_path / "a" / file_name(2 * SIZE)
    assert queue.view(2 * SIZE - 1, 1) == b"\0"
    assert queue.delete_from(SIZE) == [
        tmp_path / "a" / file_name(2 * SIZE),
        tmp_path / "b" / file_name(SIZE),
    ]
    queue.close()


def test_a_file_that_is_there_twice_stops_the_start(tmp_path: Path) -> None:
    found = two(tmp_path)
    for name in "ab":
        create_allocated(tmp_path / name / file_name(0), SIZE)
    with pytest.raises(StoreError, match=r"b/0{20} and .*a/0{20} are the same part of the log"):
        MappedFileQueue(found, SIZE).load()


def test_one_directory_by_two_names_stops_the_start(tmp_path: Path) -> None:
    """Its files would seem to be there twice, and be moved away."""
    create_allocated(two(tmp_path).first / file_name(0), SIZE)
    (tmp_path / "also b").symlink_to(tmp_path / "b")
    for found in (
        LogDirectories((tmp_path / "b", tmp_path / "also b")),
        LogDirectories((tmp_path / "a", tmp_path / "b"), (tmp_path / "also b",)),
    ):
        with pytest.raises(StoreError, match=r"b and .*also b are one directory; name it once"):
            MappedFileQueue(found, SIZE).load()


def test_a_missing_read_only_directory_stops_the_start(tmp_path: Path) -> None:
    found = LogDirectories((tmp_path / "a",), (tmp_path / "not mounted",))
    with pytest.raises(StoreError, match=r"not mounted: .* readOnlyCommitLogStorePaths"):
        MappedFileQueue(found, SIZE).load()


# -- new files -------------------------------------------------------------------------------------


class Allocation:
    def __init__(self, directories: LogDirectories) -> None:
        self.full: set[str] = set()
        self.flags = RunningFlags(lambda value, reason: None)
        self.position = 0
        self.service = AllocateMappedFileService(
            MessageStoreConfig(
                store_path_commit_log=",".join(map(str, directories)),
                mapped_file_size_commit_log=SIZE,
            ),
            self.flags,
            writer_position=lambda: self.position,
            publish=lambda offset: None,
            is_full=lambda path: path.name in self.full,
        )
        self.service.begin_at(0)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.service.step()


def names(root: Path) -> dict[str, list[int]]:
    return {
        path.name: [int(file.name) // SIZE for file in sorted(path.iterdir())]
        for path in sorted(root.iterdir())
    }


def test_files_are_made_in_turn(tmp_path: Path) -> None:
    allocation = Allocation(two(tmp_path))
    allocation.steps(3)
    assert names(tmp_path) == {"a": [0, 2], "b": [1]}
    allocation.full = {"a"}
    allocation.position = 3 * SIZE
    allocation.steps(8)
    assert names(tmp_path) == {"a": [0, 2], "b": [1, 3, 4, 5]}
    allocation.service.delete_unused_files()
    assert names(tmp_path) == {"a": [0, 2], "b": [1]}


def test_a_disk_without_room_passes_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_room = {"a"}

    def create(path: Path, size: int) -> None:
        if path.parent.name in without_room:
            raise DiskFullError(f"{path}: no room")
        create_allocated(path, size)

    monkeypatch.setattr(allocate_mapped_file_service, "create_allocated", create)
    monkeypatch.setattr(allocate_mapped_file_service, "_RETRY_MS", 1)
    synced: list[str] = []
    monkeypatch.setattr(
        allocate_mapped_file_service, "sync_directory", lambda path: synced.append(path.name)
    )
    allocation = Allocation(two(tmp_path))
    allocation.steps(3)
    assert names(tmp_path) == {"a": [], "b": [0, 1, 2]}
    # File 0: what was begun in a is gone for good before it is made in b.
    assert synced[:2] == ["a", "b"]
    assert not allocation.flags.is_set(RunningFlag.DISK_FULL)
    without_room.add("b")
    allocation.position = SIZE
    allocation.steps(1)
    assert allocation.flags.is_set(RunningFlag.DISK_FULL)
    without_room.clear()
    allocation.steps(1)
    assert names(tmp_path) == {"a": [], "b": [0, 1, 2, 3]}
    assert not allocation.flags.is_set(RunningFlag.DISK_FULL)


# -- retention -------------------------------------------------------------------------------------


def test_retention_takes_the_oldest_and_counts_the_emptiest_disk(tmp_path: Path) -> None:
    config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path / "store"),
        store_path_commit_log=f"{tmp_path}/a,{tmp_path}/b",
        read_only_commit_log_store_paths=f"{tmp_path}/c",
        delete_commit_log_files_interval=0,
        delete_when="04",
    )
    (tmp_path / "store" / "consumequeue").mkdir(parents=True)
    for name, starts in (("c", [0]), ("a", [1, 3]), ("b", [2, 4])):
        (tmp_path / name).mkdir()
        for n in starts:
            path = tmp_path / name / file_name(n * SIZE)
            create_allocated(path, SIZE)
            os.utime(path, (n, n))
    used = {"a": 0.99, "b": 0.1, "c": 0.99}
    flags = RunningFlags(lambda value, reason: None)
    service = CleanCommitLogService(
        config,
        flags,
        ManualClock(1_700_000_000_000),
        keep_from=lambda: 4 * SIZE,
        publish_min_offset=lambda offset: None,
        usage=lambda path: used.get(path.name, 0.1),
    )
    assert service.is_full(tmp_path / "a")
    assert not service.is_full(tmp_path / "b")
    used["b"] = 0.87
    assert service.run_once() == 4
    assert [file.path.parent.name for file in list_store_files(config.log_directories)] == ["b"]
    assert not flags.is_set(RunningFlag.DISK_FULL)
    used["b"] = 0.95
    service.run_once()
    assert flags.is_set(RunningFlag.DISK_FULL), "no directory has room; that c has does not count"


# -- the order in which files go -------------------------------------------------------------------


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the directories of which a removal was made to last, in turn."""
    synced: list[str] = []
    monkeypatch.setattr(log_directories, "sync_directory", lambda path: synced.append(path.name))
    return synced


def test_each_removal_lasts_before_the_next(tmp_path: Path, gone: list[str]) -> None:
    """Two disks write names in no common order: file 4 of one must not come back without 3."""
    allocation = Allocation(two(tmp_path))
    allocation.steps(3)
    allocation.service.begin_at(10 * SIZE)
    allocation.steps(1)
    assert gone == ["a", "b", "a"]
    gone.clear()
    queue = MappedFileQueue(two(tmp_path / "other"), SIZE)
    for n in range(4):
        create_allocated(tmp_path / "other" / "ab"[n % 2] / file_name(n * SIZE), SIZE)
    queue.load()
    queue.delete_from(SIZE)
    assert gone == ["b", "a", "b"]
    gone.clear()
    config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path / "store"),
        store_path_commit_log=f"{tmp_path}/c,{tmp_path}/d",
        delete_commit_log_files_interval=0,
        file_reserved_time=0,
    )
    for n in range(3):
        (tmp_path / "cd"[n % 2]).mkdir(exist_ok=True)
        create_allocated(tmp_path / "cd"[n % 2] / file_name(n * SIZE), SIZE)
    service = CleanCommitLogService(
        config,
        RunningFlags(lambda value, reason: None),
        ManualClock(4_000_000_000_000),
        keep_from=lambda: 2 * SIZE,
        publish_min_offset=lambda offset: None,
    )
    service.execute_delete_files_manually()
    assert service.run_once() == 2
    assert gone == ["c", "d"]


def test_one_directory_needs_no_such_order(tmp_path: Path, gone: list[str]) -> None:
    create_allocated(tmp_path / file_name(0), SIZE)
    LogDirectories.of(tmp_path).remove(tmp_path / file_name(0))
    assert not list(tmp_path.iterdir())
    assert gone == []


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_cut_that_ends_half_way_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """Behind the end: data, zeros, data."""
    log = PlainLog(tmp_path / "plain")
    log.append(b"x" * 300)
    for n, data in ((1, b"left"), (2, b""), (3, b"over")):
        (log.directory / file_name(n * FILE_SIZE)).write_bytes(data.ljust(FILE_SIZE, b"\0"))
    rename, calls = os.rename, []

    def rename_until(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == fails_at:
            raise OSError(errno.EIO, "killed here")
        rename(source, target)

    for attempt in range(2):
        queue = MappedFileQueue(log.directory, FILE_SIZE)
        queue.load()
        with monkeypatch.context() as patch:
            if attempt == 0:
                patch.setattr(os, "rename", rename_until)
            expectation = pytest.raises(OSError, match="killed") if attempt == 0 else nullcontext()
            with expectation:
                recover_commit_log(
                    queue,
                    StoreCheckpoint(tmp_path / "checkpoint"),
                    RecoveryMode.ABNORMAL,
                    LogClues(now_ms=1),
                )
        queue.close()
    kept = sorted(path.read_bytes()[:4] for path in tmp_path.glob("tail-*/*/*"))
    assert kept == [b"left", b"over"]
    assert [file.start_offset for file in list_store_files(log.directory)] == [0]


# -- recovery and re-sync --------------------------------------------------------------------------


def test_a_torn_tail_over_both_is_kept_beside_each(tmp_path: Path) -> None:
    log = PlainLog(tmp_path / "plain")
    while log.end < 2 * FILE_SIZE + 1000:
        log.append(b"x" * 300)
    end = log.end
    log.path(end).write_bytes(
        log.path(end).read_bytes()[: end % FILE_SIZE]
        + b"torn"
        + bytes(FILE_SIZE - end % FILE_SIZE - 4)
    )
    (log.directory / file_name(3 * FILE_SIZE)).write_bytes(b"left over" + bytes(FILE_SIZE - 9))
    directories = LogDirectories((tmp_path / "x" / "a", tmp_path / "y" / "b"))
    directories.make()
    spread(log, directories)
    queue = MappedFileQueue(directories, FILE_SIZE)
    queue.load()
    checkpoint = StoreCheckpoint(tmp_path / "checkpoint")
    result = recover_commit_log(queue, checkpoint, RecoveryMode.ABNORMAL, LogClues(now_ms=1))
    queue.close()
    assert result.max_phy_offset == end
    kept = sorted(path.relative_to(tmp_path) for path in tmp_path.glob("*/tail-*/*/*"))
    assert [(path.parts[0], path.parts[2], path.name) for path in kept] == [
        ("x", "a", f"{file_name(2 * FILE_SIZE)}.from-{end}"),
        ("y", "b", file_name(3 * FILE_SIZE)),
    ]
    assert result.tail == tmp_path / kept[0].parent
    assert [file.start_offset // FILE_SIZE for file in list_store_files(directories)] == [0, 1, 2]


@dataclasses.dataclass
class TwoDirectories(World):
    """A store whose log lies in two directories, and the first file in a third, read-only one."""

    @property
    def config(self) -> MessageStoreConfig:
        return dataclasses.replace(
            super().config,
            store_path_commit_log=f"{self.root.parent}/x/a,{self.root.parent}/y/b",
            read_only_commit_log_store_paths=f"{self.root.parent}/z/old",
        )


@pytest.fixture
def world(tmp_path: Path) -> TwoDirectories:
    """Closed orderly; the oldest file was made before its directory became read-only."""
    world = TwoDirectories(tmp_path / "store")
    (tmp_path / "z" / "old").mkdir(parents=True)
    fill(world.boot(), 0, 150)
    oldest = world.config.log_directories.path_of(0)
    times = oldest.stat()
    shutil.move(oldest, tmp_path / "z" / "old")
    moved = tmp_path / "z" / "old" / oldest.name
    os.utime(moved, ns=(times.st_atime_ns, times.st_mtime_ns))
    return world


def fill(world: World, first: int, count: int) -> None:
    desk = StoreDesk(world).open()
    writer = Writer(world).open()
    for start in range(first, first + count, 10):
        desk.allocate()
        writer.write(range(start, start + 10))
    desk.dispatch()
    desk.flush()
    writer.close()
    desk.shutdown()


def refusal(world: World) -> str:
    """What a start says that cannot be."""
    files = {file.path: file.size for file in list_store_files(world.config.log_directories)}
    desk = StoreDesk(world.boot())
    with pytest.raises(StoreError) as caught:
        desk.open()
    again = {file.path: file.size for file in list_store_files(world.config.log_directories)}
    assert again == files, "nothing was touched"
    return str(caught.value)


def where(world: World) -> str:
    """Of each file in turn, the last letter of its directory's name."""
    files = list_store_files(world.config.log_directories)
    return "".join(file.path.parent.name[-1] for file in files)


def test_a_store_over_three_directories_goes_on(world: TwoDirectories) -> None:
    assert where(world) == "dba"
    fill(world.boot(), 150, 150)
    assert where(world).startswith("dbab")
    assert where(world) in "dbababab"
    end = world.counter(MAX_PHY_OFFSET)
    report = check_store(world.root, commit_log=world.config.log_directories, hash_slots=16)
    assert report.is_clean, report.lines()
    assert len(list(walk(world, end))) == 300


@pytest.mark.parametrize("action", list(ResyncAction))
def test_a_resync_leaves_each_file_on_its_disk(
    world: TwoDirectories, tmp_path: Path, action: ResyncAction
) -> None:
    before = {
        file.path.parent.parent.name + file.path.name: file.path.stat().st_ino
        for file in list_store_files(world.config.log_directories)
    }
    size = world.config.mapped_file_size_commit_log
    request = ResyncRequest(action=action, offset=2 * size, reason="the test says so")
    if action is ResyncAction.START_OVER:
        request = dataclasses.replace(request, offset=0)
    write_request(world.root, request)
    text = perform_request(world.config)
    assert text is not None
    moved = {
        path.parent.parent.parent.name + path.name: path.stat().st_ino
        for path in tmp_path.glob("*/backup-*/*/[0-9]*")
        if len(path.name) == 20
    }
    kept = "" if action is ResyncAction.START_OVER else "db"
    assert where(world) == kept
    assert moved.items() <= before.items(), "renamed, not copied"
    assert len(moved) + len(kept) == len(before)
    (backup,) = list_backups(world.config)
    assert len(backup.places) == (4 if action is ResyncAction.START_OVER else 3)
    assert all(str(place) in text for place in backup.places if place.parent != world.root)
    fill(world.boot(), 0, 10)
    assert where(world).startswith(kept)


def test_what_is_whole_stays_whole_when_another_directory_is_named(
    world: TwoDirectories, tmp_path: Path
) -> None:
    """An operator adds a disk: the files stay, new ones take turns over three."""
    config = world.config
    more = f"{config.store_path_commit_log},{tmp_path}/w/c"
    fifth = config.mapped_file_size_commit_log * 4
    found = dataclasses.replace(config, store_path_commit_log=more).log_directories
    found.make()
    queue = MappedFileQueue(found, config.mapped_file_size_commit_log)
    queue.load()
    queue.close()
    is_full: Callable[[Path], bool] = lambda _: False  # noqa: E731
    (place, *_) = found.places_of_new(fifth, config.mapped_file_size_commit_log, is_full)
    # Sorted by name: .../w/c, .../x/a, .../y/b.
    assert place.parent == tmp_path / "x" / "a"


# -- what a start misses ---------------------------------------------------------------------------


@pytest.mark.parametrize("leaves_mount_point", [True, False])
@pytest.mark.parametrize(
    ("lost", "newest"), [("z/old", 0), ("x/a", 2)], ids=["the oldest file", "the newest file"]
)
def test_a_disk_that_is_not_mounted_stops_the_start(
    world: TwoDirectories, tmp_path: Path, lost: str, newest: int, leaves_mount_point: bool
) -> None:
    """Between other files its own would be missed anyway; at an end they are not."""
    fill(world.boot(), 0, 0)
    assert where(world) == "dba"
    missing, elsewhere = tmp_path / lost, tmp_path / "unmounted"
    missing.rename(elsewhere)
    if leaves_mount_point:
        missing.mkdir()
    name = file_name(newest * world.config.mapped_file_size_commit_log)
    words = f"{missing}: it held files of the commit log, up to {name}, that are not there now; "
    assert refusal(world).startswith(f"{words}mount its disk. ")
    assert missing.exists() is leaves_mount_point, "not made anew on another disk"
    if leaves_mount_point:
        missing.rmdir()
    elsewhere.rename(missing)
    fill(world.boot(), 150, 10)
    assert len(list(walk(world, world.counter(MAX_PHY_OFFSET)))) == 160


def test_a_directory_that_is_named_no_more_stops_the_start(
    world: TwoDirectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world.boot(), 0, 0)
    (left_out,) = (tmp_path / "x" / "a").iterdir()
    config = dataclasses.replace(world.config, store_path_commit_log=f"{tmp_path}/y/b")
    monkeypatch.setattr(TwoDirectories, "config", config)
    words = refusal(world)
    assert words.startswith(
        f"{tmp_path}/x/a: it held files of the commit log, up to {left_out.name}"
    )
    assert "named neither in storePathCommitLog nor in readOnlyCommitLogStorePaths" in words
    shutil.move(left_out, tmp_path / "y" / "b")
    fill(world.boot(), 150, 10)
    assert len(list(walk(world, world.counter(MAX_PHY_OFFSET)))) == 160


def test_the_usual_directory_is_not_left_out_when_others_are_named(
    world: TwoDirectories, tmp_path: Path
) -> None:
    plain = World(tmp_path / "plain")
    fill(plain.boot(), 0, 150)
    world.close()
    world.root = tmp_path / "plain"
    for name in "xyz":
        shutil.rmtree(tmp_path / name)
    (tmp_path / "z" / "old").mkdir(parents=True)
    assert "plain/commitlog: it holds files of the commit log, but" in refusal(world)


@pytest.mark.parametrize("mark", [REPORT_NAME, QUEUES_NAME])
def test_an_adopted_store_has_its_own_log_and_not_the_one_before(tmp_path: Path, mark: str) -> None:
    """With a storePathCommitLog of before the broker would write into the store that it left."""
    root, before = tmp_path / "new", tmp_path / "before"
    for directory in (root / "commitlog", before):
        directory.mkdir(parents=True)
        (directory / ("0" * 20)).write_bytes(bytes(4096))
    elsewhere = KnownDirectories(root, LogDirectories((before,)))
    elsewhere.check()
    (root / mark).touch()
    with pytest.raises(StoreError, match=f"storePathCommitLog names {before}; remove that line"):
        elsewhere.check()
    (tmp_path / "link").symlink_to(root / "commitlog")
    for own in (root / "commitlog", tmp_path / "link"):
        KnownDirectories(root, LogDirectories((own,))).check()
    (root / "commitlog" / ("0" * 20)).unlink()
    elsewhere.check()


def test_a_directory_that_retention_has_emptied_is_not_missed(
    world: TwoDirectories, tmp_path: Path
) -> None:
    fill(world.boot(), 0, 0)
    known = KnownDirectories(world.root, world.config.log_directories)
    service = CleanCommitLogService(
        dataclasses.replace(world.config, file_reserved_time=0, delete_commit_log_files_interval=0),
        RunningFlags(lambda value, reason: None),
        ManualClock(4_000_000_000_000),
        keep_from=lambda: world.config.mapped_file_size_commit_log,
        publish_min_offset=lambda offset: None,
        known=known,
    )
    service.execute_delete_files_manually()
    assert service.run_once() == 1
    assert where(world) == "ba"
    (tmp_path / "z" / "old").rmdir()
    with pytest.raises(StoreError, match="readOnlyCommitLogStorePaths if all in it has expired"):
        StoreDesk(world.boot()).open()
    (tmp_path / "z" / "old").mkdir()
    StoreDesk(world.boot()).open()


@pytest.mark.parametrize("text", ["", "[]", '{"directories": {"/x": 1}}', '{"directories": []}'])
def test_a_file_of_directories_that_is_not_valid_is_not_used(
    world: TwoDirectories, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    fill(world.boot(), 0, 0)
    (world.root / "log.directories").write_text(text)
    fill(world.boot(), 0, 0)
    assert "log.directories: not valid, ignored" in caplog.text
    KnownDirectories(world.root, world.config.log_directories).check()
    assert "x/a" in (world.root / "log.directories").read_text()


def test_fences_stay_beside_the_first_directory(
    world: TwoDirectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world.boot(), 0, 0)
    fences = tmp_path / "x" / "a-fences.json"
    save_fences(fences, LogFences([new_fence(100, 200, "a test")]))
    config = dataclasses.replace(
        world.config, store_path_commit_log=f"{tmp_path}/y/b,{tmp_path}/x/a"
    )
    monkeypatch.setattr(TwoDirectories, "config", config)
    assert refusal(world).startswith(f"{fences} lists damage in the log")
    fences.rename(tmp_path / "y" / "b-fences.json")
    StoreDesk(world.boot()).open()


def test_fences_on_another_disk_than_the_root_go_with_a_resync(
    world: TwoDirectories, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def rename_on_one_disk(source: Path, target: Path) -> None:
        if Path(source).relative_to(tmp_path).parts[0] != target.relative_to(tmp_path).parts[0]:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_on_one_disk)
    fences = tmp_path / "x" / "a-fences.json"
    fences.write_text("about the old log")
    write_request(
        world.root, ResyncRequest(action=ResyncAction.START_OVER, offset=0, reason="a test")
    )
    assert "re-sync done" in str(perform_request(world.config))
    assert not fences.exists()
    (kept,) = world.root.glob("backup-*/a-fences.json")
    assert kept.read_text() == "about the old log"
