"""RebalanceLockManager: which client may consume a queue in order (codes 41 and 42).

A lock belongs to (group, topic, broker name, queue id) and to a client id. It lives
REBALANCE_LOCK_MAX_LIVE_MS since the owner last asked for it, then anybody may take it. In memory
only: after a restart every queue is free, and clients ask again every 20 s. Called by pool
threads; one lock guards everything. Knows no connection.
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


class _LockEntry:
    """Who holds a queue, and since when (monotonic ms) he last said so."""

    __slots__ = ("client_id", "last_update_ms")

    def __init__(self, client_id: str, last_update_ms: int) -> None:
        self.client_id = client_id
        self.last_update_ms = last_update_ms


class RebalanceLockManager:
    """Locks of ordered consumption. Owned by: `_lock`."""

    def __init__(self, clock: Clock, *, max_live_ms: int = REBALANCE_LOCK_MAX_LIVE_MS) -> None:
        self._clock = clock
        self._max_live_ms = max_live_ms
        self._lock = threading.Lock()
        self._groups: dict[str, dict[MessageQueue, _LockEntry]] = {}

    def try_lock_batch(
        self, group: str, queues: Iterable[MessageQueue], client_id: str
    ) -> list[MessageQueue]:
        """Lock or renew what can be had for `client_id`; the queues it holds now, in order."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            table = self._groups.setdefault(group, {})
            return [queue for queue in queues if self._try(table, queue, client_id, now_ms)]

    def _try(
        self,
        table: dict[MessageQueue, _LockEntry],
        queue: MessageQueue,
        client_id: str,
        now_ms: int,
    ) -> bool:
        entry = table.get(queue)
        if entry is None:
            table[queue] = _LockEntry(client_id, now_ms)
            return True
        if entry.client_id != client_id:
            if now_ms - entry.last_update_ms <= self._max_live_ms:
                return False
            log.warning("queue %s: lock of %s expired, now %s", queue, entry.client_id, client_id)
            entry.client_id = client_id
        entry.last_update_ms = now_ms
        return True

    def unlock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give back those of `queues` that `client_id` owns; others are logged and left."""
        with self._lock:
            table = self._groups.get(group, {})
            for queue in queues:
                entry = table.get(queue)
                if entry is None or entry.client_id != client_id:
                    owner = None if entry is None else entry.client_id
                    log.warning("queue %s: %s cannot unlock, owner %s", queue, client_id, owner)
                    continue
                del table[queue]
            if not table:
                self._groups.pop(group, None)

    def is_locked(self, group: str, queue: MessageQueue, client_id: str) -> bool:
        """Whether `client_id` holds `queue` and its lock has not expired."""
        with self._lock:
            entry = self._groups.get(group, {}).get(queue)
            return (
                entry is not None
                and entry.client_id == client_id
                and self._clock.monotonic_ms() - entry.last_update_ms <= self._max_live_ms
            )
