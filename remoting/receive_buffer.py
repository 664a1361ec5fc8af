"""ReceiveBuffer: the buffer that all connections of one loop read into, and an account of what they
hold beside it.

Owned by: the loop's thread. A connection holds bytes of its own only for a frame of which a part
has arrived; this is the account of those bytes. Memory follows the bytes that came, never the
length that a frame announces, and all connections together hold at most a limit: beyond it the
connection whose frame has been incomplete for longest is closed, since the frame of a working peer
is complete within milliseconds. RocketMQ's Netty grows a buffer for each connection, without a
limit for all. Knows no socket and no frame.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from remoting.connection import Connection


log = logging.getLogger(__name__)

SHARED_BUFFER_SIZE: Final = 1 << 19
INCOMPLETE_FRAMES_LIMIT: Final = 128 << 20
"""Bytes of incomplete frames that the connections of one server hold together."""
_QUIET_MS: Final = 60_000
"""Least time between two log lines about the limit."""


class ReceiveBuffer:
    """See the module."""

    __slots__ = ("_held", "_limit", "_said_ms", "closed", "total", "view")

    def __init__(
        self, size: int = SHARED_BUFFER_SIZE, *, limit: int = INCOMPLETE_FRAMES_LIMIT
    ) -> None:
        self.view = memoryview(bytearray(size))
        self.total = 0
        """Bytes held by all."""
        self.closed = 0
        """Connections closed because of the limit."""
        self._limit = limit
        self._held: dict[Connection, int] = {}
        """In the order in which their present frames began to be held."""
        self._said_ms = -_QUIET_MS

    def hold(self, holder: Connection, size: int, now_ms: int) -> None:
        """`holder` holds `size` bytes now, instead of what it held before. Others, or `holder`
        itself, may be closed during the call."""
        self.total += size - self._held.get(holder, 0)
        self._held[holder] = size
        while self.total > self._limit:
            self._close_oldest(now_ms)

    def release(self, holder: Connection) -> None:
        """`holder` holds nothing any more."""
        self.total -= self._held.pop(holder, 0)

    def _close_oldest(self, now_ms: int) -> None:
        oldest = next(iter(self._held))
        self.closed += 1
        if now_ms - self._said_ms >= _QUIET_MS:
            self._said_ms = now_ms
            log.warning(
                "%s connections hold %s bytes of incomplete frames, over the limit of %s: closing "
                "those that have waited longest, %s first (%s closed since the start)",
                len(self._held),
                self.total,
                self._limit,
                oldest.remote_address,
                self.closed,
            )
        oldest.close("incomplete frames of all connections are over the limit, its was the oldest")
        self.release(oldest)
