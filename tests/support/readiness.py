"""Whether a descriptor can be read or written, whatever its number: select knows the first 1,024.

A worker of a test run has more than those open now and then.
"""

from __future__ import annotations

import select
import socket


def events_of(fd: int | socket.socket, wanted: int = select.POLLIN, timeout_s: float = 0.0) -> int:
    """Those of `wanted`, POLLHUP and POLLERR that hold, once one does; 0: none within the time."""
    poll = select.poll()
    poll.register(fd, wanted)
    found = poll.poll(timeout_s * 1_000)
    return found[0][1] if found else 0
