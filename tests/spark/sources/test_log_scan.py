"""Scans of commit-log files: whole, cut, flipped, forged and half written."""

from __future__ import annotations

import errno
import lzma
import os
import random
import tarfile
from pathlib import Path

import pytest

from spark.sources.log_scan import Damage, LogFile
from spark.sources.log_window import WINDOW
from store.body_crcs import STEP
from store.message_codec import RecordKind, check_record, encode_blank, encode_record, fixed_size
from tests.spark.sources.written_logs import (
    BORN_MS,
    Scanned,
    WrittenLog,
    holes,
    scanned,
    written_log,
)
from tests.support.counted_crcs import CountedCrcs
from tests.support.memory_commit_log import MemoryCommitLog, message
from tests.support.nested_heads import heads_and_record, nested_heads

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def one_by_one(file: LogFile) -> list[tuple[int, int]]:
    """The records by check_record alone."""
    data = Path(file.path).read_bytes()
    found, at = [], 0
    while True:
        result = check_record(data, at, len(data), file.start + at, check_crc=True)
        if result.kind is not RecordKind.MESSAGE:
            return found
        found.append((file.start + at, file.start + at + result.size))
        at += result.size


def write_and_scan(log: WrittenLog, directory: Path, **more: object) -> Scanned:
    return scanned(log.file(log.write(directory), **more))


def golden_files(unpacked: Path) -> list[Path]:
    for packed in ("compaction-5.3.3/uncompacted", "rocksdb-5.3.3/store-clean"):
        with tarfile.open(fileobj=lzma.open(GOLDEN / f"{packed}.tar.xz")) as archive:
            archive.extractall(unpacked / packed, filter="data")
    places = [*GOLDEN.glob("store-*/**/commitlog"), *unpacked.glob("**/commitlog")]
    return [file for place in places for file in sorted(place.iterdir())]


def test_files_of_java_brokers(tmp_path: Path) -> None:
    files = golden_files(tmp_path)
    assert len(files) >= 9
    for path in files:
        file = LogFile(str(path), int(path.name), path.stat().st_size, is_newest=True)
        found = scanned(file)
        assert found.records == one_by_one(file), path
        assert not found.damages, path


@pytest.mark.parametrize("start", [0, 1 << 40])
def test_all_records_of_a_whole_file(tmp_path: Path, start: int) -> None:
    log = written_log(400, start=start)
    found = write_and_scan(log, tmp_path)
    assert found.records == [(start + at, start + end) for at, end in log.places]
    assert not found.damages


def test_records_longer_than_a_window(tmp_path: Path) -> None:
    log = written_log(4, sizes=(WINDOW + 5, 10))
    assert any(end - at > WINDOW for at, end in log.places)
    found = write_and_scan(log, tmp_path)
    assert found.records == log.places
    assert not found.damages


def test_many_windows(tmp_path: Path) -> None:
    log = written_log(1200, sizes=(20000,))
    assert len(log.data) > 2 * WINDOW
    assert write_and_scan(log, tmp_path).records == log.places


# -- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_flipped_bytes_cost_only_the_records_that_they_hit(tmp_path: Path, seed: int) -> None:
    """Every record without a flip is there; all else up to the blank record is damage, or a record
    whose flip no check covers."""
    choice = random.Random(seed)
    log = written_log(60, seed=seed)
    end = log.places[-1][1]
    hit: set[int] = set()
    for _ in range(choice.choice([1, 1, 3, 10, 40])):
        at, length = choice.randrange(end), choice.choice([1, 1, 4, 200])
        for place in range(at, min(at + length, end)):
            log.data[place] ^= choice.randrange(1, 256)
            hit.add(place)
    intact = [(at, to) for at, to in log.places if hit.isdisjoint(range(at, to))]
    found = write_and_scan(log, tmp_path)
    assert set(intact) <= set(found.records)
    assert set(found.records) <= set(log.places)
    assert not list(holes(found.pieces, 0))
    assert found.pieces[-1][1] == end
    for damage in found.damages:
        assert not hit.isdisjoint(range(damage.start, damage.end))


def test_a_record_with_a_wrong_body_is_named(tmp_path: Path) -> None:
    log = written_log(20, sizes=(300,))
    at, end = log.places[7]
    log.data[end - 200] ^= 1
    found = write_and_scan(log, tmp_path)
    (damage,) = found.damages
    assert (damage.kind, damage.start, damage.end) == ("record", at, end)
    assert "bodyCRC" in damage.reason
    assert damage.message is not None
    assert damage.message.queue_offset == 7


@pytest.mark.parametrize("lie", [0, -1, 1, 87, 91, 5000, 1 << 30, -(1 << 31), (1 << 31) - 1])
@pytest.mark.parametrize("field", ["total", "body"])
def test_sizes_that_lie(tmp_path: Path, lie: int, field: str) -> None:
    log = written_log(20, sizes=(300,))
    at = log.places[7][0]
    sys_flag = int.from_bytes(log.data[at + 36 : at + 40], "big")
    place = at if field == "total" else at + fixed_size(sys_flag) - 6
    log.data[place : place + 4] = lie.to_bytes(4, "big", signed=True)
    found = write_and_scan(log, tmp_path)
    assert found.records == log.places[:7] + log.places[8:]
    assert [(each.start, each.end) for each in found.damages] == [log.places[7]]


def test_sizes_that_agree_and_lead_into_the_next_record(tmp_path: Path) -> None:
    log = written_log(20, sizes=(300,))
    at, end = log.places[7]
    properties = log.data.rindex(b"UNIQ_KEY", at, end) - 2
    for place, length in ((at, 4), (properties, 2)):
        size = int.from_bytes(log.data[place : place + length], "big") + 50
        log.data[place : place + length] = size.to_bytes(length, "big")
    log.data[at + 150] ^= 1
    assert write_and_scan(log, tmp_path).records == log.places[:7] + log.places[8:]


@pytest.mark.parametrize("before", [0, 1, 20, 80, 87, 88, 89, 200])
def test_the_next_record_lies_across_what_is_searched_at_once(tmp_path: Path, before: int) -> None:
    place = 1 + (1 << 20) - before
    log = MemoryCommitLog(1 << 30)
    log.append(message("T", body=bytes([7]) * (place - 92)))
    log.append(message("T"))
    data = bytearray(log.data)
    places = [(0, place), (place, len(data))]
    data[4] ^= 0xFF
    found = write_and_scan(WrittenLog(data, 0, places), tmp_path, is_newest=True)
    assert found.records == places[1:]


def test_a_blank_record_is_found_behind_damage(tmp_path: Path) -> None:
    log = written_log(20, left=5000)
    log.data[log.places[19][0] + 4] ^= 0xFF
    found = write_and_scan(log, tmp_path)
    assert [(each.start, each.end) for each in found.damages] == [log.places[19]]


def test_a_forged_blank_record_in_a_damaged_one_does_not_end_the_file(tmp_path: Path) -> None:
    log = written_log(20, sizes=(300,))
    at = log.places[7][0]
    log.data[at + 4] ^= 0xFF
    place = at + 120
    log.data[place : place + 8] = encode_blank(len(log.data) - place)
    assert write_and_scan(log, tmp_path).records == log.places[:7] + log.places[8:]


def test_records_of_an_older_use_of_the_file_are_damage(tmp_path: Path) -> None:
    """A Java broker that cut its log leaves them behind; what it wrote since is younger."""
    log = written_log(20, sizes=(300,), blank=False)
    at, end = log.places[12]
    older = message("Old", body=bytes(end - at - 94), phy_offset=at, store_timestamp=BORN_MS - 5)
    log.data[at:end] = encode_record(older)
    log.data[log.places[11][0] + 4] ^= 0xFF
    found = write_and_scan(log, tmp_path)
    assert log.places[12] not in found.records
    assert found.records == log.places[:11] + log.places[13:]


def test_nothing_is_damage_but_zeros_between_records_are(tmp_path: Path) -> None:
    log = written_log(20)
    (at, _), (_, end) = log.places[5], log.places[8]
    log.data[at:end] = bytes(end - at)
    (damage,) = write_and_scan(log, tmp_path).damages
    assert (damage.start, damage.end, damage.reason) == (at, end, "zero bytes")


def test_bytes_at_random(tmp_path: Path) -> None:
    data = bytearray(random.Random(1).randbytes(3 << 20))
    log = WrittenLog(data, 0, [])
    found = write_and_scan(log, tmp_path)
    assert [(each.kind, each.start, each.end) for each in found.damages] == [
        ("bytes", 0, len(data))
    ]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each read of a file."""
    counts = []
    preadv = os.preadv

    def counted(fd: int, buffers: list[memoryview], position: int) -> int:
        counts.append(preadv(fd, buffers, position))
        return counts[-1]

    monkeypatch.setattr(os, "preadv", counted)
    return counts


@pytest.mark.parametrize("start", [0, 1 << 40])
def test_a_record_right_behind_heads_within_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[int], start: int
) -> None:
    """However many they are, and however long it is; and each byte is read a few times at most."""
    counted = CountedCrcs(monkeypatch)
    for size in (256 << 10, 512 << 10):
        data, at, end = heads_and_record(size, start)
        counted.bytes = 0
        read.clear()
        (tmp_path / str(size)).mkdir()
        log = WrittenLog(data, start, [(at, end)])
        found = write_and_scan(log, tmp_path / str(size))
        assert found.pieces == [(start, start + at), (start + at, start + end)]
        assert counted.bytes < 6 * len(data) + 2 * STEP * (size // 400)
        assert sum(read) == len(data)


def test_heads_within_heads_that_end_far_behind(tmp_path: Path, read: list[int]) -> None:
    """Each a bit farther than the one before: what is loaded is kept."""
    data = nested_heads(3 * WINDOW, step=WINDOW // 16, ends=40)
    found = write_and_scan(WrittenLog(data, 0, []), tmp_path)
    assert found.pieces == [(0, len(data) - 8)]
    assert sum(read) <= 2 * len(data)


def test_a_record_that_is_too_long_is_stepped_over(tmp_path: Path) -> None:
    log = written_log(5, sizes=(300, WINDOW))
    long = [place for place in log.places if place[1] - place[0] > WINDOW]
    assert long
    found = scanned(log.file(log.write(tmp_path)), longest_record=WINDOW)
    assert [(each.start, each.end) for each in found.damages] == long
    assert all("maxRecordBytes" in each.reason for each in found.damages)
    assert found.records == [place for place in log.places if place not in long]


# -- ends --------------------------------------------------------------------------------------


def test_a_cut_file(tmp_path: Path) -> None:
    log = written_log(20, sizes=(300,))
    size, cut = len(log.data), log.places[15][0] + 50
    del log.data[cut:]
    found = write_and_scan(log, tmp_path, size=size)
    assert found.records == log.places[:15]
    assert [(each.kind, each.start, each.end) for each in found.damages] == [
        ("bytes", log.places[15][0], cut),
        ("truncated", cut, size),
    ]
    newest = write_and_scan(log, tmp_path, size=size, is_newest=True)
    assert [each.start for each in newest.damages] == [log.places[15][0]]


@pytest.mark.parametrize("is_newest", [True, False])
def test_a_file_of_no_bytes(tmp_path: Path, is_newest: bool) -> None:
    log = WrittenLog(bytearray(), 4096, [])
    found = write_and_scan(log, tmp_path, size=4096, is_newest=is_newest)
    assert not found.records
    assert [each.kind for each in found.damages] == ([] if is_newest else ["truncated"])


def test_zeros_end_the_newest_file_only(tmp_path: Path) -> None:
    log = written_log(20, blank=False)
    end = log.places[-1][1]
    assert not write_and_scan(log, tmp_path, is_newest=True).damages
    (damage,) = write_and_scan(log, tmp_path).damages
    assert (damage.kind, damage.start, damage.end) == ("bytes", end, len(log.data))


@pytest.mark.parametrize("written", [4, 30, 100, 250])
def test_a_record_that_is_being_written_is_no_damage(tmp_path: Path, written: int) -> None:
    log = written_log(20, sizes=(300,), blank=False)
    at, end = log.places[-1]
    log.data[at + written : end] = bytes(end - at - written)
    found = write_and_scan(log, tmp_path, is_newest=True, is_written=True)
    assert found.records == log.places[:-1]
    assert not found.damages
    closed = write_and_scan(log, tmp_path, is_newest=True)
    assert [each.start for each in closed.damages] == [at]


def test_a_record_whose_middle_is_not_written_yet(tmp_path: Path) -> None:
    log = written_log(20, sizes=(300,), blank=False)
    at, _ = log.places[-1]
    log.data[at + 150 : at + 250] = bytes(100)
    found = write_and_scan(log, tmp_path, is_newest=True, is_written=True)
    assert found.records == log.places[:-1]
    assert not found.damages
    (damage,) = write_and_scan(log, tmp_path, is_newest=True).damages
    assert (damage.kind, damage.start) == ("record", at)


def test_damage_before_the_end_of_a_log_that_is_written(tmp_path: Path) -> None:
    log = written_log(20, sizes=(300,), blank=False)
    log.data[log.places[10][0] + 200] ^= 1
    found = write_and_scan(log, tmp_path, is_newest=True, is_written=True)
    assert [(each.start, each.end) for each in found.damages] == [log.places[10]]
    assert found.records == log.places[:10] + log.places[11:]


def test_a_file_of_1_gib_that_is_a_hole(tmp_path: Path) -> None:
    log = written_log(20)
    path = log.write(tmp_path)
    os.truncate(path, 1 << 30)
    found = scanned(log.file(path, size=1 << 30, is_newest=True))
    assert found.records == log.places
    # The blank record lies where the file ended before: it has the wrong size now.
    assert [each.start for each in found.damages] == [log.places[-1][1]]


# -- disks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_newest", [True, False])
def test_a_bad_sector_costs_the_records_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_newest: bool
) -> None:
    log = written_log(100, sizes=(300,), blank=not is_newest)
    bad = range(2 * 4096, 3 * 4096)
    read = os.preadv

    def preadv(fd: int, buffers: list[memoryview], position: int) -> int:
        if position in bad:
            raise OSError(errno.EIO, "Input/output error")
        size = min(len(buffers[0]), bad[0] - position) if position < bad[0] else len(buffers[0])
        return read(fd, [buffers[0][:size]], position)

    monkeypatch.setattr(os, "preadv", preadv)
    found = write_and_scan(log, tmp_path, is_newest=is_newest)
    hit = [(at, end) for at, end in log.places if at < bad[-1] + 1 and end > bad[0]]
    assert found.records == [place for place in log.places if place not in hit]
    assert (found.damages[0].start, found.damages[-1].end) == (hit[0][0], hit[-1][1])
    assert all("Input/output error" in each.reason for each in found.damages)


def test_the_end_of_a_newest_file_that_cannot_be_read_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written_log(20, left=9000, blank=False)
    end = log.places[-1][1]
    first = -(-end // 4096) * 4096
    read = os.preadv

    def preadv(fd: int, buffers: list[memoryview], position: int) -> int:
        if position >= first:
            raise OSError(errno.EIO, "Input/output error")
        return read(fd, [buffers[0][: first - position]], position)

    monkeypatch.setattr(os, "preadv", preadv)
    (damage,) = write_and_scan(log, tmp_path, is_newest=True).damages
    assert (damage.start, damage.end) == (end, len(log.data))


def test_a_file_that_becomes_shorter_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written_log(100, sizes=(300,))
    path = log.write(tmp_path)
    cut = log.places[50][0] + 10
    read = os.preadv

    def preadv(fd: int, buffers: list[memoryview], position: int) -> int:
        os.truncate(path, cut)
        return read(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", preadv)
    found = scanned(log.file(path))
    assert found.records == log.places[:50]
    assert isinstance(found.damages[0], Damage)
    assert "became shorter" in found.damages[0].reason
    assert found.damages[-1].end == len(log.data)
