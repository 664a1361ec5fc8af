"""`python -m namesrv` as a process: boot line, pid file, SIGTERM, and starts that fail."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.namesrv.namesrv_peer import DEADLINE_S, Peer, registration, route
from tests.support.own_process import Start, boot_port, started


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a name server with these settings; kills what is left at the end."""
    with started("namesrv", tmp_path, {"kvConfigPath": f"{tmp_path}/kv.json"}) as start:
        yield start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    process = start()
    with Peer(boot_port(process, "Name")) as peer:
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
