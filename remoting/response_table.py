"""ResponseTable: requests that wait for their answer, by opaque, with deadlines.

Used by both sides of the protocol: the client for its calls, the server for what it asks of
clients. Thread-safe; the owner calls `expire` now and then. Knows no socket.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from remoting.remoting_command import RemotingCommand

log = logging.getLogger(__name__)

ResponseCallback = Callable[[RemotingCommand | None, Exception | None], None]


@dataclass(slots=True)
class ResponseFuture:
    """One waiting call: who is told, and until when (monotonic ms)."""

    opaque: int
    address: str
    deadline_ms: int
    callback: ResponseCallback


class ResponseTable:
    """Waiting calls keyed by opaque."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[int, ResponseFuture] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def add(self, future: ResponseFuture) -> None:
        """Wait for the answer to `future.opaque`."""
        with self._lock:
            self._futures[future.opaque] = future

    def take(self, opaque: int) -> ResponseFuture | None:
        """Stop waiting for `opaque`; None when nobody waited (any more)."""
        with self._lock:
            return self._futures.pop(opaque, None)

    def complete(self, response: RemotingCommand, address: str | None = None) -> None:
        """Give `response` to who waits for it; a late one is logged and dropped.

        `address`: who sent it, where peers must not answer for each other (None: anybody may).
        """
        waiting = self._futures.get(response.opaque)
        if waiting is not None and address not in (None, waiting.address):
            log.warning(
                "%s: its answer to opaque %s is dropped, %s was asked",
                address,
                response.opaque,
                waiting.address,
            )
            return
        future = self.take(response.opaque)
        if future is None:
            log.info("an answer nobody waits for (late?): opaque %s", response.opaque)
            return
        future.callback(response, None)

    def fail_address(self, address: str, error: Exception) -> None:
        """The connection to `address` is gone: every call that waits for it fails."""
        with self._lock:
            gone = [f for f in self._futures.values() if f.address == address]
            for future in gone:
                del self._futures[future.opaque]
        for future in gone:
            future.callback(None, error)

    def expire(self, now_ms: int) -> list[ResponseFuture]:
        """Remove and return the calls whose deadline has passed; the caller tells them."""
        with self._lock:
            late = [f for f in self._futures.values() if f.deadline_ms <= now_ms]
            for future in late:
                del self._futures[future.opaque]
        return late
