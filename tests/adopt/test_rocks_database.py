"""Databases are read without changing a byte, and refused by name where they are damaged."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import rocksdict

from adopt import rocks_database
from adopt.rocks_database import RocksDatabase, is_database, write_database
from store.errors import StoreError
from tests.adopt.golden_stores import copied, snapshot, unpack_all


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    unpack_all(directory)
    return directory


def read_all(place: Path) -> list[tuple[bytes, bytes]]:
    with RocksDatabase(place) as database:
        return [entry for family in database.families for entry in database.entries(family)]


def test_reading_changes_nothing(golden: Path) -> None:
    before = snapshot(golden / "clean")
    with RocksDatabase(golden / "clean/consumequeue") as database:
        assert len(list(database.entries("default"))) == 1000
        assert list(database.entries("nothing")) == []
    assert snapshot(golden / "clean") == before


def test_what_is_no_database(golden: Path, tmp_path: Path) -> None:
    assert is_database(golden / "clean/consumequeue")
    assert not is_database(golden / "clean/commitlog")
    assert not is_database(tmp_path / "nothing")


def test_a_link_in_a_database_is_refused(golden: Path, tmp_path: Path) -> None:
    place = copied(golden / "clean/config/topics", tmp_path / "topics")
    (place / "000099.sst").symlink_to("/etc/passwd")
    with pytest.raises(StoreError, match=r"000099\.sst: not a plain file"):
        RocksDatabase(place)


def test_a_pipe_is_refused_and_not_waited_for(golden: Path, tmp_path: Path) -> None:
    place = copied(golden / "clean/config/topics", tmp_path / "topics")
    os.mkfifo(place / "000099.log")
    with pytest.raises(StoreError, match=r"000099\.log: not a plain file"):
        RocksDatabase(place)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((name, way) for name in ("CURRENT", "000013.sst") for way in ("cut", "zeros", "gone")),
        *(("MANIFEST-000005", way) for way in ("zeros", "gone")),  # RocksDB ends it where it is cut
    ],
)
def test_damage_is_named_with_a_way_out(golden: Path, tmp_path: Path, name: str, way: str) -> None:
    place = copied(golden / "clean/config/topics", tmp_path / "topics")
    path = place / name
    raw = path.read_bytes()
    if way == "gone":
        path.unlink()
    else:
        path.write_bytes(raw[: len(raw) // 2] if way == "cut" else bytes(len(raw)))
    with pytest.raises(StoreError, match=r"topics: RocksDB cannot read it: .*copy"):
        read_all(place)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_a_damaged_block_is_not_the_end(tmp_path: Path, share: float) -> None:
    """The library's own iterator ends there without a word."""
    write_database(tmp_path / "db", {"default": [(b"%05d" % n, bytes(50)) for n in range(5000)]})
    assert len(read_all(tmp_path / "db")) == 5000
    (path,) = (tmp_path / "db").glob("*.sst")
    flip(path, 20 + int(path.stat().st_size * share))
    with pytest.raises(StoreError, match="RocksDB cannot read it: Corruption"):
        read_all(tmp_path / "db")


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A database whose process had written to its log only: it is copied while it is open."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    database = rocksdict.Rdict(str(tmp_path / "open"), options)
    for number in range(100):
        database[b"%05d" % number] = bytes(50)
    database.flush_wal(True)
    place = copied(tmp_path / "open", tmp_path / "killed")
    database.close()
    return place


def test_what_a_kill_cut_off_a_log_is_left_out(killed: Path) -> None:
    assert len(read_all(killed)) == 100
    (path,) = killed.glob("*.log")
    path.write_bytes(path.read_bytes()[:-20])
    assert len(read_all(killed)) == 99


def test_damage_within_a_log_is_not_its_end(killed: Path) -> None:
    (path,) = killed.glob("*.log")
    flip(path, path.stat().st_size // 2)
    with pytest.raises(StoreError, match="RocksDB cannot read it: Corruption"):
        read_all(killed)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_huge_values_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_database(tmp_path / "db", {"default": [(b"k", bytes(2000))]})
    monkeypatch.setattr(rocks_database, "MAX_VALUE", 1000)
    with pytest.raises(StoreError, match="a value of 2000 bytes"):
        read_all(tmp_path / "db")


def test_without_the_library(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(StoreError, match=r"rocksdict.*bin/mqadopt"):
        RocksDatabase(golden / "clean/consumequeue")
