"""BatchConsumeQueueTable: the batch consume queues of the store, built from the records' chunks.

Used in process `store`; shares the lock of ConsumeQueueTable, since both publish to one queue
table: a queue is of one kind or the other. It decides which: a record belongs here when its topic
has queue.type=BatchCQ; when nothing is known of its topic, if it is an inner batch or the topic has
batch queues. What a queue lacks after a crash is dispatched again. It must not know who reads the
queues. Corresponds to the BatchCQ side of RocketMQ's ConsumeQueueStore.

Tested by tests/store/test_few_records.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from store.batch_consume_queue import BatchConsumeQueue
from store.batch_topics import BatchTopics
from store.batch_units import BatchUnit
from store.commit_log_reader import CommitLogReader
from store.consume_queue import ConsumeQueue
from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_table import ConsumeQueueTable
from store.log_fences import LogFences
from store.message_codec import TRANSACTION_COMMIT, TRANSACTION_MASK
from store.record_arrays import RecordArrays
from store.stored_queue_table import StoredQueueTable
from store.unit_check import is_right

if TYPE_CHECKING:
    from ipc.queue_table import QueueTableWriter

log = logging.getLogger(__name__)

_LOOK_MS: Final = 1_000
_MOST_WRONG: Final = 100
_NOWHERE: Final = (1 << 63) - 1
"""Behind the end of every log."""

Rebuild = Callable[[int, int, Callable[[RecordArrays], None]], None]
"""(start, end, dispatcher): the records of [start, end) of the log, once more."""


class BatchConsumeQueueTable(StoredQueueTable[BatchConsumeQueue]):
    """See the module and StoredQueueTable. `lock` is that of ConsumeQueueTable."""

    def __init__(
        self,
        files: ConsumeQueueFiles,
        publisher: QueueTableWriter,
        simple: ConsumeQueueTable,
        topics: BatchTopics,
        rebuild: Rebuild,
        now_ms: Callable[[], int],
    ) -> None:
        """simple: whose lock is used, and whose queues go when a topic turns out to have batch
        queues: those are then built by `rebuild`. now_ms: monotonic."""
        super().__init__(files, publisher, simple.lock)
        self._simple = simple
        self._topics = topics
        self._rebuild = rebuild
        self._now_ms = now_ms
        self._looked_ms = -_LOOK_MS
        self._seen: set[bytes] = set()
        """Topics that were judged since the last look at the topics' settings."""
        self._must_convert = False
        """The settings are others than when the queues were last looked through."""
        self._unfinished: Collection[bytes] = ()
        """Topics whose queues `convert` builds: what they hold is not published yet."""

    def _new(self, topic: str, queue_id: int) -> BatchConsumeQueue:
        return BatchConsumeQueue(self._files, topic, queue_id)

    # -- life ----------------------------------------------------------------------------------

    def recover(
        self, max_phy_offset: int, source: CommitLogReader, *, doubts_disk: bool = False
    ) -> None:
        """Load the files; drop the units of records that do not end before `max_phy_offset`, and
        last ones that do not name their record. doubts_disk: see StoredQueue.doubt_disk. Raises
        WrongFileSizeError, OSError."""
        with self.lock:
            self._add_stored()
            for queue in self:
                queue.recover()
                queue.truncate(max_phy_offset)
                _drop_wrong_end(queue, source)
                if doubts_disk:
                    queue.doubt_disk()
                if queue.is_dirty:
                    self._dirty[queue] = None
            self._topics.refresh()
        if self._queues:
            log.info("%s batch consume queues", len(self._queues))

    def drop_torn_units(self, start: int, fences: LogFences) -> None:
        """After a crash, of records from `start` on, which are dispatched again unless they are
        inside of a fence: the last unit of a queue may have been written in part."""
        with self.lock:
            for queue in self:
                unit = queue.last_unit
                if unit is None or fences.find(unit.phy_offset) is not None:
                    continue
                if unit.phy_offset >= start:
                    queue.drop_last()
                    queue.doubtful_from = None

    def drop_unpublished(self, published: Callable[[str, int], tuple[int, int]]) -> None:
        """Drop the units behind `published` (min and max offset of a queue): they are built
        again."""
        with self.lock:
            for queue in self:
                queue.truncate_to_offset(published(queue.topic, queue.queue_id)[1])

    def dispatch_doubtful(self, end: int, low: int) -> None:
        """Have the units that recovery may have lost made again, from the records in [low, end)."""
        doubtful = self.take_doubtful()
        start = max(min(doubtful.values(), default=end), low)
        if start < end:
            log.warning("%s batch queues: looking for units from %s on", len(doubtful), start)
            self._rebuild(start, end, lambda records: self._dispatch(records, doubtful))

    def mend_gaps(self, end: int, low: int, fences: LogFences) -> None:
        """After the dispatch of a start, with nobody reading: queues that got units behind missing
        ones (their files were deleted) are built from the start of the log, but for those where a
        fence says why."""
        with self.lock:
            for queue in self:
                if queue.gap is not None and not _is_explained(queue.gap, fences):
                    queue.empty()
                    queue.doubtful_from = 0
        self.dispatch_doubtful(end, low)

    def empty_late_starters(self, min_phy_offset: int) -> None:
        """Units are missing: queues that lack their first files are emptied, to be built from the
        log's start. Those without a record in the log keep their place."""
        with self.lock:
            for queue in self:
                if queue.bounds.start > 0 and not queue.is_expired(min_phy_offset):
                    queue.empty()

    def convert(self, end: int) -> None:
        """Topics whose settings were known only after their records, up to `end`, were given units
        in queues of the other kind: build the right ones in their place. Raises DiskFullError,
        StoreError; called again then, it begins anew."""
        self._must_convert = True
        self._to_simple(end)
        self._to_batch(end)
        self._must_convert = False

    def _to_simple(self, end: int) -> None:
        """What a topic that was deleted has left, where it was made again with simple queues: its
        batch queues go. Single messages at their ends may be the new topic's."""
        wrong = [queue for queue in self if self._topics.says_simple(queue.topic)]
        if not wrong:
            return
        with self.lock:
            starts = {queue: queue.singles_from() for queue in wrong}
        begun = {queue: start for queue, start in starts.items() if start is not None}
        log.warning("%s: queue.type is SimpleCQ: deleted, but for single messages", wrong)
        made = self._simple.make([(queue.topic, queue.queue_id) for queue in begun])
        start = min(begun.values(), default=end)
        if start < end:
            self._rebuild(start, end, lambda records: self._dispatch_singles(records, made))
            self._simple.flush(0)
        with self.lock:
            self._destroy(wrong)
        self._simple.publish_anew([(queue.topic, queue.queue_id) for queue in wrong])

    def _dispatch_singles(self, records: RecordArrays, only: Collection[ConsumeQueue]) -> None:
        if records.inner_batches is not None:
            records.in_batch_queues = np.zeros(records.count, np.bool_)
            records.in_batch_queues[list(records.inner_batches)] = True
        self._simple.dispatch(records, only)

    def _to_batch(self, end: int) -> None:
        """Readers see the old queues until the new ones are whole."""
        simple = self._simple.queues_of(self._topics.names)
        if not simple:
            return
        only = {queue.topic.encode() for queue in simple}
        self._unfinished = only
        start = min(self._simple.first_phy_offset(simple), self._begin_anew(only))
        log.warning("%s: queue.type is BatchCQ: built again from %s on", simple, start)
        if start < end:
            self._rebuild(start, end, lambda records: self._dispatch(records, None, only))
        # A power failure must not take both kinds: what is older is not dispatched again.
        self.flush(0)
        self._simple.give_up(simple)
        with self.lock:
            self._unfinished = ()
            for queue in self._of_topics(only):
                queue.emptied = False
                self._published.publish(queue)
                self._published.renew(queue)

    def _begin_anew(self, topics: Collection[bytes]) -> int:
        """Empty the queues of `topics`; the log position of the first record that had a unit."""
        first = _NOWHERE
        with self.lock:
            for queue in self._of_topics(topics):
                unit = queue.first_unit
                first = min(first, unit.phy_offset if unit is not None else 0)
                queue.empty()
        return first

    def _of_topics(self, topics: Collection[bytes]) -> list[BatchConsumeQueue]:
        return [queue for queue in self if queue.topic.encode() in topics]

    @property
    def unit_count(self) -> int:
        """Units of all queues."""
        with self.lock:
            return sum(queue.unit_count for queue in self)

    @property
    def lacks_all(self) -> bool:
        """Whether there are topics with batch queues, but not one queue."""
        return bool(self._topics.names) and not self._queues

    # -- building ------------------------------------------------------------------------------

    def dispatch(self, records: RecordArrays) -> None:
        """Append the units of those among `records` that belong into batch queues, and leave the
        others to ConsumeQueueTable, which comes next. Raises DiskFullError, StoreError."""
        if not records.count:
            return
        if self._is_due or not self._seen.issuperset(records.topics):
            self._look(records)
        self._dispatch(records)

    def concerns(self, topics: Collection[bytes]) -> bool:
        """Whether `dispatch` must see records of `topics` that are no inner batches: it may find
        something to do."""
        return (
            bool(self._topics.names or self._queues)
            or self._is_due
            or not self._seen.issuperset(topics)
        )

    @property
    def _is_due(self) -> bool:
        return self._must_convert or self._now_ms() - self._looked_ms >= _LOOK_MS

    def _look(self, records: RecordArrays) -> None:
        """Look at the topics' settings again: some time has passed, or a topic is new here."""
        self._looked_ms = self._now_ms()
        changed = self._topics.refresh() or self._must_convert
        if changed or any(self._topics.says_simple(topic) for topic, _ in self._queues):
            self._seen.clear()
            self.convert(int(records.phy_offsets[0]))
        self._seen.update(records.topics)

    def _dispatch(
        self,
        records: RecordArrays,
        only_queues: Collection[BatchConsumeQueue] | None = None,
        only_topics: Collection[bytes] | None = None,
    ) -> None:
        if not self._mark(records):
            return
        moved: dict[BatchConsumeQueue, None] = {}
        try:
            for name, queue_id, unit in _units(records):
                if only_topics is not None and name not in only_topics:
                    continue
                topic = str(name, "utf-8", "replace")
                with self.lock:
                    if only_queues is not None and self.find(topic, queue_id) not in only_queues:
                        continue
                    queue = self._find_or_create(topic, queue_id)
                    if queue is not None and queue.append(unit):
                        moved[queue] = None
        finally:
            with self.lock:
                self._dirty.update(moved)
                if only_topics is None:
                    self._publish_moved(moved)

    def _mark(self, records: RecordArrays) -> bool:
        """Set records.in_batch_queues; whether there are any."""
        names = self._topics.names
        if not names and not self._queues and records.inner_batches is None:
            return False
        known = names | {topic for topic, _ in self._queues}
        topics = [str(topic, "utf-8", "replace") for topic in records.topics]
        simple = {
            number
            for number, topic in enumerate(topics)
            if (topic in known or records.inner_batches) and self._topics.says_simple(topic)
        }
        wanted = [
            number for number, topic in enumerate(topics) if topic in known and number not in simple
        ]
        if not wanted and records.inner_batches is None:
            return False
        marks = np.isin(records.topic_ids, wanted)
        for row in records.inner_batches or ():
            marks[row] = int(records.topic_ids[row]) not in simple
        if not marks.any():
            return False
        records.in_batch_queues = marks
        return True

    # -- deletion ------------------------------------------------------------------------------

    def delete_topic(self, topic: str) -> int:
        """See StoredQueueTable."""
        deleted = super().delete_topic(topic)
        with self.lock:
            self._seen.discard(topic.encode())
        return deleted

    def _is_unfinished(self, queue: BatchConsumeQueue) -> bool:
        return queue.topic.encode() in self._unfinished

    # -- flushing ------------------------------------------------------------------------------

    def write_again(self, phy_offset: int) -> None:
        """The units of all records from `phy_offset` on are written again and due to be flushed.
        Raises DiskFullError, StoreError."""
        with self.lock:
            for queue in self:
                queue.write_again(phy_offset)
                if queue.is_dirty:
                    self._dirty[queue] = None


def _units(records: RecordArrays) -> Iterator[tuple[bytes, int, BatchUnit]]:
    """Topic, queue id and unit of the marked records that get one, in log order."""
    assert records.in_batch_queues is not None
    kinds = records.sys_flags & TRANSACTION_MASK
    consumed = (kinds == 0) | (kinds == TRANSACTION_COMMIT)
    inner = records.inner_batches or {}
    for row in np.flatnonzero(records.in_batch_queues & consumed).tolist():
        base, count = inner.get(row) or (int(records.queue_offsets[row]), 1)
        yield (
            records.topics[int(records.topic_ids[row])],
            int(records.queue_ids[row]),
            BatchUnit(
                int(records.phy_offsets[row]),
                int(records.sizes[row]),
                int(records.tags_codes[row]),
                int(records.store_timestamps[row]),
                base,
                count,
            ),
        )


def _is_explained(gap: tuple[int, int], fences: LogFences) -> bool:
    begin, end = gap
    return begin > 0 and any(begin <= fence.start < end for fence in fences)


def _drop_wrong_end(queue: BatchConsumeQueue, source: CommitLogReader) -> None:
    """The last unit says where a queue continues: it must name its record, but for one inside of a
    fence, whose queue offsets must not be given to other messages."""
    topic, dropped = queue.topic.encode(), 0
    while (unit := queue.last_unit) is not None and dropped < _MOST_WRONG:
        if source.fences.find(unit.phy_offset) is not None:
            break
        if is_right(source, unit.phy_offset, unit.size, topic, queue.queue_id, unit.base):
            break
        queue.drop_last()
        dropped += 1
    if dropped == _MOST_WRONG:
        queue.empty()
        queue.doubtful_from = 0
    if dropped:
        log.error("%r: wrong units at the end were dropped: %s", queue, dropped)
