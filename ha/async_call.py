"""AsyncCall: a call that may take seconds, made once on a thread of its own.

HAClient calls other processes and the resolver this way: its thread continues, or sleeps until it
is woken, and a stop need not wait for the reply. It knows neither the callee nor the request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from store.errors import StoreError

Result = TypeVar("Result")


class AsyncCall(Generic[Result]):
    """See the module. Created and read by one thread, completed by its own."""

    def __init__(self, function: Callable[[], Result], on_done: Callable[[], None]) -> None:
        """Starts immediately. on_done(): on the call's thread. Raises StoreError: no thread can
        be started now."""
        self._function = function
        self._on_done = on_done
        self._outcome: tuple[Result] | Exception | None = None
        try:
            threading.Thread(target=self._run, name="HAClientAsyncCall", daemon=True).start()
        except RuntimeError as error:
            raise StoreError(
                f"cannot start a thread ({error}): raise the limit of this user's processes "
                "(ulimit -u) or of the container's"
            ) from error

    @property
    def is_done(self) -> bool:
        """Whether `result` is available."""
        return self._outcome is not None

    def result(self) -> Result:
        """What the function returned; raises what it raised."""
        outcome = self._outcome
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            raise RuntimeError("the call has not completed yet")
        return outcome[0]

    def _run(self) -> None:
        try:
            self._outcome = (self._function(),)
        except Exception as error:  # noqa: BLE001 - raised again by `result`
            self._outcome = error
        self._on_done()
