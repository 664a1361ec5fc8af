"""QueueDeletion: deletes consume queues on request: those of a topic, and expired ones.

Runs on the main thread of process `store`, which serves the commands; the table's lock keeps the
dispatch thread away. It knows no topic settings.
"""

from __future__ import annotations

import threading
from typing import Final

from ipc.clock import Clock
from ipc.control_page import ControlPage
from store.batch_consume_queue_table import BatchConsumeQueueTable
from store.compaction.compaction_store import CompactionStore
from store.consume_queue_table import ConsumeQueueTable
from store.control_slots import DISPATCHED_OFFSET, MIN_PHY_OFFSET

_KEPT_TOPICS: Final = frozenset({"SCHEDULE_TOPIC_XXXX"})
_POLL_MS: Final = 2.0


class QueueDeletion:
    """See the module. Owned by: the main thread of process `store`."""

    def __init__(
        self,
        queues: ConsumeQueueTable,
        batch_queues: BatchConsumeQueueTable,
        page: ControlPage,
        clock: Clock,
        compaction: CompactionStore | None = None,
    ) -> None:
        self._queues = queues
        self._batch_queues = batch_queues
        self._compaction = compaction
        self._counters = page.counters
        self._clock = clock
        self._pause = threading.Event()
        """Never set: for short waits."""

    def delete_topic(self, topic: str, barrier: int, deadline_ms: int) -> int:
        """Delete the queues of `topic` once the log is dispatched up to `barrier`.

        Returns how many queues. Raises TimeoutError: dispatch is too far behind.
        """
        while self._counters[DISPATCHED_OFFSET] < barrier:
            if self._clock.monotonic_ms() >= deadline_ms:
                behind = barrier - self._counters[DISPATCHED_OFFSET]
                raise TimeoutError(f"dispatch is {behind} bytes behind; try again")
            self._pause.wait(_POLL_MS / 1000)
        if self._compaction is None:
            return self._delete_queues(topic)
        return self._compaction.delete_topic(topic, lambda: self._delete_queues(topic))

    def _delete_queues(self, topic: str) -> int:
        return self._queues.delete_topic(topic) + self._batch_queues.delete_topic(topic)

    def delete_expired(self) -> int:
        """306: delete the queues whose records are all gone; returns how many. Those of compaction
        topics stay: their next offsets must lie behind what is kept."""
        low, spared = self._counters[MIN_PHY_OFFSET], _KEPT_TOPICS
        if self._compaction is not None:
            spared |= self._compaction.topics
        deleted = self._queues.delete_expired_queues(low, spared)
        return deleted + self._batch_queues.delete_expired_queues(low)
