"""The store as used by the processors: queue offsets, stored records, a few commands.

Protocols only, no behaviour: the composition root supplies implementations over shared memory and
mapped files. Reads may be called by any thread and return copies. Commands go to process `store`
and raise OSError or TimeoutError if it does not respond. Knows no request code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from store.boundary_type import BoundaryType


class QueueOffsets(Protocol):
    """Min and max offset of every consume queue."""

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) queue offsets; max is the next one to be written. (0, 0) for an unknown
        queue."""
        ...

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The min offset as clients are told it: -1 for an empty batch queue."""
        ...

    def known_queues(self, topic: str) -> list[int]:
        """Ids of the queues of `topic` that have or had messages."""
        ...


class MessageReader(Protocol):
    """Records and their queue units, as stored."""

    @property
    def min_phy_offset(self) -> int:
        """The first available byte of the commit log."""
        ...

    @property
    def max_phy_offset(self) -> int:
        """The end of the last published record."""
        ...

    def record_at(self, phy_offset: int) -> bytes | None:
        """The whole validated record at `phy_offset`, or None if no record starts there."""
        ...

    def store_timestamp_at(self, phy_offset: int) -> int:
        """Wall clock ms at which the record was stored; -1 if no record starts there."""
        ...

    def offset_by_timestamp(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: BoundaryType | None = None,
    ) -> int:
        """The queue offset nearest to a store time, or on that side of it (29); 0 for an unknown
        queue."""
        ...

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags code) of a consume queue entry, or None. Raises
        QueueDamagedError (so does offset_by_timestamp): try again."""
        ...

    def in_memory(self, phy_offset: int) -> bool:
        """False if the offset is so far back that RocketMQ counts it as "disk"."""
        ...

    def query_index(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> tuple[list[int], int, int]:
        """Physical offsets of messages with `key` (by hash, so other keys may match too) stored in
        [begin_ms, end_ms], then the last time and the last offset in the index.
        """
        ...


class StoreCommands(Protocol):
    """Commands to process `store`; each returns when it has been executed."""

    def delete_topic_queues(self, topic: str) -> None:
        """Delete every consume queue file of `topic`."""
        ...

    def clean_unused_topic(self, retained: Sequence[str]) -> None:
        """Delete the consume queues of topics that are not in `retained` (316)."""
        ...

    def clean_expired_consume_queue(self) -> None:
        """Delete consume queue files that point below the start of the commit log (306)."""
        ...

    def delete_expired_commit_log(self) -> None:
        """Delete expired commit log files now, whatever the hour (329)."""
        ...
