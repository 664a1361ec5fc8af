"""QueueTimes: the store time of the message at a queue offset. Stateless, any thread.

Used by several admin codes (32, 202, 208, 303, 317): looks a queue offset up in the consume queue,
and its record in the commit log.
"""

from __future__ import annotations

from broker.store_access.store_access import StoreAccess


class QueueTimes:
    """Store times by queue offset."""

    def __init__(self, store: StoreAccess) -> None:
        self._store = store

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Wall clock ms of the message at `queue_offset`; -1 if it does not exist."""
        if queue_offset < 0:
            return -1
        unit = self._store.unit_at(topic, queue_id, queue_offset)
        return -1 if unit is None else self._store.store_timestamp_at(unit[0])

    def earliest(self, topic: str, queue_id: int) -> int:
        """Wall clock ms of the first message of a queue; -1 if it is empty."""
        min_offset, max_offset = self._store.offsets(topic, queue_id)
        return self.store_timestamp(topic, queue_id, min_offset) if max_offset > 0 else -1

    def is_on_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether the message exists and is too old to be assumed in memory."""
        unit = self._store.unit_at(topic, queue_id, queue_offset)
        return unit is not None and not self._store.in_memory(unit[0])
