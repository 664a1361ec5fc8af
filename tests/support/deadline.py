"""Waiting in tests: for a condition, with a deadline, never for a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.support.stolen_time import own_s

_PAUSE = threading.Event()


def wait_until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Returns as soon as `condition` holds; AssertionError at the deadline (of the machine's own
    time)."""
    deadline = own_s() + timeout_s
    while not condition():
        assert own_s() < deadline, f"not within {timeout_s} s"
        _PAUSE.wait(0.002)
