"""Which modules the tests run: of the sources, or compiled.

The modules that a test imports are those of the sources; with bin/test --compiled the compiled
ones. The programs that a test starts are on the same, but in the rooms ON_COMPILED: `bin/test
--slow` and `--long` compile beside the first tests, and what these rooms start, real brokers with
real peers, under faults and in chaos, is what users run.

Imported by tests/conftest.py before any module of the product: package `broker` decides when it is
imported. Programs inherit the variable.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from conf.compiled_modules import OFF, REQUIRED, VARIABLE

os.environ.setdefault(VARIABLE, OFF)

import broker as broker

ENDED: Final = "TESTS_COMPILE_ENDED"
"""Set by bin/test: a file, empty while modules are compiled, then with the exit code."""
ON_COMPILED: Final = ("faults", "interop", "linearizability", "tools/chaos")
"""Below tests/."""
_LOOK_S: Final = 0.1


@functools.cache
def wait_compiled() -> bool:
    """Whether this run has compiled modules in the checkout; waits while they are made."""
    path = os.environ.get(ENDED, "")
    if not path:
        return False
    while not (code := Path(path).read_text(encoding="utf-8")):
        time.sleep(_LOOK_S)
    return int(code) == 0


def wants_compiled(file: str, *, is_interpreted: bool) -> bool:
    """Whether the programs of a test in `file`, below tests/, shall be on compiled modules."""
    return not is_interpreted and any(file.startswith(f"{room}/") for room in ON_COMPILED)


def tell(counts: Mapping[str, int]) -> str:
    """For the end of a run. counts: tests whose programs ran compiled modules, by directory."""
    if os.environ[VARIABLE] == REQUIRED:
        return "compiled modules: all tests"
    if not counts:
        return "sources: all tests"
    rooms = ", ".join(f"{count} in {room}" for room, count in sorted(counts.items()))
    return f"compiled modules: programs of tests, {rooms}; sources: all else"


def choice(file: str, *, is_interpreted: bool) -> str:
    """What VARIABLE is for its programs."""
    usual = os.environ[VARIABLE]
    if not wants_compiled(file, is_interpreted=is_interpreted) or usual == REQUIRED:
        return usual
    return REQUIRED if wait_compiled() else usual
