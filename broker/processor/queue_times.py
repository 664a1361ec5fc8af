"""QueueTimes: when the message at a queue offset was stored. Stateless, any thread.

Small questions that several admin codes ask (32, 202, 208, 303, 317): a queue offset is looked up
in the consume queue, its record in the commit log.
"""

from __future__ import annotations

from broker.store_access.store_protocols import MessageReader, QueueOffsets


class QueueTimes:
    """Store times by queue offset."""

    def __init__(self, offsets: QueueOffsets, reader: MessageReader) -> None:
        self._offsets = offsets
        self._reader = reader

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Wall clock ms of the message at `queue_offset`; -1 when it is not there."""
        if queue_offset < 0:
            return -1
        unit = self._reader.unit_at(topic, queue_id, queue_offset)
        return -1 if unit is None else self._reader.store_timestamp_at(unit[0])

    def earliest(self, topic: str, queue_id: int) -> int:
        """Wall clock ms of the first message of a queue; -1 when it is empty."""
        min_offset, max_offset = self._offsets.offsets(topic, queue_id)
        return self.store_timestamp(topic, queue_id, min_offset) if max_offset > 0 else -1

    def is_on_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether the message is there and further back than memory is taken to reach."""
        unit = self._reader.unit_at(topic, queue_id, queue_offset)
        return unit is not None and not self._reader.in_memory(unit[0])
