"""The way back to RocksDB: what is written says what was there, at any kill; what cannot go back is
refused. With Java's broker: tests/interop/test_adoption.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from adopt.command_line import DONE, REFUSED, main
from adopt.config_tables import read_json, read_v1
from adopt.copied_files import SPARE
from adopt.rocks_database import RocksDatabase
from adopt.rocks_queues import read_bounds
from tests.adopt.golden_stores import QUEUES, copied, snapshot, unpack_all
from tests.adopt.test_adoption import KillError, kill_at

LOG_END = 236_940


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    unpack_all(directory)
    for name in ("double",):
        assert main([str(directory / name), "--to", str(directory / "files")]) == DONE
    return directory


def check(files: Path, back: Path) -> None:
    assert read_v1(back / "config").same_as(read_json(files / "config"))
    assert not (back / "config/topics.json").exists()
    assert not any(path.is_dir() for path in (back / "consumequeue").iterdir())
    name = "commitlog/" + "0" * 20
    assert (back / name).read_bytes() == (files / name).read_bytes()
    # Java builds what is behind it: nothing.
    assert read_bounds(back / "consumequeue").checkpoint == LOG_END


@pytest.mark.parametrize("in_place", [False, True], ids=["copy", "in-place"])
def test_a_kill_at_any_change_of_the_disk(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_place: bool
) -> None:
    """… and each goes on where it was."""
    files, back = golden / "files", tmp_path / "back"
    before = snapshot(files)
    if in_place:
        copied(files, back)
    place = [str(back), "--in-place"] if in_place else [str(files), "--to", str(back)]
    for number in range(1, 200):
        with monkeypatch.context() as patch:
            asked = kill_at(patch, number)
            try:
                status = main([*place, "--to-rocksdb"])
            except KillError:
                continue
        assert status == DONE
        assert number > max(3, len(asked))
        break
    check(files, back)
    after = snapshot(files)
    assert {n: each for n, each in after.items() if n != "lock"} == {
        n: each for n, each in before.items() if n != "lock"
    }
    if in_place:
        assert read_json(back / "adopt.aside.1/config").same_as(read_json(files / "config"))
        assert (back / "adopt.aside.1/consumequeue/TRocksA/0").is_dir()


def test_queues_without_messages_keep_their_places(golden: Path, tmp_path: Path) -> None:
    files = copied(golden / "files", tmp_path / "files")
    # All have expired.
    log = files / "commitlog" / f"{0:020d}"
    log.with_name(f"{log.stat().st_size:020d}").write_bytes(bytes(log.stat().st_size))
    log.unlink()
    unit = b"\0" * 8 + (100).to_bytes(4) + bytes(8)
    (files / "consumequeue/Expired/2").mkdir(parents=True)
    (files / "consumequeue/Expired/2" / f"{60_000:020d}").write_bytes(
        unit * 7 + bytes(60_000 - 140)
    )
    assert main([str(files), "--to-rocksdb", "--to", str(tmp_path / "back")]) == DONE
    assert read_bounds(tmp_path / "back/consumequeue").ends == QUEUES | {("Expired", 2): 3007}
    with RocksDatabase(tmp_path / "back/consumequeue") as database:
        assert not list(database.entries("default"))


def test_a_directory_that_is_no_queue_is_not_one(golden: Path, tmp_path: Path) -> None:
    files = copied(golden / "files", tmp_path / "files")
    for name in ("2147483648", "9999999999", "-1", "01", "x"):
        shutil.copytree(files / "consumequeue/TRocksC/0", files / "consumequeue/TRocksC" / name)
    assert main([str(files), "--to-rocksdb", "--to", str(tmp_path / "back")]) == DONE
    assert read_bounds(tmp_path / "back/consumequeue").ends == QUEUES


def test_there_and_back_again(golden: Path, tmp_path: Path) -> None:
    files = golden / "files"
    assert main([str(files), "--to-rocksdb", "--to", str(tmp_path / "back")]) == DONE
    assert main([str(tmp_path / "back"), "--to", str(tmp_path / "again")]) == DONE
    assert read_json(tmp_path / "again/config").same_as(read_json(files / "config"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("abort", "it was not stopped in an orderly way: start bin/mqbroker on it once"),
        ("imported_queues.json", "start bin/mqbroker on it once"),
        ("commitlog-fences.json", "Java ends a log at its damage"),
    ],
)
def test_what_cannot_go_back(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    files = copied(golden / "files", tmp_path / "files")
    (files / name).touch()
    assert main([str(files), "--to-rocksdb", "--to", str(tmp_path / "back")]) == REFUSED
    assert words in capsys.readouterr().out
    assert not (tmp_path / "back").exists()


def test_a_rocksdb_store_is_not_made_one(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(golden / "clean"), "--to-rocksdb", "--to", str(tmp_path / "back")]) == REFUSED
    assert "Java opens it as it is" in capsys.readouterr().out


def test_what_is_in_the_way_is_not_removed(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = copied(golden / "files", tmp_path / "files")
    (files / "config/topics").mkdir()
    (files / "config/topics/mine").touch()
    for way in (["--in-place"], ["--to", str(tmp_path / "back")]):
        assert main([str(files), "--to-rocksdb", *way]) == REFUSED
        assert "topics: in the way of a database; move it elsewhere" in capsys.readouterr().out
    assert (files / "config/topics/mine").exists()


@pytest.mark.parametrize("in_place", [False, True], ids=["copy", "in-place"])
def test_the_units_need_room(
    golden: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    in_place: bool,
) -> None:
    """1,000 of them, each twice, besides what is always kept free."""
    files = copied(golden / "files", tmp_path / "files")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=SPARE + 100_000))
    way = ["--in-place"] if in_place else ["--to", str(tmp_path / "back")]
    assert main([str(files), "--to-rocksdb", *way]) == REFUSED
    assert "bytes are needed" in capsys.readouterr().out
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert main([str(files), "--to-rocksdb", *way]) == DONE


def test_a_topic_named_as_a_file_of_rocksdb_keeps_its_queues(golden: Path, tmp_path: Path) -> None:
    files = copied(golden / "files", tmp_path / "files")
    for name in ("CURRENT", "MANIFEST-1"):
        (files / "consumequeue" / name / "0").mkdir(parents=True)
    assert main([str(files), "--to-rocksdb", "--in-place"]) == DONE
    assert (files / "adopt.aside.1/consumequeue/CURRENT/0").is_dir()
    assert (files / "adopt.aside.1/consumequeue/TRocksA/0").is_dir()


def test_a_damaged_entry_is_not_lost_on_the_way(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = copied(golden / "files", tmp_path / "files")
    table = files / "config/topics.json"
    table.write_text(table.read_text().replace('"perm":6', '"perm":"x"', 1))
    assert main([str(files), "--to-rocksdb", "--to", str(tmp_path / "back")]) == REFUSED
    assert "1 entries of" in capsys.readouterr().out
