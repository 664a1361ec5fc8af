"""tools.chaos.free_ports: two runs at the same time are never given the same ports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_ASKER = """
import json, sys
from tools.chaos.free_ports import free_port
print(json.dumps([free_port(-2) for _ in range(60)]), flush=True)
sys.stdin.read()
"""


def test_no_port_is_given_twice_while_its_run_lives() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", _ASKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
            text=True,
        )
        for _ in range(2)
    ]
    given: list[int] = []
    for run in runs:
        assert run.stdout is not None
        given += json.loads(run.stdout.readline())
    for run in runs:
        run.communicate()
        assert run.returncode == 0
    used = [port + distance for port in given for distance in (-2, 0)]
    assert len(used) == 240
    assert len(set(used)) == len(used)
