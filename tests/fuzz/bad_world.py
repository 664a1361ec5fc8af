"""BadWorld: a world with every fault, which the judge of the fuzzer (execution.py) has to notice.

A module of its own, with few imports: `judged` runs in a process that does nothing else, since what
any thread of this one frees meanwhile hides what an input takes. Tested by test_fuzz.py.
"""

from __future__ import annotations

import gc
import logging
import time

from tests.fuzz.execution import LONGEST_S, MOST_MEMORY, Execution, Finding
from tests.fuzz.target import Stateless, Target

_TAKEN = MOST_MEMORY + (64 << 20)
_SMALL = 100_000
"""Bytes of an object that malloc takes from its heap: mapped ones go back at once."""


class BadWorld(Stateless):
    """Serves nobody once it was asked to stop."""

    def __init__(self) -> None:
        super().__init__(self._take, (ValueError,))
        self._stopped = False
        self._kept: list[bytes] = []

    def _take(self, data: bytes) -> None:
        if data == b"refuse":
            raise ValueError
        if data == b"raise":
            raise KeyError("an error of another kind")
        if data == b"log":
            self._log()
        if data == b"spin":
            until_s = time.thread_time() + LONGEST_S + 0.1
            while time.thread_time() < until_s:
                pass
        if data == b"collect":
            gc.collect()
        if data in (b"fill", b"collect"):
            self._kept.append(b"x" * _TAKEN)
        if data == b"pieces":
            self._kept.extend(b"x" * _SMALL for _ in range(_TAKEN // _SMALL))
        self._stopped |= data == b"stop"

    def _log(self) -> None:
        try:
            raise OSError("caught by a guard")
        except OSError:
            logging.getLogger("a.guard").exception("failed")

    def check(self) -> None:
        """Not after a stop."""
        assert not self._stopped


def judged(data: bytes) -> tuple[str | None, str | None]:
    """The keys of what is found with this input, and with the next one, which does nothing; among
    garbage that others left, as much as "fill" takes."""
    target = Target(
        name="bad",
        what="a world with every fault",
        world=lambda _root: BadWorld(),
        seeds=lambda: [b"fine"],
        rooms=(),
    )
    behind_it = _leave_garbage()
    with Execution(target) as execution:
        first, second = execution.run(data), execution.run(b"fine")
    del behind_it
    return _key_of(first), _key_of(second)


def _key_of(finding: Finding | None) -> str | None:
    return None if finding is None else finding.key


def _leave_garbage() -> bytes:
    """More than any input takes; what is given keeps malloc from giving it back by itself."""
    gc.collect()
    left: list[object] = [b"x" * _SMALL for _ in range(2 * _TAKEN // _SMALL)]
    left.append(left)
    return b"x" * _SMALL
