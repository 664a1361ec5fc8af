"""`python -m spark` for bin/mqreport, and the file that spark-submit is given: spark/__main__.py.

Run on the driver. As a file it has its own directory in front of the module path, where our
modules would hide others of their names; the checkout, or the zip of --py-files, is meant.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
import time
from pathlib import Path
from typing import Final

_DISTRIBUTION: Final = "rocketmq-python-broker"


def _own_path() -> None:
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]
    sys.path.append(str(here.parent))


def run() -> int:
    """The console script `mqreport` of an installed wheel (bin/mqreport answers --version)."""
    if sys.argv[1:2] == ["--version"]:
        sys.stdout.write(f"mqreport {importlib.metadata.version(_DISTRIBUTION)}\n")
        return 0
    os.environ["PYTHONSAFEPATH"] = "1"  # for Spark's Python workers: no module of the directory
    return _run()


def _run() -> int:
    try:
        from spark.command.command_line import main
    except ImportError as error:
        # Python's own exit code would be 1, "breached"; the module that defines 3 may be missing.
        with contextlib.suppress(OSError):
            os.write(2, f"mqreport: {error}; requirements: docs/nightly.md\n".encode())
        return 3
    return main(sys.argv[1:], lambda: time.time_ns() // 1_000_000)


if __name__ == "__main__":
    if not __package__:
        _own_path()
    sys.exit(_run())
