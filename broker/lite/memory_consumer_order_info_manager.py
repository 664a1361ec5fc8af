"""MemoryConsumerOrderInfoManager: what has been handed out of light queues of lite topics.

Owned by the loop thread; in memory only: after a restart what was out is handed out again. The
rules are those of ordered pops (broker/pop/order_infos.py); a queue that is wholly acknowledged
takes no memory here. A message that is out is also known by its place in the log, since a client of
5.2 does not say of which lite topic it wants one again sooner. Knows no request.

Tested by tests/broker/lite/test_memory_consumer_order_info_manager.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from broker.pop.order_infos import (
    ILLEGAL,
    NO_COMMIT,
    FreeTimes,
    acknowledged,
    following_offset,
    free_ms,
    handed_out,
    is_out,
    is_same_attempt,
    visible_at,
)
from remoting.body.consumer_order_info import OrderInfo

Queue = tuple[str, str]
"""(light queue, group)."""
_KEPT_MS: Final = 24 * 3600 * 1000
"""What was visible again so long ago, and that nobody wanted, is forgotten."""


class _Out(NamedTuple):
    info: OrderInfo
    places: tuple[int, ...]
    """Of the messages, in the log."""
    is_suspended: bool = False
    """That they were handed out is not to count."""


def _as_counted(out: _Out) -> OrderInfo:
    """What was handed out, as it counts for who gets it next."""
    if not out.is_suspended:
        return out.info
    counts = out.info.offset_consumed_count or {}
    uncounted = {each: counts.get(each, 0) - 1 for each in out.info.queue_offsets}
    return replace(out.info, offset_consumed_count=uncounted)


class MemoryConsumerOrderInfoManager:
    """See the module."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """now_ms: wall clock."""
        self._now_ms = now_ms
        self._since_ms = now_ms()
        self._out: dict[Queue, _Out] = {}
        self._lmq_at: dict[tuple[str, int], str] = {}
        """By group and place in the log."""
        self._free: FreeTimes[Queue] = FreeTimes()
        self._unwanted: OrderedDict[Queue, int] = OrderedDict()
        """What is visible again, and since when; the oldest first. (To take the first of a dict
        again and again takes quadratic time.)"""

    def __len__(self) -> int:
        """Queues of groups, of which something is out."""
        return len(self._out)

    def check_block(self, attempt_id: str | None, lmq: str, group: str) -> bool:
        """Whether messages handed out earlier keep the queue closed. A request with the same
        attempt id gets them again."""
        out = self._out.get((lmq, group))
        if out is None or is_same_attempt(out.info, attempt_id):
            return False
        return free_ms(out.info) > self._now_ms()

    def update(
        self,
        attempt_id: str | None,
        queue: Queue,
        pop_time_ms: int,
        invisible_time_ms: int,
        offsets: list[int],
        places: tuple[int, ...],
    ) -> list[int]:
        """`offsets` (at least one) are handed out now; how often each was before."""
        old = self._out.get(queue)
        is_suspended = False
        before = None
        if old is not None:
            is_again = is_same_attempt(old.info, attempt_id)
            is_suspended = is_again and old.is_suspended
            before = old.info if is_again else _as_counted(old)
        info = handed_out(
            before,
            attempt_id,
            pop_time_ms,
            invisible_time_ms,
            offsets,
            self._now_ms(),
        )
        self.clear_block(*queue)
        lmq, group = queue
        for place in places:
            self._lmq_at[group, place] = lmq
        self._put(queue, _Out(info, places, is_suspended))
        counts = info.offset_consumed_count or {}
        return [max(0, counts.get(offset, 0)) for offset in offsets]

    def commit_and_next(self, queue: Queue, offset: int, pop_time_ms: int, committed: int) -> int:
        """A message is acknowledged: the consumer offset to commit; ILLEGAL: it is none of those
        that were handed out; NO_COMMIT: it was handed out again meanwhile. committed: the group's
        offset. What was handed out before this process began is not known: only the message there
        may be passed then."""
        out = self._out.get(queue)
        if out is None:
            is_older = offset == committed and pop_time_ms < self._since_ms
            return offset + 1 if is_older else NO_COMMIT
        info = out.info
        if pop_time_ms != info.pop_time:
            return NO_COMMIT
        if offset not in info.queue_offsets:
            return ILLEGAL
        info = acknowledged(info, offset)
        if info.open_offsets:
            self._put(queue, out._replace(info=info))
        else:
            self.clear_block(*queue)
        return following_offset(info)

    def update_next_visible_time(
        self, queue: Queue, offset: int, pop_time_ms: int, next_visible_ms: int
    ) -> None:
        """A message becomes visible again at another time; nothing happens if it was handed out
        again meanwhile, or is none of those that are."""
        out = self._found(queue, offset, pop_time_ms)
        if out is not None:
            self._put(queue, out._replace(info=visible_at(out.info, offset, next_visible_ms)))

    def suspend(self, queue: Queue, offset: int, pop_time_ms: int, next_visible_ms: int) -> None:
        """All that was handed out with it becomes visible again then, and this time does not
        count: once, however often it is asked for, so no attempt has a lower number than the one
        before."""
        out = self._found(queue, offset, pop_time_ms)
        if out is None:
            return
        times = dict.fromkeys(out.info.queue_offsets, next_visible_ms)
        info = replace(out.info, offset_next_visible_time=times)
        self._put(queue, out._replace(info=info, is_suspended=True))

    def lmq_of(self, group: str, place: int) -> str | None:
        """The light queue of a message that is out to the group, by its place in the log."""
        return self._lmq_at.get((group, place))

    def clear_block(self, lmq: str, group: str) -> None:
        """Nothing of the queue is out to the group: its offset was set, or all is acknowledged."""
        out = self._out.pop((lmq, group), None)
        if out is None:
            return
        self._free.forget((lmq, group))
        self._unwanted.pop((lmq, group), None)
        for place in out.places:
            self._lmq_at.pop((group, place), None)

    def clear(self) -> None:
        """Another broker hands out from now on, or this one anew."""
        self._out.clear()
        self._lmq_at.clear()
        self._unwanted.clear()
        self._free = FreeTimes()
        self._since_ms = self._now_ms()

    def take_free(self) -> Queue | None:
        """A queue whose messages have become visible again; None: no other."""
        now_ms = self._now_ms()
        queue = self._free.take(now_ms)
        if queue is not None:
            self._unwanted[queue] = now_ms
            self._unwanted.move_to_end(queue)
        return queue

    def is_soon(self) -> bool:
        """Whether the next one is free within a second."""
        return self._free.is_soon(self._now_ms())

    def clean(self) -> None:
        """Forget what nobody has wanted for a day, without a look at all the rest."""
        before_ms = self._now_ms() - _KEPT_MS
        while self._unwanted:
            queue, since_ms = next(iter(self._unwanted.items()))
            if since_ms >= before_ms:
                break
            self.clear_block(*queue)

    def _found(self, queue: Queue, offset: int, pop_time_ms: int) -> _Out | None:
        out = self._out.get(queue)
        return out if out is not None and is_out(out.info, offset, pop_time_ms) else None

    def _put(self, queue: Queue, out: _Out) -> None:
        self._out[queue] = out
        self._unwanted.pop(queue, None)
        self._free.note(queue, free_ms(out.info))
