"""What commands say of bad input: one line that names it, and 3; never a traceback."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from spark.command.command_line import main
from spark.command.failures import exit_code_of, os_error_text

WHO = ["--who", "a", "--why", "b", "--ticket", "c"]
TIMES = ["--from", "2026-03-10T10:00:00Z", "--to", "2026-03-10T11:00:00Z"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["verify", "{}", "--public-key", "{}/no.pub"], "{}/no.pub: cannot be read: No such file"),
        (["verify", "{}", "--public-key", "{}/text"], "{}/text: "),
        (["sign", "{}", "--key", "{}/no.pem"], "{}/no.pem: cannot be read: No such file"),
        (["exclude", "list", "--file", "{}/no"], "{}/no: No such file or directory"),
        (["exclude", "list", "--file", "{}/text"], "{}/text:1: cannot be used"),
        (["exclude", "add", "--file", "{}/no/x", *TIMES, *WHO], "{}/no/x: No such file"),
        (["exclude", "add", "--file", "{}", *TIMES, *WHO], "{}: Is a directory"),
        (["import", "--out", "{}/o", "{}/no"], "{}/no: cannot be read: No such file"),
        (["import", "--out", "{}/o", "{}/text"], "{}/text: "),
        (["openslo", "import", "{}/no"], "{}/no: "),
        (["rules", "--out", "{}/no/x"], "{}/no/x: cannot be written: No such file"),
        (
            ["openslo", "export", "--out", "{}/no/x"],
            "{}/no/x: cannot be written: No such file or directory",
        ),
    ],
)
def test_each_command_says_which_file(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("no such thing\n")
    given = [argument.replace("{}", str(tmp_path)) for argument in arguments]
    assert main(given, lambda: 0) == 3
    line, *others = capsys.readouterr().err.splitlines()
    assert line.startswith(f"mqreport: {told.replace('{}', str(tmp_path))}")
    assert others == []


def test_what_the_command_says_itself_counts() -> None:
    assert [exit_code_of(lambda: 0), exit_code_of(lambda: 2)] == [0, 2]


def test_a_bug_is_not_taken_for_bad_input() -> None:
    def bug() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        exit_code_of(bug)


def test_an_error_without_a_file_is_told_all_the_same() -> None:
    assert os_error_text(OSError(errno.ENOSPC, "No space left on device")) == (
        "No space left on device"
    )
    assert os_error_text(OSError("nothing")) == "nothing"


def test_a_full_disk_leaves_the_file_of_exclusions_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "exclusions.jsonl"
    given = ["exclude", "add", "--file", str(path), *TIMES, *WHO]
    assert main(given, lambda: 0) == 0
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert main(given, lambda: 0) == 3
    assert capsys.readouterr().err == f"mqreport: {path}: No space left on device\n"
    assert path.read_bytes() == before
