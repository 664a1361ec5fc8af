"""Question: a call that may take seconds, made on a thread of its own, once.

HAClient asks other processes and the resolver so: its thread goes on, or sleeps until it is woken,
and a stop need not wait for the answer. It knows neither who is asked nor what.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from store.errors import StoreError

Answer = TypeVar("Answer")


class Question(Generic[Answer]):
    """See the module. Made and read by one thread, answered by its own."""

    def __init__(self, function: Callable[[], Answer], answered: Callable[[], None]) -> None:
        """Begins at once. answered(): on the question's thread. Raises StoreError: there can be
        no thread now."""
        self._function = function
        self._answered = answered
        self._outcome: tuple[Answer] | Exception | None = None
        try:
            threading.Thread(target=self._run, name="HAClientQuestion", daemon=True).start()
        except RuntimeError as error:
            raise StoreError(
                f"no thread can be started ({error}): raise the limit of this user's processes "
                "(ulimit -u) or of the container's"
            ) from error

    @property
    def is_answered(self) -> bool:
        """Whether `answer` has something to say."""
        return self._outcome is not None

    def answer(self) -> Answer:
        """What the function returned; raises what it raised."""
        outcome = self._outcome
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            raise RuntimeError("the question is not answered yet")
        return outcome[0]

    def _run(self) -> None:
        try:
            self._outcome = (self._function(),)
        except Exception as error:  # noqa: BLE001 - raised again by `answer`
            self._outcome = error
        self._answered()
