"""What an ordered pop has handed out of a queue, and what that means: decisions only.

Pure but for FreeTimes, which belongs to the loop thread. A queue that a group pops in order stays
closed to it until every message that was handed out is acknowledged or visible again. Used for the
table that is saved (ConsumerOrderInfoManager) and for that of lite topics, which is not.

Tested by tests/broker/pop/test_consumer_order_info_manager.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import replace
from typing import Final, Generic, TypeVar

from remoting.body.consumer_order_info import OrderInfo

ILLEGAL: Final = -1
NO_COMMIT: Final = -2
_SOON_MS: Final = 1_000
"""The watches of a loop in which nothing happens are so far apart."""
_STALE_ENTRIES: Final = 256


def free_ms(info: OrderInfo) -> int:
    """When every message that was not acknowledged is visible again; 0: all are acknowledged."""
    visible_ms = info.pop_time + (info.invisible_time or 0)
    times = info.offset_next_visible_time or {}
    return max((times.get(offset, visible_ms) for offset in info.open_offsets), default=0)


def is_same_attempt(info: OrderInfo, attempt_id: str | None) -> bool:
    """Whether a request that got this asks once more, since it did not get the answer."""
    return info.attempt_id is not None and info.attempt_id == attempt_id


def consumed_counts(old: OrderInfo, attempt_id: str | None, offsets: list[int]) -> dict[int, int]:
    """How often each of `offsets` was handed out before, if ever."""
    counts = old.offset_consumed_count or {}
    if is_same_attempt(old, attempt_id):
        return counts
    before = set(old.queue_offsets)
    return {offset: counts.get(offset, 0) + 1 for offset in offsets if offset in before}


def handed_out(
    old: OrderInfo | None,
    attempt_id: str | None,
    pop_time_ms: int,
    invisible_time_ms: int,
    offsets: list[int],
    now_ms: int,
) -> OrderInfo:
    """`offsets` (at least one) are handed out now, after those of `old`."""
    first = offsets[0]
    return OrderInfo(
        pop_time=pop_time_ms,
        invisible_time=invisible_time_ms,
        offset_list=[first, *(offset - first for offset in offsets[1:])],
        offset_consumed_count=None if old is None else consumed_counts(old, attempt_id, offsets),
        last_consume_timestamp=now_ms,
        attempt_id=attempt_id,
    )


def acknowledged(info: OrderInfo, offset: int) -> OrderInfo:
    """One of its messages is acknowledged."""
    bits = info.commit_offset_bit | 1 << info.queue_offsets.index(offset)
    return replace(info, commit_offset_bit=bits)


def is_out(info: OrderInfo, offset: int, pop_time_ms: int) -> bool:
    """Whether a message of that pop is neither acknowledged nor handed out again."""
    return info.pop_time == pop_time_ms and offset in info.open_offsets


def visible_at(info: OrderInfo, offset: int, next_visible_ms: int) -> OrderInfo:
    """One of its messages becomes visible again then."""
    times = {**(info.offset_next_visible_time or {}), offset: next_visible_ms}
    return replace(info, offset_next_visible_time=times)


def following_offset(info: OrderInfo) -> int:
    """The consumer offset to commit: of the first message that was not acknowledged."""
    left = info.open_offsets
    return left[0] if left else info.queue_offsets[-1] + 1


K = TypeVar("K", bound=Hashable)


class FreeTimes(Generic[K]):
    """When queues become free. Owned by: the loop thread."""

    def __init__(self) -> None:
        self._times: list[tuple[int, int, K]] = []
        """A heap of (wall clock ms, number, queue); the queue's last one counts."""
        self._noted: dict[K, int] = {}
        """The last of each queue."""
        self._numbers = 0

    def note(self, queue: K, free_ms: int) -> None:
        """However often a client changes a time, each queue has a few entries at most."""
        if self._noted.get(queue) == free_ms:
            return
        self._noted[queue] = free_ms
        self._numbers += 1
        heapq.heappush(self._times, (free_ms, self._numbers, queue))
        if len(self._times) > 2 * len(self._noted) + _STALE_ENTRIES:
            self._times = [
                (free_ms, number, queue)
                for number, (queue, free_ms) in enumerate(self._noted.items())
            ]
            heapq.heapify(self._times)

    def forget(self, queue: K) -> None:
        """Nothing of it is out."""
        self._noted.pop(queue, None)

    def take(self, now_ms: int) -> K | None:
        """A queue that has become free; None: no other has."""
        times = self._times
        while times and times[0][0] <= now_ms:
            free_ms, _number, queue = heapq.heappop(times)
            if self._noted.get(queue) == free_ms:
                del self._noted[queue]
                return queue
        return None

    def is_soon(self, now_ms: int) -> bool:
        """Whether the next one is free within a second."""
        return bool(self._times) and self._times[0][0] - now_ms < _SOON_MS
