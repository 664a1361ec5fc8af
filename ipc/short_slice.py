"""ask_for_short_slice: a thread that others wait for gets the processor soon after it has woken.

Called by the loop of `remoting`, the dispatch thread of `store` and the main thread of `ha`, whose
services inherit it: threads that the caller starts afterwards do. Beside programs that only
compute, Linux gives a thread that wakes the processor at once only if its slice is shorter than
that of whoever runs; with equal slices that one goes on for a while. A short slice does not give
more of the processor, only sooner (Linux 6.12; older ones ignore it). Any user may ask. It knows no
process.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import platform
import struct
from typing import Final

log = logging.getLogger(__name__)

SLICE_NS: Final = 100_000
"""The shortest that Linux takes."""
_SCHED_ATTR: Final = struct.Struct("=IIQiIQQQII")
"""size, sched_policy, sched_flags, sched_nice, sched_priority, sched_runtime (ns; of an ordinary
thread its slice), sched_deadline, sched_period, sched_util_min, sched_util_max"""
assert _SCHED_ATTR.size == 56
_CALLS: Final = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""Numbers of sched_setattr and sched_getattr."""


def ask_for_short_slice() -> None:
    """For the calling thread; where that cannot be, nothing changes."""
    try:
        policy, nice, _ = read_attributes()
        if policy == os.SCHED_OTHER:
            set_call, _ = _CALLS[platform.machine()]
            attributes = (_SCHED_ATTR.size, policy, 0, nice, 0, SLICE_NS, 0, 0, 0, 0)
            _call(set_call, ctypes.create_string_buffer(_SCHED_ATTR.pack(*attributes)), 0)
    except OSError as error:
        log.info("no short slices of the processor: %s", error)


def read_attributes() -> tuple[int, int, int]:
    """Policy, nice value and slice (ns; 0: not known) of the calling thread. Raises OSError."""
    if platform.machine() not in _CALLS:
        raise OSError(errno.ENOSYS, f"not known how on {platform.machine()}")
    _, get_call = _CALLS[platform.machine()]
    buffer = ctypes.create_string_buffer(_SCHED_ATTR.size)
    _call(get_call, buffer, _SCHED_ATTR.size, 0)
    found = _SCHED_ATTR.unpack(buffer.raw[: _SCHED_ATTR.size])
    return found[1], found[3], found[5]


def _call(number: int, buffer: ctypes.Array[ctypes.c_char], *more: int) -> None:
    """For the calling thread (0). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, 0, buffer, *more) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
