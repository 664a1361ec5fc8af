"""bin/mqadopt as a program: what it says, and the exit status."""

from __future__ import annotations

import errno
import json
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from adopt import command_line
from adopt.command_line import DONE, REFUSED, main
from adopt.log_survey import survey_log
from store.store_lock import StoreLock
from tests.adopt.golden_stores import GOLDEN, copied, snapshot, unpack_all
from tests.support.archives import unpack


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    unpack_all(directory)
    unpack(GOLDEN / "dledger-5.3.3" / "store-3-nodes.tar.xz", directory)
    return directory


def test_a_dledger_store_goes_through_the_importer(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(golden / "dl1"), "--other", str(golden / "dl0"), "--other", str(golden / "dl2")]
    assert main(words) == DONE
    said = capsys.readouterr().out
    assert "rewritten as a log of ours" in said
    assert "TDl 0: 11 messages, queue offsets 0 to 10" in said
    assert main([*words, "--quick"]) == DONE
    assert "TDl" not in capsys.readouterr().out
    assert main([*words, "--in-place"]) == REFUSED
    assert "cannot become ours in place" in capsys.readouterr().out
    assert main([*words, "--to", str(tmp_path / "new")]) == DONE
    assert "21 messages are the same" in capsys.readouterr().out
    found = survey_log(tmp_path / "new/commitlog")
    assert {name: each.end for name, each in found.queues.items()} == {
        ("TDl", 0): 11,
        ("TDl", 1): 10,
    }


def test_quick_looks_without_the_log(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(golden / "clean"), "--quick", "--json"]) == DONE
    found = json.loads(capsys.readouterr().out)
    assert found["log"] is None
    assert found["tables"]["topics"] == 15


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--in-place", "--to", "x"], "not allowed with argument --in-place"),
        (["--config", "v3"], "'v3': one of json, v1, v2"),
        (["--members", "0"], "expected 1 to 1000"),
        (["--to", ""], "the name is empty"),
        (["--to", "x", "--json"], "--json only looks: what was done is in adoption.json"),
        ([], "required: directory"),
    ],
)
def test_wrong_words(
    golden: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    place = [] if not words else [str(golden / "clean")]
    with pytest.raises(SystemExit) as caught:
        main([*place, *words])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_options_of_dledger_are_refused_elsewhere(
    golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were passed over without a word."""
    assert main([str(golden / "clean"), "--other", str(golden / "dl0"), "--again"]) == REFUSED
    assert "--other and --again: of DLedger stores alone" in capsys.readouterr().out


def test_a_store_in_use_is_refused_before_its_log_is_read(
    golden: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = copied(golden / "clean", tmp_path / "own")
    monkeypatch.setattr(command_line, "survey_store", None)
    for words in (["--in-place"], ["--to", str(tmp_path / "new")]):
        with StoreLock(place):
            assert main([str(place), *words]) == REFUSED
        assert "own: a broker has it open; stop it" in capsys.readouterr().out


def test_a_file_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main([str(tmp_path / "file")]) == REFUSED
    assert "file: not a directory; name a broker's" in capsys.readouterr().out
    assert main([str(tmp_path / "none")]) == REFUSED
    assert "none: there is no such directory" in capsys.readouterr().out


def test_a_place_where_nothing_may_be_written(
    golden: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def read_only(_: Path, path: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/the/file")

    monkeypatch.setattr("adopt.copied_files._copy", read_only)
    assert main([str(golden / "clean"), "--to", str(tmp_path / "new")]) == REFUSED
    said = capsys.readouterr().out
    assert "/the/file: Read-only file system\n" in said
    assert "new: a place is needed that this user may write to" in said


@pytest.mark.parametrize("way", ["same", "link", "dots"])
def test_a_copy_is_never_made_in_the_store_itself(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str
) -> None:
    """--to the same directory was done in place once, which nobody had asked for."""
    place = copied(golden / "clean", tmp_path / "own")
    before = snapshot(place)
    (tmp_path / "link").symlink_to(place)
    target = {"same": place, "link": tmp_path / "link", "dots": tmp_path / "own/../own"}[way]
    assert main([str(place), "--to", str(target)]) == REFUSED
    assert "the store itself; name a directory beside it, or --in-place" in capsys.readouterr().out
    assert snapshot(place) == before


@pytest.mark.parametrize("words", [[], ["--to-rocksdb"]], ids=["ours", "rocksdb"])
def test_what_lies_on_another_disk_is_not_moved_aside(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """It was refused by the kernel in the last step but one, and by each further try."""
    place = copied(golden / "clean", tmp_path / "own")
    if words:
        assert main([str(place), "--in-place"]) == DONE
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        assert os.stat(other).st_dev != place.stat().st_dev
        shutil.copytree(place / "config", Path(other, "config"))
        shutil.rmtree(place / "config")
        (place / "config").symlink_to(Path(other, "config"))
        before = snapshot(place)
        assert main([str(place), "--in-place", *words]) == REFUSED
        assert "on another disk" in capsys.readouterr().out
        assert snapshot(place) == before
        assert main([str(place), "--to", str(tmp_path / "new"), *words]) == DONE


@pytest.mark.parametrize("below", ["", "new"])
def test_a_file_where_the_copy_should_be(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], below: str
) -> None:
    (tmp_path / "file").touch()
    assert main([str(golden / "clean"), "--to", str(tmp_path / "file" / below)]) == REFUSED
    assert "file is not a directory; name one that does not exist" in capsys.readouterr().out


def test_names_from_files_cannot_write_to_the_terminal(
    golden: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = copied(golden / "clean", tmp_path / "evil\x1b[2J\n")
    assert main([str(place)]) == DONE
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "evil\\x1b[2J\\n: RocksDB consume queues" in said


def test_an_interrupt_says_how_to_go_on(
    golden: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "survey_store", interrupted)
    assert main([str(golden / "clean")]) == REFUSED
    assert "the same command goes on" in capsys.readouterr().out


def test_a_terminal_gets_a_bar(golden: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "adopt", str(golden / "clean"), "--to", str(tmp_path / "new")]
    shown = b""
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as program,
        open(ours, "rb", buffering=0) as read,
    ):
        os.close(theirs)
        try:
            while piece := read.read(4096):
                shown += piece
        except OSError:
            pass  # the end of a terminal that nobody writes to
        said = program.stdout.read() if program.stdout is not None else ""
    assert (program.returncode, "done; start bin/mqbroker" in said) == (DONE, True)
    assert b"comparing" in shown
    assert "comparing" not in said


def test_a_full_disk_says_how_to_go_on(
    golden: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    words = [str(golden / "clean"), "--to", str(tmp_path / "new")]
    with monkeypatch.context() as patch:
        patch.setattr("adopt.copied_files._copy", full)
        assert main(words) == REFUSED
    assert "new: free some; the same command goes on then" in capsys.readouterr().out
    assert main(words) == DONE
