"""BatchQueues: the batch consume queues of topics with queue.type=BatchCQ, as requests read them.

Any thread: the loop for pulls, pool threads for the others; each passes its own view of the log, by
which a unit is checked before it is used. It knows no requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from remoting.body.topic_config import TopicConfig
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from store.batch_queue_reader import BatchQueueReader
from store.batch_units import BatchUnit
from store.boundary_type import BoundaryType
from store.commit_log_reader import CommitLogReader
from store.errors import QueueDamagedError
from store.unit_check import is_right

log = logging.getLogger(__name__)


class BatchQueues:
    """See the module."""

    def __init__(
        self, find_topic: Callable[[str], TopicConfig | None], reader: BatchQueueReader
    ) -> None:
        self._find_topic = find_topic
        self._reader = reader

    def hold(self, topic: str) -> bool:
        """Whether the queues of `topic` are batch consume queues."""
        config = self._find_topic(topic)
        return config is not None and config.has_batch_queues

    def find_poppable(self, topic: str) -> TopicConfig | None:
        """The settings of a topic that is to be popped or peeked. Raises RequestError: clients take
        an inner batch that they have popped for one message."""
        config = self._find_topic(topic)
        if config is not None and config.has_batch_queues:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"topic[{topic}] has batch consume queues (queue.type=BatchCQ), which can be "
                "pulled, not popped",
            )
        return config

    def read(
        self, topic: str, queue_id: int, queue_offset: int, count: int, high: int
    ) -> list[BatchUnit]:
        """See BatchQueueReader.read_units."""
        return self._reader.read_units(topic, queue_id, queue_offset, count, high)

    def is_right(
        self, log_files: CommitLogReader, topic: str, queue_id: int, unit: BatchUnit
    ) -> bool:
        """Whether `unit` names its record, or one that is gone; a wrong one is logged."""
        name, base = topic.encode(), unit.base
        if is_right(log_files, unit.phy_offset, unit.size, name, queue_id, base):
            return True
        log.error(
            "batch queue %s/%s: the entry at offset %s does not name its record: stop the broker "
            "and delete the queue's directory below batchconsumequeue, the next start builds it "
            "again",
            topic,
            queue_id,
            base,
        )
        return False

    def unit_at(
        self, log_files: CommitLogReader, topic: str, queue_id: int, queue_offset: int, high: int
    ) -> tuple[int, int, int]:
        """(phy_offset, size, tags code) of the record that holds `queue_offset`, an offset below
        `high`. Raises QueueDamagedError."""
        units = self.read(topic, queue_id, queue_offset, 1, high)
        if not units or not self.is_right(log_files, topic, queue_id, units[0]):
            raise QueueDamagedError(
                f"batch queue {topic}/{queue_id}: the entry at offset {queue_offset} is damaged or "
                "missing; see broker.log"
            )
        return units[0][:3]

    def offset_by_timestamp(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        low: int,
        high: int,
        boundary: BoundaryType | None = None,
    ) -> int:
        """See BatchQueueReader.offset_by_timestamp."""
        return self._reader.offset_by_timestamp(topic, queue_id, timestamp_ms, low, high, boundary)
