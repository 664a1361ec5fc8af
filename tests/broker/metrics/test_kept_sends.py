"""The page of counters that outlives a broker's processes: what the next life reads of it."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from broker.metrics import kept_sends
from broker.metrics.kept_sends import KeptSends, create_kept_sends, read_kept_sends
from remoting.response_code import ResponseCode

LIFE = "0123456789abcdef"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "page"


def written(path: Path) -> KeptSends:
    fd = create_kept_sends(path)
    page = KeptSends(fd)
    os.close(fd)
    return page


def test_the_next_life_reads_what_was_counted(path: Path) -> None:
    page = written(path)
    page.claim(LIFE)
    page.answered(ResponseCode.SUCCESS, 0.5, 3, locked=False)
    page.answered(ResponseCode.SUCCESS, 20.0, 1, locked=True)
    page.answered(ResponseCode.TOPIC_NOT_EXIST, 5000.0, 2, locked=True)
    page.answered(ResponseCode.FLUSH_DISK_TIMEOUT, 1.0, 1, locked=False)
    page.waited(ResponseCode.SLAVE_NOT_AVAILABLE, 4)
    assert read_kept_sends(path) == {
        "boot": LIFE,
        "uncounted_ms": 64,
        "sync": {
            "ok": 0,
            "flush_slave_timeout": 0,
            "slave_not_available": 4,
            "flush_disk_timeout": 0,
        },
        "sends": {
            "ok": 4,
            "flush_slave_timeout": 0,
            "slave_not_available": 0,
            "flush_disk_timeout": 1,
            "refused": 2,
            "latency": {
                "le": [0.001, 0.003, 0.005, 0.007, 0.01, 0.1, 1.0, 2.0, 3.0],
                "counts": [4, 0, 0, 0, 0, 1, 0, 0, 0, 2],
                "sum": 10.0225,
            },
        },
    }


def test_a_new_life_begins_with_zeros_in_another_file(path: Path) -> None:
    old = written(path)
    old.claim(LIFE)
    new = written(path)
    new.claim("f" * 16)
    old.waited(ResponseCode.SUCCESS, 1)
    found = read_kept_sends(path)
    assert found is not None
    assert (found["boot"], found["sync"]["ok"]) == ("f" * 16, 0)
    assert [entry.name for entry in path.parent.iterdir()] == ["page"]


def test_a_life_without_a_dump_tells_nothing(path: Path) -> None:
    written(path).waited(ResponseCode.SUCCESS, 1)
    assert read_kept_sends(path) is None


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (0, b"another boot"),
        (64, b"\xff"),
        (512, struct.pack("=d", float("nan"))),
        (512, struct.pack("=d", -1.0)),
        (520, struct.pack("=d", 1e300)),
        (4096, b"longer"),
    ],
)
def test_a_page_that_is_not_believed(path: Path, at: int, data: bytes) -> None:
    written(path).claim(LIFE)
    assert read_kept_sends(path) is not None
    page = bytearray(path.read_bytes())
    page[at : at + len(data)] = data
    path.write_bytes(page)
    assert read_kept_sends(path) is None


def test_a_page_that_was_cut_or_is_missing(path: Path) -> None:
    assert read_kept_sends(path) is None
    written(path).claim(LIFE)
    os.truncate(path, 700)
    assert read_kept_sends(path) is None


def test_a_full_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker starts without a page; that of the life before is gone, so that nobody takes it
    for this one's."""
    written(path).claim(LIFE)
    monkeypatch.setattr(kept_sends, "take_blocks", lambda *_: False)
    assert create_kept_sends(path) == -1
    assert "no space left on the disk" in caplog.text
    assert list(path.parent.iterdir()) == []
    KeptSends(-1).waited(ResponseCode.SUCCESS, 1)


def test_a_directory_that_is_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert create_kept_sends(tmp_path / "none" / "page") == -1
    assert "No such file" in caplog.text
