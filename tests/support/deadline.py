"""Waiting in tests: for a condition, with a deadline, never for a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_PAUSE = threading.Event()


def wait_until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Returns as soon as `condition` holds; AssertionError at the deadline."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        _PAUSE.wait(0.002)
