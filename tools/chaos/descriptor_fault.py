"""exhaust_descriptors: a process that has no descriptor left for new connections.

Its limit (RLIMIT_NOFILE) is lowered from outside to what it has open and a few, and connections are
opened until it can accept no more. A process must not spin meanwhile, has to go on for those that
it serves, and has to accept again once it may. Runs on the caller's thread.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from tools.chaos.processes import cpu_s, open_descriptors

_FEW: Final = 4
_BEYOND: Final = 40
"""Connections more than there are descriptors for."""
_BEFORE_S: Final = 0.5
_SERVED: Final = 20
_LIMIT_S: Final = 20.0
_BUSY: Final = 0.9
"""Of a processor: a loop that never sleeps."""


def exhaust_descriptors(
    name: str,
    pid: int,
    address: tuple[str, int],
    seconds: float,
    answers: Callable[[], int],
    can_connect: Callable[[], bool],
) -> list[str]:
    """What was violated. answers: how many requests of others were answered up to now. can_connect:
    whether a new client is served."""
    before = _share_of_processor(pid, _BEFORE_S)
    found: list[str] = []
    try:
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    except ProcessLookupError:
        return found  # It was just killed.
    with contextlib.ExitStack() as crowd:
        descriptors = open_descriptors(pid)
        limit = max(descriptors, default=0) + 1 + _FEW
        if not _set_limit(pid, limit, hard):
            return found
        try:
            _connect(crowd, address, limit - len(descriptors) + _BEYOND)
            answered = answers()
            during = _share_of_processor(pid, max(seconds, _BEFORE_S))
            if during > _BUSY and during > before + 0.4:
                found.append(
                    f"{name} spins without descriptors: {during:.0%} of a processor, "
                    f"{before:.0%} before"
                )
            if not _comes(lambda: answers() >= answered + _SERVED):
                found.append(f"{name} without descriptors serves no client for {_LIMIT_S:.0f} s")
        finally:
            _set_limit(pid, soft, hard)
        if not _comes(can_connect):
            found.append(f"{name} has descriptors again and serves no new client")
    return found


def _set_limit(pid: int, soft: int, hard: int) -> bool:
    """False: it has ended."""
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    except ProcessLookupError:
        return False
    return True


def _connect(crowd: contextlib.ExitStack, address: tuple[str, int], count: int) -> None:
    """Up to `count` connections, some of which nobody accepts."""
    for _ in range(count):
        sock = crowd.enter_context(socket.socket())
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError, OSError):
            sock.connect(address)


def _share_of_processor(pid: int, seconds: float) -> float:
    used_s, began_s = cpu_s(pid), time.monotonic()
    threading.Event().wait(seconds)
    return (cpu_s(pid) - used_s) / (time.monotonic() - began_s)


def _comes(condition: Callable[[], bool]) -> bool:
    deadline_s, pause = time.monotonic() + _LIMIT_S, threading.Event()
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        pause.wait(0.02)
    return True
