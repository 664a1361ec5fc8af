"""`bin/mqcompile --background`: compiles for the next start of a broker that serves already.

A process of its own that a broker of a checkout starts and ends (broker/supervisor). It looks
first whether this machine has what it takes; where not, it says why on stdout, which goes to a file
beside the broker's logs, and that is all. It runs only when nobody else wants a processor, is the
first to go when memory runs out, and with it goes everything that it started. Must not change what
the broker runs: that is chosen at its start.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from conf.compiled_modules import GROUP
from conf.installation import INSTALL_DIRECTORY
from tools.compile_marks import compile_lock, find_failure, note_failure
from tools.compiled_module_list import COMPILED_MODULES
from tools.free_memory import free_memory
from tools.mqcompile import CompileError, compile_there, find_missing_compiler, find_need

_MIB: Final = 1 << 20
MEMORY: Final = 1536 * _MIB
"""Three times what the C compiler has in memory at most."""
DISK: Final = 1024 * _MIB
"""Four times mypy and what lies about meanwhile."""
_STARTED: Final = (
    "mqcompile: compiling {count} modules in the background, when nothing else wants the processor:"
    " a faster broker from its next start on (compileModules=false turns this off)"
)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What decides whether to compile."""

    need: str | None
    """Why there is a need to; None: there is none."""
    lacking: str = ""
    """The compiler or the headers that are not there, and the remedy."""
    failure: str = ""
    """Why these sources did not compile."""
    is_writable: bool = True
    memory: int = MEMORY
    """Free bytes; so is `disk`."""
    disk: int = DISK


def find_obstacle(now: Circumstances) -> str | None:
    """Why nothing is compiled; None: it may be."""
    if now.need is None:
        return "up to date"
    if now.lacking:
        return now.lacking
    if not now.is_writable:
        return "the checkout cannot be written"
    if now.failure:
        return f"these sources did not compile before ({now.failure}); bin/mqcompile tries again"
    if now.memory < MEMORY:
        return f"{now.memory // _MIB} MiB of memory are free, {MEMORY // _MIB} are needed"
    if now.disk < DISK:
        return f"{now.disk // _MIB} MiB of the disk are free, {DISK // _MIB} are needed"
    return None


def look(home: Path) -> Circumstances:
    """As it is now. Raises OSError."""
    made = home / GROUP
    return Circumstances(
        need=find_need(home),
        lacking=find_missing_compiler() or "",
        failure=find_failure(home),
        is_writable=os.access(made if made.exists() else home, os.W_OK),
        memory=free_memory(),
        disk=shutil.disk_usage(home).free,
    )


def main(home: Path = INSTALL_DIRECTORY) -> int:
    """The exit code: 1 when the sources do not compile, or what was made cannot be kept."""
    _stand_back()
    signal.signal(signal.SIGTERM, _end)
    try:
        said, code = _compile(home)
    except (CompileError, OSError) as error:
        said, code = str(error), 1
    print(f"not compiled: {said}" if code else said, flush=True)
    return code


def _compile(home: Path) -> tuple[str, int]:
    """What to say, and the exit code. Raises CompileError, OSError."""
    obstacle = find_obstacle(look(home))
    if obstacle is not None:
        return f"nothing is compiled: {obstacle}", 0
    with compile_lock(home, waits=False) as is_mine:
        if not is_mine:
            return "nothing is compiled: another mqcompile is at work", 0
        if not _fetch_compiler_of_python(home):
            return "nothing is compiled: mypy is not there and could not be fetched, see above", 0
        print(_STARTED.format(count=len(COMPILED_MODULES)), file=sys.stderr, flush=True)
        try:
            return f"{compile_there(home)}; the next start uses them", 0
        except CompileError as error:
            note_failure(home, str(error).splitlines()[-1])
            print(error, flush=True)
            return f"{str(error).splitlines()[-1]}; bin/mqcompile tries again", 1


def _fetch_compiler_of_python(home: Path) -> bool:
    """Whether the extra `fast` is there, now at least."""
    command = [sys.executable, "-I", str(home / "tools/prepare_venv.py"), "--venv", sys.prefix]
    command += ["--program", "mqcompile", "--extra", "fast"]
    return subprocess.run(command, stderr=subprocess.STDOUT, check=False).returncode == 0


def _stand_back() -> None:
    """The least of processor, disk and memory, for this process and all that it starts.

    Without a session of its own: the kernel shares the processors among sessions first, and this
    one would get as much as the broker. The disk goes by SCHED_IDLE, too.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    os.nice(19)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    Path("/proc/self/oom_score_adj").write_text("1000")
    # The broker's files are for its user only; these are anybody's who may start the checkout.
    os.umask(0o022)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """With all that it started: nobody waits for the compiler any more."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    sys.exit("mqcompile: ended with the broker; the next start compiles anew")


if __name__ == "__main__":
    sys.exit(main())
