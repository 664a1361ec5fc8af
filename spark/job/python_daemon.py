"""Starts the Python workers of a local master's JVM as its daemon (`-m` this).

Spark's own daemon imports PySpark from the zip beside its jars, where nothing is compiled, and
again in each worker: half a second of processor time in each of five processes, and a small report
takes ten milliseconds to compute. Here the installed PySpark is meant, and our modules are imported
before the first worker is forked. Not PySpark's worker: Spark imports it after the fork, since
what it may import (pyarrow) starts threads.
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import sys
from pathlib import Path
from typing import Final

_NEEDED: Final = ("pyspark", "py4j")
_OF_EVERY_WORKER: Final = ("spark.job.evidence_job", "spark.job.report_job")


def prefer_installed(path: list[str]) -> list[str]:
    """The module path without Spark's zips, where everything in them is found without them."""
    kept = [entry for entry in path if not _is_zip_of_spark(Path(entry))]
    find = importlib.machinery.PathFinder.find_spec
    return kept if all(find(name, kept) is not None for name in _NEEDED) else path


def _is_zip_of_spark(entry: Path) -> bool:
    return entry.suffix == ".zip" and entry.name.startswith(_NEEDED)


if __name__ == "__main__":
    sys.path[:] = prefer_installed(sys.path)
    for module in _OF_EVERY_WORKER:
        importlib.import_module(module)
    gc.freeze()  # nothing of this is garbage: workers collect after each task
    importlib.import_module("pyspark.daemon").manager()
