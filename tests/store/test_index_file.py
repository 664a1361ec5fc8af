"""One index file against a plain loop that does what the original's putKey does."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.errors import DiskFullError, WrongFileSizeError
from store.index_file import INDEX_HEADER, IndexFile, index_file_size

SLOTS, UNITS = 7, 40
START = 1_795_177_732_448


def create(path: Path, *, end_phy_offset: int = 0, end_timestamp: int = 0) -> IndexFile:
    return IndexFile.create(
        path, SLOTS, UNITS, end_phy_offset=end_phy_offset, end_timestamp=end_timestamp
    )


def put(file: IndexFile, entries: list[tuple[int, int, int]]) -> int:
    columns = np.array(entries, np.int64).reshape(len(entries), 3).T
    return file.put_batch(columns[0], columns[1], columns[2])


def put_naively(data: bytearray, entries: list[tuple[int, int, int]]) -> None:
    """The original's way, one entry after the other, on a file's bytes."""
    for key_hash, phy_offset, timestamp in entries:
        begin, _end, begin_phy, _end_phy, used, count = INDEX_HEADER.unpack_from(data, 0)
        count = max(count, 1)
        if count >= UNITS:
            return
        slot_at = 40 + 4 * (key_hash % SLOTS)
        (head,) = struct.unpack_from(">i", data, slot_at)
        if not 0 < head < count:
            head = 0
        seconds = min(max((timestamp - begin) // 1000, 0), (1 << 31) - 1) if begin > 0 else 0
        unit_at = 40 + 4 * SLOTS + 20 * count
        struct.pack_into(">iqii", data, unit_at, key_hash, phy_offset, seconds, head)
        struct.pack_into(">i", data, slot_at, count)
        if count <= 1:
            begin, begin_phy = timestamp, phy_offset
        used += head == 0
        INDEX_HEADER.pack_into(data, 0, begin, timestamp, begin_phy, phy_offset, used, count + 1)


ENTRIES = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 9), st.integers(0, (1 << 31) - 1)),
        st.integers(0, 1 << 50),
        st.integers(START - 5000, START + 10**7),
    ),
    min_size=1,
    max_size=25,
)


@given(st.lists(ENTRIES, min_size=1, max_size=4), st.booleans())
def test_batches_give_the_bytes_of_single_puts(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[int, int, int]]],
    follows_a_file: bool,
) -> None:
    path = tmp_path_factory.mktemp("index") / "1"
    preset = {"end_phy_offset": 77, "end_timestamp": START - 1500} if follows_a_file else {}
    file = create(path, **preset)
    expected = bytearray(path.read_bytes())
    for batch in batches:
        taken = put(file, batch)
        assert taken == len(batch) or file.is_full
        put_naively(expected, batch)
    assert path.read_bytes() == expected
    file.close()


def test_header_of_a_fresh_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "1"
    file = create(path, end_phy_offset=9, end_timestamp=START)
    assert path.stat().st_size == index_file_size(SLOTS, UNITS) == 40 + 28 + 800
    assert file.header == (START, START, 9, 9, 0, 1)
    with pytest.raises(FileExistsError):
        create(path)


@pytest.mark.parametrize("call", ["open", "ftruncate", "posix_fallocate", "fsync"])
def test_a_file_that_finds_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whichever call says so: dispatch waits for room instead of ending."""

    def no_space(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "1"
    with monkeypatch.context() as patch:
        patch.setattr(os, call, no_space)
        with pytest.raises(DiskFullError, match="writing index file"):
            create(path)
    path.unlink(missing_ok=True)
    assert create(path).unit_count == 1


def select(file: IndexFile, key_hash: int, *, begin: int = 0, end: int = 1 << 60) -> list[int]:
    found: list[int] = []
    file.select_phy_offsets(found, key_hash, 5, begin, end)
    return found


def test_chains_newest_first_and_bounded(tmp_path: Path) -> None:
    file = create(tmp_path / "1")
    put(file, [(3, n, START + 1000 * n) for n in range(4)] + [(10, 99, START + 5000)])
    put(file, [(3, n, START + 1000 * n) for n in range(10, 14)])
    assert select(file, 3) == [13, 12, 11, 10, 3]
    assert select(file, 10) == [99]
    assert select(file, 17) == []
    assert select(file, 3, begin=START + 1000, end=START + 3999) == [3, 2, 1]
    assert list(file.last_units()) == [13, 12, 11, 10, 99, 3, 2, 1, 0]


def test_a_reader_sees_what_is_written_later(tmp_path: Path) -> None:
    file = create(tmp_path / "1")
    reader = IndexFile(tmp_path / "1", SLOTS, UNITS, writable=False)
    assert select(reader, 3) == []
    put(file, [(3, 42, START)])
    assert select(reader, 3) == [42]
    assert reader.is_time_matched(0, START)
    assert not reader.is_time_matched(START + 1, START + 2)
    reader.close()
    reader.close()


def test_a_batch_cut_by_a_crash_is_repaired(tmp_path: Path) -> None:
    """Slots were written, the header was not: the chains go back to what the header counts."""
    path = tmp_path / "1"
    file = create(path)
    put(file, [(3, 1, START), (4, 2, START)])
    header = path.read_bytes()[:40]
    put(file, [(3, 5, START), (3, 6, START), (5, 7, START)])
    with path.open("r+b") as raw:
        raw.write(header)
    assert file.repair_chains() == 2
    assert [select(file, key_hash) for key_hash in (3, 4, 5)] == [[1], [2], []]
    assert file.repair_chains() == 0
    put(file, [(3, 5, START)])
    assert select(file, 3) == [5, 1]


def test_damaged_chains_end(tmp_path: Path) -> None:
    path = tmp_path / "1"
    file = create(path)
    put(file, [(3, 1, START), (3, 2, START)])
    with path.open("r+b") as raw:
        raw.seek(40 + 28 + 2 * 20 + 16)
        raw.write(struct.pack(">i", 2))
    assert select(file, 3) == [2]


def test_wrong_size(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(bytes(100))
    with pytest.raises(WrongFileSizeError, match="maxIndexNum"):
        IndexFile(tmp_path / "1", SLOTS, UNITS, writable=True)


def test_full_file_takes_what_fits(tmp_path: Path) -> None:
    file = create(tmp_path / "1")
    assert put(file, [(n, n, START) for n in range(50)]) == UNITS - 1
    assert file.is_full
    assert put(file, [(1, 1, START)]) == 0
    file.flush()
    file.destroy()
    assert list(tmp_path.iterdir()) == []
