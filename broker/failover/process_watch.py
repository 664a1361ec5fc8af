"""ProcessWatch: whether the processes that a leader needs beside `ha` are there, and get on.

A leader without `remoting` takes no message, and one without `store` shows none to consumers and
flushes none, while its `ha`, which tells the controllers that the broker lives, goes on. That a
process has ended the supervisor says (slot 104+p), at once; until its successor's first beat it is
missing. One without a beat for as long as a broker may be silent to its controllers stands still.
Who looks must itself be running: after a pause of its own (SIGSTOP to all of the broker, a machine
that was suspended) the others' beats count from then on. A process that has not beaten yet starts,
which may take any time. Owned by the main thread of process `ha`.

Tested by tests/broker/failover/test_process_watch.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.failover.messages import Fitness, Moved
from ipc.clock import Clock
from ipc.control_page import ENDS, ControlPage, ProcessIndex

log = logging.getLogger(__name__)

LOOK_MS: Final = 200
"""How often it is to look."""
_LEAST_PAUSE_MS: Final = 500
"""What is no longer than that between two looks is no pause."""


@dataclass(slots=True)
class _Watched:
    """What was seen of one process."""

    process: ProcessIndex
    ends: int
    beats: int
    beat_ms: int | None = None
    """When it was last seen to beat; None: it starts."""
    is_missing: bool = False


class ProcessWatch:
    """See the module."""

    def __init__(
        self,
        page: ControlPage,
        clock: Clock,
        silence_ms: int,
        deliver: Callable[[Fitness | Moved], None],
    ) -> None:
        """silence_ms: after which a process stands still. deliver: takes an event, does not
        block."""
        self._page = page
        self._clock = clock
        self._silence_ms = silence_ms
        self._deliver = deliver
        self._watched = [
            _Watched(process, page.counters[ENDS + process], page.beats(process))
            for process in (ProcessIndex.REMOTING, ProcessIndex.STORE)
        ]
        self._looked_ms = clock.monotonic_ms()
        self._lacking = ""

    def look(self) -> None:
        """One look; a change is delivered. While a process is lacking so is that the log may have
        moved: a leader whose log stands still hands over without waiting for its next tick."""
        now_ms = self._clock.monotonic_ms()
        was_paused = now_ms - self._looked_ms > max(self._silence_ms // 4, _LEAST_PAUSE_MS)
        self._looked_ms = now_ms
        found = [self._look_at(one, now_ms, was_paused=was_paused) for one in self._watched]
        lacking = next(filter(None, found), "")
        if lacking != self._lacking:
            self._lacking = lacking
            level = logging.WARNING if lacking else logging.INFO
            log.log(level, "member of the group: %s", lacking or "all processes are there again")
            self._deliver(Fitness(lacking))
        elif lacking:
            self._deliver(Moved())

    def _look_at(self, one: _Watched, now_ms: int, *, was_paused: bool) -> str:
        """What is wrong with it; empty: nothing."""
        page, process = self._page, one.process
        ends, beats = page.counters[ENDS + process], page.beats(process)
        if was_paused:
            # Who ended meanwhile may have its successor already.
            one.beat_ms = None if one.beat_ms is None else now_ms
        elif ends != one.ends:
            # Whoever beats from now on is its successor.
            one.is_missing = True
        elif beats != one.beats:
            one.is_missing, one.beat_ms = False, now_ms
        one.ends, one.beats = ends, beats
        if one.is_missing:
            return f"process {process.name.lower()} has ended"
        silent_ms = 0 if one.beat_ms is None else now_ms - one.beat_ms
        is_still = silent_ms > self._silence_ms
        return f"process {process.name.lower()} stands still" if is_still else ""
