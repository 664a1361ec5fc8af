"""StoreAccess: the processors' reads of the store, through shared memory and mapped files.

In process `remoting`. Called by pool threads: one lock guards its own readers of commit log,
consumequeue and index (the loop has separate readers). What it returns are copies. Knows no request
code.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from broker.store_access.batch_queues import BatchQueues
from broker.store_access.checked_units import NoteDamaged
from ipc.queue_table import QueueTableReader
from store.boundary_type import BoundaryType
from store.commit_log_reader import CommitLogReader
from store.errors import QueueDamagedError
from store.generation_aware_reader import GenerationAwareReader
from store.stored_units import CQ_UNIT, PRE_BLANK_SIZE
from store.unit_check import is_right

if TYPE_CHECKING:
    from store.index_service import IndexReader


class StoreAccess:
    """Reads for pool threads; see the module."""

    def __init__(
        self,
        table: QueueTableReader,
        log: CommitLogReader,
        units: GenerationAwareReader,
        index: IndexReader,
        note_damaged: NoteDamaged,
        batch: BatchQueues,
        *,
        memory_limit: int,
    ) -> None:
        """note_damaged: hears of wrong units. memory_limit: bytes behind the log's end that count
        as "in memory"."""
        self._table = table
        self._log = log
        self._units = units
        self._index = index
        self._note_damaged = note_damaged
        self._batch = batch
        self._memory_limit = memory_limit
        self._lock = threading.Lock()

    # -- queues --------------------------------------------------------------------------------

    def queues(self) -> Iterator[tuple[str, int]]:
        """(topic, queue id) of every queue that has or had messages."""
        return ((topic, queue_id) for topic, queue_id, _row in self._table)

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) queue offsets; max is the next one to be written. (0, 0) for an unknown
        queue."""
        return self._table.offsets(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The min offset of a queue as clients are told it: -1 for an empty batch queue, as in
        RocketMQ."""
        low, high = self._table.offsets(topic, queue_id)
        return -1 if not high and self._batch.hold(topic) else low

    def known_queues(self, topic: str) -> list[int]:
        """The queues of `topic` that have or had messages."""
        with self._lock:
            return self._table.queue_ids(topic)

    # -- records and their units ---------------------------------------------------------------

    @property
    def min_phy_offset(self) -> int:
        """The first available byte of the log."""
        return self._log.min_phy_offset

    @property
    def max_phy_offset(self) -> int:
        """The end of the last published record."""
        return self._log.max_phy_offset

    def record_at(self, phy_offset: int) -> bytes | None:
        """A copy of the validated record at `phy_offset`."""
        with self._lock:
            return self._log.record_at(phy_offset)

    def store_timestamp_at(self, phy_offset: int) -> int:
        """Wall clock ms at which the record was stored; -1 if there is none."""
        with self._lock:
            return self._log.store_timestamp_at(phy_offset)

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags code) of a queue entry; None outside the queue and for an offset
        without a record. Raises QueueDamagedError: the entry is wrong and being rebuilt."""
        low, high = self._table.offsets(topic, queue_id)
        if not low <= queue_offset < high:
            return None
        if self._batch.hold(topic):
            with self._lock:
                return self._batch.unit_at(self._log, topic, queue_id, queue_offset, high)
        with self._lock:
            raw = self._units.read_units(topic, queue_id, queue_offset, 1)
            return self._checked(raw, topic, queue_id, queue_offset)

    def _checked(
        self, raw: bytes, topic: str, queue_id: int, queue_offset: int
    ) -> tuple[int, int, int] | None:
        """The unit, if it is right; None for a blank one. Under the lock."""
        if len(raw) == CQ_UNIT.size:
            phy_offset, size, tags = CQ_UNIT.unpack(raw)
            if size == PRE_BLANK_SIZE:
                return None
            if is_right(self._log, phy_offset, size, topic.encode(), queue_id, queue_offset):
                return phy_offset, size, tags
        self._note_damaged(topic, queue_id, queue_offset)
        raise QueueDamagedError(
            f"queue {topic}/{queue_id}: the entry at offset {queue_offset} is damaged and being "
            "rebuilt from the commit log; try again"
        )

    def offset_by_timestamp(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: BoundaryType | None = None,
    ) -> int:
        """The queue offset nearest to a store time, or on that side of it (29); 0 for an unknown
        queue. Raises QueueDamagedError."""
        low, high = self._table.offsets(topic, queue_id)
        if self._batch.hold(topic):
            return self._batch.offset_by_timestamp(
                topic, queue_id, timestamp_ms, low, high, boundary
            )

        def check(raw: bytes, queue_offset: int) -> tuple[int, int, int] | None:
            return self._checked(raw, topic, queue_id, queue_offset)

        with self._lock:
            return self._units.offset_by_timestamp(
                topic,
                queue_id,
                timestamp_ms,
                low,
                high,
                self._log,
                check=check,
                boundary=boundary,
            )

    def in_memory(self, phy_offset: int) -> bool:
        """False if the record is so far back that RocketMQ counts it as "disk"."""
        return self.max_phy_offset - phy_offset <= self._memory_limit

    def query_index(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> tuple[list[int], int, int]:
        """Physical offsets of messages with `key` (by hash, so other keys may match too) stored in
        [begin_ms, end_ms], then the last time and the last offset in the index."""
        with self._lock:
            found = self._index.query(topic, key, max_num, begin_ms, end_ms)
        return (
            list(found.phy_offsets),
            found.index_last_update_timestamp,
            found.index_last_update_phy_offset,
        )
