"""FollowedQueues: the queues of compaction topics, as compaction logs follow them.

Which topics there are, which of their queues have moved, and their units with the records. Owned
by: the thread of CompactionStore, with readers of its own. It knows no compaction log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
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

log = logging.getLogger(__name__)

BATCH: Final = 256
"""Records read at once."""
_BATCH_SIZE: Final = 4 << 20
"""Or so many bytes."""
_TOPICS_MS: Final = 500
"""Between two looks at the topics."""


FindTopics = Callable[[], frozenset[str]]
"""The compaction topics that there are now; cheap when nothing has changed."""
RequestRebuild = Callable[[str, int, int], None]
"""A unit of (topic, queue id) at a queue offset is wrong: RebuildConsumeQueueService.request."""


class FollowedQueues:
    """See the module: all queues, by topic and queue id."""

    def __init__(
        self,
        config: MessageStoreConfig,
        table: QueueTableReader,
        log: CommitLogReader,
        find_topics: FindTopics,
        request_rebuild: RequestRebuild,
        role: RoleNow,
    ) -> None:
        """table, log: readers of its own. role: whose queue offsets these are, ours or not."""
        self.role: Final = role
        self._table = table
        self._find_topics = find_topics
        self.request_rebuild: Final = request_rebuild
        self.topics: frozenset[str] = frozenset()
        """As they were found last. Any thread reads them."""
        self.moved: dict[tuple[str, int], None] = {}
        """Queues that may have more records than were taken."""
        self._looked_at_ms = 0
        self._reader = ConsumeQueueReader(config, table)
        self._units = GenerationAwareReader(self._reader, table)
        self._log = log

    def find_topics(self) -> None:
        """Look which compaction topics there are."""
        self.topics = self._find_topics()

    def note_all(self) -> None:
        """Look at every queue of the compaction topics."""
        self._table.skip_moves()
        if self.topics:
            for topic, queue_id, _row in self._table:
                if topic in self.topics:
                    self.moved[topic, queue_id] = None

    def look(self, now_ms: int) -> None:
        """Note what has moved since the last look; now and then, which topics there are."""
        self._look_for_topics(now_ms)
        if not self._table.has_moves():
            return
        if not self.topics:
            self._table.skip_moves()
            return
        rows = self._table.take_moves()
        if rows is None:
            self.note_all()
            return
        for row in dict.fromkeys(rows):
            key = self._table.queue_of(row)
            if key[0] in self.topics:
                self.moved[key] = None

    def _look_for_topics(self, now_ms: int) -> None:
        if now_ms - self._looked_at_ms < _TOPICS_MS:
            return
        self._looked_at_ms = now_ms
        topics = self._find_topics()
        if topics != self.topics:
            log.info("compaction topics: %s", sorted(topics) or "none")
            self.topics = topics
            self.note_all()

    def compacted_generation(self, topic: str, queue_id: int) -> int:
        """Of the compaction log, as it was published last."""
        return self._table.compacted(topic, queue_id)[0]

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
