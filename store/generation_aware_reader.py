"""GenerationAwareReader: consumequeue units that are never read from the files of a deleted queue.

Used by `remoting`, one object a thread. A queue that was deleted and made again has other files
under the same names; the queue table counts its generations, and a new one closes what was open.
"""

from __future__ import annotations

from ipc.queue_table import QueueTableReader
from store.boundary_type import BoundaryType
from store.commit_log_reader import CommitLogReader
from store.consume_queue_reader import CheckUnit, ConsumeQueueReader, plain_unit


class GenerationAwareReader:
    """A ConsumeQueueReader that watches the generations. Owned by: the thread that uses it."""

    def __init__(self, reader: ConsumeQueueReader, table: QueueTableReader) -> None:
        self._reader = reader
        self._table = table
        self._generations: dict[int, int] = {}

    def read_units(self, topic: str, queue_id: int, queue_offset: int, count: int) -> bytes:
        """See ConsumeQueueReader.read_units."""
        self._check(topic, queue_id)
        return self._reader.read_units(topic, queue_id, queue_offset, count)

    def offset_by_timestamp(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        min_offset: int,
        max_offset: int,
        log: CommitLogReader,
        *,
        check: CheckUnit = plain_unit,
        boundary: BoundaryType | None = None,
    ) -> int:
        """See ConsumeQueueReader.offset_by_timestamp."""
        self._check(topic, queue_id)
        return self._reader.offset_by_timestamp(
            topic,
            queue_id,
            timestamp_ms,
            min_offset,
            max_offset,
            log,
            check=check,
            boundary=boundary,
        )

    def _check(self, topic: str, queue_id: int) -> None:
        row = self._table.find_row(topic, queue_id)
        if row is None:
            return
        generation = self._table.generation(row)
        if self._generations.get(row) != generation:
            self._generations[row] = generation
            self._reader.forget(topic, queue_id)
