"""OffsetWaiters: answers that wait for an offset, ordered by it, with deadlines.

Pure: no clock, no socket, no lock; `now_ms` is an argument (monotonic). Owned by the thread that
answers. A release costs what it releases, an expiry what has expired: waiting requests are
entries here, not blocked threads.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, TypeVar

TokenT = TypeVar("TokenT")


class OffsetWaiters(Generic[TokenT]):
    """Each entry leaves once: through `release`, `expire` or `cancel_all`."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._tokens: dict[int, TokenT] = {}
        self._by_offset: list[tuple[int, int]] = []
        self._by_deadline: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, required_offset: int, deadline_ms: int, token: TokenT) -> None:
        """`token` waits until the offset has reached `required_offset`, at most to its deadline."""
        number = next(self._numbers)
        self._tokens[number] = token
        heapq.heappush(self._by_offset, (required_offset, number))
        heapq.heappush(self._by_deadline, (deadline_ms, number))

    def release(self, upto: int) -> list[TokenT]:
        """Those that waited for an offset <= `upto`, by offset, then in the order of `add`."""
        released = self._take(self._by_offset, upto)
        if not self._tokens:
            self._by_deadline.clear()
        return released

    def expire(self, now_ms: int) -> list[TokenT]:
        """Those whose deadline is at or before `now_ms`."""
        expired = self._take(self._by_deadline, now_ms)
        if not self._tokens:
            self._by_offset.clear()
        return expired

    def cancel_all(self) -> list[TokenT]:
        """All that still wait, in the order of `add`; none waits any more."""
        tokens = list(self._tokens.values())
        self._tokens.clear()
        self._by_offset.clear()
        self._by_deadline.clear()
        return tokens

    def min_required_offset(self) -> int | None:
        """The smallest offset anyone waits for; None when nobody waits."""
        return self._first(self._by_offset)

    def next_deadline_ms(self) -> int | None:
        """The nearest deadline; None when nobody waits."""
        return self._first(self._by_deadline)

    def _take(self, heap: list[tuple[int, int]], limit: int) -> list[TokenT]:
        taken: list[TokenT] = []
        while heap and heap[0][0] <= limit:
            number = heapq.heappop(heap)[1]
            if number in self._tokens:
                taken.append(self._tokens.pop(number))
        return taken

    def _first(self, heap: list[tuple[int, int]]) -> int | None:
        while heap and heap[0][1] not in self._tokens:
            heapq.heappop(heap)
        return heap[0][0] if heap else None
