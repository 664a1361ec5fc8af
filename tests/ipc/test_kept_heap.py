"""keep_freed_memory: arrays that a thread makes and frees again and again are not fetched anew."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import resource, sys, threading
import numpy
from ipc.kept_heap import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def work():
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        for _ in range(10):
            arrays = [numpy.ones(1_000_000, numpy.uint8) for _ in range(6)]
            del arrays
    print(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def faults(how: str) -> int:
    """Page faults of a thread that fills 6 MB ten times, after it has done so before."""
    command = [sys.executable, "-c", _PROGRAM, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


@pytest.mark.skipif("CS_GNU_LIBC_VERSION" not in os.confstr_names, reason="glibc only")
def test_memory_is_fetched_once() -> None:
    """6 MB are 1,500 pages: of the other way there are 12,000 faults here, a little less than a
    page each time."""
    assert faults("kept") < 1_000 < faults("given back")
