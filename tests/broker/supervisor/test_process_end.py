"""How a process ends whose service has failed: real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
PROGRAM = """
import logging, sys
from broker.supervisor.process_end import service_guard
from ipc.service_thread import ServiceThread

logging.basicConfig(filename=sys.argv[1])

class Failing(ServiceThread):
    def step(self):
        raise {error}

service = Failing("Failing", on_failure=service_guard("store", lambda error: 7))
service.start()
service.wait_for_running(60_000)
service._thread.join(60)
"""


def run(error: str, log: Path, **streams: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM.format(error=error), str(log)]
    given = {"stderr": subprocess.PIPE, **streams}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        command, cwd=HOME, text=True, check=False, timeout=60, **given
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            "OSError(30, 'Read-only file system', '/s/1')",
            "[Errno 30] Read-only file system: '/s/1'",
        ),
        ("KeyError('topic')", "KeyError: 'topic'"),
        ("ValueError('two\\nlines')", "ValueError: two lines"),
    ],
)
def test_the_terminal_gets_one_line_and_the_log_the_trace(
    tmp_path: Path, error: str, said: str
) -> None:
    done = run(error, tmp_path / "log")
    assert done.returncode == 7
    assert done.stderr == f"mqbroker: process store failed: {said}\n"
    log = (tmp_path / "log").read_text()
    assert "process store ends: Failing: " in log
    assert "Traceback" in log


def test_a_stderr_that_nobody_reads(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert run("KeyError(1)", tmp_path / "log", stderr=writing).returncode == 7
    finally:
        os.close(writing)
