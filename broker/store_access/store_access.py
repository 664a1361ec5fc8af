"""StoreAccess: the processors' access to the store, through shared memory and mapped files.

Implements the protocols of broker/store_access/store_protocols.py in the `remoting` process. Called
by pool threads: one lock guards its own readers of commit log, consumequeue and index (the loop has
separate readers). Commands go to process `store` over the command channel. Knows no request code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from broker.store_access.batch_queues import BatchQueues
from broker.store_access.checked_units import NoteDamaged
from ipc.command_channel import CommandClient
from ipc.queue_table import QueueTableReader
from store.boundary_type import BoundaryType
from store.commit_log_reader import CommitLogReader
from store.errors import QueueDamagedError
from store.generation_aware_reader import GenerationAwareReader
from store.index_service import QueryOffsetResult
from store.lmq_places import is_lmq
from store.stored_units import CQ_UNIT, PRE_BLANK_SIZE
from store.unit_check import is_right

_COMMAND_TIMEOUT_MS: Final = 4_000


class IndexReader(Protocol):
    """The part of the index used here."""

    def query(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> QueryOffsetResult:
        """Physical offsets, last timestamp, last physical offset."""


class StoreAccess:
    """Reads for pool threads; see the module."""

    def __init__(
        self,
        table: QueueTableReader,
        log: CommitLogReader,
        units: GenerationAwareReader,
        index: IndexReader,
        commands: CommandClient,
        note_damaged: NoteDamaged,
        batch: BatchQueues,
        *,
        memory_limit: int,
        before_delete: Callable[[str], int],
        after_delete: Callable[[str, bool], None],
    ) -> None:
        """note_damaged: hears of wrong units. memory_limit: bytes behind the log's end that count
        as "in memory".

        before_delete blocks a topic's sends and returns the log's end; after_delete (topic, whether
        its queues were deleted) unblocks them. Both act on the loop.
        """
        self._table = table
        self._log = log
        self._units = units
        self._index = index
        self._commands = commands
        self._note_damaged = note_damaged
        self._batch = batch
        self._memory_limit = memory_limit
        self._before_delete = before_delete
        self._after_delete = after_delete
        self._lock = threading.Lock()

    # -- QueueOffsets --------------------------------------------------------------------------

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) queue offsets; (0, 0) for an unknown queue."""
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

    # -- MessageReader -------------------------------------------------------------------------

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
                self._log.store_timestamp_at,
                min_phy_offset=self._log.min_phy_offset,
                check=check,
                boundary=boundary,
            )

    def in_memory(self, phy_offset: int) -> bool:
        """False if the record is so far back that RocketMQ counts it as "disk"."""
        return self.max_phy_offset - phy_offset <= self._memory_limit

    def query_index(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> tuple[list[int], int, int]:
        """Messages with `key`, by hash; then the last time and offset in the index."""
        with self._lock:
            found = self._index.query(topic, key, max_num, begin_ms, end_ms)
        return (
            list(found.phy_offsets),
            found.index_last_update_timestamp,
            found.index_last_update_phy_offset,
        )

    # -- StoreCommands -------------------------------------------------------------------------

    def delete_topic_queues(self, topic: str) -> None:
        """Delete every consume queue of `topic`; raises CommandError.

        Existing records of the topic are dispatched first, so that they do not recreate the queues.
        Sends are blocked meanwhile; the next one starts at queue offset 0.
        """
        barrier = self._before_delete(topic)
        deleted = False
        try:
            self._commands.call("delete_topic", _COMMAND_TIMEOUT_MS, topic=topic, barrier=barrier)
            deleted = True
        finally:
            self._after_delete(topic, deleted)

    def clean_unused_topic(self, retained: Sequence[str]) -> None:
        """Delete the queues of topics that are not in `retained`, but for light queues, which are
        in no table; raises CommandError.

        The list may be long, so the queues to be deleted are determined here and sent one by one.
        """
        keep = set(retained)
        for topic in {name for name, _, _ in self._table if not is_lmq(name)} - keep:
            self.delete_topic_queues(topic)

    def clean_expired_consume_queue(self) -> None:
        """Delete queue files below the commit log's start; raises CommandError."""
        self._commands.call("clean_consume_queue", _COMMAND_TIMEOUT_MS)

    def delete_expired_commit_log(self) -> None:
        """Delete expired commit log files now; raises CommandError."""
        self._commands.call("clean_commit_log", _COMMAND_TIMEOUT_MS)
