"""What the kernel knows of the wall clock: whether a time service holds it, and how well.

Any thread; opens nothing. Linux alone, 64 bits; elsewhere, and where a container may not ask, it is
not known. Loads ctypes at the first question: most processes never ask.
"""

from __future__ import annotations

import importlib
import struct
import sys
from typing import Any, Final

_TIMEX: Final = struct.Struct("=i4xqqqqi")
"""modes, offset, freq, maxerror (us), esterror, status; what follows is not looked at."""
_TIMEX_SIZE: Final = 256
_UNSYNCHRONISED: Final = 0x40


class ClockError:
    """Owned by: one thread."""

    def __init__(self) -> None:
        self._ctypes: Any = None
        self._ask: Any = None

    def read_ms(self) -> int | None:
        """By how much the wall clock may be wrong at most, as its time service says; None where
        none holds it (after it was set, too), or that is not known."""
        if not sys.platform.startswith("linux") or sys.maxsize < 2**32:
            return None
        if self._ask is None:
            self._ctypes = importlib.import_module("ctypes")
            self._ask = getattr(self._ctypes.CDLL(None), "adjtimex", None)
        if self._ask is None:
            return None
        buffer = self._ctypes.create_string_buffer(_TIMEX_SIZE)  # modes 0: asks, sets nothing
        if self._ask(buffer) < 0:
            return None
        _, _, _, error_us, _, status = _TIMEX.unpack_from(buffer)
        return None if status & _UNSYNCHRONISED else -(-int(error_us) // 1000)
