"""ColdDataPullRequestHoldService: pulls of groups that read too much cold data wait three seconds.

Loop thread of `remoting`; looked at once a second (RocketMQ: every five). Bounded; whoever does not
fit is to be refused. RocketMQ's counterpart: the class of this name in 5.3.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from broker.longpolling.pull_header import HeldPull

HOLD_MS: Final = 3_000
_MOST: Final = 10_000


class ColdDataPullRequestHoldService:
    """Held pulls in the order of their coming. Owned by: the loop thread."""

    def __init__(self, serve: Callable[[HeldPull], None]) -> None:
        """serve: answers a pull that has waited."""
        self._serve = serve
        self._held: deque[HeldPull] = deque()

    def __len__(self) -> int:
        """How many pulls wait."""
        return len(self._held)

    def hold(self, pull: HeldPull) -> bool:
        """Keep `pull` until its deadline; False if too many wait."""
        if len(self._held) >= _MOST:
            return False
        self._held.append(pull)
        return True

    def scan(self, now_ms: int) -> None:
        """Serve those that have waited (monotonic), drop those whose client is gone."""
        held = self._held
        while held and held[0].deadline_ms <= now_ms:
            pull = held.popleft()
            if pull.request.connection.is_open:
                self._serve(pull)
