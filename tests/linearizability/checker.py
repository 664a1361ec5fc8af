"""Builds and runs the checker of histories (main.go). Any thread."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent
_BUILD_S: Final = 300
_CHECK_S: Final = 900
_GO: Final = "/usr/local/go/bin"
"""Where Go's own archive is unpacked; often not in PATH."""


def find_go() -> str | None:
    """The Go command; None: there is none."""
    return shutil.which("go", path=f"{os.environ.get('PATH', '')}:{_GO}")


@functools.cache
def checker() -> Path:
    """The built program, for as long as this process lives. Raises CalledProcessError with what Go
    said."""
    go = find_go()
    if go is None:
        raise FileNotFoundError("there is no go command")
    path = Path(tempfile.mkdtemp(prefix="linearizability-")) / "checker"
    command = [go, "build", "-mod=readonly", "-o", str(path), "."]
    subprocess.run(
        command, cwd=SOURCES, check=True, capture_output=True, text=True, timeout=_BUILD_S
    )
    return path


def judge(histories: Sequence[Path]) -> subprocess.CompletedProcess[str]:
    """What the checker says of these; its exit codes are in main.go."""
    command = [str(checker()), *map(str, histories)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=_CHECK_S)
