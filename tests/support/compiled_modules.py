"""Which modules the tests run: of the sources, or compiled.

The modules that a test imports are those of the sources; with bin/test --compiled the compiled
ones. The programs that a test starts are on the same, but with `bin/test --slow` and `--long` those
of the rooms ON_COMPILED are on compiled ones: real brokers with real peers, under faults and in
chaos, as users run them.

Imported by tests/conftest.py before any module of the product: package `broker` decides when it is
imported. Programs inherit the variable.
"""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from conf.compiled_modules import OFF, REQUIRED, VARIABLE, compiled_directory

os.environ.setdefault(VARIABLE, OFF)

import broker as broker
from tools.compile_marks import compile_lock
from tools.mqcompile import OPTIMIZE, CompileError, compile_there, find_need

WANTED: Final = "TESTS_COMPILE"
"""Set by bin/test, to anything: tests that want compiled modules make them."""
KEPT: Final = "TESTS_COMPILED"
"""Set by .ci/run: a directory with what its last run compiled, of whichever sources, by this
compiler and this Python."""
ON_COMPILED: Final = ("faults", "interop", "linearizability", "tools/chaos")
"""Below tests/."""
_ROOT: Final = Path(__file__).resolve().parents[2]


@functools.cache
def make_compiled() -> bool:
    """Whether there are compiled modules of this checkout. In a run that wants them they are made
    by whichever process asks first; others wait for it."""
    if find_need(_ROOT) is None:
        return True
    if not os.environ.get(WANTED):
        return False
    # Nobody measures CI's own checkout: two thirds of the C compiler's work is to optimize. None at
    # all would cost the programs of tests more than it saves here.
    optimize = "g" if os.environ.get("CI") == "true" else OPTIMIZE
    with compile_lock(_ROOT, waits=True):
        if find_need(_ROOT) is not None and not _take_kept():
            try:
                compile_there(_ROOT, optimize)
                _keep()
            except (CompileError, OSError) as error:
                print(f"nothing could be compiled: {error}", file=sys.stderr)
                return False
    return True


def _take_kept() -> bool:
    """Whether the last run compiled the same sources; they are in their place then. The manifest
    tells, which has a digest of each source and of each compiled file."""
    kept = os.environ.get(KEPT)
    if not kept or not Path(kept).is_dir():
        return False
    shutil.rmtree(compiled_directory(_ROOT), ignore_errors=True)
    shutil.copytree(kept, compiled_directory(_ROOT))
    return find_need(_ROOT) is None


def _keep() -> None:
    """For the next run. Raises OSError."""
    if not (kept := os.environ.get(KEPT)):
        return
    Path(kept).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="compiled-", dir=Path(kept).parent) as work:
        copy = shutil.copytree(compiled_directory(_ROOT), Path(work, "copy"))
        shutil.rmtree(kept, ignore_errors=True)
        copy.rename(kept)


def wants_compiled(file: str, *, is_interpreted: bool) -> bool:
    """Whether the programs of a test in `file`, below tests/, shall be on compiled modules."""
    return not is_interpreted and any(file.startswith(f"{room}/") for room in ON_COMPILED)


def tell(counts: Mapping[str, int]) -> str:
    """For the end of a run. counts: tests whose programs ran compiled modules, by directory."""
    if os.environ[VARIABLE] == REQUIRED:
        return "compiled modules: all tests"
    if not counts:
        why = "; nothing could be compiled: bin/mqcompile says why"
        return f"sources: all tests{why if os.environ.get(WANTED) else ''}"
    rooms = ", ".join(f"{count} in {room}" for room, count in sorted(counts.items()))
    return f"compiled modules: programs of tests, {rooms}; sources: all else"


def choice(file: str, *, is_interpreted: bool) -> str:
    """What VARIABLE is for its programs."""
    usual = os.environ[VARIABLE]
    if not wants_compiled(file, is_interpreted=is_interpreted) or usual == REQUIRED:
        return usual
    if not os.environ.get(WANTED):
        return usual
    # .ci/run fails without them: the programs say why they do not start.
    return REQUIRED if make_compiled() or os.environ.get("CI") == "true" else usual
