"""`python -m namesrv` as a process: boot line, pid file, SIGTERM, and starts that fail."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.namesrv.namesrv_peer import DEADLINE_S, Peer, registration, route

ROOT = Path(__file__).parents[2]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a name server with the given settings lines; kills what is left at the end."""
    started: list[subprocess.Popen[str]] = []

    def start_one(**changes: str) -> subprocess.Popen[str]:
        settings = tmp_path / "namesrv.conf"
        values = {
            "bindAddress": "127.0.0.1",
            "listenPort": "0",
            "kvConfigPath": f"{tmp_path}/kv.json",
            "logDir": f"{tmp_path}/logs",
            **changes,
        }
        settings.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "ROCKETMQ_HOME": str(ROOT),
            "ROCKETMQ_RUN_DIR": str(tmp_path / "run"),
            "PYTHONPATH": str(ROOT),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "namesrv", "-c", str(settings)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=tmp_path,
            text=True,
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def boot_port(process: subprocess.Popen[str]) -> int:
    """The port of the boot line, which is the last of the lines before serving."""
    assert process.stdout is not None
    assert process.stdout.readline().startswith("load config properties file OK, ")
    line = process.stdout.readline()
    words = "The Name Server boot success. serializeType=JSON, address 127.0.0.1:"
    assert line.startswith(words)
    return int(line.removeprefix(words))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    process = start()
    with Peer(boot_port(process)) as peer:
        assert [p.name for p in (tmp_path / "run").iterdir()] == [f"mqnamesrv-{process.pid}.pid"]
        assert peer.ask(registration("a")).code == 0
        assert peer.ask(route()).code == 0
        process.send_signal(number)
        peer.wait_for_close()
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, errors) == (0, "")
    assert list((tmp_path / "run").iterdir()) == []
    assert "name server stopped" in (tmp_path / "logs" / "namesrv.log").read_text()


def test_a_taken_port_is_one_clear_line(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(listenPort=str(port))
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 255
    assert "boot success" not in output
    (line,) = errors.splitlines()
    assert f"127.0.0.1:{port} is in use" in line


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("kvConfigPath", "/proc/version", "/proc/version: not a valid KV file"),
        ("kvConfigPath", "/proc", "/proc: cannot read the file"),
        ("listenPort", "70000", "listenPort"),
        ("bindAddress", "203.0.113.1", "cannot listen on 203.0.113.1:0"),
    ],
)
def test_other_starts_that_fail_say_why(start: Start, key: str, value: str, words: str) -> None:
    process = start(**{key: value})
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 255
    assert words in errors
    assert "Traceback" not in errors
