"""Clock: the only place of the product that asks the operating system for the time.

Any thread. Wall clock for stored timestamps, monotonic clock for deadlines; both in ms. Services
take a Clock in their constructor; tests give tests.support.manual_clock.ManualClock. A process
takes its own from `process_clock`.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

log = logging.getLogger(__name__)

WALL_OFFSET_VARIABLE: Final = "MQBROKER_WALL_OFFSET_FILE"
"""Names a file with an int64, little endian: ms by which the wall clock is off. Set by
`bin/mqchaos` and by nobody else."""
WALL_OFFSET: Final = struct.Struct("<q")


class Clock(Protocol):
    """The two clocks of a host."""

    def now_ms(self) -> int:
        """Wall clock: ms since 1970-01-01 UTC. May jump."""

    def monotonic_ms(self) -> int:
        """Ms since some moment; never goes back. For deadlines and intervals."""

    def monotonic_ns(self) -> int:
        """The same in ns, for what takes less than a ms."""

    def since_boot_ms(self) -> int:
        """Ms since the machine has booted, sleep included: the monotonic clock stands still then,
        the wall clock does not."""


class SystemClock:
    """The clocks of the operating system."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Wall clock ms."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Monotonic ms."""
        return time.monotonic_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Monotonic ns."""
        return time.monotonic_ns()

    def since_boot_ms(self) -> int:
        """CLOCK_BOOTTIME."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class SetClock(SystemClock):
    """A wall clock that is off by what a file says at each moment, as if somebody had set it."""

    __slots__ = ("_offset",)

    def __init__(self, path: Path) -> None:
        """path: see WALL_OFFSET_VARIABLE. Raises OSError, ValueError: it is not there, or empty."""
        with path.open("rb") as file:
            self._offset = mmap.mmap(file.fileno(), WALL_OFFSET.size, access=mmap.ACCESS_READ)

    def now_ms(self) -> int:
        """Wall clock ms, and the offset."""
        offset_ms: int = WALL_OFFSET.unpack_from(self._offset)[0]
        return super().now_ms() + offset_ms


def process_clock(environment: Mapping[str, str] = os.environ) -> SystemClock:
    """The clock of a process: the system's, unless the environment names an offset file.

    Raises OSError, ValueError naming the variable when that file cannot be used.
    """
    named = environment.get(WALL_OFFSET_VARIABLE)
    if not named:
        return SystemClock()
    try:
        clock = SetClock(Path(named))
    except (OSError, ValueError) as error:
        raise OSError(f"{WALL_OFFSET_VARIABLE}={named}: {error}; unset it") from error
    log.warning("the wall clock is off by what %s says: for tests only", named)
    return clock
