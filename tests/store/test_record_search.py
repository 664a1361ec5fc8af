"""The search for whole records behind damage reads linearly much, whatever the bytes say, and
passes over none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from store.body_crcs import STEP as CRC_STEP
from store.body_crcs import BodyCrcs
from store.disk_reader import DiskReader
from store.file_scan import FileScan
from store.log_fences import NO_FENCES
from store.mapped_file_queue import MappedFileQueue
from store.message_codec import encode_record
from store.record_search import find_in_view, find_published
from store.recovery import LogClues, RecoveryMode, recover_commit_log
from store.store_checkpoint import StoreCheckpoint
from tests.support.counted_crcs import CountedCrcs
from tests.support.memory_commit_log import MemoryCommitLog, message
from tests.support.nested_heads import (
    STEP,
    heads_and_record,
    heads_between_records,
    nested_heads,
)
from tests.support.plain_log import PlainLog

Judge = Callable[[bytearray, Path], list[tuple[int, int]]]
SIZES = (256 << 10, 512 << 10, 1 << 20)

pytestmark = pytest.mark.interpreted


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> CountedCrcs:
    return CountedCrcs(monkeypatch)


def found(data: bytearray, start: int = 0, not_before: int = 0) -> int:
    return find_in_view(memoryview(data), 0, len(data), len(data), start, not_before=not_before)


def allowed(size: int, step: int = STEP) -> int:
    """Each byte twice, and for each head a bit at both ends of its body."""
    return 2 * size + 2 * CRC_STEP * (size // step + 1)


@pytest.mark.parametrize("step", [STEP, 92])
@pytest.mark.parametrize("start", [0, 1 << 40])
def test_heads_within_heads_are_not_each_read_to_the_end(
    read: CountedCrcs, start: int, step: int
) -> None:
    for size in SIZES:
        data = nested_heads(size, start, step=step)
        read.bytes = 0
        assert found(data, start) == -1
        assert size < read.bytes <= allowed(size, step)


def test_wherever_they_end(read: CountedCrcs) -> None:
    for size in SIZES:
        data = nested_heads(size, ends=500)
        read.bytes = 0
        assert found(data) == -1
        assert size < read.bytes <= allowed(size)


def test_records_of_an_older_use_of_the_file_within_each_other(read: CountedCrcs) -> None:
    """All their bodies are right: only their times are not."""
    for size in SIZES[:2]:
        data = nested_heads(size, store_timestamp=5)
        read.bytes = 0
        assert found(data, not_before=6) == -1
        assert size < read.bytes <= allowed(size)
        assert found(data, not_before=5) == 1


def test_the_searches_of_a_scan_share_what_they_have_read(read: CountedCrcs) -> None:
    """Damage again and again, each followed by such bytes."""
    size = SIZES[-1]
    data, crcs = nested_heads(size), BodyCrcs()
    view, step = memoryview(data), size // 64
    for position in range(0, size, step):
        assert find_in_view(view, position, position + step, size, 0, crcs=crcs) == -1
    assert size < read.bytes <= allowed(size)


@pytest.mark.parametrize("start", [0, 1 << 40])
def test_a_record_right_behind_them_is_found(read: CountedCrcs, start: int) -> None:
    """However long it is."""
    for size in SIZES:
        data, at, _ = heads_and_record(size, start)
        read.bytes = 0
        assert found(data, start) == at
        assert read.bytes <= allowed(2 * size)


def test_one_that_is_being_dispatched(read: CountedCrcs) -> None:
    data, at, end = heads_and_record(SIZES[0])
    log = MemoryCommitLog(len(data))
    log.data += data
    read.bytes = 0
    assert find_published(log, 1, end) == at
    assert read.bytes <= allowed(2 * SIZES[0])


def test_a_record_among_them_is_found(read: CountedCrcs) -> None:
    size = SIZES[0]
    data = nested_heads(size)
    at = size - 8 - STEP + 101
    data[at - 1] = 0
    record = encode_record(message("T", body=b"good", phy_offset=at))
    data[at : at + len(record)] = record
    assert found(data) == at


def test_what_is_no_record_by_its_head_costs_nothing(read: CountedCrcs) -> None:
    data = nested_heads(SIZES[0])
    data[SIZES[0] - 12] = 9  # No topic ends where a record would.
    read.bytes = 0
    assert found(data) == -1
    assert read.bytes == 0


def recovered(data: bytearray, directory: Path) -> list[tuple[int, int]]:
    """What recovery fences of a file."""
    log = PlainLog(directory / "commitlog", len(data))
    log.put(0, data)
    queue = MappedFileQueue(log.directory, log.file_size)
    queue.load()
    checkpoint = StoreCheckpoint(directory / "checkpoint")
    result = recover_commit_log(
        queue, checkpoint, RecoveryMode.ABNORMAL, LogClues(now_ms=1 << 41), check_crc=True
    )
    queue.close()
    return [(fence.start, fence.end) for fence in result.fences]


def scrubbed(data: bytearray, directory: Path) -> list[tuple[int, int]]:
    """What the scrub finds damaged."""
    path = directory / "file"
    path.write_bytes(data)
    with DiskReader(path) as reader:
        scan = FileScan(reader, 0, memoryview(data), NO_FENCES, now_ms=1 << 41)
        return [(each.start, each.end) for each in scan.run().damages]


@pytest.mark.parametrize("judge", [recovered, scrubbed])
def test_who_searches_finds_the_record(judge: Judge, read: CountedCrcs, tmp_path: Path) -> None:
    for size in SIZES[:2]:
        data, at, _ = heads_and_record(size)
        read.bytes = 0
        (tmp_path / str(size)).mkdir()
        assert judge(data, tmp_path / str(size)) == [(0, at)]
        assert read.bytes <= allowed(2 * size) + 2 * size  # the record once more by the walk


@pytest.mark.parametrize("judge", [recovered, scrubbed])
def test_heads_between_records_are_not_each_read_to_the_end(
    judge: Judge, read: CountedCrcs, tmp_path: Path
) -> None:
    """They are walked, searched behind, and walked again."""
    counts = []
    for size in SIZES[:2]:
        read.bytes = 0
        (tmp_path / str(size)).mkdir()
        found = judge(heads_between_records(size), tmp_path / str(size))
        assert len(found) > size // STEP - 4
        counts.append(read.bytes)
    assert SIZES[0] < counts[0] < counts[1] < 2.2 * counts[0]
