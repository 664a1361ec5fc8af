"""Programs beside the broker that end with it, however it ends: the console, the compiler.

Runs on the supervisor's main thread; `python -m broker.supervisor.dependent_program PARENT
COMMAND…` is the moment of the new process before it becomes the program. Such a program is no child
that the broker needs: no heartbeat, no shared memory, and nothing that happens to it changes what
the broker answers. It has a process group of its own, so that Ctrl-C in a terminal does not reach
it, but the broker's session. Must not know what the programs are.

Tested by tests/broker/supervisor/test_console_program.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import subprocess

_STOP_S: Final = 2.0
_LAST_BYTES: Final = 400
_PR_SET_PDEATHSIG: Final = 1


def start_dependent(
    command: Sequence[str], output: Path, *, keeps_stderr: bool = False
) -> subprocess.Popen[bytes]:
    """`command`, without input; `output`, made anew, gets what it prints, but stderr with
    `keeps_stderr`, which is the broker's then. Raises OSError."""
    import subprocess

    with open(output, "wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", __name__, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=None if keeps_stderr else subprocess.STDOUT,
            process_group=0,
        )


def stop_dependent(process: subprocess.Popen[bytes]) -> None:
    """End it, within two seconds; after that, its whole process group by force."""
    import subprocess

    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_words(output: Path) -> str:
    """The last line that it printed, without what could break a line of the log."""
    try:
        with open(output, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return "".join(each if each.isprintable() else " " for each in lines[-1]) if lines else ""


def main(arguments: Sequence[str]) -> None:
    """Become a command that ends with the process PARENT, however that ends."""
    parent, *command = arguments
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):
        sys.exit("the broker ended while its program started")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
