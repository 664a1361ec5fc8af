"""RebalanceLockManager: the queue locks of ordered consumption (codes 41 and 42).

A lock belongs to (group, topic, broker name, queue id) and to a client id. It expires
REBALANCE_LOCK_MAX_LIVE_MS after the owner last renewed it. In memory only: after a restart every
queue is unlocked, and clients renew every 20 s. Called by pool threads; one lock guards everything.
Expired locks are removed when many have been made since the last time, and what all clients hold
together is bounded; RocketMQ keeps a lock until it is given back. Knows no connection.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Final

from ipc.clock import Clock
from remoting.body.message_queue import MessageQueue

log = logging.getLogger(__name__)

REBALANCE_LOCK_MAX_LIVE_MS: Final = 60_000
"""Java: system property rocketmq.broker.rebalance.lockMaxLiveTime."""
MAX_LOCKS: Final = 100_000
"""Of all groups, about 30 MB. Beyond it a free queue is not locked, as if another had it."""
_CLEAN_AFTER: Final = 10_000
"""New locks between two removals of the expired ones."""
_CLEAN_PAUSE_MS: Final = 1_000
"""Between two such removals while the table is full."""


class _LockEntry:
    """The owner of a queue, and when it last renewed the lock (monotonic ms)."""

    __slots__ = ("client_id", "last_update_ms")

    def __init__(self, client_id: str, last_update_ms: int) -> None:
        self.client_id = client_id
        self.last_update_ms = last_update_ms


class RebalanceLockManager:
    """Locks of ordered consumption. Owned by: `_lock`."""

    def __init__(
        self,
        clock: Clock,
        *,
        max_live_ms: int = REBALANCE_LOCK_MAX_LIVE_MS,
        max_locks: int = MAX_LOCKS,
    ) -> None:
        self._clock = clock
        self._max_live_ms = max_live_ms
        self._max_locks = max_locks
        self._lock = threading.Lock()
        self._groups: dict[str, dict[MessageQueue, _LockEntry]] = {}
        self._count = 0
        self._clean_at = _CLEAN_AFTER
        self._clean_ms = 0

    def try_lock_batch(
        self, group: str, queues: Iterable[MessageQueue], client_id: str
    ) -> list[MessageQueue]:
        """Lock or renew the available queues for `client_id`; returns those it holds now, in
        order."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if self._count >= self._clean_at or self._is_full_for_long(now_ms):
                self._remove_expired(now_ms)
            table = self._groups.setdefault(group, {})
            held = [queue for queue in queues if self._try(table, queue, client_id, now_ms)]
            if not table:
                del self._groups[group]
        return held

    def _is_full_for_long(self, now_ms: int) -> bool:
        return self._count >= self._max_locks and now_ms - self._clean_ms >= _CLEAN_PAUSE_MS

    def _remove_expired(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._max_live_ms
        for group, table in list(self._groups.items()):
            for queue in [key for key, entry in table.items() if entry.last_update_ms < oldest_ms]:
                del table[queue]
            if not table:
                del self._groups[group]
        self._count = sum(map(len, self._groups.values()))
        self._clean_at = self._count + _CLEAN_AFTER
        self._clean_ms = now_ms
        if self._count >= self._max_locks:
            log.warning(
                "%s queues are locked, which is the limit: refusing more until some expire",
                self._count,
            )

    def _try(
        self,
        table: dict[MessageQueue, _LockEntry],
        queue: MessageQueue,
        client_id: str,
        now_ms: int,
    ) -> bool:
        entry = table.get(queue)
        if entry is None:
            if self._count >= self._max_locks:
                return False
            table[queue] = _LockEntry(client_id, now_ms)
            self._count += 1
            return True
        if entry.client_id != client_id:
            if now_ms - entry.last_update_ms <= self._max_live_ms:
                return False
            log.warning(
                "queue %s: lock of %s expired, now held by %s", queue, entry.client_id, client_id
            )
            entry.client_id = client_id
        entry.last_update_ms = now_ms
        return True

    def unlock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Unlock those of `queues` that `client_id` owns; others are unchanged, and logged: the
        first one, and how many there are."""
        others = 0
        with self._lock:
            table = self._groups.get(group, {})
            for queue in queues:
                entry = table.get(queue)
                if entry is None or entry.client_id != client_id:
                    if not others:
                        owner = None if entry is None else entry.client_id
                        log.warning(
                            "queue %s: %s cannot unlock it, owner is %s", queue, client_id, owner
                        )
                    others += 1
                    continue
                del table[queue]
                self._count -= 1
            if not table:
                self._groups.pop(group, None)
        if others > 1:
            log.warning("group %s: %s cannot unlock %s more queues", group, client_id, others - 1)

    def is_locked(self, group: str, queue: MessageQueue, client_id: str) -> bool:
        """Whether `client_id` holds `queue` and its lock has not expired."""
        with self._lock:
            entry = self._groups.get(group, {}).get(queue)
            return (
                entry is not None
                and entry.client_id == client_id
                and self._clock.monotonic_ms() - entry.last_update_ms <= self._max_live_ms
            )
