"""StoredQueueTable: what the tables of consume queues and of batch consume queues have in common.

Finding, publishing, deleting, cleaning and flushing queues, all under one lock, except for
fdatasync, which runs outside it. Changes are published to the queue table after the bytes are in
place. In process `store`. It must not know units, or who reads the queues.

Tested by tests/store/test_consume_queue_table.py.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from store.consume_queue_files import ConsumeQueueFiles, is_safe_topic
from store.published_queues import PublishedQueues
from store.resync_request import is_backup_name
from store.stored_queue import StoredQueue

if TYPE_CHECKING:
    from ipc.queue_table import QueueTableWriter

log = logging.getLogger(__name__)

QueueT = TypeVar("QueueT", bound=StoredQueue)

_QUEUE_ID: Final = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)
_LARGEST_QUEUE_ID: Final = (1 << 31) - 1
_MANY_DUE: Final = 64
"""From this many queues on, one call flushes them all: 80,000 new ones took minutes one by one, and
an orderly stop does not wait that long."""


class StoredQueueTable(ABC, Generic[QueueT]):
    """The queues by (topic, queue_id). Guarded by: `lock`, taken by every public method."""

    def __init__(
        self,
        files: ConsumeQueueFiles,
        publisher: QueueTableWriter,
        lock: threading.Lock,
        on_damaged: Callable[[QueueT], None] = lambda _queue: None,
    ) -> None:
        """on_damaged: see PublishedQueues."""
        self.lock: Final = lock
        self._files = files
        self._published: Final = PublishedQueues[QueueT](publisher, on_damaged)
        self._queues: dict[tuple[str, int], QueueT] = {}
        self._dirty: dict[QueueT, None] = {}
        """Those with something to flush."""
        self._refused: set[tuple[str, int]] = set()
        """Queues whose names would point outside the directory; each is logged once."""

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[QueueT]:
        return iter(list(self._queues.values()))

    @abstractmethod
    def _new(self, topic: str, queue_id: int) -> QueueT:
        """A queue of this table's kind."""

    def _is_unfinished(self, queue: QueueT) -> bool:
        """Whether the queue is being built, and not to be published before it is whole."""
        return False

    # -- queues --------------------------------------------------------------------------------

    def find(self, topic: str, queue_id: int) -> QueueT | None:
        """The queue; None if it has never had a unit. Read it under `lock`."""
        return self._queues.get((topic, queue_id))

    def _find_or_create(self, topic: str, queue_id: int) -> QueueT | None:
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

    def _add(self, topic: str, queue_id: int) -> QueueT:
        queue = self._queues[topic, queue_id] = self._new(topic, queue_id)
        return queue

    def _add_stored(self) -> None:
        """Those whose directories there are. Reads no file. Raises OSError."""
        self._files.open()
        for topic, queue_id in queue_directories(self._files.root):
            self._add(topic, queue_id)

    def max_phy_offset(self) -> int:
        """End of the newest record that has a unit in any queue; 0: there is none."""
        with self.lock:
            return max((queue.max_phy_offset for queue in self._queues.values()), default=0)

    def take_doubtful(self) -> dict[QueueT, int]:
        """The queues in which units may be missing, each with the log position from which on."""
        with self.lock:
            found = {
                queue: queue.doubtful_from
                for queue in self._queues.values()
                if queue.doubtful_from is not None
            }
            for queue in found:
                queue.doubtful_from = None
            return found

    def close(self) -> None:
        """Close all files; idempotent. Flush before."""
        with self.lock:
            self._files.close()

    # -- publishing ----------------------------------------------------------------------------

    def publish_all(self, *, min_phy_offset: int) -> None:
        """After recovery: correct every min offset and publish all queues."""
        with self.lock:
            for queue in self._queues.values():
                queue.correct_min_offset(min_phy_offset)
                self._published.publish(queue)

    def _publish_moved(self, moved: dict[QueueT, None]) -> None:
        """Units were appended to these. Under the lock."""
        for queue in moved:
            self._published.publish(queue)
            if queue.is_dirty:
                self._dirty[queue] = None

    # -- deletion ------------------------------------------------------------------------------

    def delete_topic(self, topic: str) -> int:
        """Delete all queues of `topic`; returns their number."""
        with self.lock:
            return self._destroy([queue for queue in self if queue.topic == topic])

    def delete_expired_queues(self, min_phy_offset: int, spared: Collection[str] = ()) -> int:
        """Delete queues (306) whose last record is before `min_phy_offset`, except for the topics
        in `spared`; returns their number."""
        with self.lock:
            expired = [queue for queue in self if queue.is_expired(min_phy_offset)]
            return self._destroy([queue for queue in expired if queue.topic not in spared])

    def _destroy(self, queues: Collection[QueueT]) -> int:
        for queue in queues:
            log.info("%r: deleted", queue)
            queue.destroy()
            self._published.publish(queue)
            self._forget(queue)
        return len(queues)

    def _forget(self, queue: QueueT) -> None:
        self._queues.pop((queue.topic, queue.queue_id), None)
        self._dirty.pop(queue, None)

    def clean_queue(self, queue: QueueT, min_phy_offset: int) -> bool:
        """Delete the queue's first file if its records are no longer in the commit log, correct and
        publish the min offset; True if a file was deleted."""
        with self.lock:
            if self._queues.get((queue.topic, queue.queue_id)) is not queue:
                return False
            if (
                self._is_unfinished(queue)
                or (queue.topic, queue.queue_id) in self._files.unwritable
            ):
                return False
            deleted = False
            with self._files.unwritable.passing_by((queue.topic, queue.queue_id)):
                deleted = queue.delete_first_expired(min_phy_offset)
            if queue.correct_min_offset(min_phy_offset) or deleted or not queue.whole:
                self._published.publish(queue, moved=False)
            return deleted

    # -- flushing ------------------------------------------------------------------------------

    def flush(self, least_pages: int) -> int:
        """Bring units to disk: of queues with at least `least_pages` new pages; 0 = of all.

        Returns how many queues were flushed. Raises FlushFailedError. Any one thread.
        """
        with self.lock:
            unwritable = self._files.unwritable
            due = [
                (queue, *queue.begin_flush())
                for queue in self._dirty
                if queue.bounds.dirty_pages() >= least_pages
                and (queue.topic, queue.queue_id) not in unwritable
            ]
        if len(due) < _MANY_DUE or not self._files.sync_all():
            for queue, starts, names_unsynced, _ in due:
                for start in starts:
                    self._files.sync(queue.topic, queue.queue_id, start)
                if names_unsynced:
                    self._files.sync_names(queue.topic, queue.queue_id)
        with self.lock:
            for queue, _, _, mark in due:
                queue.bounds.mark_flushed(mark)
                if not queue.is_dirty:
                    self._dirty.pop(queue, None)
        return len(due)


def queue_directories(root: Path) -> Iterator[tuple[str, int]]:
    """Topic and queue id of the directories below `root`. Raises OSError.

    The backup of a re-synchronised store, which is here in a mount point, is not a topic.
    """
    for topic in _list_names(str(root)):
        if is_backup_name(topic):
            continue
        if not _is_encodable(topic):
            log.warning("%s: directory %r ignored: not UTF-8", root.name, topic)
            continue
        for name in _list_names(f"{root}/{topic}"):
            if _QUEUE_ID.fullmatch(name) and int(name) <= _LARGEST_QUEUE_ID:
                yield topic, int(name)
            else:
                log.warning("%s: %s/%s ignored: no queue id", root.name, topic, name)


def _list_names(directory: str) -> list[str]:
    """Names of the directories in `directory`; none when it is missing."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
