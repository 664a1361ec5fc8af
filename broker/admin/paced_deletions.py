"""PacedDeletions: the names of a list that is deleted (5002, 5003), some a second.

Runs in the `admin` pool, of which one thread at most waits here: a second list is refused
meanwhile. Each deletion writes files that the broker's other work waits for, hence the pace, as in
RocketMQ 5.5.1. Knows nothing of what is deleted.

Tested by tests/broker/admin/test_admin_deletions.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from remoting.errors import RequestError
from remoting.response_code import ResponseCode

_SLICE_S: Final = 0.1
"""How soon a stop of the broker is noticed."""


class PacedDeletions:
    """Guarded by `_lock`: whose list it is now."""

    def __init__(
        self, serves: Callable[[], bool], wait_s: Callable[[float], object] | None = None
    ) -> None:
        """serves: whether the broker goes on: its stop does not wait for the rest of a list."""
        self._serves = serves
        self._wait_s = wait_s or threading.Event().wait
        self._lock = threading.Lock()

    def each(self, names: Sequence[str], per_second: float) -> Iterator[str]:
        """Every name once, in order; per_second 0: without pauses. Raises RequestError."""
        if not self._lock.acquire(blocking=False):
            raise RequestError(
                ResponseCode.SYSTEM_BUSY, "another list is being deleted here: try again later"
            )
        try:
            wanted = list(dict.fromkeys(names))
            for number, name in enumerate(wanted):
                if number and per_second > 0:
                    self._pause(1 / per_second)
                if not self._serves():
                    done = f"{number} of {len(wanted)} are deleted, up to {wanted[number - 1]}"
                    raise RequestError(
                        ResponseCode.SYSTEM_ERROR,
                        f"the broker stops: {done if number else 'none is deleted'}",
                    )
                yield name
        finally:
            self._lock.release()

    def _pause(self, seconds: float) -> None:
        while seconds > 0 and self._serves():
            self._wait_s(min(seconds, _SLICE_S))
            seconds -= _SLICE_S


def check_list(names: Sequence[str], what: str) -> list[str]:
    """The names of a request's body. Raises RequestError in RocketMQ's words for none, or a blank
    one."""
    found = [name for name in names if name and not name.isspace()]
    if not names or len(found) < len(names):
        text = f"The specified {what}{' list' if not names else ''} is blank."
        raise RequestError(ResponseCode.INVALID_PARAMETER, text)
    return found
