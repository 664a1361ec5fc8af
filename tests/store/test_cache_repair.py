from __future__ import annotations

import errno
from pathlib import Path

import pytest

from store.cache_repair import CacheRepair
from store.clean_exit import create_abort
from store.errors import FlushFailedError
from store.flush_failure import UNKNOWN, note_flush_failure, read_flush_failure
from store.mapped_file import file_name
from store.message_store_config import MessageStoreConfig

SIZE = 16_384
ERROR = FlushFailedError("fdatasync failed")


@pytest.fixture
def config(tmp_path: Path) -> MessageStoreConfig:
    found = MessageStoreConfig(
        store_path_root_dir=str(tmp_path / "store"), mapped_file_size_commit_log=SIZE
    )
    found.commit_log_path.mkdir(parents=True)
    for number in range(3):
        data = bytes([number + 1]) * SIZE
        (found.commit_log_path / file_name(number * SIZE)).write_bytes(data)
    return found


def test_what_is_written_down(config: MessageStoreConfig) -> None:
    path = config.fsync_failed_path
    assert read_flush_failure(path) is None
    note_flush_failure(path, ERROR, 5_000)
    note_flush_failure(path, ERROR, 9_000)
    found = read_flush_failure(path)
    assert found is not None
    assert (found.flushed_offset, found.failures, found.error) == (5_000, 2, "fdatasync failed")
    note_flush_failure(path, ERROR, UNKNOWN)
    note_flush_failure(path, ERROR, 9_000)
    found = read_flush_failure(path)
    assert found is not None
    assert (found.flushed_offset, found.failures) == (UNKNOWN, 4)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"flushed_offset": -1, "failures": 1}'])
def test_a_torn_file_is_a_failure_at_an_unknown_place(
    config: MessageStoreConfig, text: str
) -> None:
    config.fsync_failed_path.write_text(text)
    found = read_flush_failure(config.fsync_failed_path)
    assert found is not None
    assert found.flushed_offset is UNKNOWN
    assert CacheRepair(config).is_due


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    note_flush_failure(tmp_path / "missing" / "fsync_failed.json", ERROR, 1)


def test_when_it_is_due(config: MessageStoreConfig) -> None:
    assert not CacheRepair(config).is_due, "a clean stop"
    create_abort(config.abort_path)
    assert CacheRepair(config).is_due, "a crash in this boot"
    config.abort_path.write_text("6a1f5a86-another-boot")
    assert not CacheRepair(config).is_due, "the cache went with the machine"
    config.abort_path.write_text("")
    assert CacheRepair(config).is_due, "RocketMQ's says nothing about the boot"


def test_the_range_is_written_again_and_flushed(
    config: MessageStoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole pages from the one of the start on, in every file; the bytes stay what they were."""
    note_flush_failure(config.fsync_failed_path, ERROR, SIZE - 5_000)
    written: list[tuple[int, int]] = []
    flushed: list[int] = []

    def pwrite(fd: int, data: memoryview, at: int) -> int:
        written.append((at, len(data)))
        return len(data)

    monkeypatch.setattr("os.pwrite", pwrite)
    repair = CacheRepair(config, fdatasync=flushed.append)
    assert repair.flushed_offset == SIZE - 5_000
    repair.rewrite_log(SIZE - 5_000, 2 * SIZE + 10)
    assert written == [(SIZE - 8_192, 8_192), (0, SIZE), (0, 10)]
    assert len(flushed) == 3
    written.clear()
    repair.rewrite_files()
    assert written == [(SIZE - 8_192, 8_192), (0, SIZE), (0, SIZE)]
    repair.rewrite_log(7 * SIZE, 8 * SIZE)
    repair.finish()
    assert not config.fsync_failed_path.exists()


def test_it_fails_again(config: MessageStoreConfig) -> None:
    note_flush_failure(config.fsync_failed_path, ERROR, 0)

    def fails(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(FlushFailedError, match="writing the cached pages again failed"):
        CacheRepair(config, fdatasync=fails).rewrite_log(0, SIZE)
    assert config.fsync_failed_path.exists()
