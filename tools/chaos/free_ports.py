"""Free ports of loopback for the processes of a run, which no other mqchaos gets meanwhile.

A port that is merely free is often taken by another run before the broker that it is for listens,
or while that broker is down. So each run locks a block of ports in a file that all runs of a user
share, for as long as its process lives. Any thread. It knows no broker. This broker's own tests ask
here, too: they run mqchaos beside servers of theirs.

    /dev/shm/mqchaos-ports-<uid>   a byte for each block; nothing is written. Not where TMPDIR says,
                                   which may differ from run to run; only if there is no /dev/shm
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import socket
import tempfile
import threading
from pathlib import Path
from typing import Final

_FIRST: Final = 10_000
_BLOCK: Final = 5
"""Ports that one lock is for: those at a distance of up to two from the one in the middle."""
_TRIES: Final = 500
_SHARED: Final = "/dev/shm"
_given: Final[set[int]] = set()
"""Locks of one process do not exclude each other."""
_giving: Final = threading.Lock()


class NoFreePortError(OSError):
    """There is no port left below the range of outgoing connections."""


def free_port(*also: int) -> int:
    """A free port, with those at these distances (-2 to 2) from it, below the range from which the
    kernel takes ports for outgoing connections; nobody who asks here is given them while this
    process lives. Raises NoFreePortError, OSError."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    blocks = max(low - _FIRST, 100 * _BLOCK) // _BLOCK
    for _ in range(_TRIES):
        block = random.SystemRandom().randrange(blocks)
        port = _FIRST + block * _BLOCK + 2
        if _reserve(block) and all(_is_free(port + distance) for distance in (0, *also)):
            return port
    raise NoFreePortError("there is no free port below the range of outgoing connections")


def _reserve(block: int) -> bool:
    with _giving:
        if block in _given:
            return False
        with contextlib.suppress(BlockingIOError, PermissionError):
            fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, block)
            _given.add(block)
            return True
    return False


@functools.cache
def _locks() -> int:
    """The descriptor of the file, kept: to close any of a file's would let go of its locks."""
    shared = _SHARED if os.access(_SHARED, os.W_OK) else tempfile.gettempdir()
    path = Path(shared, f"mqchaos-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket() as sock:
        sock.bind(("127.0.0.1", port))
        return True
    return False
