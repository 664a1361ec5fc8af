"""PopLongPollingService: requests that wait until there is something to pop.

Runs on the loop thread of `remoting`; one for pops, one for notifications. Requests wait under
(topic, group, queue id; -1: any queue), in the order of their deadlines. A message in a queue wakes
one request of each group for that queue and one for any queue; whoever answers while more is left
wakes the next. Unlike in RocketMQ, a message in a group's retry topic (V1, too) wakes the
group's requests for the topic itself, and a request is not filtered before it is run again.

A woken request runs in the same turn, after the one that woke it. One that found nothing waits
again; if it says that there is more (the queue is closed or full), the next is tried a moment
later, so that two of them do not wake each other for ever. Limits are RocketMQ's: of one key and of
all; and one of the texts that all keep, which are as long as peers like. Follows
PopLongPollingService of RocketMQ. Knows no answer.

Tested by tests/broker/pop/test_longest_poll.py.
"""

from __future__ import annotations

import bisect
import heapq
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from broker.pop.pop_request import PollingResult
from remoting.connection import Connection
from remoting.key_builder import pop_retry_topic_v1, pop_retry_topic_v2

log = logging.getLogger(__name__)

ANY_QUEUE: Final = -1
SCAN_PERIOD_MS: Final = 20
LONGEST_POLL_MS: Final = 3_600_000
"""Without a limit (RocketMQ's) a peer could have its requests kept for good. A longer one waits an
hour and is answered as when its time is over."""
_EARLY_MS: Final = 50
"""A request counts as timed out so long before it is."""
_TURN_MS: Final = 10
"""Of a scan: everybody else waits meanwhile."""
_AGAIN_MS: Final = 100
_SWEEP_MS: Final = 30_000
"""Requests of closed connections are dropped when they are due or woken, and at this interval."""
_SHORT: Final = 256
MOST_CHARACTERS: Final = 4 << 20
"""Of the texts of all requests that wait, beyond short ones: of an expression a character may take
20 bytes, with the hash codes of its tags."""
_SLACK: Final = 1_000
"""Deadlines of answered requests that may pile up beyond the number of waiting ones."""

Key = tuple[str, str, int]
"""(topic, group, queue id)."""


class WaitingHeader(Protocol):
    """The part of a request's header used here; wire names."""

    @property
    def consumerGroup(self) -> str:  # noqa: N802
        """Who asks."""

    @property
    def topic(self) -> str:
        """For what."""

    @property
    def queueId(self) -> int:  # noqa: N802
        """Of which queue; -1: of any."""

    @property
    def pollTime(self) -> int:  # noqa: N802
        """How long it waits, ms."""


class WaitingRequest(Protocol):
    """A request that may wait."""

    @property
    def connection(self) -> Connection:
        """Where the answer goes."""

    @property
    def header(self) -> WaitingHeader:
        """What it asks for."""

    @property
    def sent_ms(self) -> int:
        """Monotonic clock: when it was sent."""


R = TypeVar("R", bound=WaitingRequest)


@dataclass(frozen=True, slots=True)
class PollingLimits:
    """popPollingSize of a key, popPollingMapSize keys, maxPopPollingSize in all."""

    requests_of_a_key: int
    keys: int
    requests: int


class _Waiter(Generic[R]):
    """One request. Ordered by its deadline, then by its number."""

    __slots__ = ("deadline_ms", "kept", "key", "number", "request", "waits")

    def __init__(self, request: R, key: Key, deadline_ms: int, number: int, kept: int) -> None:
        self.request = request
        self.kept = kept
        self.key = key
        self.deadline_ms = deadline_ms
        self.number = number
        self.waits = True

    def __lt__(self, other: _Waiter[R]) -> bool:
        return (self.deadline_ms, self.number) < (other.deadline_ms, other.number)


class PopLongPollingService(Generic[R]):
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        run_again: Callable[[R], None],
        limits: PollingLimits,
        monotonic_ms: Callable[[], int],
        *,
        notify_last: bool = False,
    ) -> None:
        """run_again: answers the request, or lets it wait again. notify_last: wake the request with
        the latest deadline first."""
        self._run_again = run_again
        self._limits = limits
        self._monotonic_ms = monotonic_ms
        self._notify_last = notify_last
        self._waiting: dict[Key, list[_Waiter[R]]] = {}
        self._groups: dict[str, dict[tuple[str, str], set[int]]] = {}
        """Topic, and the group's retry topics, to (topic, group) to the queue ids waited for."""
        self._deadlines: list[_Waiter[R]] = []
        self._count = 0
        self._kept = 0
        """Characters of those that wait."""
        self._numbers = 0
        self._ready: deque[Key] = deque()
        self._later: dict[Key, int] = {}
        """Keys to be woken, and when."""
        self._running = False
        self._stopped = False
        self._sweep_ms = 0
        self.on_waiting: Callable[[], None] = lambda: None
        """Called when a request begins to wait. Set before the first one."""

    # -- requests ------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._count

    def polling_num(self, topic: str, group: str, queue_id: int) -> int:
        """How many wait under this key."""
        return len(self._waiting.get((topic, group, max(queue_id, ANY_QUEUE)), ()))

    def polling(self, request: R, kept: int = 0) -> PollingResult:
        """Let a request wait, to be run again. kept: characters of texts of its own."""
        header = request.header
        deadline_ms = request.sent_ms + min(header.pollTime, LONGEST_POLL_MS) - _EARLY_MS
        if header.pollTime <= 0 or self._stopped:
            return PollingResult.POLLING_TIMEOUT
        is_long = kept > _SHORT and self._kept + kept > MOST_CHARACTERS
        if self._count >= self._limits.requests or is_long:
            return PollingResult.POLLING_FULL
        if self._monotonic_ms() > deadline_ms:
            return PollingResult.POLLING_TIMEOUT
        # Every number below 0 asks for any queue: a key for each would make one client many.
        key = (header.topic, header.consumerGroup, max(header.queueId, ANY_QUEUE))
        waiting = self._waiting.get(key)
        if waiting is None:
            if len(self._waiting) >= self._limits.keys:
                return PollingResult.POLLING_FULL
            waiting = self._waiting[key] = []
            self._index(key)
        elif len(waiting) > self._limits.requests_of_a_key:
            return PollingResult.POLLING_FULL
        self._numbers += 1
        waiter = _Waiter(request, key, deadline_ms, self._numbers, kept)
        bisect.insort(waiting, waiter)
        heapq.heappush(self._deadlines, waiter)
        self._count += 1
        self._kept += kept
        self.on_waiting()
        return PollingResult.POLLING_SUC

    def _index(self, key: Key) -> None:
        topic, group, queue_id = key
        for name in _names(topic, group):
            self._groups.setdefault(name, {}).setdefault((topic, group), set()).add(queue_id)

    def _unindex(self, key: Key) -> None:
        topic, group, queue_id = key
        for name in _names(topic, group):
            groups = self._groups[name]
            queue_ids = groups[topic, group]
            queue_ids.discard(queue_id)
            if not queue_ids:
                del groups[topic, group]
                if not groups:
                    del self._groups[name]

    def _remove(self, waiter: _Waiter[R]) -> None:
        waiter.waits = False
        self._count -= 1
        self._kept -= waiter.kept
        waiting = self._waiting[waiter.key]
        del waiting[bisect.bisect_left(waiting, waiter)]
        if not waiting:
            del self._waiting[waiter.key]
            self._unindex(waiter.key)

    # -- waking --------------------------------------------------------------------------------

    def wake(self, queue: tuple[str, int]) -> None:
        """Messages have arrived in (topic, queue id)."""
        name, queue_id = queue
        for (topic, group), queue_ids in list(self._groups.get(name, {}).items()):
            # A request for one queue is given messages of the retry topic, too.
            wanted = (ANY_QUEUE, queue_id) if name == topic else sorted(queue_ids)
            for number in wanted:
                if number in queue_ids:
                    self._ready.append((topic, group, number))
        self._run_ready()

    def wake_all(self) -> None:
        """Too many queues have advanced to list them."""
        self._ready.extend(self._waiting)
        self._run_ready()

    def notify(self, topic: str, group: str, queue_id: int) -> None:
        """There is more: run one request of this key (queue id -1: of any queue). It runs after
        the request that says so, if one is running."""
        key = (topic, group, max(queue_id, ANY_QUEUE))
        if self._running or key in self._waiting:  # else nobody: so it is after most pops
            self._ready.append(key)
            self._run_ready()

    def queue_is_free(self, topic: str, group: str, queue_id: int) -> None:
        """An ordered queue may be popped again."""
        self._ready.extend(((topic, group, ANY_QUEUE), (topic, group, queue_id)))
        self._run_ready()

    def _run_ready(self) -> None:
        if self._running:
            return
        self._running = True
        try:
            while self._ready:
                self._wake_one(self._ready.popleft())
        finally:
            self._running = False

    def _wake_one(self, key: Key) -> None:
        waiter = self._take(key)
        if waiter is None:
            return
        others = len(self._ready)
        count = self.polling_num(*key)
        self._run_again(waiter.request)
        if self.polling_num(*key) > count and len(self._ready) > others:
            # It waits again, though it says that there is more.
            while len(self._ready) > others:
                self._later.setdefault(self._ready.pop(), self._monotonic_ms() + _AGAIN_MS)

    def _take(self, key: Key) -> _Waiter[R] | None:
        """The next of a key whose connection is open."""
        while waiting := self._waiting.get(key):
            waiter = waiting[-1 if self._notify_last else 0]
            self._remove(waiter)
            if waiter.request.connection.is_open:
                return waiter
        return None

    # -- time ----------------------------------------------------------------------------------

    def scan(self) -> None:
        """Called every SCAN_PERIOD_MS while something waits: run those whose time is over, then
        those for whom there was more. Whoever is left after _TURN_MS comes next time."""
        now_ms, deadlines = self._monotonic_ms(), self._deadlines
        until_ms = now_ms + _TURN_MS
        while deadlines and (deadlines[0].deadline_ms < now_ms or not deadlines[0].waits):
            if self._monotonic_ms() >= until_ms:
                break
            waiter = heapq.heappop(deadlines)
            if waiter.waits:
                self._remove(waiter)
                if waiter.request.connection.is_open:
                    self._run_again(waiter.request)
        if len(deadlines) > 2 * self._count + _SLACK:
            self._deadlines = [waiter for waiter in deadlines if waiter.waits]
            heapq.heapify(self._deadlines)
        while self._later and self._monotonic_ms() < until_ms:
            key = next(iter(self._later))  # the one that came first is due first
            if self._later[key] > now_ms:
                break
            del self._later[key]
            self._ready.append(key)
            self._run_ready()
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + _SWEEP_MS
            self._drop_closed()

    def _drop_closed(self) -> None:
        for waiting in list(self._waiting.values()):
            for waiter in list(waiting):
                if not waiter.request.connection.is_open:
                    self._remove(waiter)

    def stop(self) -> None:
        """Nothing waits any more: whoever waits is answered. Idempotent."""
        self._stopped = True
        for waiting in list(self._waiting.values()):
            for waiter in list(waiting):
                self._remove(waiter)
                if waiter.request.connection.is_open:
                    self._run_again(waiter.request)


def _names(topic: str, group: str) -> tuple[str, str, str]:
    """The topics whose messages the group is given when it asks for `topic`."""
    return topic, pop_retry_topic_v1(topic, group), pop_retry_topic_v2(topic, group)
