from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from store.check import main
from store.errors import StoreError
from store.store_checker import check_store
from tests.support.plain_log import FILE_SIZE, PlainLog

REPO = Path(__file__).parents[2]
GOLDEN = REPO / "tests" / "golden" / "store-G"
QUEUE = "consumequeue/GTopic/0/" + "0" * 20
INDEX = "index/20261120122852456"
LOG = "commitlog/" + "0" * 20
LOG_2 = "commitlog/" + "0" * 15 + "16384"


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "master", tmp_path / "store"))


@pytest.mark.parametrize(
    ("name", "records", "units", "entries"),
    [
        ("master", 55, 55, 97),
        ("slave", 55, 55, 97),
        ("slave2", 31, 51, 53),
        ("master-while-running", 55, 55, 97),
    ],
)
def test_golden_stores_are_clean(name: str, records: int, units: int, entries: int) -> None:
    report = check_store(GOLDEN / name)
    assert report.errors == []
    assert report.counts["records"] == records
    assert report.counts["consumequeue units"] == units
    assert report.counts["index entries"] == entries


def put(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def damage(name: str, position: int, data: bytes) -> Callable[[Path], None]:
    return lambda root: put(root / name, position, data)


def cut(name: str, size: int) -> Callable[[Path], None]:
    def run(root: Path) -> None:
        with (root / name).open("r+b") as file:
            file.truncate(size)

    return run


def drop_record(root: Path) -> None:
    """The last unit of a queue is lost."""
    put(root / QUEUE, 20 * 5, bytes(20))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (damage(LOG, 100, b"x"), "bodyCRC"),
        (damage(LOG, 28, struct.pack(">q", 99)), "physicalOffset"),
        (damage(LOG, 20, struct.pack(">q", 5)), "queueOffset"),
        (damage(LOG, 15165, struct.pack(">i", 1200)), "blank of 1200 bytes"),
        (damage(LOG_2, 10_000, b"x"), "byte 10000 behind the end is not zero"),
        (damage(LOG_2, 8347, b"x"), "magic"),
        (cut(LOG, 16000), "the first file has 16000"),
        (damage(QUEUE, 0, struct.pack(">q", 406)), "unit 0"),
        (damage(QUEUE, 8, struct.pack(">i", 7)), "size 7"),
        (damage(QUEUE, 0, struct.pack(">qi", 0, 205)), "is not record 0 of GTopic queue 0"),
        (damage(QUEUE, 1000, b"x"), "bytes behind its last unit"),
        (drop_record, "1 records have no unit"),
        (damage(QUEUE, 120, struct.pack(">qiq", 30_000, 200, 0)), "behind the end of the log"),
        (damage(INDEX, 36, struct.pack(">i", 9999)), "index count 9999"),
        (damage(INDEX, 40 + 4 * 13, struct.pack(">i", 98)), "slots point at no entry"),
        (damage(INDEX, 40 + 4 * 13, struct.pack(">i", 38)), "entries of other slots"),
        (damage(INDEX, 40 + 4000 + 20 * 5 + 16, struct.pack(">i", 5)), "chain leads forward"),
        (damage(INDEX, 40 + 4000 + 20 * 5 + 4, struct.pack(">q", 3)), "point at no record"),
        (cut(INDEX, 84_039), "not an index file"),
        (cut("checkpoint", 100), "100 bytes"),
        (damage("checkpoint", 0, struct.pack(">q", -1)), "physicMsgTimestamp"),
        (damage("checkpoint", 8, struct.pack(">q", 1 << 50)), "logicsMsgTimestamp"),
        (damage("config/topics.json", 0, b"["), "cannot be read as JSON"),
    ],
)
def test_damage_is_found(golden: Path, change: Callable[[Path], None], text: str) -> None:
    change(golden)
    report = check_store(golden)
    assert report.errors
    assert text in "\n".join(report.errors)


@pytest.mark.parametrize(
    "change",
    [
        damage(LOG_2, 10_000, b"x"),
        damage(LOG_2, 8347, b"x"),
        drop_record,
        damage(QUEUE, 120, struct.pack(">qiq", 30_000, 200, 0)),
    ],
)
def test_an_abort_file_excuses_unfinished_tails(
    golden: Path, change: Callable[[Path], None]
) -> None:
    change(golden)
    assert not check_store(golden).is_clean
    (golden / "abort").touch()
    report = check_store(golden)
    assert report.is_clean
    assert report.notes


def test_fastjson_keys_and_strings_that_look_like_them(golden: Path) -> None:
    (golden / "config" / "odd.json").write_text('{"a{1:2":{0:12,-1:7},"b":"\\"{3:4"}')
    assert check_store(golden).is_clean


def test_a_missing_file_in_the_middle(tmp_path: Path) -> None:
    log = PlainLog(tmp_path / "commitlog")
    while log.end < 2 * FILE_SIZE:
        log.append(b"x" * 500)
    assert check_store(tmp_path).is_clean
    log.path(FILE_SIZE).unlink()
    assert "is missing" in check_store(tmp_path).errors[0]


def test_empty_stores(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a store"):
        check_store(tmp_path)
    (tmp_path / "commitlog").mkdir()
    assert check_store(tmp_path).is_clean
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(bytes(1024))
    assert check_store(tmp_path).is_clean


def test_exit_status(golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(golden)]) == 0
    assert capsys.readouterr().out.endswith(f"{golden}: clean\n")
    for at in range(15):
        put(golden / QUEUE, 20 * at, struct.pack(">qiq", 1, 1, 1))
    assert main([str(golden)]) == 1
    assert "DAMAGED" in capsys.readouterr().out
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "not a store directory" in capsys.readouterr().out


def test_as_a_module(golden: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-m", "store.check", str(golden), "--hash-slots", "1000"],
        capture_output=True,
        text=True,
        cwd=REPO,
        timeout=60,
    )
    assert (found.returncode, found.stderr) == (0, "")
