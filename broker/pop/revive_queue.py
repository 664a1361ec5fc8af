"""ReviveQueue: one queue of the revive topic: what was read from it, what is due, what is done.

A pure state machine: no log, no loop, no clock. PopReviveService tells it what it reads, and up to
when all acks are there; it says which check points are due, and up to where the queue is handled:

    take, acknowledge     records, in the queue's order
    begin_reading, has_read   when all that is due by then was read, it is settled
    next_due              in the queue's order, up to the first whose acks may still come
    noted, saved          the last check point before which everything is published, or flushed

Values of PopReviveService, changed by it only, on the loop thread of `remoting`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from broker.pop.check_point import CheckPointKey
from broker.pop.revive_points import RevivePoint

_UNSETTLED_LIMIT: Final = 2_000
"""Check points of a queue whose copies are not appended yet."""


class ReviveQueue:
    """See the module."""

    __slots__ = (
        "_noted", "_of_key", "_settled_ms", "_target", "_waiting", "handled", "next_read",
        "queue_id",
    )  # fmt: skip

    def __init__(self, queue_id: int, offset: int) -> None:
        """offset: of the last check point that is handled; -1: none is."""
        self.queue_id = queue_id
        self.next_read = offset + 1
        """The queue offset of the next record."""
        self.handled: deque[RevivePoint] = deque()
        """Due, in order: the copies are being appended, published, flushed."""
        self._waiting: OrderedDict[int, RevivePoint] = OrderedDict()
        """Not due yet, by queue offset, in the queue's order. (The first of a dict is looked for
        among all that were deleted before it: with 160,000 behind an outage that took 12 s, and
        four times as long for twice as many. This takes 0.2 s.)"""
        self._of_key: dict[CheckPointKey, RevivePoint] = {}
        """The latest of each key of these."""
        self._noted = 0
        """The first of `handled` whose end was not published yet."""
        self._target: tuple[int, int] | None = None
        """(queue offset to be read up to, what is settled then: ms)."""
        self._settled_ms = 0
        """All acks that are due by then were read."""

    def is_idle_at(self, end: int) -> bool:
        """Whether nothing is left to do when the queue ends at `end`."""
        return self.next_read >= end and not self._waiting and not self.handled

    @property
    def first_open(self) -> int:
        """The queue offset of the first record that is not handled."""
        first = next(iter(self._waiting), self.next_read)
        return min([first, *(point.revive_offset for point in self.handled if point.left)])

    # -- reading -------------------------------------------------------------------------------

    @property
    def needs_target(self) -> bool:
        """Whether `begin_reading` is to be told anew."""
        return self._target is None

    def begin_reading(self, end: int, settled_ms: int) -> None:
        """When the queue is read up to `end`, all acks that are due by `settled_ms` were read."""
        self._target = end, settled_ms
        self.has_read(self.next_read)

    def has_read(self, next_read: int) -> None:
        """What is before was read, or is gone."""
        self.next_read = next_read
        if self._target is not None and next_read >= self._target[0]:
            self._settled_ms, self._target = self._target[1], None

    def take(self, found: RevivePoint) -> None:
        """A check point was read. One of the same key may be here: the same once more, whose place
        this takes, or another one (a message that is renewed in the ms of a pop that begins with
        it has the key of that pop). What is acknowledged of one is so of both."""
        key = found.point.key
        known = self._of_key.get(key)
        if known is not None:
            found.share_acks(known)
            if known.is_same(found):
                del self._waiting[known.revive_offset]
        self._of_key[key] = found
        self._waiting[found.revive_offset] = found

    def acknowledge(self, key: CheckPointKey, broker_name: str, offsets: Iterable[int]) -> None:
        """An ack was read; one whose check point is not here says nothing."""
        known = self._of_key.get(key)
        if known is not None and known.broker_name == broker_name:
            known.acknowledge(offsets)

    # -- what is due ---------------------------------------------------------------------------

    def next_due(self) -> RevivePoint | None:
        """The next check point that is due; from now on it is one of `handled`."""
        point = next(iter(self._waiting.values()), None)
        if (
            point is None
            or point.due_ms > self._settled_ms
            or len(self.handled) >= _UNSETTLED_LIMIT
        ):
            return None
        del self._waiting[point.revive_offset]
        if self._of_key[point.point.key] is point:
            del self._of_key[point.point.key]
        self.handled.append(point)
        return point

    # -- progress ------------------------------------------------------------------------------

    def note(self, published: int) -> int | None:
        """The last check point up to which all copies are published; None: no more than before.
        published: the log's published end."""
        handled, first = self.handled, self._noted
        while self._noted < len(handled):
            point = handled[self._noted]
            if point.left or point.end > published:
                break
            self._noted += 1
        return handled[self._noted - 1].revive_offset if self._noted > first else None

    def save(self, flushed: int | None) -> int | None:
        """The last check point up to which what is noted is flushed; None: no more than before.
        flushed: the log's flushed end; None: all of it."""
        last = None
        while self._noted and (flushed is None or self.handled[0].end <= flushed):
            last = self.handled.popleft().revive_offset
            self._noted -= 1
        return last
