"""Databases are read without changing a byte, and refused by name where they are damaged."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

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


def test_huge_values_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_database(tmp_path / "db", {"default": [(b"k", bytes(2000))]})
    monkeypatch.setattr(rocks_database, "MAX_VALUE", 1000)
    with pytest.raises(StoreError, match="a value of 2000 bytes"):
        read_all(tmp_path / "db")


def test_without_the_library(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(StoreError, match=r"rocksdict.*bin/mqadopt"):
        RocksDatabase(golden / "clean/consumequeue")
