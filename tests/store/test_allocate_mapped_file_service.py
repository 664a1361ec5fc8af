from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.allocate_mapped_file_service import AllocateMappedFileService
from store.mapped_file import file_name
from store.message_store_config import MessageStoreConfig
from store.running_flags import RunningFlag, RunningFlags
from tests.support.deadline import wait_until

SIZE = 8192


class Writer:
    """A log's writer that is only a position."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.position = 0
        self.published: list[int] = []
        self.flags = RunningFlags(lambda value, reason: None)
        self.service = AllocateMappedFileService(
            MessageStoreConfig(
                store_path_root_dir=str(directory.parent),
                store_path_commit_log=str(directory),
                mapped_file_size_commit_log=SIZE,
            ),
            self.flags,
            writer_position=lambda: self.position,
            publish=self.published.append,
        )

    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())

    def write(self, position: int) -> None:
        path = self.directory / file_name(position - position % SIZE)
        with path.open("r+b") as file:
            file.seek(position % SIZE)
            file.write(b"x")
        self.position = position + 1


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path / "commitlog")
    yield writer
    assert writer.service.shutdown()


def steps(writer: Writer, count: int) -> None:
    for _ in range(count):
        writer.service.step()


def test_two_small_files_stay_ahead_of_the_writer(writer: Writer) -> None:
    writer.service.begin_at(0)
    steps(writer, 3)
    assert writer.files() == [file_name(0), file_name(SIZE), file_name(2 * SIZE)]
    assert writer.published == [SIZE, 2 * SIZE, 3 * SIZE]
    assert all((writer.directory / name).stat().st_size == SIZE for name in writer.files())
    steps(writer, 4)
    assert len(writer.files()) == 3
    writer.position = SIZE
    steps(writer, 2)
    assert writer.published[-1] == 4 * SIZE


def test_the_file_of_the_position_is_taken_over(writer: Writer) -> None:
    writer.directory.mkdir()
    (writer.directory / file_name(SIZE)).write_bytes(b"a" * SIZE)
    writer.position = SIZE + 10
    writer.service.begin_at(SIZE + 10)
    steps(writer, 3)
    assert writer.files()[0] == file_name(SIZE)
    assert writer.published == [2 * SIZE, 3 * SIZE, 4 * SIZE]
    assert (writer.directory / file_name(SIZE)).read_bytes() == b"a" * SIZE


def test_nothing_is_created_before_the_start_is_known(writer: Writer) -> None:
    steps(writer, 2)
    assert not writer.directory.exists()
    writer.position = 5 * SIZE
    writer.service.begin_at(5 * SIZE + 3)
    steps(writer, 1)
    assert writer.files() == [file_name(5 * SIZE)]


def test_an_empty_log_may_begin_elsewhere(writer: Writer) -> None:
    """A slave learns where its master's log begins for it after it has started."""
    writer.service.begin_at(0)
    steps(writer, 3)
    writer.position = 7 * SIZE
    steps(writer, 2)
    assert len(writer.files()) == 3
    writer.service.begin_at(7 * SIZE)
    steps(writer, 3)
    assert writer.files() == [file_name(n * SIZE) for n in (7, 8, 9)]
    assert writer.published[-1] == 10 * SIZE


def test_an_empty_log_may_begin_earlier(writer: Writer) -> None:
    """What was allocated before must not count as allocated at the new place."""
    writer.position = 7 * SIZE
    writer.service.begin_at(7 * SIZE)
    steps(writer, 3)
    writer.position = 0
    writer.service.begin_at(4 * SIZE)
    assert [writer.service.is_beginning] == [True]
    steps(writer, 1)
    assert [writer.service.is_beginning] == [False]
    assert writer.service.begins_at(4 * SIZE)
    assert writer.published[-1] == 4 * SIZE
    assert writer.files() == []
    writer.position = 4 * SIZE
    steps(writer, 1)
    assert writer.files() == [file_name(4 * SIZE)]
    assert writer.published[-1] == 5 * SIZE


def test_the_same_beginning_again_changes_nothing(
    writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    writer.service.begin_at(0)
    steps(writer, 3)
    writer.write(10)
    writer.service.begin_at(0)
    steps(writer, 1)
    assert writer.service.begins_at(0)
    assert len(writer.files()) == 3
    assert caplog.text == ""


def test_a_log_with_bytes_stays_where_it_is(
    writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    writer.service.begin_at(0)
    steps(writer, 3)
    writer.write(10)
    writer.service.begin_at(7 * SIZE)
    steps(writer, 1)
    assert len(writer.files()) == 3
    assert "cannot start" in caplog.text
    assert not writer.service.is_beginning
    assert not writer.service.begins_at(7 * SIZE)


def test_a_file_with_holes_gets_its_blocks_and_keeps_its_bytes(writer: Writer) -> None:
    path = writer.directory / file_name(0)
    writer.directory.mkdir()
    with path.open("wb") as file:
        file.write(b"a log of Java")
        file.truncate(SIZE)
    assert path.stat().st_blocks * 512 < SIZE
    writer.service.begin_at(0)
    steps(writer, 1)
    assert path.stat().st_blocks * 512 >= SIZE
    assert path.read_bytes().rstrip(b"\0") == b"a log of Java"


def test_no_file_is_made_while_its_room_is_for_others(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.allocate_mapped_file_service._RETRY_MS", 1)
    asked: list[int] = []
    monkeypatch.setattr(writer.service, "_allows", lambda size: asked.append(size))
    writer.service.begin_at(0)
    steps(writer, 3)
    assert asked == [SIZE] * 3
    assert writer.files() == []
    assert writer.published == []


def test_a_full_disk_is_reported_and_tried_again(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("store.allocate_mapped_file_service._RETRY_MS", 1)
    writer.service.begin_at(0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", no_space)
        steps(writer, 2)
        assert writer.flags.is_set(RunningFlag.DISK_FULL)
        assert writer.published == []
    steps(writer, 1)
    assert not writer.flags.is_set(RunningFlag.DISK_FULL)
    assert writer.published == [SIZE]


def test_a_clean_stop_deletes_what_holds_nothing(writer: Writer) -> None:
    writer.service.begin_at(0)
    writer.service.start()
    wait_until(lambda: len(writer.published) == 3)
    writer.write(10)
    assert writer.service.shutdown()
    assert len(writer.files()) == 3
    writer.service.delete_unused_files()
    assert writer.files() == [file_name(0)]
    assert writer.published[-1] == SIZE


def test_a_file_with_bytes_is_never_deleted(writer: Writer) -> None:
    writer.service.begin_at(0)
    steps(writer, 3)
    writer.write(2 * SIZE + 5)
    writer.position = 1
    writer.service.delete_unused_files()
    assert writer.files() == [file_name(0), file_name(2 * SIZE)]


def test_a_log_that_ends_with_its_file_keeps_that_file(writer: Writer) -> None:
    writer.service.begin_at(0)
    steps(writer, 3)
    writer.write(SIZE - 1)
    writer.service.delete_unused_files()
    assert writer.files() == [file_name(0)]


@pytest.mark.parametrize("start", [0, SIZE])
def test_the_first_file_of_an_empty_log_stays(writer: Writer, start: int) -> None:
    writer.position = start
    writer.service.begin_at(start)
    steps(writer, 3)
    writer.service.delete_unused_files()
    assert writer.files() == [file_name(start)]


@pytest.fixture
def prepared(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What was prepared, page by page, at most three of them ahead of the writer."""
    found: list[tuple[int, int]] = []

    def prepare(start: int, end: int) -> None:
        found.append((start, end))

    monkeypatch.setattr(writer.service, "_prepare", prepare)
    monkeypatch.setattr("store.allocate_mapped_file_service._PREPARE_STEP", 4096)
    monkeypatch.setattr("store.allocate_mapped_file_service._PREPARE_AHEAD", 3 * 4096)
    return found


def test_while_the_log_grows_only_what_is_needed_soon_is_prepared(
    writer: Writer, prepared: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.allocate_mapped_file_service._PREPARE_URGENT", 4096)
    writer.service.begin_at(0)
    steps(writer, 8)

    def grow(*positions: int) -> tuple[int, int]:
        for writer.position in positions:
            steps(writer, 1)
        return prepared[-1]

    assert grow(*range(100, 8192, 512)) == (8192, 12288), "more than a page is ready"
    assert grow(*range(8300, 8310)) == (12288, 16384), "less than a page was ready"
    steps(writer, 1)
    assert prepared[-1] == (16384, 20480), "the log does not grow"


def test_preparing_stays_a_bounded_distance_ahead(
    writer: Writer, prepared: list[tuple[int, int]]
) -> None:
    service = writer.service
    service.begin_at(0)
    steps(writer, 8)
    assert prepared == [(0, 4096), (4096, 8192), (8192, 12288)]
    writer.position = 4096 + 10
    steps(writer, 3)
    assert prepared[3:] == [(12288, 16384)]
    writer.position = 3 * 8192 + 100
    steps(writer, 8)
    assert prepared[4][0] == 3 * 8192


def test_it_looks_closely_while_the_log_grows_and_rests_when_it_does_not(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(writer.service, "_next_is_due", lambda: False)
    monkeypatch.setattr(writer.service, "_prepare_step", lambda: False)
    monkeypatch.setattr(writer.service, "wait_for_running", waits.append)
    steps(writer, 3)
    writer.position += 1
    steps(writer, 2)
    assert waits == [20, 500, 500, 20, 500]


def test_who_sees_the_log_grow_ends_the_rest(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[bool] = []
    monkeypatch.setattr(writer.service, "_next_is_due", lambda: False)
    monkeypatch.setattr(writer.service, "_prepare_step", lambda: False)
    monkeypatch.setattr(writer.service, "wakeup", lambda: woken.append(True))
    monkeypatch.setattr(
        writer.service, "wait_for_running", lambda _interval_ms: writer.service.log_grows()
    )
    steps(writer, 1)
    assert woken == [], "it looks closely anyway"
    steps(writer, 1)
    assert woken == [True]
    writer.service.log_grows()
    assert woken == [True], "nobody rests"


def test_a_log_that_grows_while_it_lies_down_to_rest_is_seen(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    positions = iter([0, 0, 0, 0, 5])
    monkeypatch.setattr(writer.service, "_writer_position", lambda: next(positions))
    monkeypatch.setattr(writer.service, "_next_is_due", lambda: False)
    monkeypatch.setattr(writer.service, "_prepare_step", lambda: False)
    monkeypatch.setattr(writer.service, "wait_for_running", waits.append)
    steps(writer, 3)
    assert waits == [20, 500]
