"""StoreFollower: how the remoting loop observes the other processes through shared memory.

The SleepHooks of the loop. Before a wait it publishes the counts of the busy turns, announces the
sleep and checks for work again. After the wait it processes what the others have published: queues
that advanced wake their long polls, flushed and replicated offsets release waiting sends. Runs on
the loop thread of `remoting` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.append.durability_waiters import DurabilityWaiters
from broker.longpolling.notify_message_arriving_listener import HeldRequests
from ha.control_slots import REPLICA_COUNT, REPLICATED_OFFSET
from ipc.bell import Bell
from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.queue_table import QueueTableReader
from store.commit_log import CommitLog
from store.control_slots import FLUSHED_OFFSET, PULL_HELD_MS, SYNC_FLUSH_WANTED

_WAITING_LIMIT_S: Final = 0.005


class StoreFollower:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        page: ControlPage,
        bell: Bell,
        table: QueueTableReader,
        commit_log: CommitLog,
        waiters: DurabilityWaiters,
        held: HeldRequests,
        clock: Clock,
        *,
        now_ms: Callable[[], int],
        replicas_needed: int,
        sends_wait_for_file: Callable[[], bool] = lambda: False,
        publish_counts: Callable[[], None] = lambda: None,
    ) -> None:
        """now_ms: the wall clock, by which the turn that begins stores."""
        self._counters = page.counters
        self._bell = bell
        self._table = table
        self._log = commit_log
        self._waiters = waiters
        self._hold = held
        self._clock = clock
        self._now_ms = now_ms
        self._replicas_needed = replicas_needed
        self._sends_wait_for_file = sends_wait_for_file
        self._publish_counts = publish_counts

    def before_sleep(self) -> float | None:
        """SleepHooks: 0 if there is work, 5 ms while requests wait for a response."""
        self._publish_counts()
        holds = not self._hold.is_empty
        if holds:
            self._counters[PULL_HELD_MS] = self._clock.monotonic_ms()
        self._bell.announce_sleep(for_moves=holds)
        if holds and self._table.has_moves():
            return 0.0
        if not len(self._waiters):
            return _WAITING_LIMIT_S if self._sends_wait_for_file() else None
        counters = self._counters
        if self._waiters.can_release(counters[FLUSHED_OFFSET], counters[REPLICATED_OFFSET]):
            return 0.0
        return _WAITING_LIMIT_S

    def after_sleep(self) -> None:
        """SleepHooks: take up what the other processes have published."""
        self._bell.announce_awake()
        self._log.now_ms = self._now_ms()
        if self._hold.is_empty:
            self._table.skip_moves()
        elif self._table.has_moves():
            self._wake_held()
        if self._waiters.active:
            self._follow_durability()

    def waits_for_peer(self) -> bool:
        """SleepHooks: sends wait for the replicas. (Disks are too slow for spinning.)"""
        return self._waiters.waits_for_replicas and len(self._waiters) > 0

    def peer_has_answered(self) -> bool:
        """SleepHooks: the first of those sends can be released."""
        counters = self._counters
        return self._waiters.can_release(counters[FLUSHED_OFFSET], counters[REPLICATED_OFFSET])

    def _wake_held(self) -> None:
        rows = self._table.take_moves()
        if rows is None:
            self._hold.wake_all()
            return
        for row in dict.fromkeys(rows):
            self._hold.wake(self._table.queue_of(row))

    def _follow_durability(self) -> None:
        waiters, counters = self._waiters, self._counters
        waiters.now_ns = now_ns = self._clock.monotonic_ns()
        waiters.now_ms = now_ns // 1_000_000
        waiters.replicas_available = counters[REPLICA_COUNT] >= self._replicas_needed
        if len(waiters):
            waiters.release(counters[FLUSHED_OFFSET], counters[REPLICATED_OFFSET], now_ns)

    def before_commit(self) -> None:
        """Publish the offset up to which a flush is awaited; the bell of the publication wakes
        process `store`."""
        wanted = self._waiters.last_offset
        if wanted > self._counters[SYNC_FLUSH_WANTED]:
            self._counters[SYNC_FLUSH_WANTED] = wanted
