"""free_port: two test processes at the same time are never given the same ports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ASKER = """
import json, sys
from tests.interop.processes import free_port
print(json.dumps([free_port(-2, 1) for _ in range(100)]), flush=True)
sys.stdin.read()
"""


def test_no_port_is_given_twice_while_its_owner_lives() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _ASKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        for _ in range(3)
    ]
    given: list[int] = []
    for process in processes:
        assert process.stdout is not None
        given += json.loads(process.stdout.readline())
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    used = [port + offset for port in given for offset in (-2, 0, 1)]
    assert len(given) == 300
    assert len(set(used)) == len(used)
