"""Light queues whose units wait in memory, while the disk is full or somebody removes files."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from ipc.unwritten_units import MOST_OF_QUEUE
from store import light_queue_files
from store.clean_consume_queue_service import clean_table
from store.errors import DiskFullError
from store.file_system_sync import FileSystemSync
from store.flush_consume_queue_service import FlushConsumeQueueService
from store.light_queue_files import LightQueueFiles
from store.message_store_config import MessageStoreConfig
from store.stored_units import CQ_UNIT_SIZE
from tests.store.test_light_queue_files import (
    CAPACITY,
    FILE_SIZE,
    RECORD,
    Side,
    Twins,
    light_side,
    read_by_store,
)
from tests.support.manual_clock import ManualClock

A, B, C = "%LMQ%a", "%LMQ%b", "%LMQ%d"
PER_FILE = FILE_SIZE // CQ_UNIT_SIZE


def no_space(*_: object, **__: object) -> int:
    raise OSError(errno.ENOSPC, "full")


def fill_disk(patched: pytest.MonkeyPatch) -> None:
    for name in ("ftruncate", "pwrite", "makedirs", "mkdir", "statvfs"):
        patched.setattr(os, name, no_space)


def waiting(side: Side, topic: str) -> int:
    row = side.rows.find_row(topic, 0)
    return 0 if row is None else side.units.count(row)


def test_units_are_put_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring is full in the middle of a run, and the oldest units cannot be written."""
    side, twins = light_side(tmp_path)
    side.table.append_runs([twins.run(A, 30), twins.run(B, CAPACITY - 32)])
    run = twins.run(B, 5)
    with monkeypatch.context() as patched:
        fill_disk(patched)
        for _ in range(3):
            with pytest.raises(DiskFullError):
                side.table.append_runs([run])
        assert waiting(side, B) == CAPACITY - 32
    side.table.append_runs([run])
    units = side.reader.read_units(B, 0, 0, 100)
    assert units[-5 * CQ_UNIT_SIZE :] == run.units
    side.write_out()
    assert side.reader.read_units(B, 0, 0, 100)[: len(units)] == units


def test_a_full_disk_uses_up_no_places_of_new_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(light_queue_files, "MOST_NEW_FILES", 3)
    side, twins = light_side(tmp_path)
    side.table.append_runs([twins.run(A, 32), twins.run(B, CAPACITY - 32)])
    run = twins.run(C, 1)
    with monkeypatch.context() as patched:
        fill_disk(patched)
        for _ in range(3):
            with pytest.raises(DiskFullError):
                side.table.append_runs([run])
    side.table.append_runs([run])
    assert waiting(side, C) == 1
    side.write_out()
    assert new_files(side) == 0


def test_a_file_that_is_gone_moves_no_units(tmp_path: Path) -> None:
    side, twins = light_side(tmp_path)
    side.table.append_runs([twins.run(A, 40)])
    run = twins.run(A, 3)
    side.table.append_runs([run])
    assert waiting(side, A) == 3
    shutil.rmtree(side.root)
    side.files.forget(A, 0)
    assert read_by_store(A, 38, 5, side) == b""
    assert read_by_store(A, 40, 5, side) == run.units


def new_files(side: Side) -> int:
    assert isinstance(side.files, LightQueueFiles)
    return side.files._new_files


def over_a_file_end(root: Path) -> tuple[Side, Twins]:
    """A queue that has begun its second file in memory."""
    side, twins = light_side(root)
    side.table.append_runs([twins.run(A, PER_FILE - 2)])
    side.table.append_runs([twins.run(A, 4)])
    assert waiting(side, A) == 4
    return side, twins


def test_a_full_disk_does_not_keep_a_queue_from_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, twins = over_a_file_end(tmp_path)
    with monkeypatch.context() as patched:
        fill_disk(patched)
        assert side.table.delete_topic(A) == 1
    assert waiting(side, A) == 0
    assert side.snapshot() == {}
    assert new_files(side) == 0
    twins.following[A] = 0
    side.table.append_runs([twins.run(A, 1)])
    assert side.rows.offsets(A, 0) == (0, 1)


def test_a_full_disk_does_not_keep_a_file_from_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side, twins = over_a_file_end(tmp_path)
    units = side.reader.read_units(A, 0, PER_FILE, 2)
    with monkeypatch.context() as patched:
        fill_disk(patched)
        assert clean_table(side.table, twins.phy - 2 * RECORD, lambda: False) == 1
    assert side.rows.offsets(A, 0) == (PER_FILE, PER_FILE + 2)
    assert waiting(side, A) == 2
    assert side.reader.read_units(A, 0, PER_FILE, 2) == units
    side.table.append_runs([twins.run(A, 1)])
    side.write_out()
    assert list(side.snapshot()) == [f"{A}/0/{FILE_SIZE:020}"]
    assert new_files(side) == 0
    assert side.reader.read_units(A, 0, PER_FILE, 2) == units


def test_a_file_at_the_end_is_deleted_without_the_units_before_it(tmp_path: Path) -> None:
    side, _ = over_a_file_end(tmp_path)
    units = side.reader.read_units(A, 0, PER_FILE - 2, 2)
    side.files.delete(A, 0, FILE_SIZE)
    assert list(side.snapshot()) == [f"{A}/0/{0:020}"]
    assert side.reader.read_units(A, 0, PER_FILE - 2, 2) == units


def test_a_run_of_more_units_than_a_queue_may_have_does_not_wait(tmp_path: Path) -> None:
    twins = light_side(tmp_path)[1]
    side = Side(tmp_path / "other" / "consumequeue", is_light=True, capacity=1000)
    run = twins.run(A, MOST_OF_QUEUE + 1)
    side.table.append_runs([run])
    assert waiting(side, A) == 0
    assert read_by_store(A, 0, 100, side) == run.units


def test_failed_writes_are_noticed_from_the_first_one_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system tells of them who has it open."""
    side, twins = light_side(tmp_path)
    side.table.append_runs([twins.run(A, 1)])
    following = Side(side.root, is_light=True, fd=side.fd)
    opened: list[bool] = []
    monkeypatch.setattr(FileSystemSync, "open", lambda _self: opened.append(side.snapshot() == {}))
    assert isinstance(following.files, LightQueueFiles)
    following.files.take_over()
    assert opened == [True]
    assert side.snapshot()


def test_one_queue_that_cannot_be_written_costs_no_other_its_units(tmp_path: Path) -> None:
    side, twins = light_side(tmp_path)
    runs = [twins.run(A, 1), twins.run(B, 1)]
    side.table.append_runs(runs)
    side.root.mkdir(parents=True)
    (side.root / A).write_bytes(b"")
    following = Side(side.root, is_light=True, fd=side.fd)
    assert isinstance(following.files, LightQueueFiles)
    following.files.take_over()
    assert following.snapshot()[f"{B}/0/{0:020}"][:CQ_UNIT_SIZE] == runs[1].units
    assert following.units.rows(following.rows.row_count) == []


def test_nothing_waits_before_the_store_is_open(tmp_path: Path) -> None:
    """A kill during recovery must leave what queues have: the next one goes on from there."""
    twins = light_side(tmp_path)[1]
    side = Side(tmp_path / "other" / "consumequeue", is_light=True)
    assert isinstance(side.files, LightQueueFiles)
    side.files.defers = False
    run = twins.run(A, 3)
    side.table.append_runs([run])
    assert waiting(side, A) == 0
    assert side.snapshot()[f"{A}/0/{0:020}"][: len(run.units)] == run.units
    side.files.defers = True
    side.table.append_runs([twins.run(A, 3)])
    assert waiting(side, A) == 3


class Flushing:
    """The service over light queues, and what it promised."""

    def __init__(self, root: Path, *, begins_with_all: bool) -> None:
        self.side, self.twins = light_side(root)
        self.clock = ManualClock()
        self.promised: list[int] = []
        self.service = FlushConsumeQueueService(
            MessageStoreConfig(flush_consume_queue_thorough_interval=1),
            self.side,
            self.clock,
            dispatched_offset=lambda: self.twins.phy,
            dispatched_timestamp=lambda: self.twins.phy,
            on_flushed=lambda _timestamp, offset: self.promised.append(offset),
            begins_with_all=begins_with_all,
        )

    def round(self) -> None:
        self.clock.advance(2)
        self.service.flush_once()


@pytest.mark.parametrize("begins_with_all", [True, False])
def test_a_full_disk_ends_no_flush_and_promises_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, begins_with_all: bool
) -> None:
    flushing = Flushing(tmp_path, begins_with_all=begins_with_all)
    side, twins = flushing.side, flushing.twins
    side.table.append_runs([twins.run(A, 3)])
    with monkeypatch.context() as patched:
        fill_disk(patched)
        for _ in range(3):
            flushing.round()
    assert flushing.promised == []
    assert waiting(side, A) == 3
    flushing.round()
    assert flushing.promised == [twins.phy]
    assert waiting(side, A) == 0


def test_a_stop_with_a_full_disk_goes_on_and_is_no_clean_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushing = Flushing(tmp_path, begins_with_all=False)
    flushing.side.table.append_runs([flushing.twins.run(A, MOST_OF_QUEUE)])
    with monkeypatch.context() as patched:
        fill_disk(patched)
        flushing.service.finish()
    assert flushing.promised == []


def test_who_waits_for_the_lock_gets_it_between_two_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that is taken again at once is never free for others."""
    flushing = Flushing(tmp_path, begins_with_all=True)
    side, twins = flushing.side, flushing.twins
    twins.following |= {f"%LMQ%{number}": 0 for number in range(CAPACITY)}
    side.table.append_runs([twins.run(f"%LMQ%{number}", 1) for number in range(CAPACITY)])
    left: list[int] = []

    def pause(interval_ms: float) -> bool:
        assert 0 < interval_ms < 10
        assert not side.table.lock.locked()
        left.append(side.units.end - side.units.begin)
        return False

    monkeypatch.setattr(flushing.service, "wait_for_running", pause)
    flushing.service.flush_once()
    assert left == [CAPACITY - 16, CAPACITY - 32]
    assert len(side.snapshot()) == CAPACITY
