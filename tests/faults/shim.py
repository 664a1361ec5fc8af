"""Compiles the C libraries that make a process' system calls slow or fail (LD_PRELOAD)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def compile_shim(source: Path, directory: Path) -> Path:
    """The library of a C file; without a compiler the test is skipped."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = directory / f"{source.stem}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
