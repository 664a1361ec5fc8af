"""CompactionLog: the compaction log of one queue, from its start to its end.

It takes records as the queue has them, is compacted now and then, and says what readers may see.
Owned by CompactionStore. Corresponds to RocketMQ's CompactionLog.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Final

from ipc.clock import Clock
from store.compaction.compaction_files import (
    CompactionDirectories,
    FileSizes,
    finish_replacement,
    remove_log,
)
from store.compaction.compaction_run import CompactionRun, key_of
from store.compaction.partition_log import PartitionLog
from store.compaction.position_checkpoint import PositionCheckpoint
from store.message_codec import read_store_timestamp

log = logging.getLogger(__name__)

NOTHING_PENDING: Final = 1 << 62

Publish = Callable[[str, int, int, int], None]
"""(topic, queue id, generation, max offset): see ConsumeQueueTable.publish_compacted."""


class CompactionLog:
    """See the module."""

    def __init__(
        self,
        directories: CompactionDirectories,
        sizes: FileSizes,
        topic: str,
        queue_id: int,
        positions: PositionCheckpoint,
        publish: Publish,
        *,
        generation: int,
    ) -> None:
        """generation: another one than readers have seen of this queue."""
        self.topic: Final = topic
        self.queue_id: Final = queue_id
        self.due_ms = 0
        """Monotonic: when it is looked at again for compaction."""
        self.next_offset = 0
        """Queue offset of the next record to be taken."""
        self._directories = directories
        self._sizes = sizes
        self._files = PartitionLog(directories, sizes, topic, queue_id)
        self._positions = positions
        self._publish = publish
        self._generation = max(generation % (1 << 16), 1)
        self._published = (0, 0)
        self._pending_phy_offset = NOTHING_PENDING
        """In the commit log: of the first record that was taken and is not on disk here."""
        self._closed_phy_offset = 0
        """In the commit log: closed files hold records from before this offset only."""

    def __repr__(self) -> str:
        return repr(self._files)

    def open(self, *, check_all: bool, copied_again_from: int = 0, rewrite: bool = False) -> None:
        """See PartitionLog.open; a replacement that was decided is done. Raises StoreError,
        OSError."""
        if (position := finish_replacement(self._directories)) is not None:
            self._positions.put(self.topic, self.queue_id, position)
        self._files.open(check_all=check_all, copied_again_from=copied_again_from, rewrite=rewrite)
        self._need_all_until_flushed()
        self.next_offset = self.max_offset
        self._turn_back_position()

    @property
    def max_offset(self) -> int:
        """Queue offset behind the last record."""
        return self._files.max_offset

    def cut(self, queue_offset: int, stored_ms: Callable[[int], int]) -> None:
        """The queue ends at `queue_offset`: what this log has from there on was lost from the
        commit log. stored_ms(queue offset): when the queue's record was stored, -1 unknown; one of
        another time says that this log is of an older queue: it begins anew. Raises OSError."""
        log.warning("%r: ends at %s, its queue at %s: cut", self, self.max_offset, queue_offset)
        self._files.cut(queue_offset)
        if not self.belongs_to(stored_ms):
            log.warning("%r: belongs to a deleted queue; starting over", self)
            self._files.cut(0)
        self._need_all_until_flushed()
        self.next_offset = self.max_offset
        self._turn_back_position()
        self.renew()

    def belongs_to(self, stored_ms: Callable[[int], int]) -> bool:
        """Whether its last record is that of the queue, as far as this can be said; stored_ms: see
        `cut`. Raises OSError."""
        record = self._files.last_record()
        found = -1 if record is None else stored_ms(self.max_offset - 1)
        return found < 0 or record is None or found == read_store_timestamp(record, 0)

    def _need_all_until_flushed(self) -> None:
        """Whose records of the last file are not on disk is not known."""
        self._pending_phy_offset = NOTHING_PENDING if self._files.is_flushed else 0

    def _turn_back_position(self) -> None:
        """Nothing was looked at that is not there: it may come again."""
        position = self._positions.find(self.topic, self.queue_id)
        if position >= self.max_offset:
            self._positions.put(self.topic, self.queue_id, self.max_offset - 1)

    # -- records -------------------------------------------------------------------------------

    def take(self, record: bytes, phy_offset: int, tags_code: int) -> bool:
        """The next record of the queue; False: it has no key and is left out. Raises DiskFullError,
        FlushFailedError, RecordDamagedError, OSError: it is not taken."""
        if key_of(record) is None:
            self.next_offset += 1
            return False
        files = len(self._files.starts)
        timestamp_ms = read_store_timestamp(record, 0)
        if self._files.append(record, tags_code, timestamp_ms, self.next_offset):
            self._pending_phy_offset = min(self._pending_phy_offset, phy_offset)
        if len(self._files.starts) != files:
            self._closed_phy_offset = phy_offset
        self.next_offset += 1
        return True

    def skip_to(self, queue_offset: int) -> None:
        """What is before cannot be had."""
        self.next_offset = max(self.next_offset, queue_offset)

    def publish(self) -> None:
        """Readers may see what was taken. Raises DiskFullError, OSError."""
        self._files.write_out()
        state = (self._generation, self.max_offset)
        if state != self._published and (self._files.starts or self._published != (0, 0)):
            self._publish(self.topic, self.queue_id, *state)
            self._published = state

    def renew(self) -> None:
        """Readers open the files again."""
        self._next_generation()
        self.publish()

    def _next_generation(self) -> None:
        self._generation = self._generation % ((1 << 16) - 1) + 1

    def flush(self) -> None:
        """What was taken is on disk. Raises DiskFullError, FlushFailedError, OSError."""
        self._files.flush()
        self._pending_phy_offset = NOTHING_PENDING

    @property
    def is_flushed(self) -> bool:
        """Whether `flush` has nothing to do."""
        return self._files.is_flushed

    @property
    def pending_phy_offset(self) -> int:
        """The commit log is needed from here on: what was taken is not on disk yet."""
        return self._pending_phy_offset

    def close(self) -> None:
        """Close; idempotent. Nothing is written."""
        self._files.close()

    def remove(self) -> None:
        """Delete all files: the topic was deleted. Raises OSError."""
        self.close()
        remove_log(self._directories, self._files.starts)
        self._positions.forget(self.topic, self.queue_id)
        # The generation stays known: files of a new log must not be taken for those of this one.
        self._next_generation()
        self._publish(self.topic, self.queue_id, self._generation, 0)

    # -- compaction ----------------------------------------------------------------------------

    def put_off(self, clock: Clock, interval_ms: int) -> None:
        """It is looked at for compaction after this time, and up to as much more, so that many logs
        are not compacted at once."""
        self.due_ms = clock.monotonic_ms() + interval_ms + random.randrange(max(interval_ms, 1))

    def find_run(self, memory_size: int, flushed_offset: int) -> CompactionRun | None:
        """A compaction, if there is something to be compacted. flushed_offset: of the commit log;
        newer records might be lost with it, and no older one may have gone because of them. Raises
        StoreError, OSError."""
        if self._closed_phy_offset > flushed_offset:
            return None
        finish_replacement(self._directories)
        run = CompactionRun(
            self._files,
            PartitionLog(self._directories.compacting, self._sizes, self.topic, self.queue_id),
            self._positions.find(self.topic, self.queue_id),
            memory_size,
        )
        return run if run.has_news() else None

    def finish_run(self, run: CompactionRun) -> None:
        """Put its result in place. Raises StoreError, OSError."""
        run.replace()
        self.renew()
        self._positions.put(self.topic, self.queue_id, run.position)
        log.info(
            "%r: compacted up to %s: %s bytes of %s are kept",
            self,
            run.position,
            run.bytes_after,
            run.bytes_before,
        )

    def give_up_run(self) -> None:
        """Delete what it has made. Raises OSError."""
        finish_replacement(self._directories)
