"""LifeStages and ChildTimeouts: what a broker or a container gives its supervisor.

Pure data, made once by whoever builds the supervisor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTimeouts:
    """How long children may be silent.

    hang_ms: a serving one between two heartbeats. start_ms: one that does not serve yet, without
    progress (CPU time, bytes, start beats); hang_ms if that is longer. A start that makes progress
    is never aborted, since the next one would not be faster. stop_ms: all of them, until they are
    killed.
    """

    hang_ms: int
    start_ms: int = 30_000
    stop_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeStages:
    """What is done between the start and the end of the children, on the supervisor's thread.

    on_started: all have been started once; threads may exist from then on. on_tick: each turn of
    the loop. on_reopen: no process has the store open: reset the other shared memory. on_stop: the
    broker is about to stop and its children still run. on_answered: remoting has ended in the stop,
    so that nothing is answered any more, and the others still run; given whether it ended in order,
    which one that was not running did not.
    """

    on_started: Callable[[], None] = lambda: None
    on_tick: Callable[[], None] = lambda: None
    on_reopen: Callable[[], None] = lambda: None
    on_stop: Callable[[], None] = lambda: None
    on_answered: Callable[[bool], None] = lambda _in_order: None
