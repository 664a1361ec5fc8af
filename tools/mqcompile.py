"""mqcompile: compiles the modules on the way of a message, for the brokers of this installation.

A program of the operator; needs the extra `fast` (mypyc) and a C compiler. It works on a copy of
the sources in a temporary directory beside the place of what it makes, and puts that in place when
it is whole. Brokers take it from their next start (conf/compiled_modules.py). Which modules:
tools/compiled_module_list.py. Operations: docs/compiled_modules.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from conf.compiled_modules import (
    LIBRARY,
    LIBRARY_SUFFIX,
    MANIFEST,
    VARIABLE,
    compiled_directory,
    compiled_modules,
    file_digests,
    find_staleness,
    source_digests,
)
from conf.installation import INSTALL_DIRECTORY, enter_program
from tools.compile_marks import compile_lock, forget_failure
from tools.compiled_module_list import COMPILED_MODULES

BUILT: Final = "built"
"""Where tools/mypyc_build.py leaves them, below its working directory."""
OPTIMIZE: Final = "2"
"""The C compiler's level."""
_PART: Final = "part-"
_LOG_LINES: Final = 20
_MYPYC: Final = "pip install '.[fast]' in the checkout, or pip install mypy setuptools"
_COMPILER: Final = "Debian, Ubuntu: apt install gcc python3-dev"


class CompileError(Exception):
    """The problem and its remedy."""


def run() -> int:
    """The console script `mqcompile` of an installed wheel."""
    enter_program("mqcompile", sys.argv[1:], os.environ)
    return main(sys.argv[1:])


def main(arguments: Sequence[str], home: Path = INSTALL_DIRECTORY) -> int:
    """The exit code; 0: a broker of this installation that starts now runs compiled modules, or,
    with --remove, it does not."""
    parser = argparse.ArgumentParser(
        prog="mqcompile",
        description="Compiles the modules on the way of a message to C, for brokers that start "
        "from now on. They need not be compiled; a broker says in its log what it runs.",
        epilog=f"{VARIABLE}=off starts a broker without compiled modules, {VARIABLE}=required "
        "refuses to start one without them.",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--check", action="store_true", help="only say whether there is a need to")
    instead.add_argument("--remove", action="store_true", help="remove what was compiled")
    given = parser.parse_args(arguments)
    try:
        if given.check:
            return _check(home)
        return _remove(home) if given.remove else _compile(home)
    except (CompileError, OSError) as error:
        print(f"mqcompile: {error}", file=sys.stderr)
        return 1


def _check(home: Path) -> int:
    why = find_need(home)
    print(f"up to date: {compiled_directory(home)}" if why is None else f"to be compiled: {why}")
    return 0 if why is None else 1


def find_need(home: Path) -> str | None:
    """Why it has to be compiled; None: it has not."""
    why = find_staleness(home)
    if why is None and compiled_modules(home) != list(COMPILED_MODULES):
        return "others are to be compiled now (tools/compiled_module_list.py)"
    return why


def _remove(home: Path) -> int:
    directory = compiled_directory(home)
    if directory.exists():
        shutil.rmtree(directory)
        print(f"removed: {directory}")
    else:
        print(f"there is none: {directory}")
    return 0


def _compile(home: Path) -> int:
    with compile_lock(home, waits=False) as is_mine:
        if not is_mine:
            print("another mqcompile is at work, waiting for it", flush=True)
    with compile_lock(home, waits=True):
        if find_need(home) is None:
            print(f"up to date: {compiled_directory(home)}")
            return 0
        check_tools()
        count = len(COMPILED_MODULES)
        print(f"compiling {count} modules; it takes a minute or two", flush=True)
        print(compile_there(home))
    return 0


def compile_there(home: Path, optimize: str = OPTIMIZE) -> str:
    """Put what is compiled of these sources in its place; what to say of it. The caller has the
    lock. Raises CompileError, OSError."""
    started = time.monotonic()
    directory = compiled_directory(home)
    for left in directory.parent.glob(f"{_PART}*"):  # by one that was killed
        shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_PART, dir=directory.parent) as work:
        made = compile_modules(home, Path(work), optimize)
        if directory.exists():
            shutil.rmtree(directory)
        made.rename(directory)
    forget_failure(home)
    return f"compiled in {time.monotonic() - started:.0f} s: {directory}"


def check_tools() -> None:
    """Raises CompileError unless all that is needed is there."""
    missing = [name for name in ("mypyc", "setuptools") if importlib.util.find_spec(name) is None]
    if missing:
        raise CompileError(f"{sys.executable} has no {' and no '.join(missing)}: {_MYPYC}")
    if (why := find_missing_compiler()) is not None:
        raise CompileError(why)


def find_missing_compiler() -> str | None:
    """What is missing to compile C for this Python, and its remedy; None: nothing is."""
    named = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(named.split()[0]) is None:
        return f"there is no C compiler ({named.split()[0]}): {_COMPILER}"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return None if header.exists() else f"there is no {header}: {_COMPILER}"


def compile_modules(home: Path, work: Path, optimize: str = OPTIMIZE, strip: bool = False) -> Path:
    """The directory, below `work`, with the compiled modules of the sources below `home` and their
    manifest. optimize: the C compiler's level; strip: without the symbols that only profilers and
    debuggers read. Raises CompileError, OSError."""
    sources, made = work / "sources", work / "made"
    # First: a source that changes meanwhile makes what was compiled stale.
    digests = source_digests(home)
    for name in digests:
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(home / name, sources / name)
    _run_mypyc(sources, work / "mypyc.log", optimize, _environment(strip))
    made.mkdir()
    for name in (LIBRARY, *COMPILED_MODULES):
        built = sources / BUILT / f"{name.replace('.', '/')}{LIBRARY_SUFFIX}"
        built.rename(made / f"{name}{LIBRARY_SUFFIX}")
    manifest = {"modules": COMPILED_MODULES, "sources": digests, "files": file_digests(made)}
    (made / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True))
    return made


def _environment(strip: bool) -> dict[str, str]:
    """Of mypyc's process. Its libraries may be named by PYTHONPATH only: pip's for a build are."""
    paths = [str(INSTALL_DIRECTORY), os.environ.get("PYTHONPATH", "")]
    own = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONSAFEPATH": "1"}
    if strip:
        # Not afterwards: the manifest has the digests of what the linker wrote.
        own["LDFLAGS"] = f"{os.environ.get('LDFLAGS', '')} -Wl,--strip-all".strip()
    return {**os.environ, **own}


def _run_mypyc(sources: Path, log: Path, optimize: str, environment: dict[str, str]) -> None:
    with log.open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "tools.mypyc_build", optimize],
            cwd=sources,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        end = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        raise CompileError("\n".join(("it did not compile:", *end)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
