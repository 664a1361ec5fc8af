"""tools.chaos.free_ports: two runs at the same time are never given the same ports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import gettempdir

_ASKER = """
import json, sys
from tools.chaos.free_ports import free_port
print(json.dumps([free_port(-2, 1) for _ in range(100)]), flush=True)
sys.stdin.read()
"""


def test_no_port_is_given_twice_while_its_run_lives(tmp_path: Path) -> None:
    """Wherever each of them has its temporary files."""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", _ASKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "TMPDIR": str(directory)},
            text=True,
        )
        for directory in (tmp_path, tmp_path.parent, Path(gettempdir()))
    ]
    given: list[int] = []
    for run in runs:
        assert run.stdout is not None
        given += json.loads(run.stdout.readline())
    for run in runs:
        run.communicate()
        assert run.returncode == 0
    used = [port + distance for port in given for distance in (-2, 0, 1)]
    assert len(used) == 900
    assert len(set(used)) == len(used)
