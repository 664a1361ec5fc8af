"""ResponseTable: pending calls by opaque, with deadlines.

Used by both sides of the protocol: the client for its calls, the server for its requests to
clients. Thread-safe; the owner calls `expire` periodically. Knows no socket.
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
    """One pending call: its callback and its deadline (monotonic ms)."""

    opaque: int
    address: str
    deadline_ms: int
    callback: ResponseCallback


class ResponseTable:
    """Pending calls keyed by opaque."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[int, ResponseFuture] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def add(self, future: ResponseFuture) -> None:
        """Register a pending call under `future.opaque`."""
        with self._lock:
            self._futures[future.opaque] = future

    def take(self, opaque: int) -> ResponseFuture | None:
        """Remove the call `opaque`; None if it is not pending (any longer)."""
        with self._lock:
            return self._futures.pop(opaque, None)

    def complete(self, response: RemotingCommand, address: str | None = None) -> None:
        """Complete the call of `response`; a late response is logged and dropped.

        `address`: the sender, if peers must not respond for each other (None: not checked).
        """
        waiting = self._futures.get(response.opaque)
        if waiting is not None and address not in (None, waiting.address):
            log.warning(
                "%s: dropped its response to opaque %s, which was sent to %s",
                address,
                response.opaque,
                waiting.address,
            )
            return
        future = self.take(response.opaque)
        if future is None:
            log.info("response without a pending call (late?): opaque %s", response.opaque)
            return
        future.callback(response, None)

    def fail_address(self, address: str, error: Exception) -> None:
        """The connection to `address` closed: all of its pending calls fail."""
        with self._lock:
            gone = [f for f in self._futures.values() if f.address == address]
            for future in gone:
                del self._futures[future.opaque]
        for future in gone:
            future.callback(None, error)

    def expire(self, now_ms: int) -> list[ResponseFuture]:
        """Remove and return the calls whose deadline has passed; the caller fails them."""
        with self._lock:
            late = [f for f in self._futures.values() if f.deadline_ms <= now_ms]
            for future in late:
                del self._futures[future.opaque]
        return late
