"""dumpCompactionLog against what Java's prints of the same file; what is no such file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.archives import unpack
from tests.tools.mqadmin_bench import Bench

GOLDEN = Path(__file__).parents[1] / "golden" / "compaction-5.3.3"


@pytest.fixture
def java_file(tmp_path: Path) -> Path:
    """Compacted by Java: zeros follow its last message."""
    unpack(GOLDEN / "compacted.tar.xz", tmp_path)
    return tmp_path / "compaction" / "compactionLog" / "Compacted" / "1" / f"{0:020}"


def test_what_java_prints(mqadmin: Bench, java_file: Path) -> None:
    outcome = mqadmin.run("dumpCompactionLog", "-f", str(java_file))
    assert outcome.code == 0, outcome.err
    assert outcome.out == (GOLDEN / "dumpCompactionLog.txt").read_text(encoding="utf-8")


def test_as_json(mqadmin: Bench, java_file: Path) -> None:
    outcome = mqadmin.run("dumpCompactionLog", "-f", str(java_file), "--json")
    values = json.loads(outcome.out)
    assert [value["queueOffset"] for value in values][:2] == [0, 9]


def test_a_file_that_ends_with_a_blank(mqadmin: Bench, java_file: Path) -> None:
    content = java_file.read_bytes()
    end = len(content.rstrip(b"\0"))
    blank = (len(content) - end).to_bytes(4) + bytes.fromhex("cbd43194")
    java_file.write_bytes(content[:end] + blank + content[end + 8 :])
    assert len(mqadmin.run("dumpCompactionLog", "-f", str(java_file)).out.splitlines()) == 24


def test_what_is_no_compaction_log(mqadmin: Bench, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"no records, but some text that is as long as a head of one ........")
    for arguments, words in (
        ((), "miss dump log file name"),
        (("-f", "nowhere"), "file nowhere not exist."),
        (("-f", str(tmp_path)), f"file {tmp_path} is a directory."),
        (("-f", str(text)), "at byte 0: "),
    ):
        outcome = mqadmin.run("dumpCompactionLog", *arguments)
        assert outcome.code == 1
        assert words in outcome.err
    empty = tmp_path / "empty"
    empty.touch()
    assert mqadmin.run("dumpCompactionLog", "-f", str(empty)).code == 0
