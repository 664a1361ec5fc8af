"""PullRequestHoldService: holds pulls that found nothing until their queue advances (long polling).

Runs on the loop thread of `remoting`. Held pulls are indexed by (topic, queueId); the queue table's
ring of changed rows tells which queues have advanced. A woken pull runs again; if nothing new
matches its tags, it is held again and continues from the last examined offset. Follows
PullRequestHoldService of RocketMQ, with two differences in favour of clients: timeouts are detected
within a tenth of a second (RocketMQ: five seconds), and a filtered pull is not answered for
messages that do not match, unless there are more of them than one pull examines. How many are held
is bounded (hold_quota.py). The cost of a clock tick depends on the number of due pulls, not of held
ones, and without due pulls there is none (docs/costs.md).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.longpolling.hold_quota import HoldQuota
from broker.longpolling.pull_header import HeldPull
from remoting.request_processor import ConnectionLike

SCAN_PERIOD_MS: Final = 100
"""Clients whose pulls are answered together come again together, for good: with a second, 5,000
clients had 300 answers and 300 pulls at a time, 20 ms in which nobody else was served."""
_PER_TURN: Final = 8
"""Queues whose pulls time out in one turn of the loop, for the same reason."""

QueueKey = tuple[str, int]
RunAgain = Callable[[HeldPull, bool], bool]
"""(pull, whether it has timed out) -> whether it was answered."""


@dataclass(frozen=True, slots=True)
class HoldFigures:
    """Number of held pulls, and of their queues."""

    pulls: int
    queues: int


class PullRequestHoldService:
    """Held pulls by queue. Owned by: the loop thread."""

    def __init__(self, run_again: RunAgain, quota: HoldQuota | None = None) -> None:
        self._run_again = run_again
        self._quota = quota or HoldQuota()
        self._held: dict[QueueKey, list[HeldPull]] = {}
        self._due: dict[int, set[QueueKey]] = {}
        """Clock period to the queues with a pull that has timed out when it begins."""
        self._periods: list[int] = []
        """Those of `_due`: a heap."""
        self.on_first_due: Callable[[], None] = lambda: None
        """Called when a pull is held that times out before all others."""

    @property
    def is_empty(self) -> bool:
        """Whether no pull is held."""
        return not self._held

    def figures(self) -> HoldFigures:
        """For the runtime information."""
        return HoldFigures(sum(map(len, self._held.values())), len(self._held))

    def hold(self, key: QueueKey, pull: HeldPull) -> bool:
        """Hold `pull` until `key` advances; False if its connection holds too much already, or has
        closed while the pull was with another thread."""
        if not pull.request.connection.is_open or not self._quota.take(key, pull):
            return False
        self._held.setdefault(key, []).append(pull)
        period = -(-pull.deadline_ms // SCAN_PERIOD_MS)
        keys = self._due.get(period)
        if keys is None:
            keys = self._due[period] = set()
            heapq.heappush(self._periods, period)
            if self._periods[0] == period:
                self.on_first_due()
        keys.add(key)
        return True

    def next_due_ms(self) -> int | None:
        """When there is something to scan for (monotonic); None: no pull is held."""
        return self._periods[0] * SCAN_PERIOD_MS if self._periods else None

    def wake(self, key: QueueKey) -> None:
        """`key` has advanced: run its held pulls."""
        if key in self._held:
            self._run(key, now_ms=None)

    def wake_all(self) -> None:
        """Too many queues have advanced to list them: run all held pulls."""
        for key in list(self._held):
            self._run(key, now_ms=None)

    def scan(self, now_ms: int) -> bool:
        """Answer some of the pulls that have timed out. True: more of them have, for the next
        turn."""
        period, periods, left = now_ms // SCAN_PERIOD_MS, self._periods, _PER_TURN
        while periods and periods[0] <= period:
            keys = self._due[periods[0]]
            while keys:
                if not left:
                    return True
                key = keys.pop()
                if key in self._held:
                    left -= 1
                    self._run(key, now_ms)
            del self._due[heapq.heappop(periods)]
        return False

    def forget(self, connection: ConnectionLike) -> None:
        """It has closed: drop its pulls."""
        for key in self._quota.queues_of(connection):
            kept: list[HeldPull] = []
            for pull in self._held.pop(key, ()):
                if pull.request.connection is connection:
                    self._quota.give_back(key, pull)
                else:
                    kept.append(pull)
            if kept:
                self._held[key] = kept

    def _run(self, key: QueueKey, now_ms: int | None) -> None:
        """With a time, run only the pulls that have timed out; without, all pulls of the queue."""
        kept: list[HeldPull] = []
        for pull in self._held.pop(key):
            if not pull.request.connection.is_open:
                self._quota.give_back(key, pull)
                continue
            if now_ms is None:
                answered = self._run_again(pull, False)
            elif now_ms >= pull.deadline_ms:
                answered = self._run_again(pull, True)
            else:
                answered = False
            if answered:
                self._quota.give_back(key, pull)
            else:
                kept.append(pull)
        if kept:
            self._held.setdefault(key, []).extend(kept)
