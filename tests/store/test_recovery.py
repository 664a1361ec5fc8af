from __future__ import annotations

import dataclasses
import mmap
import shutil
import time
from pathlib import Path

import pytest

from store import cut_backup
from store.clean_exit import CleanExit, describe_exit
from store.cut_backup import keep_tail
from store.log_fences import NO_FENCES, LogFences, new_fence
from store.log_file import LogFile
from store.mapped_file import create_allocated
from store.mapped_file_queue import MappedFileQueue
from store.message_codec import decode_record, encode_record, read_store_timestamp
from store.page_residency import sampled_residency
from store.record_search import find_in_files
from store.recovery import LogClues, RecoveryMode, RecoveryResult, recover_commit_log
from store.store_checker import check_store
from store.store_checkpoint import StoreCheckpoint
from tests.support.plain_log import FILE_SIZE, PlainLog

GOLDEN = Path(__file__).parents[1] / "golden" / "store-G"
NORMAL, ABNORMAL = RecoveryMode.NORMAL, RecoveryMode.ABNORMAL
NOW_MS = 100_000


def recover(
    log: PlainLog,
    mode: RecoveryMode = ABNORMAL,
    *,
    timestamp: int = 0,
    word: CleanExit | None = None,
    check_crc: bool = True,
    fences: LogFences | None = NO_FENCES,
    flushed: int = 0,
    is_replica: bool = False,
) -> RecoveryResult:
    queue = MappedFileQueue(log.directory, log.file_size)
    queue.load()
    checkpoint = StoreCheckpoint(log.directory.parent / "checkpoint")
    if timestamp:
        checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = timestamp + 3000
    checkpoint.physic_msg_timestamp = flushed or checkpoint.physic_msg_timestamp
    result = recover_commit_log(
        queue,
        checkpoint,
        mode,
        LogClues(now_ms=NOW_MS, clean_exit=word, fences=fences, is_replica=is_replica),
        check_crc=check_crc,
    )
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
        checkpoint = StoreCheckpoint(tmp_path / "checkpoint")
        result = recover_commit_log(queue, checkpoint, mode, LogClues(now_ms=NOW_MS))
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
    assert result.tail is None
    assert not result.fences
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


@pytest.mark.fault(24)
def test_the_last_two_records_torn_at_every_byte(log: PlainLog) -> None:
    fill(log, 1)
    pristine = log.path(log.end).read_bytes()
    for offset, raw in log.records[-2:]:
        for cut in range(len(raw)):
            if 96 <= cut < 480 and cut % 16:
                continue  # Within the body's 400 bytes one is as another.
            log.path(offset).write_bytes(
                pristine[: offset % FILE_SIZE + cut] + bytes(FILE_SIZE - offset % FILE_SIZE - cut)
            )
            result = recover(log)
            assert result.max_phy_offset == offset, cut
            assert_ends_at(log, offset)


def kept(result: RecoveryResult) -> dict[str, bytes]:
    """What the recovery kept aside, by file name."""
    assert result.tail is not None
    return {path.name: path.read_bytes() for path in result.tail.iterdir()}


def test_a_torn_record_is_cut_off_and_kept(log: PlainLog) -> None:
    fill(log, 1)
    offset, raw = log.records[-1]
    log.put(offset + 200, b"damage")
    bytes_before = log.bytes_at(offset, len(raw))
    result = recover(log)
    assert result.max_phy_offset == offset
    assert "bodyCRC" in result.reason
    assert kept(result) == {f"{log.path(offset).name}.from-{offset}": bytes_before}
    assert_ends_at(log, offset)


def test_a_tail_of_zeros_is_not_kept(log: PlainLog) -> None:
    fill(log, 1)
    offset, raw = log.records[-1]
    log.put(offset, bytes(len(raw)))
    assert recover(log).tail is None
    assert not list(log.directory.parent.glob("tail-*"))


def test_only_the_newest_tails_are_kept(log: PlainLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_backup, "_MOST_TAILS", 2)
    fill(log, 1)
    for _ in range(4):
        log.put(log.end, b"torn")
        assert kept(recover(log))
    assert len(list(log.directory.parent.glob("tail-*"))) == 2


def test_damage_with_records_behind_it_is_fenced(log: PlainLog) -> None:
    fill(log, 3)
    offset, raw = log.records[10]
    log.put(offset + 150, b"damage")
    before = [path.read_bytes() for path in sorted(log.directory.iterdir())]
    result = recover(log)
    assert result.max_phy_offset == log.end
    assert result.tail is None
    assert [(f.start, f.end) for f in result.fences] == [(offset, offset + len(raw))]
    assert "bodyCRC" in next(iter(result.fences)).reason
    assert [path.read_bytes() for path in sorted(log.directory.iterdir())] == before


FIELDS = {"size": 2, "magic": 5, "place": 33, "body size": 87, "body": 200, "topic size": -13}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("number", [0, 7, 8, 20, -2])
def test_one_flipped_bit_costs_one_record(log: PlainLog, field: str, number: int) -> None:
    """The first record, the last and the first of a file, one in the middle, the last but one."""
    fill(log, 3)
    offset, raw = log.records[number]
    position = FIELDS[field] % len(raw)
    for bit in range(8):
        log.put(offset + position, bytes((raw[position] ^ 1 << bit,)))
        result = recover(log)
        assert result.max_phy_offset == log.end
        assert [(f.start, f.end) for f in result.fences] == [
            (offset, next(at for at, _ in log.records if at > offset))
        ]
        log.put(offset + position, raw[position : position + 1])


def test_a_hole_of_zeros_with_records_behind_it_is_fenced(log: PlainLog) -> None:
    """A power cut may lose an earlier page and not a later one, or the head of a later file."""
    fill(log, 3)
    first, last = log.records[3][0], log.records[25][0]
    data = b"".join(path.read_bytes() for path in sorted(log.directory.iterdir()))
    for at in range(first + 100, last):
        log.put(at, b"\0")
    result = recover(log)
    assert result.max_phy_offset == log.end
    assert [(f.start, f.end) for f in result.fences] == [(first, last)]
    assert log.bytes_at(last, 100) == data[last : last + 100]


def test_a_fence_is_lifted_when_the_bytes_are_right_again(log: PlainLog) -> None:
    fill(log, 1)
    offset, raw = log.records[3]
    log.put(offset + 150, b"damage")
    fences = recover(log).fences
    assert recover(log, fences=fences).fences is not fences
    assert list(recover(log, fences=fences).fences) == list(fences)
    log.put(offset, raw)
    assert not recover(log, fences=fences).fences


def test_fences_before_the_scan_stay(log: PlainLog) -> None:
    fill(log, 5)
    offset, raw = log.records[3]
    log.put(offset + 150, b"damage")
    fences = LogFences([new_fence(offset, offset + len(raw), "before")])
    assert list(recover(log, NORMAL, fences=fences).fences) == list(fences)
    assert list(recover(log, word=exit_word(log), mode=NORMAL, fences=fences).fences) == list(
        fences
    )
    # Without the file everything is searched.
    assert [f.start for f in recover(log, NORMAL, fences=None).fences] == [offset]


def test_damage_at_the_end_of_what_was_flushed_is_fenced(log: PlainLog) -> None:
    fill(log, 1)
    offset, raw = log.records[-1]
    log.put(offset + 200, b"damage")
    result = recover(log, flushed=read_store_timestamp(raw, 0))
    assert [(f.start, f.end) for f in result.fences] == [(offset, log.end)]
    assert result.max_phy_offset == log.end
    # A clean end says it, too, though a file was written since.
    word = dataclasses.replace(exit_word(log), last_file_mtime_ns=1)
    assert recover(log, NORMAL, word=word).max_phy_offset == log.end
    # A slave gets it again.
    result = recover(log, flushed=read_store_timestamp(raw, 0), is_replica=True)
    assert result.max_phy_offset == offset


@pytest.mark.fault(25)
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


@pytest.mark.fault(25)
def test_an_old_tail_is_not_resurrected(log: PlainLog) -> None:
    """A Java broker leaves the records that it cuts off, and writes over the first of them."""
    fill(log, 1)
    places = len(log.records)
    for number in range(3):
        log.append(b"old" * 30, store_timestamp=2_000 + number)
    end, last = log.records[places][0], log.records[-1]
    newer = encode_record(
        dataclasses.replace(decode_record(log.records[places][1], 0)[0], body=b"new" * 10)
    )
    newer = newer.replace((2_000).to_bytes(8, "big"), (9_000).to_bytes(8, "big"))
    log.put(end, newer)
    result = recover(log)
    assert result.max_phy_offset == end + len(newer)
    assert not result.fences
    assert log.bytes_at(last[0], len(last[1])) == bytes(len(last[1]))
    assert last[1] in kept(result)[f"{log.path(end).name}.from-{end + len(newer)}"]


@pytest.mark.fault(25)
def test_an_old_tail_is_not_resurrected_by_a_message_that_was_born_long_before(
    log: PlainLog,
) -> None:
    """The last record is a retry: its birth says nothing of when it was stored."""
    fill(log, 1)
    places = len(log.records)
    for number in range(9):
        log.append(b"old" * 30, store_timestamp=2_000 + number)
    end, last = log.records[places][0], log.records[-1]
    log.end = end
    log.append(b"new" * 10, store_timestamp=9_000)
    log.append(b"retry" * 10, store_timestamp=9_001, born_timestamp=1)
    result = recover(log)
    assert result.max_phy_offset == log.end
    assert not result.fences
    assert log.bytes_at(last[0], len(last[1])) == bytes(len(last[1]))


def patched_int64(log: PlainLog, number: int, position: int, value: int) -> None:
    """Overwrite a field that no check covers in a record."""
    log.put(log.records[number][0] + position, value.to_bytes(8, "big"))


BORN_AT, STORED_AT = 40, 56
"""Of bornTimestamp and storeTimestamp in a record with an IPv4 born host."""
TOO_LATE = 0x43 << 56


@pytest.mark.fault(25)
@pytest.mark.parametrize("stored_ms", [TOO_LATE, NOW_MS])
@pytest.mark.parametrize("count", [1, 2, 20])
def test_times_that_are_damaged_hide_no_record_behind_damage(
    log: PlainLog, count: int, stored_ms: int
) -> None:
    """Nothing that follows is as young as the last records before the damage say they are."""
    fill(log, 3)
    lost = len(log.records) - 4
    for number in range(lost - count, lost):
        patched_int64(log, number, STORED_AT, stored_ms)
    (offset, raw), following = log.records[lost], log.records[lost + 1][0]
    log.put(offset, bytes(len(raw)))
    result = recover(log)
    assert result.max_phy_offset == log.end
    assert result.tail is None
    assert [(f.start, f.end) for f in result.fences] == [(offset, following)]


def test_a_record_with_both_times_damaged_hides_none(log: PlainLog) -> None:
    fill(log, 1)
    patched_int64(log, -4, BORN_AT, TOO_LATE)
    patched_int64(log, -4, STORED_AT, TOO_LATE)
    offset, raw = log.records[-3]
    log.put(offset, bytes(len(raw)))
    result = recover(log)
    assert (result.max_phy_offset, result.tail) == (log.end, None)


@pytest.mark.parametrize("fields", [(STORED_AT,), (BORN_AT, STORED_AT)])
@pytest.mark.parametrize("damaged_ms", [1, 900])
def test_a_first_record_that_looks_old_does_not_begin_the_scan(
    log: PlainLog, damaged_ms: int, fields: tuple[int, ...]
) -> None:
    """Nobody would dispatch what lies between the checkpoint and that file."""
    fill(log, 3)
    first = next(n for n, (offset, _) in enumerate(log.records) if offset >= 3 * FILE_SIZE)
    for field in fields:
        patched_int64(log, first, field, damaged_ms)
    assert recover(log, ABNORMAL, timestamp=1_009).start_scanned_at == FILE_SIZE


def test_a_blank_of_the_wrong_size_does_not_hide_the_next_file(log: PlainLog) -> None:
    fill(log, 1)
    last = next(n for n, (offset, _) in enumerate(log.records) if offset >= FILE_SIZE) - 1
    offset, raw = log.records[last]
    log.put(offset + len(raw), bytes((0, 0, 0, 9)))
    result = recover(log)
    assert result.max_phy_offset == log.end
    assert [(f.start, f.end) for f in result.fences] == [(offset + len(raw), FILE_SIZE)]


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
        LogClues(now_ms=NOW_MS),
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == sorted(told)
    assert told[-1] == (3 * FILE_SIZE, 3 * FILE_SIZE)
    assert len(told) >= 4


# -- what is on disk ---------------------------------------------------------------------------


@pytest.mark.parametrize(("newest", "count"), [(0, 0), (1_005, 5), (1_012, 12), (99_999, None)])
def test_what_is_on_disk_by_the_checkpoint(log: PlainLog, newest: int, count: int | None) -> None:
    """Records that are three seconds older than the newest that was flushed; fill's begin at 1,000
    and are one millisecond apart."""
    fill(log, 2)
    result = recover(log, timestamp=newest)
    assert result.flushed_offset == (log.end if count is None else log.records[count][0])
    # Neither the log's flush alone says it, nor does a slave's checkpoint, with its master's times.
    assert recover(log, flushed=99_999).flushed_offset == 0
    replica = recover(log, timestamp=newest, is_replica=True)
    assert replica.flushed_offset == replica.start_scanned_at
    assert recover(log, NORMAL, word=exit_word(log)).flushed_offset is None


def test_a_clock_that_was_set_back_makes_nothing_flushed(log: PlainLog) -> None:
    """The checkpoint is of before, as are the first three records; those behind look older."""
    for number in range(6):
        log.append(b"x" * 400, store_timestamp=90_000 if number < 3 else 50_000 + number)
    assert recover(log, timestamp=89_000).flushed_offset == 0
    assert recover(log, timestamp=50_004).flushed_offset == 0


def test_damage_before_the_first_unflushed_record_is_not_taken_for_flushed(log: PlainLog) -> None:
    fill(log, 2)
    offset = log.records[9][0]
    log.put(offset + 200, b"damage")
    result = recover(log, timestamp=1_010)
    assert [fence.start for fence in result.fences] == [offset]
    assert result.flushed_offset == offset
    assert recover(log, timestamp=1_012).flushed_offset == log.records[12][0]


# -- allocated files ---------------------------------------------------------------------------

_ALLOCATED = 64 << 20
_AHEAD = 4 << 20


@pytest.fixture
def allocated(tmp_path: Path) -> PlainLog:
    """A log of one allocated file, a few records in it, with 4 MiB before the writer in memory, as
    AllocateMappedFileService leaves it, and an allocated file behind."""
    log = PlainLog(tmp_path / "commitlog", file_size=_ALLOCATED)
    log.path(0).unlink()
    for start in (0, _ALLOCATED):
        create_allocated(log.path(start), _ALLOCATED)
    for number in range(10):
        log.append(b"%05d" % number * 80, store_timestamp=1000 + number)
    with LogFile(log.path(0), 0) as file:
        file.prepare(0, _AHEAD)
    return log


def resident(path: Path) -> int:
    """Bytes in the page cache."""
    return sum(page & 1 for page in sampled_residency(path, 1)) * mmap.PAGESIZE


def test_what_was_never_written_is_not_read(allocated: PlainLog) -> None:
    """Reading what is in memory has the kernel read ahead; that must not make it data."""
    queue = MappedFileQueue(allocated.directory, _ALLOCATED)
    queue.load()
    if resident(allocated.path(0)) == _ALLOCATED:
        pytest.skip("this file system is in memory")
    assert find_in_files(queue, allocated.end) is None
    assert keep_tail(queue, allocated.end, lambda: None) is None
    queue.close()
    # What was in memory before, and what is read ahead of it: some MiB each time.
    assert resident(allocated.path(0)) < _ALLOCATED
    assert not allocated.path(_ALLOCATED).exists()


@pytest.mark.fault(25)
@pytest.mark.parametrize("place", [1, _AHEAD - 1, _AHEAD + 12_345, _ALLOCATED - 1])
def test_one_byte_behind_the_end_is_found_wherever_it_is(allocated: PlainLog, place: int) -> None:
    at = max(place, allocated.end + 1)
    allocated.put(at, b"x")
    result = recover(allocated)
    assert result.max_phy_offset == allocated.end
    data = kept(result)[f"{allocated.path(0).name}.from-{allocated.end}"]
    assert (len(data), data.lstrip(b"\0")) == (at + 1 - allocated.end, b"x")
    assert len(allocated.path(0).read_bytes().rstrip(b"\0")) <= allocated.end


def test_a_whole_record_far_behind_in_the_next_file_is_found(allocated: PlainLog) -> None:
    """A power cut lost all between."""
    last = decode_record(allocated.records[-1][1], 0)[0]
    place = _ALLOCATED + 12_345_678
    record = encode_record(dataclasses.replace(last, phy_offset=place))
    allocated.put(place, record)
    result = recover(allocated)
    assert [(fence.start, fence.end) for fence in result.fences] == [(allocated.end, place)]
    assert result.max_phy_offset == place + len(record)


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
    checkpoint = StoreCheckpoint.load(root / "checkpoint")
    clues = LogClues(now_ms=time.time_ns() // 1_000_000)
    result = recover_commit_log(queue, checkpoint, mode, clues)
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
