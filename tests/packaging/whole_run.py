"""`bin/test` of a clean clone, run by the tests of other machines and other interpreters."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TIMEOUT_S: Final = 5400.0
"""Five minutes on a quiet machine with two cores."""


def clone(directory: Path) -> None:
    """What is committed in this checkout."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(directory)], check=True, timeout=120)


def command() -> str:
    """WHOLE_RUN_OPTIONS: for a busy machine, such as `-n 2`."""
    return f"bin/test {os.environ.get('WHOLE_RUN_OPTIONS', '')}".strip()


def assert_green(result: subprocess.CompletedProcess[str], kept: Path) -> None:
    """Nothing failed. What was printed goes to `kept`, too."""
    kept.write_text(result.stdout)
    found = r"^(?:FAILED|ERROR) .*|.*: error: .*|^would reformat: .*|^bin/test: failed.*"
    failed = re.findall(found, result.stdout, re.IGNORECASE | re.MULTILINE)
    assert (result.returncode, failed) == (0, []), f"{kept}: {result.stdout[-3000:]}"
    assert re.search(r"^\d+ passed", result.stdout, re.MULTILINE), f"{kept}: no test ran"
    assert result.stdout.endswith("bin/test: all passed\n"), result.stdout[-3000:]
