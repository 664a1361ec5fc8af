"""Runs the few tests that failed beside others once more, alone, for .ci/run.

`python -m tests.run_alone RESULTS` reads a file of `pytest --results`. Exit code 0: all of them
pass alone. They are named all the same, because a test that fails now and then is a defect, of the
test or of the broker; but what lands is not decided by how busy the machine was. More than
MOST_TESTS failures of some 18,000 are no accident: then nothing runs, and the exit code is 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

MOST_TESTS: Final = 8
_ROOT: Final = Path(__file__).parents[1]


def main(results: Path) -> int:
    """The exit code. Raises OSError, ValueError: `results` is no file of a run."""
    failed = failed_tests(results)
    if not 0 < len(failed) <= MOST_TESTS:
        print(f"run_alone: {len(failed)} tests failed: none is run again (1 to {MOST_TESTS} are)")
        return 1
    print(f"== alone: {' '.join(failed)}", flush=True)
    command = [sys.executable, "-m", "pytest", "-n", "0", *failed]
    code = subprocess.run(command, cwd=_ROOT, check=False).returncode
    for test in failed if code == 0 else ():
        print(f"run_alone: DEFECT: failed beside other tests, passed alone: {test}")
    return int(code)


def failed_tests(results: Path) -> list[str]:
    """Node ids, in the order of the run."""
    tests = json.loads(results.read_text())["tests"]
    return [test for test, ended in tests.items() if ended["outcome"] == "failed"]


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
