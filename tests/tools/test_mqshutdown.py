"""tools.mqshutdown: the words, the exit codes, that the process gets SIGTERM and is waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conf.pid_file import write_pid_file
from tools import mqshutdown
from tools.mqshutdown import main

UNWILLING = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"asked\\n"))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_RUN_DIR", str(tmp_path))


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def unwilling() -> subprocess.Popen[str]:
    """Ends when its stdin is closed, not when it is asked to."""
    child = subprocess.Popen(
        [sys.executable, "-c", UNWILLING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    write_pid_file("mqbroker", child.pid)
    return child


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


def test_a_broker_container_is_told_by_its_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    with sleeper() as child:
        write_pid_file("mqbrokercontainer", child.pid)
        assert main(["broker"]) == 1
        assert capsys.readouterr().out == (
            "No mqbroker running.\nA broker container is running: mqshutdown brokerContainer\n"
        )
        assert main(["brokerContainer"]) == 0
        assert child.wait(10) == -signal.SIGTERM
    assert capsys.readouterr().out == (
        f"The broker container({child.pid}) is running...\n"
        f"Send shutdown request to broker container({child.pid}) OK\n"
    )
    assert main(["brokerContainer"]) == 1
    assert capsys.readouterr().out == "No broker container running.\n"


class _Releasing:
    """A pause that lets the process end."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def wait(self, timeout_s: float) -> None:
        self._child.communicate(timeout=60)


def test_it_returns_when_the_process_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with unwilling() as child:
        monkeypatch.setattr(mqshutdown, "_PAUSE", _Releasing(child))
        assert main(["broker"]) == 0
        assert child.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_one_that_does_not_stop_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mqshutdown, "WAIT_S", 0.0)
    with unwilling() as child:
        assert main(["broker"]) == 1
        assert child.communicate(timeout=60)[0] == "asked\n"
    assert capsys.readouterr().out.splitlines()[2:] == [
        f"mqbroker({child.pid}) has not stopped within 0 s: see its log files, or end it with"
        f" kill -9 {child.pid}"
    ]


def test_none_runs(capsys: pytest.CaptureFixture[str]) -> None:
    write_pid_file("mqnamesrv", os.getpid())
    assert main(["broker"]) == 1
    assert capsys.readouterr().out == "No mqbroker running.\n"


@pytest.mark.parametrize("arguments", [[], ["proxy"], ["broker", "namesrv"]])
def test_misuse(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    assert capsys.readouterr().out.startswith("Usage: mqshutdown broker | namesrv")


def test_process_of_another_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    write_pid_file("mqbroker", os.getpid())
    assert main(["broker"]) == 1
    assert "belongs to another user" in capsys.readouterr().out
