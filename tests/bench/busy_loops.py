"""A crowded host: processes that do nothing but use a core, at normal priority.

Each in a session of its own, as services of one host are: where sched_autogroup_enabled is 1, the
kernel divides processors among sessions first (sched(7)). The brokers and their clients have
sessions of their own, too: in one session with the loops a load generator waits for the processor
itself, with any broker.
Started and ended by the process of the benchmark. The kernel ends them with it, too, should it be
killed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

_LOOP: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
print("looping", flush=True)
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[list[int]]:
    """`count` of them, while the block runs; gives their process ids.

    The thread that enters must live as long as the block: PR_SET_PDEATHSIG is about it.
    """
    command = [sys.executable, "-c", _LOOP, str(os.getpid())]
    loops: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            loops.append(subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True))
        for loop in loops:
            assert loop.stdout is not None
            loop.stdout.readline()
        yield [loop.pid for loop in loops]
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.communicate()
