"""ConnectFailures: says that a peer cannot be connected to, once a minute, until it can.

Owned by the loop of a RemotingClient. A controller or a name server that is gone for days is
connected to every few seconds, and would fill the log.
"""

from __future__ import annotations

import logging
from typing import Final

from remoting.errors import RemotingConnectError

log = logging.getLogger(__name__)

QUIET_MS: Final = 60_000
_MAX_SAID: Final = 1_000


class ConnectFailures:
    """See the module."""

    def __init__(self) -> None:
        self._said_ms: dict[str, int] = {}

    def failed(self, address: str, error: RemotingConnectError, now_ms: int) -> None:
        """One more."""
        said_ms = self._said_ms.get(address)
        if said_ms is not None and now_ms - said_ms < QUIET_MS:
            log.debug("%s", error)
            return
        log.warning("%s", error)
        if len(self._said_ms) >= _MAX_SAID:
            self._said_ms.clear()
        self._said_ms[address] = now_ms

    def connected(self, address: str) -> None:
        """The next failure is news."""
        self._said_ms.pop(address, None)
