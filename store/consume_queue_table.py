"""ConsumeQueueTable: all consume queues of the store, built from batches of records.

Used in process `store`. The dispatch thread builds the queues, the flush and clean threads maintain
the files: all under the one lock of the table, except for fdatasync, which runs outside it. A batch
is sorted by queue once, so that each queue gets its units in one write. Changes are published to
the queue table after the bytes are in place. It must not know what a record looks like, or who
reads the queues. Follows the consumeQueueTable of DefaultMessageStore and
CommitLogDispatcherBuildConsumeQueue.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from store.consume_queue import CQ_UNIT_DTYPE, CQ_UNIT_SIZE, ConsumeQueue
from store.consume_queue_files import ConsumeQueueFiles, is_safe_topic
from store.queue_jumps import QueueJumps
from store.queue_states import QueueStates
from store.record_arrays import Int64Array, RecordArrays
from store.resync_request import is_backup_name

log = logging.getLogger(__name__)

_QUEUE_ID: Final = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)
_LARGEST_QUEUE_ID: Final = (1 << 31) - 1
_RADIX_LIMIT: Final = 1 << 16
"""Sort keys below this fit uint16, which numpy sorts by radix, ten times as fast."""
_PROGRESS_STEP: Final = 500
_MANY_DUE: Final = 64
"""From this many queues on, one call flushes them all: 80,000 new ones took minutes one by one, and
an orderly stop does not wait that long."""


class QueueTablePublisher(Protocol):
    """Where readers in other processes see the bounds of the queues."""

    def row(self, topic: str, queue_id: int) -> int:
        """The row of a queue, created on first use."""
        ...

    def set_offsets(self, row: int, min_offset: int, max_offset: int) -> None:
        """Queue offsets [min_offset, max_offset) can be read."""
        ...

    def mark_moved(self, row: int) -> None:
        """Units were added or removed."""
        ...

    def reset(self, row: int) -> None:
        """The queue was emptied: files opened before are no longer its files."""
        ...


class ConsumeQueueTable:
    """The queues by (topic, queue_id). Guarded by: `lock`, taken by every public method.

    Many methods because every step in the life of the queues takes the one lock of this table.
    """

    def __init__(
        self,
        files: ConsumeQueueFiles,
        publisher: QueueTablePublisher,
        on_left_out: Callable[[], None] = lambda: None,
    ) -> None:
        """on_left_out: a record got no unit, since its queue offset cannot be (queue_jumps.py)."""
        self._files = files
        self._publisher = publisher
        self.lock = threading.Lock()
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._dirty: dict[ConsumeQueue, None] = {}
        self._jumps: Final = QueueJumps(on_left_out)
        self._refused: set[tuple[str, int]] = set()
        """Queues whose names would point outside the directory; each is logged once."""

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    # -- life ----------------------------------------------------------------------------------

    def load(self) -> int:
        """Find the queues' directories; returns their number. Reads no file. Raises OSError.

        The backup of a re-synchronised store, which is here in a mount point, is not a topic.
        """
        with self.lock:
            self._files.open()
            for topic in _list_names(str(self._files.root)):
                if is_backup_name(topic):
                    continue
                if not _is_encodable(topic):
                    log.warning("consumequeue: directory %r ignored: not UTF-8", topic)
                    continue
                for name in _list_names(f"{self._files.root}/{topic}"):
                    if _QUEUE_ID.fullmatch(name) and int(name) <= _LARGEST_QUEUE_ID:
                        self._add(topic, int(name))
                    else:
                        log.warning("consumequeue: %s/%s ignored: no queue id", topic, name)
        return len(self._queues)

    def recover(
        self,
        on_progress: Callable[[int, int], None] | None = None,
        *,
        min_phy_offset: int = 0,
        states: QueueStates | None = None,
    ) -> None:
        """Load the files of all queues; those for which `states` is still valid are not read.

        on_progress(done, all) is called from time to time. Raises WrongFileSizeError, OSError.
        """
        states = states or QueueStates()
        unread = 0
        with self.lock:
            for done, queue in enumerate(self._queues.values()):
                if on_progress is not None and done % _PROGRESS_STEP == 0:
                    on_progress(done, len(self._queues))
                state = states.find(queue.topic, queue.queue_id)
                if state is not None and queue.restore(state, states.min_phy_offset):
                    unread += 1
                else:
                    queue.recover()
                    queue.correct_min_offset(min_phy_offset)
            if on_progress is not None:
                on_progress(len(self._queues), len(self._queues))
        log.info("%s consume queues, %s of them unchanged since the last stop", len(self), unread)

    def publish_all(self, *, min_phy_offset: int) -> None:
        """After recovery: correct every min offset and publish all queues."""
        with self.lock:
            for queue in self._queues.values():
                queue.correct_min_offset(min_phy_offset)
                self._publish(queue)

    def close(self) -> None:
        """Close all files; idempotent. Flush before."""
        with self.lock:
            self._files.close()

    # -- queues --------------------------------------------------------------------------------

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue; None if it has never had a unit. Read it under `lock`."""
        return self._queues.get((topic, queue_id))

    def max_phy_offset(self) -> int:
        """End of the newest record that has a unit in any queue; 0 for an empty store."""
        with self.lock:
            return max((queue.max_phy_offset for queue in self._queues.values()), default=0)

    def _add(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = self._queues[topic, queue_id] = ConsumeQueue(self._files, topic, queue_id)
        return queue

    def _find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """None, with one log line, for a name that cannot be a directory name."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            return queue
        if is_safe_topic(topic) and 0 <= queue_id <= _LARGEST_QUEUE_ID:
            return self._add(topic, queue_id)
        if (topic, queue_id) not in self._refused:
            self._refused.add((topic, queue_id))
            log.error("not building a consume queue for topic %r, queue %s", topic, queue_id)
        return None

    # -- building ------------------------------------------------------------------------------

    def dispatch(self, records: RecordArrays) -> None:
        """Append the units of `records` and publish the changes.

        Units that already exist are skipped. Raises DiskFullError, StoreError.
        """
        if records.count == 0:
            return
        moved: dict[ConsumeQueue, None] = {}
        with self.lock:
            try:
                self._build(records, moved)
            finally:
                # Even if the disk fills up half-way: the same records will not move them again.
                for queue in moved:
                    self._publish(queue)
                self._dirty.update(moved)

    def _build(self, records: RecordArrays, moved: dict[ConsumeQueue, None]) -> None:
        order, starts = _sort_by_queue(records)
        if not len(order):
            return
        phy_offsets = records.phy_offsets[order]
        sizes = records.sizes[order]
        queue_offsets = records.queue_offsets[order]
        ends = phy_offsets + sizes
        units = np.empty(len(order), CQ_UNIT_DTYPE)
        units["phy_offset"] = phy_offsets
        units["size"] = sizes
        units["tags_code"] = records.tags_codes[order]
        data = memoryview(units.tobytes())
        # A run ends with its queue, and where queue offsets are not consecutive.
        begins = np.concatenate(([True], queue_offsets[1:] - queue_offsets[:-1] != 1))
        begins[starts] = True
        firsts = np.flatnonzero(begins)
        lasts = np.append(firsts[1:], len(order)) - 1
        topics = [str(topic, "utf-8", "replace") for topic in records.topics]
        for topic_id, queue_id, queue_offset, first, last, first_end, last_end in zip(
            records.topic_ids[order[firsts]].tolist(),
            records.queue_ids[order[firsts]].tolist(),
            queue_offsets[firsts].tolist(),
            firsts.tolist(),
            lasts.tolist(),
            ends[firsts].tolist(),
            ends[lasts].tolist(),
            strict=True,
        ):
            queue = self._find_or_create(topics[topic_id], queue_id)
            run = data[first * CQ_UNIT_SIZE : (last + 1) * CQ_UNIT_SIZE]
            if queue is None:
                continue
            if queue_offset > queue.max_offset and not self._jumps.allows(
                queue, queue_offset, last - first + 1, first_end
            ):
                continue
            if queue.append(run, queue_offset, first_end, last_end):
                moved[queue] = None

    def _publish(self, queue: ConsumeQueue, *, moved: bool = True) -> None:
        publisher = self._publisher
        if queue.row < 0:
            queue.row = publisher.row(queue.topic, queue.queue_id)
        if queue.emptied:
            publisher.reset(queue.row)
            queue.emptied = False
        publisher.set_offsets(queue.row, queue.min_offset, queue.max_offset)
        if moved:
            publisher.mark_moved(queue.row)

    # -- truncation and deletion ---------------------------------------------------------------

    def truncate(self, phy_offset: int) -> None:
        """Drop all units of records that do not end at or before `phy_offset`."""
        with self.lock:
            for queue in self._queues.values():
                queue.truncate(phy_offset)

    def delete_topic(self, topic: str) -> int:
        """Delete all queues of `topic`; returns their number."""
        with self.lock:
            return self._destroy([queue for queue in self if queue.topic == topic])

    def delete_unused_topics(self, retained: Collection[str]) -> int:
        """Delete the queues of all topics not in `retained` (316); returns their number."""
        with self.lock:
            return self._destroy([queue for queue in self if queue.topic not in retained])

    def delete_expired_queues(self, min_phy_offset: int, spared: Collection[str]) -> int:
        """Delete queues (306) whose last record is before `min_phy_offset`, except for the topics
        in `spared` (the schedule topic); returns their number."""
        with self.lock:
            expired = [queue for queue in self if queue.is_expired(min_phy_offset)]
            return self._destroy([queue for queue in expired if queue.topic not in spared])

    def _destroy(self, queues: list[ConsumeQueue]) -> int:
        for queue in queues:
            log.info("%r: deleted", queue)
            queue.destroy()
            self._publish(queue)
            del self._queues[queue.topic, queue.queue_id]
            self._jumps.forget(queue)
            self._dirty.pop(queue, None)
        return len(queues)

    def clean(self, min_phy_offset: int, pause: Callable[[], bool]) -> int:
        """Delete files whose records are no longer in the commit log, correct the min offsets and
        publish them; returns the number of files.

        `pause` is called after each deleted file, without the lock; True ends the pass early.
        """
        deleted = 0
        for queue in self:
            while self._clean_queue(queue, min_phy_offset):
                deleted += 1
                if pause():
                    return deleted
        return deleted

    def _clean_queue(self, queue: ConsumeQueue, min_phy_offset: int) -> bool:
        """Delete at most one file of `queue`; True if it did."""
        with self.lock:
            if self._queues.get((queue.topic, queue.queue_id)) is not queue:
                return False
            deleted = queue.delete_first_expired(min_phy_offset)
            if queue.correct_min_offset(min_phy_offset) or deleted:
                self._publish(queue, moved=False)
            return deleted

    # -- flushing ------------------------------------------------------------------------------

    def flush(self, least_pages: int) -> int:
        """Bring units to disk: of queues with at least `least_pages` new pages; 0 = of all.

        Returns how many queues were flushed. Raises FlushFailedError. Any one thread.
        """
        with self.lock:
            due = [
                (queue, queue.dirty_files(), queue.end, queue.generation, queue.names_unsynced)
                for queue in self._dirty
                if queue.dirty_pages() >= least_pages
            ]
            for queue, *_ in due:
                queue.names_unsynced = False
        if len(due) < _MANY_DUE or not self._files.sync_all():
            for queue, starts, _, _, names_unsynced in due:
                for start in starts:
                    self._files.sync(queue.topic, queue.queue_id, start)
                if names_unsynced:
                    self._files.sync_names(queue.topic, queue.queue_id)
        with self.lock:
            for queue, _, end, generation, _ in due:
                queue.mark_flushed(end, generation)
                if not queue.is_dirty:
                    self._dirty.pop(queue, None)
        return len(due)


def _sort_by_queue(records: RecordArrays) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of the records that get units, by queue and in log order within each, and where
    in that order each queue begins."""
    rows = records.unit_records()
    topic_ids: Int64Array = records.topic_ids if rows is None else records.topic_ids[rows]
    queue_ids: Int64Array = records.queue_ids if rows is None else records.queue_ids[rows]
    if not len(queue_ids):
        return np.empty(0, np.intp), np.empty(0, np.intp)
    lowest = int(queue_ids.min())
    span = int(queue_ids.max()) - lowest + 1
    keys = topic_ids * span + (queue_ids - lowest)
    if len(records.topics) * span <= _RADIX_LIMIT:
        order = np.argsort(keys.astype(np.uint16), kind="stable")
    else:
        order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return (order if rows is None else rows[order]), starts


def _list_names(directory: str) -> list[str]:
    """Names of the directories in `directory`; none when it is missing."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        return []


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
