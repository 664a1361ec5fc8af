"""RetentionClock: the time by which files age. It follows the wall clock, but only as fast as time
can have passed, so that a clock that jumps ages no file.

While the process runs, a step of the wall clock is taken over at no more than CATCH_UP times the
time that passes: a clock that is a month ahead for 30 s ages files by 12 minutes; a machine that
was suspended, or off for a week, has caught up after 7 hours. Between two runs within one boot of
the machine the monotonic clock says what has passed; over a boot the clock goes on where it was.
The time is kept in a file: {"time_ms", "boot", "monotonic_ms"}; without it the start is what the
caller knows to have been (when a file was last written). Owned by one thread.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Final

from conf.atomic_file import replace_file
from ipc.clock import Clock
from store.clean_exit import boot_id

log = logging.getLogger(__name__)

CATCH_UP: Final = 24
"""A day in an hour."""
SAVE_MS: Final = 600_000
_WORTH_TELLING_MS: Final = 3_600_000


class RetentionClock:
    """See the module. All times in ms since 1970-01-01 UTC."""

    def __init__(self, clock: Clock, path: Path | None = None) -> None:
        """path: the file, read now and written by `save`; None: the time is not kept."""
        self._clock = clock
        self._path = path
        self._boot = boot_id()
        self._seen_ms = clock.monotonic_ms()
        self._saved_ms = self._seen_ms - SAVE_MS
        self._was_off = False
        self._time_ms = self._load()

    def begin_at(self, time_ms: int) -> None:
        """Without a file: the time was this at least. 0: nothing is known, the wall clock's."""
        if self._time_ms is None:
            now_ms = self._clock.now_ms()
            self._time_ms = min(time_ms, now_ms) if time_ms > 0 else now_ms

    def now_ms(self) -> int:
        """The time by which files age: never later than the wall clock's."""
        wall_ms, seen_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        before_ms = wall_ms if self._time_ms is None else self._time_ms
        reach_ms = CATCH_UP * (seen_ms - self._seen_ms)
        off_ms = wall_ms - before_ms
        self._time_ms = before_ms + max(-reach_ms, min(off_ms, reach_ms))
        self._seen_ms = seen_ms
        self._report(wall_ms - self._time_ms)
        return min(self._time_ms, wall_ms)

    def latest_ms(self) -> int:
        """The later one of this clock and the wall clock: no file was written after it."""
        return max(self._time_ms or 0, self._clock.now_ms())

    def save(self, *, at_once: bool = False) -> None:
        """Keep the time, at most every SAVE_MS. A failure is logged: then a restart ages less."""
        if self._path is None:
            return
        due = at_once or self._clock.monotonic_ms() - self._saved_ms >= SAVE_MS
        if not due or self._time_ms is None:
            return
        self._saved_ms = self._clock.monotonic_ms()
        found = {"time_ms": self._time_ms, "boot": self._boot, "monotonic_ms": self._seen_ms}
        try:
            replace_file(self._path, json.dumps(found).encode())
        except OSError as error:
            log.warning("%s: not written: %s", self._path, error)

    def _load(self) -> int | None:
        """What was saved, plus what has passed since within this boot."""
        if self._path is None:
            return None
        try:
            found = json.loads(self._path.read_bytes())
            time_ms, monotonic_ms = int(found["time_ms"]), int(found["monotonic_ms"])
            same_boot = found["boot"] == self._boot
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            log.warning("%s: not used: %r", self._path, error)
            return None
        return time_ms + max(0, self._seen_ms - monotonic_ms) if same_boot else time_ms

    def _report(self, off_ms: int) -> None:
        is_off = abs(off_ms) >= _WORTH_TELLING_MS
        if is_off and not self._was_off:
            log.warning(
                "the wall clock is %s s from the time by which files age: it was set, or nothing "
                "ran for that long; files age at most %s times faster until it is reached",
                off_ms // 1000,
                CATCH_UP,
            )
        elif self._was_off and not is_off:
            log.info("files age by the wall clock again")
        self._was_off = is_off
