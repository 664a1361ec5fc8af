"""What a benchmark ran on: the description that its JSON carries.

Runs in the process of the benchmark; reads /proc and asks Java for its version.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from conf.compiled_modules import count_usable
from tests.bench.spin_test import spin_test

_MODEL = re.compile(r"^model name\s*: (.+)$", re.MULTILINE)
_MEMORY = re.compile(r"^MemTotal:\s+(\d+) kB", re.MULTILINE)


def describe_machine(store_directory: Path) -> dict[str, Any]:
    """Cores, CPU model, kernel, memory in bytes, Python, Java, file system of the stores, how many
    modules of our brokers are compiled ones, and whether all is quiet, which is also printed."""
    quiet = spin_test()
    print(quiet["text"], file=sys.stderr, flush=True)
    return {
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "cpu_model": cpu_model(Path("/proc/cpuinfo").read_text()),
        "kernel": platform.release(),
        "memory": memory(Path("/proc/meminfo").read_text()),
        "python": platform.python_version(),
        "java": _java_version(),
        "file_system": file_system(Path("/proc/mounts").read_text(), store_directory),
        "compiled_modules": count_usable(os.environ),
        "quiet": quiet,
    }


def cpu_model(cpuinfo: str) -> str:
    """The first processor's model; the architecture where /proc/cpuinfo has none (ARM)."""
    found = _MODEL.search(cpuinfo)
    return found[1] if found else platform.machine()


def memory(meminfo: str) -> int:
    """Bytes. Raises ValueError when there is no MemTotal."""
    found = _MEMORY.search(meminfo)
    if found is None:
        raise ValueError(f"/proc/meminfo without MemTotal: {meminfo!r:.200}")
    return int(found[1]) * 1024


def file_system(mounts: str, directory: Path) -> str:
    """The type of the file system that holds `directory`: of the deepest mount point above it."""
    rows = [line.split() for line in mounts.splitlines()]
    above = [(row[1], row[2]) for row in rows if directory.resolve().is_relative_to(row[1])]
    return max(above, key=lambda row: len(row[0]), default=("", "unknown"))[1]


def _java_version() -> str:
    if shutil.which("java") is None:
        return "none"
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return done.stderr.partition("\n")[0]
