"""StoreAccess: what the processors ask of the store, answered from shared memory and mapped files.

Implements the protocols of broker/store_access/store_protocols.py in the `remoting` process. Pool
threads call it: one lock guards its own readers of commit log, consumequeue and index (the loop
has readers of its own). Commands go to the `store` process over the command channel. It knows no
request code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ipc.command_channel import CommandClient
from ipc.queue_table import QueueTableReader
from store.commit_log_reader import CommitLogReader
from store.consume_queue import CQ_UNIT
from store.fresh_units import FreshUnits
from store.index_service import QueryOffsetResult

_COMMAND_TIMEOUT_MS: Final = 4_000


class IndexReader(Protocol):
    """What is needed of the index."""

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
        units: FreshUnits,
        index: IndexReader,
        commands: CommandClient,
        *,
        memory_limit: int,
        before_delete: Callable[[str], int],
        after_delete: Callable[[str, bool], None],
    ) -> None:
        """memory_limit: bytes behind the log's end that count as "in memory".

        before_delete holds a topic's sends back and gives the log's end, after_delete (topic,
        whether its queues are gone) lets them go on; both act on the loop.
        """
        self._table = table
        self._log = log
        self._units = units
        self._index = index
        self._commands = commands
        self._memory_limit = memory_limit
        self._before_delete = before_delete
        self._after_delete = after_delete
        self._lock = threading.Lock()

    # -- QueueOffsets --------------------------------------------------------------------------

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) queue offsets; (0, 0) for an unknown queue."""
        return self._table.offsets(topic, queue_id)

    def known_queues(self, topic: str) -> list[int]:
        """The queues of `topic` that hold or held messages."""
        with self._lock:
            return self._table.queue_ids(topic)

    # -- MessageReader -------------------------------------------------------------------------

    @property
    def min_phy_offset(self) -> int:
        """The first byte of the log that is still there."""
        return self._log.min_phy_offset

    @property
    def max_phy_offset(self) -> int:
        """The byte behind the last published record."""
        return self._log.max_phy_offset

    def record_at(self, phy_offset: int) -> bytes | None:
        """A copy of the checked record at `phy_offset`."""
        with self._lock:
            return self._log.record_at(phy_offset)

    def store_timestamp_at(self, phy_offset: int) -> int:
        """Wall clock ms at which the record was stored; -1 when there is none."""
        with self._lock:
            return self._log.store_timestamp_at(phy_offset)

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags code) of a queue entry; None outside the queue."""
        low, high = self._table.offsets(topic, queue_id)
        if not low <= queue_offset < high:
            return None
        with self._lock:
            raw = self._units.read_units(topic, queue_id, queue_offset, 1)
        if len(raw) < CQ_UNIT.size:
            return None
        phy_offset, size, tags = CQ_UNIT.unpack_from(raw)
        return phy_offset, size, tags

    def offset_by_timestamp(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The queue offset nearest to a store time (29); 0 for an unknown queue."""
        low, high = self._table.offsets(topic, queue_id)
        with self._lock:
            return self._units.offset_by_timestamp(
                topic,
                queue_id,
                timestamp_ms,
                low,
                high,
                self._log.store_timestamp_at,
                min_phy_offset=self._log.min_phy_offset,
            )

    def in_memory(self, phy_offset: int) -> bool:
        """False when the record is so far back that the original calls it "disk"."""
        return self.max_phy_offset - phy_offset <= self._memory_limit

    def query_index(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> tuple[list[int], int, int]:
        """Messages with `key`, by hash; then the last time and offset the index knows."""
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

        Records of the topic that are in the log by now are dispatched first: they must not make
        the queues again. Sends wait outside meanwhile; the next one starts at queue offset 0.
        """
        barrier = self._before_delete(topic)
        deleted = False
        try:
            self._commands.call("delete_topic", _COMMAND_TIMEOUT_MS, topic=topic, barrier=barrier)
            deleted = True
        finally:
            self._after_delete(topic, deleted)

    def clean_unused_topic(self, retained: Sequence[str]) -> None:
        """Delete the queues of topics that are not in `retained`; raises CommandError.

        The list may be long: what is to go is found here and named one by one.
        """
        keep = set(retained)
        for topic in {name for name, _, _ in self._table} - keep:
            self.delete_topic_queues(topic)

    def clean_expired_consume_queue(self) -> None:
        """Delete queue files below the commit log's start; raises CommandError."""
        self._commands.call("clean_consume_queue", _COMMAND_TIMEOUT_MS)

    def delete_expired_commit_log(self) -> None:
        """Delete expired commit log files now; raises CommandError."""
        self._commands.call("clean_commit_log", _COMMAND_TIMEOUT_MS)
