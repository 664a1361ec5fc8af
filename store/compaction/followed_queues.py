"""FollowedQueues: consume queues with their records, as compaction logs follow them.

Owned by: the thread of CompactionStore, with readers of its own. It knows units and records, no
compaction log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ipc.queue_table import QueueTableReader
from store.commit_log_reader import CommitLogReader
from store.consume_queue_reader import ConsumeQueueReader
from store.controller_mode import RoleNow
from store.generation_aware_reader import GenerationAwareReader
from store.message_codec import read_store_timestamp
from store.message_store_config import MessageStoreConfig
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE, PRE_BLANK_SIZE
from store.unit_check import is_right

BATCH: Final = 256
"""Records read at once."""
_BATCH_SIZE: Final = 4 << 20
"""Or so many bytes."""


class FollowedQueues:
    """See the module: all queues, by topic and queue id."""

    def __init__(
        self,
        config: MessageStoreConfig,
        table: QueueTableReader,
        log: CommitLogReader,
        role: RoleNow,
    ) -> None:
        """log: a reader of its own. role: whose queue offsets these are, ours or a master's."""
        self.role: Final = role
        self._table = table
        self._reader = ConsumeQueueReader(config)
        self._units = GenerationAwareReader(self._reader, table)
        self._log = log

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) queue offset; (0, 0) of a queue that was never written."""
        return self._table.offsets(topic, queue_id)

    def phy_offset_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Where in the commit log the record of a unit is; -1 without the unit."""
        data = self._units.read_units(topic, queue_id, queue_offset, 1)
        return -1 if len(data) < CQ_UNIT_SIZE else int(CQ_UNIT.unpack(data)[0])

    def stored_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """When a record was stored, ms; -1 if the commit log does not have it, whole and right."""
        for _, _, record in self.read(topic, queue_id, queue_offset, queue_offset + 1):
            return -1 if record is None else read_store_timestamp(record, 0)
        return -1

    def read(
        self, topic: str, queue_id: int, queue_offset: int, high: int
    ) -> Iterator[tuple[int, int, bytes | None]]:
        """(phy offset, tags code, record) of some units from `queue_offset` on; the record is None
        where the commit log has none any more, or it is damaged. It ends before a unit that is
        wrong, and comes to nothing if that is the first."""
        count, size_left = min(BATCH, high - queue_offset), _BATCH_SIZE
        data = self._units.read_units(topic, queue_id, queue_offset, count)
        name = topic.encode()
        for phy_offset, size, tags_code in CQ_UNIT.iter_unpack(
            data[: len(data) // CQ_UNIT_SIZE * CQ_UNIT_SIZE]
        ):
            if size_left <= 0 or not is_right(
                self._log, phy_offset, size, name, queue_id, queue_offset
            ):
                return
            record = None if size == PRE_BLANK_SIZE else self._log.record_at(phy_offset)
            size_left -= 0 if record is None else len(record)
            yield phy_offset, tags_code, record
            queue_offset += 1

    def close(self) -> None:
        """Close the files; idempotent."""
        self._reader.close()
        self._log.close()
