"""mqconsole's command line: options, one line for what is wrong, and a whole start and stop."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from console import server
from console.command_line import EXIT_FAILED, EXIT_USAGE, main
from tests.console.served_site import running

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROCKETMQ_HOME", "NAMESRV_ADDR", "JAVA_OPT", "JAVA_OPT_EXT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--port", "99999"], EXIT_USAGE, "99999 is not in the range"),
        (["--prot", "1"], EXIT_USAGE, "--prot"),
        (["-n", "nowhere"], EXIT_FAILED, "'nowhere' is not host:port"),
        (["--certificate", "/x.pem"], EXIT_FAILED, "needed together"),
        (["--certificate", "/x.pem", "--key", "/y.pem"], EXIT_FAILED, "/x.pem cannot be read"),
        (["--trusted-proxies", "what", "--port", "0"], EXIT_FAILED, "--trusted-proxies: "),
        (["--audit-file", "/proc/no/audit", "--port", "0"], EXIT_FAILED, "/proc/no"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert words in told[0]


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == EXIT_FAILED
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_a_console_without_a_cluster_says_so_and_stops_in_order(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "console", "-n", "127.0.0.1:1", "--port", "0"]
    command += ["--audit-file", str(tmp_path / "audit.jsonl")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            assert found is not None
            page = httpx.get(found[0] + "/", timeout=30)
            assert page.status_code == 200
            with httpx.stream("GET", found[0] + "/index.events", timeout=30) as events:
                next(events.iter_lines())
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) == 0
        finally:
            process.kill()


def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.2)
    with running(_answer, protocol=server._ImpatientProtocol) as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address, 20) as silent:
            assert silent.recv(1) == b""
        with socket.create_connection(address, 20) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ")
            assert slow.recv(1) == b""
        assert httpx.get(url, timeout=20).text == "well"


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("well")(scope, receive, send)
