from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from store.clean_exit import CleanExit, describe_exit
from store.mapped_file_queue import MappedFileQueue
from store.message_codec import decode_record, encode_record
from store.recovery import RecoveryMode, RecoveryResult, recover_commit_log
from store.store_checker import check_store
from store.store_checkpoint import StoreCheckpoint
from tests.support.plain_log import FILE_SIZE, PlainLog

GOLDEN = Path(__file__).parents[1] / "golden" / "store-G"
NORMAL, ABNORMAL = RecoveryMode.NORMAL, RecoveryMode.ABNORMAL


def recover(
    log: PlainLog,
    mode: RecoveryMode = ABNORMAL,
    *,
    timestamp: int = 0,
    word: CleanExit | None = None,
    check_crc: bool = True,
) -> RecoveryResult:
    queue = MappedFileQueue(log.directory, log.file_size)
    queue.load()
    checkpoint = StoreCheckpoint(log.directory.parent / "checkpoint")
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = timestamp + 3000
    result = recover_commit_log(queue, checkpoint, mode, clean_exit=word, check_crc=check_crc)
    queue.close()
    return result


@pytest.fixture
def log(tmp_path: Path) -> PlainLog:
    return PlainLog(tmp_path / "commitlog")


def fill(log: PlainLog, files: int) -> None:
    """`files` full files and a begun one, ten records of about 500 bytes in it."""
    number = 0
    while log.end < files * log.file_size + 1000:
        log.append(b"%05d" % number * 80, store_timestamp=1000 + number)
        number += 1


def assert_ends_at(log: PlainLog, tail: int) -> None:
    last = log.path(tail)
    data = last.read_bytes()
    assert not any(data[tail % log.file_size :])
    names = sorted(path.name for path in log.directory.iterdir())
    assert names[-1] == last.name
    assert check_store(log.directory.parent).is_clean


def test_no_files(tmp_path: Path) -> None:
    queue = MappedFileQueue(tmp_path / "commitlog", FILE_SIZE)
    queue.load()
    for mode in RecoveryMode:
        result = recover_commit_log(queue, StoreCheckpoint(tmp_path / "checkpoint"), mode)
        assert (result.min_phy_offset, result.max_phy_offset) == (0, 0)


@pytest.mark.parametrize("mode", RecoveryMode)
def test_files_that_hold_nothing(tmp_path: Path, mode: RecoveryMode) -> None:
    log = PlainLog(tmp_path / "commitlog", start=2 * FILE_SIZE)
    log.allocate(3 * FILE_SIZE)
    result = recover(log, mode)
    assert (result.min_phy_offset, result.max_phy_offset) == (2 * FILE_SIZE, 2 * FILE_SIZE)
    assert_ends_at(log, 2 * FILE_SIZE)


@pytest.mark.parametrize("mode", RecoveryMode)
@pytest.mark.parametrize("files", [0, 1, 4])
def test_a_whole_log_is_kept_whole(log: PlainLog, mode: RecoveryMode, files: int) -> None:
    fill(log, files)
    before = [path.read_bytes() for path in sorted(log.directory.iterdir())]
    log.allocate(log.end + FILE_SIZE)
    result = recover(log, mode)
    assert result.max_phy_offset == log.end
    assert result.dropped_bytes == 0
    assert [path.read_bytes() for path in sorted(log.directory.iterdir())] == before
    assert_ends_at(log, log.end)


def test_normal_recovery_scans_the_last_three_files(log: PlainLog) -> None:
    fill(log, 5)
    log.allocate(6 * FILE_SIZE)
    assert recover(log, NORMAL).start_scanned_at == 3 * FILE_SIZE


@pytest.mark.parametrize(
    ("timestamp", "start"), [(0, 0), (999, 0), (1000, 0), (1009, 1), (1020, 2), (9999, 3)]
)
def test_abnormal_recovery_starts_by_the_checkpoint(
    log: PlainLog, timestamp: int, start: int
) -> None:
    fill(log, 3)
    assert len({log.path(offset) for offset, _ in log.records[:8]}) == 1
    assert log.records[8][0] >= FILE_SIZE
    result = recover(log, ABNORMAL, timestamp=timestamp)
    assert result.start_scanned_at == start * FILE_SIZE
    assert result.max_phy_offset == log.end


def test_the_last_two_records_torn_at_every_byte(log: PlainLog) -> None:
    fill(log, 1)
    pristine = log.path(log.end).read_bytes()
    for offset, raw in log.records[-2:]:
        for cut in range(len(raw)):
            log.path(offset).write_bytes(
                pristine[: offset % FILE_SIZE + cut] + bytes(FILE_SIZE - offset % FILE_SIZE - cut)
            )
            result = recover(log)
            assert result.max_phy_offset == offset, cut
            assert_ends_at(log, offset)


def test_a_torn_record_is_dropped_with_what_is_behind_it(log: PlainLog) -> None:
    fill(log, 1)
    offset, _raw = log.records[-2]
    log.put(offset + 200, b"damage")
    result = recover(log)
    assert result.max_phy_offset == offset
    assert "bodyCRC" in result.reason
    assert_ends_at(log, offset)


def test_a_stale_record_behind_the_tail_is_not_resurrected(log: PlainLog) -> None:
    """An older write at another place of the log left whole records in the file's bytes."""
    fill(log, 1)
    stale = decode_record(log.records[0][1], 0)[0]
    for phy_offset in (0, log.end - 1, log.end + FILE_SIZE):
        log.put(log.end, encode_record(dataclasses.replace(stale, phy_offset=phy_offset)))
        result = recover(log)
        assert result.max_phy_offset == log.end
        assert "physicalOffset" in result.reason
        assert_ends_at(log, log.end)


def test_a_right_record_behind_garbage_is_gone_for_good(log: PlainLog) -> None:
    fill(log, 0)
    cut_at = log.records[-2][0]
    last_offset, last = log.records[-1]
    log.put(cut_at + 4, b"\0\0\0\0")
    assert recover(log).max_phy_offset == cut_at
    # The next record is as long as the cut one: had the tail stayed, the last one were back.
    log.put(cut_at, log.records[-2][1])
    assert log.bytes_at(last_offset, len(last)) == bytes(len(last))
    assert recover(log).max_phy_offset == last_offset


def test_damage_in_an_earlier_file_drops_later_ones(log: PlainLog) -> None:
    fill(log, 3)
    offset = log.records[10][0]
    log.put(offset + 150, b"damage")
    result = recover(log)
    assert result.max_phy_offset == offset
    assert result.dropped_bytes == 2 * FILE_SIZE
    assert_ends_at(log, offset)


def test_a_blank_of_the_wrong_size_ends_the_log(log: PlainLog) -> None:
    fill(log, 1)
    last = next(n for n, (offset, _) in enumerate(log.records) if offset >= FILE_SIZE) - 1
    offset, raw = log.records[last]
    log.put(offset + len(raw), bytes((0, 0, 0, 9)))
    result = recover(log)
    assert result.max_phy_offset == offset + len(raw)
    assert_ends_at(log, offset + len(raw))


def test_a_log_that_ends_with_a_full_file(log: PlainLog) -> None:
    fill(log, 1)
    log.path(FILE_SIZE).unlink()
    result = recover(log)
    assert result.max_phy_offset == FILE_SIZE
    assert result.reason == "the last file is full"
    log.allocate(FILE_SIZE)
    assert recover(log).max_phy_offset == FILE_SIZE
    assert_ends_at(log, FILE_SIZE)


def test_crc_is_left_out_on_demand(log: PlainLog) -> None:
    fill(log, 1)
    log.put(log.records[-2][0] + 200, b"damage")
    assert recover(log, check_crc=False).max_phy_offset == log.end


def test_progress_is_told(log: PlainLog) -> None:
    fill(log, 2)
    queue = MappedFileQueue(log.directory, FILE_SIZE)
    queue.load()
    told: list[tuple[int, int]] = []
    recover_commit_log(
        queue,
        StoreCheckpoint(log.directory / "none"),
        ABNORMAL,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == sorted(told)
    assert told[-1] == (3 * FILE_SIZE, 3 * FILE_SIZE)
    assert len(told) == 4


# -- golden ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "mode", "files"),
    [
        ("master", NORMAL, 2),
        ("slave", NORMAL, 2),
        ("slave2", NORMAL, 1),
        ("master-while-running", ABNORMAL, 2),
    ],
)
def test_golden_stores(tmp_path: Path, name: str, mode: RecoveryMode, files: int) -> None:
    root = tmp_path / name
    shutil.copytree(GOLDEN / name, root)
    before = [path.read_bytes() for path in sorted((root / "commitlog").iterdir())]
    queue = MappedFileQueue(root / "commitlog", 16384)
    queue.load()
    result = recover_commit_log(queue, StoreCheckpoint.load(root / "checkpoint"), mode)
    assert result.max_phy_offset == 24364 + 367
    assert [path.read_bytes() for path in sorted((root / "commitlog").iterdir())] == before[:files]
    assert check_store(root).is_clean


# -- clean.exit --------------------------------------------------------------------------------


def exit_word(log: PlainLog) -> CleanExit:
    queue = MappedFileQueue(log.directory, log.file_size)
    queue.load()
    word = describe_exit(queue, max_phy_offset=log.end, dispatched_offset=log.end)
    assert word is not None
    queue.close()
    return word


def test_after_our_clean_stop_nothing_is_scanned(log: PlainLog) -> None:
    fill(log, 2)
    result = recover(log, NORMAL, word=exit_word(log))
    assert result.trusted
    assert result.max_phy_offset == log.end
    assert result.start_scanned_at is None


def test_the_abort_file_beats_the_word(log: PlainLog) -> None:
    fill(log, 1)
    assert not recover(log, ABNORMAL, word=exit_word(log)).trusted


def test_the_word_does_not_count_when_somebody_appended(log: PlainLog) -> None:
    fill(log, 1)
    word = exit_word(log)
    log.append(b"by a Java broker")
    result = recover(log, NORMAL, word=word)
    assert not result.trusted
    assert result.max_phy_offset == log.end
