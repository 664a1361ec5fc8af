"""DueCheckPoints: the check points of the buffer, in the order in which they are to be stored.

Part of PopBufferMergeService; loop thread of `remoting`. Nearly every one is due a fixed time after
its pop, so they come in order and a line of them is enough: it takes 0.1 us to leave it where a
heap of 75,000 (ten seconds of pops) takes 3. The few others are in a heap.
"""

from __future__ import annotations

import heapq
from collections import deque

from broker.pop.buffered_pops import PopCheckPointWrapper


class DueCheckPoints:
    """See the module. What is not in the buffer any more stays here until it is due."""

    def __init__(self) -> None:
        self._line: deque[tuple[int, PopCheckPointWrapper]] = deque()
        self._others: list[tuple[int, int, PopCheckPointWrapper]] = []
        self._number = 0

    @property
    def is_empty(self) -> bool:
        """Whether none is here."""
        return not self._line and not self._others

    def push(self, due_ms: int, wrapper: PopCheckPointWrapper) -> None:
        """It is due at `due_ms`."""
        line = self._line
        if not line or due_ms >= line[-1][0]:
            line.append((due_ms, wrapper))
        else:
            self._number += 1
            heapq.heappush(self._others, (due_ms, self._number, wrapper))

    def pop(self, now_ms: int) -> PopCheckPointWrapper | None:
        """One that is due; None: none is."""
        if self._others and self._others[0][0] <= now_ms:
            return heapq.heappop(self._others)[2]
        if self._line and self._line[0][0] <= now_ms:
            return self._line.popleft()[1]
        return None
