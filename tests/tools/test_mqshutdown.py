"""tools.mqshutdown: the words, the exit codes, and that the process really gets SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conf.pid_file import write_pid_file
from tools.mqshutdown import main


@pytest.fixture(autouse=True)
def own_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_RUN_DIR", str(tmp_path))


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


@pytest.mark.parametrize(("word", "kind"), [("broker", "mqbroker"), ("namesrv", "mqnamesrv")])
def test_every_one_is_told(word: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with sleeper() as first, sleeper() as second:
        for child in (first, second):
            write_pid_file(kind, child.pid)
        assert main([word]) == 0
        assert [child.wait(10) for child in (first, second)] == [-signal.SIGTERM] * 2
    expected = {
        line
        for child in (first, second)
        for line in (
            f"The {kind}({child.pid}) is running...",
            f"Send shutdown request to {kind}({child.pid}) OK",
        )
    }
    assert set(capsys.readouterr().out.splitlines()) == expected


def test_none_runs(capsys: pytest.CaptureFixture[str]) -> None:
    write_pid_file("mqnamesrv", os.getpid())
    assert main(["broker"]) == 1
    assert capsys.readouterr().out == "No mqbroker running.\n"


@pytest.mark.parametrize("arguments", [[], ["proxy"], ["broker", "namesrv"]])
def test_misuse(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    assert capsys.readouterr().out == "Useage: mqshutdown broker | namesrv\n"


def test_process_of_another_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    write_pid_file("mqbroker", os.getpid())
    assert main(["broker"]) == 1
    assert "belongs to another user" in capsys.readouterr().out
