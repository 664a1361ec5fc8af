"""DurabilityFollower: releases what waits in DurabilityWaiters once it is flushed and replicated.

Process `store` publishes how far the log is flushed, process `ha` how far it is replicated. Runs on
the loop thread of `remoting`, before and after its sleep (StoreFollower), so each question costs a
few loads.

Tested by tests/broker/store_access/test_store_follower.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.append.durability_waiters import DurabilityWaiters
from ha.control_slots import REPLICA_COUNT
from ha.link_loan import replicated_offset
from ipc.clock import Clock
from ipc.control_page import ControlPage
from store.control_slots import FLUSHED_OFFSET, SYNC_FLUSH_WANTED

_WAITING_LIMIT_S: Final = 0.005


class DurabilityFollower:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        page: ControlPage,
        waiters: DurabilityWaiters,
        clock: Clock,
        *,
        replicas_needed: int,
        sends_wait_for_file: Callable[[], bool] = lambda: False,
    ) -> None:
        """sends_wait_for_file: whether sends are held until the log's next file is there."""
        self._counters = page.counters
        self._waiters = waiters
        self._clock = clock
        self._replicas_needed = replicas_needed
        self._sends_wait_for_file = sends_wait_for_file

    def sleep_limit_s(self) -> float | None:
        """0 if something can be released, 5 ms while something waits."""
        if not len(self._waiters):
            return _WAITING_LIMIT_S if self._sends_wait_for_file() else None
        return 0.0 if self.can_release() else _WAITING_LIMIT_S

    def waits_for_replicas(self) -> bool:
        """Whether sends wait for the replicas."""
        return self._waiters.waits_for_replicas and len(self._waiters) > 0

    def can_release(self) -> bool:
        """Whether the first of what waits can be released."""
        counters = self._counters
        return self._waiters.can_release(counters[FLUSHED_OFFSET], replicated_offset(counters))

    def release(self) -> None:
        """Release what has become durable meanwhile."""
        waiters, counters = self._waiters, self._counters
        if not waiters.active:
            return
        waiters.now_ns = now_ns = self._clock.monotonic_ns()
        waiters.now_ms = now_ns // 1_000_000
        waiters.replicas_available = counters[REPLICA_COUNT] >= self._replicas_needed
        if len(waiters):
            waiters.release(counters[FLUSHED_OFFSET], replicated_offset(counters), now_ns)

    def want_flush(self) -> None:
        """Publish the offset up to which a flush is awaited; the bell of the publication wakes
        process `store`."""
        wanted = self._waiters.last_offset
        if wanted > self._counters[SYNC_FLUSH_WANTED]:
            self._counters[SYNC_FLUSH_WANTED] = wanted
