"""The console beside a broker: started, started again ever later, ended with the broker, never in
its way."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from broker.settings.supervisor_config import SupervisorConfig
from broker.supervisor import console_program, dependent_program
from broker.supervisor.console_program import (
    MISSING,
    NO_NAME_SERVER,
    OUTPUT,
    ConsoleProgram,
)
from ipc.clock import SystemClock
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tools.chaos.processes import is_running

STAYS = "import os, time; print(os.getpid(), flush=True); time.sleep(900)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {STAYS}"
ENDS = "import sys; print('port 8088 is taken\\x1b', flush=True); sys.exit(3)"


class Clock:
    """Monotonic, set by the test."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


def program(code: str, directory: Path, clock: Clock) -> ConsoleProgram:
    return ConsoleProgram([sys.executable, "-c", code], directory, clock.now_ms)


def said(directory: Path) -> str:
    path = directory / OUTPUT
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("code", [STAYS, DEAF], ids=["stays", "deaf"])
def test_it_is_stopped_and_stays_so(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependent_program, "_STOP_S", 0.2)
    clock = Clock()
    console = program(code, tmp_path, clock)
    console.tick()
    wait_until(lambda: said(tmp_path).strip())
    pid = int(said(tmp_path))
    console.stop()
    assert not is_running(pid)
    clock.ms += 1_000_000
    console.tick()
    assert int(said(tmp_path)) == pid


def test_one_that_ends_is_started_ever_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    console = program(ENDS, tmp_path, clock)
    delays_s = []

    def has_ended() -> bool:
        console.tick()
        return len(caplog.records) > len(delays_s)

    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            wait_until(has_ended)
            words = caplog.records[-1].getMessage()
            assert "ended with code 3: port 8088 is taken ;" in words
            delays_s.append(int(words.partition("again in ")[2].split()[0]))
            clock.ms += delays_s[-1] * 1000 - 1
            console.tick()
            assert console._process is None, "not yet"
            clock.ms += 1
    assert delays_s == [1, 5, 30, 300, 300]
    console.stop()
    console.tick()
    assert console._process is None, "nor after its stop"


def test_one_that_ran_long_begins_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    console = program(STAYS, tmp_path, clock)
    console._ends = 3
    console.tick()
    wait_until(lambda: said(tmp_path).strip())
    clock.ms += 600_001
    os.kill(int(said(tmp_path)), signal.SIGKILL)

    def is_told() -> bool:
        console.tick()
        return "again in 1 s" in caplog.text

    wait_until(is_told)


def test_no_process_to_be_had_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    console = program(STAYS, tmp_path / "gone", Clock())
    console.tick()
    assert "cannot be started" in caplog.text


def test_it_ends_with_a_broker_that_is_killed(tmp_path: Path) -> None:
    """The parent here is a process of its own, which is killed."""
    code = (
        "import time, sys; from pathlib import Path;"
        "from broker.supervisor.console_program import ConsoleProgram;"
        f"ConsoleProgram([sys.executable, '-c', {STAYS!r}], Path({str(tmp_path)!r}),"
        " lambda: 1).tick(); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_until(lambda: said(tmp_path).strip())
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not is_running(int(said(tmp_path))))


def found(directory: Path, *, enable: bool = True, name_servers: str = "a:1;b:2") -> ConsoleProgram:
    settings = SupervisorConfig(console_enable=enable, console_port=8089)
    return console_program.console_program(settings, name_servers, str(directory), SystemClock())


def test_without_its_packages_one_sentence_says_the_way_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name)
    )
    found(tmp_path).tick()
    assert caplog.messages == [MISSING]
    assert not (tmp_path / OUTPUT).exists()


def test_without_a_name_server_there_is_nothing_to_show(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found(tmp_path, name_servers="").tick()
    assert caplog.messages == [NO_NAME_SERVER]
    assert not (tmp_path / OUTPUT).exists()


def test_nobody_gets_one_without_asking(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert SupervisorConfig().console_enable is False
    found(tmp_path, enable=False, name_servers="").tick()
    assert caplog.messages == []
    assert not (tmp_path / OUTPUT).exists()


def test_it_is_asked_for_on_the_name_servers_and_port(tmp_path: Path) -> None:
    assert list(found(tmp_path)._command) == [
        *(sys.executable, "-m", "console"),
        *("-n", "a:1;b:2", "--port", "8089"),
    ]


def test_a_broker_starts_it_once_it_serves_and_ends_it(tmp_path: Path) -> None:
    """Whatever the console does, the broker serves, and stops in order."""
    broker = OurBroker(tmp_path, consoleEnable="true", consolePort=0)
    output = tmp_path / "logs" / OUTPUT
    with broker.start():
        wait_until(lambda: output.exists() and output.stat().st_size)
        pids = [int(pid) for pid in re.findall(r"console: started, pid (\d+)", log_of(tmp_path))]
        assert pids
        assert broker.terminate() == 0
    wait_until(lambda: not any(map(is_running, pids)))


def log_of(directory: Path) -> str:
    return (directory / "logs" / "broker.log").read_text()
