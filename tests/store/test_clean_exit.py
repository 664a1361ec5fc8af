from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from store.clean_exit import (
    CleanExit,
    boot_id,
    create_abort,
    delete_abort,
    describe_exit,
    find_objection,
    is_of_another_boot,
    left_light_queues,
    machine_went_down,
    read_clean_exit,
    remove_clean_exit,
    write_clean_exit,
)
from store.mapped_file_queue import MappedFileQueue
from tests.support.plain_log import FILE_SIZE, PlainLog


@pytest.fixture
def log(tmp_path: Path) -> PlainLog:
    log = PlainLog(tmp_path / "commitlog")
    for _ in range(15):
        log.append(b"x" * 300)
    assert log.end > FILE_SIZE
    return log


@pytest.fixture
def queue(log: PlainLog) -> MappedFileQueue:
    queue = MappedFileQueue(log.directory, FILE_SIZE)
    queue.load()
    return queue


def word_of(queue: MappedFileQueue, end: int) -> CleanExit:
    word = describe_exit(queue, max_phy_offset=end, dispatched_offset=end)
    assert word is not None
    return word


def test_abort_file(tmp_path: Path) -> None:
    path = tmp_path / "store" / "abort"
    create_abort(path)
    assert path.read_text() == boot_id()
    assert not machine_went_down(path)
    delete_abort(path)
    delete_abort(path)
    assert not path.exists()


def test_whether_the_machine_went_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "abort"
    assert not machine_went_down(path)
    path.write_text(boot_id())
    assert not machine_went_down(path)
    for text in ("another boot", "", "\xff"):
        path.write_bytes(text.encode("latin-1"))
        assert machine_went_down(path)
    assert caplog.text == ""
    path.unlink()
    path.mkdir()  # Whatever else cannot be read.
    assert machine_went_down(path)
    assert "assuming another boot left it" in caplog.text


def test_the_abort_file_says_whether_light_queues_were_built(tmp_path: Path) -> None:
    path = tmp_path / "abort"
    assert not left_light_queues(path)
    create_abort(path)
    assert not left_light_queues(path)
    create_abort(path, light_queues=True)
    assert left_light_queues(path)
    assert not machine_went_down(path)
    assert not is_of_another_boot(path)
    path.write_text(path.read_text().replace(boot_id(), "another"))
    assert machine_went_down(path)
    assert is_of_another_boot(path)
    assert left_light_queues(path)
    for text in ("", "light queues", "\0" * 60, "\xff"):
        path.write_bytes(text.encode("latin-1"))
        assert not left_light_queues(path)
    path.unlink()
    path.mkdir()
    assert not left_light_queues(path)


def test_the_word_is_written_read_and_taken_back(
    tmp_path: Path, log: PlainLog, queue: MappedFileQueue
) -> None:
    path = tmp_path / "clean.exit"
    word = word_of(queue, log.end)
    write_clean_exit(path, word)
    assert read_clean_exit(path) == word
    assert find_objection(word, queue) is None
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["clean.exit"]
    remove_clean_exit(path)
    remove_clean_exit(path)
    assert read_clean_exit(path) is None


def test_a_log_that_ends_with_its_file(log: PlainLog, queue: MappedFileQueue) -> None:
    word = word_of(queue, FILE_SIZE)
    assert word.last_file == 0
    assert find_objection(word, queue) == f"there are bytes after {FILE_SIZE}"
    log.path(FILE_SIZE).unlink()
    queue.refresh()
    assert find_objection(word, queue) is None


def test_a_slave_that_has_not_received_anything(tmp_path: Path) -> None:
    PlainLog(tmp_path / "log", start=FILE_SIZE)
    queue = MappedFileQueue(tmp_path / "log", FILE_SIZE)
    queue.load()
    word = word_of(queue, FILE_SIZE)
    assert word.last_file == FILE_SIZE
    assert find_objection(word, queue) is None


def test_no_files_no_word(tmp_path: Path) -> None:
    queue = MappedFileQueue(tmp_path / "log", FILE_SIZE)
    queue.load()
    assert describe_exit(queue, max_phy_offset=0, dispatched_offset=0) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "nonsense", '"x"', json.dumps({"max_phy_offset": 1}), "\xff"],
)
def test_what_is_not_understood_does_not_count(tmp_path: Path, text: str) -> None:
    path = tmp_path / "clean.exit"
    path.write_text(text, "latin-1")
    assert read_clean_exit(path) is None


@pytest.mark.parametrize("value", [-1, 1.5, "1", None, True])
def test_numbers_must_be_numbers(
    tmp_path: Path, log: PlainLog, queue: MappedFileQueue, value: object
) -> None:
    path = tmp_path / "clean.exit"
    found = dataclasses.asdict(word_of(queue, log.end))
    path.write_text(json.dumps({**found, "max_phy_offset": value}))
    assert read_clean_exit(path) is None


def test_objections(log: PlainLog, queue: MappedFileQueue) -> None:
    word = word_of(queue, log.end)
    path = log.path(log.end)
    replace = dataclasses.replace
    assert "files of" in str(find_objection(replace(word, file_size=8192), queue))
    assert find_objection(replace(word, dispatched_offset=0), queue) is None, "not confirmed yet"
    more = replace(word, dispatched_offset=word.max_phy_offset + 1)
    assert "dispatched" in str(find_objection(more, queue))
    assert "last file" in str(find_objection(replace(word, max_phy_offset=10), queue))
    assert "written since" in str(find_objection(replace(word, last_file_mtime_ns=1), queue))
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    log.put(log.end - 1, b"\xff")
    os.utime(path, ns=times)
    assert "end of" in str(find_objection(word, queue))
    log.put(log.end - 1, log.records[-1][1][-1:])
    log.put(log.end + 100, b"\x01")
    os.utime(path, ns=times)
    assert "there are bytes after" in str(find_objection(word, queue))
    log.put(log.end + 100, b"\x00")
    os.utime(path, ns=times)
    assert find_objection(word, queue) is None
