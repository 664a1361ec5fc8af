"""Processor time of one thread, by turns of the loop: what complexity.py judges."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Turns:
    """Processor time of this thread, by whose it would be: a turn of the loop, or somebody
    else's."""

    def __init__(self) -> None:
        self.longest_s = self.total_s = 0.0
        self._turn_s = 0.0
        self._on_loop = True
        self._at_s = time.thread_time()

    def begin(self) -> None:
        """Everything is 0."""
        self.longest_s = self.total_s = self._turn_s = 0.0
        self._on_loop = True
        self._at_s = time.thread_time()

    def end_turn(self) -> None:
        """What follows is another turn of the loop."""
        self._account()
        self.longest_s = max(self.longest_s, self._turn_s)
        self._turn_s = 0.0

    @contextlib.contextmanager
    def inside(self, *, loop: bool) -> Iterator[None]:
        """What is done within is a turn of its own, or another thread's."""
        self._account()
        before, turn_s = self._on_loop, self._turn_s
        self._on_loop, self._turn_s = loop, 0.0
        try:
            yield
        finally:
            self._account()
            self.longest_s = max(self.longest_s, self._turn_s)
            self._on_loop, self._turn_s = before, turn_s

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """What is done within does not count."""
        self._account()
        try:
            yield
        finally:
            self._at_s = time.thread_time()

    def _account(self) -> None:
        now_s = time.thread_time()
        took_s, self._at_s = now_s - self._at_s, now_s
        self.total_s += took_s
        if self._on_loop:
            self._turn_s += took_s
