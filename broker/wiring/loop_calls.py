"""Calling a function on the loop from another thread, and waiting for its result.

For pool threads of process `remoting`; the loop itself must not wait.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from remoting.selector_loop import SelectorLoop

ResultT = TypeVar("ResultT")

_WAIT_S: Final = 5.0


def call_on_loop(loop: SelectorLoop, function: Callable[[], ResultT]) -> ResultT:
    """Run `function` on the loop and return its result. Raises TimeoutError after five seconds."""
    future: Future[ResultT] = Future()

    def run() -> None:
        future.set_result(function())

    loop.call_soon_threadsafe(run)
    return future.result(_WAIT_S)
