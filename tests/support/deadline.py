"""Waiting in tests: for a condition, with a deadline, never for a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from tests.support.stolen_time import OwnTime

_T = TypeVar("_T")
_PAUSE = threading.Event()


def wait_until(condition: Callable[[], object], timeout_s: float = 10.0) -> float:
    """Returns as soon as `condition` holds, with the seconds that it took; AssertionError at the
    deadline. Both are of the machine's own time."""
    clock = OwnTime()
    while not condition():
        waited_s = clock.s()
        assert waited_s < timeout_s, f"not within {timeout_s} s"
        _PAUSE.wait(pause_s(waited_s))
    return clock.s()


def pause_s(waited_s: float) -> float:
    """Until the next look at a condition that did not hold for so long: a twentieth of it. A look
    may go through all of /proc, and the processes that are waited for want the processor, too."""
    return min(max(waited_s / 20, 0.002), 0.02)


def within(timeout_s: float, action: Callable[[], _T]) -> _T:
    """What `action` gives or raises, run by a thread of its own; AssertionError when it takes more
    of the machine's own time."""
    done: Future[_T] = Future()

    def run() -> None:
        try:
            done.set_result(action())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    wait_until(done.done, timeout_s)
    return done.result()
