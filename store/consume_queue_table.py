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
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from store.consume_queue import ConsumeQueue
from store.consume_queue_files import ConsumeQueueFiles, is_safe_topic
from store.queue_jumps import QueueJumps
from store.queue_states import QueueStates, StatesCount
from store.record_arrays import RecordArrays
from store.resync_request import is_backup_name
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE
from store.unit_runs import UnitRun, runs_of_units

if TYPE_CHECKING:
    from ipc.queue_table import QueueTableWriter

log = logging.getLogger(__name__)

_QUEUE_ID: Final = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)
_LARGEST_QUEUE_ID: Final = (1 << 31) - 1
_PROGRESS_STEP: Final = 500
_MANY_DUE: Final = 64
"""From this many queues on, one call flushes them all: 80,000 new ones took minutes one by one, and
an orderly stop does not wait that long."""


class ConsumeQueueTable:
    """The queues by (topic, queue_id). Guarded by: `lock`, taken by every public method."""

    def __init__(
        self,
        files: ConsumeQueueFiles,
        publisher: QueueTableWriter,
        *,
        on_left_out: Callable[[], None] = lambda: None,
        on_deleted: Callable[[Collection[tuple[str, int]]], None] = lambda _queues: None,
    ) -> None:
        """on_left_out: a record got no unit, since its queue offset cannot be (queue_jumps.py).
        on_deleted: called before queues are deleted on request."""
        self._on_deleted = on_deleted
        self._files = files
        self._publisher = publisher
        self.lock = threading.Lock()
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._dirty: dict[ConsumeQueue, None] = {}
        self._jumps: Final = QueueJumps(on_left_out)
        self.damaged: dict[ConsumeQueue, None] = {}
        """Queues with units that were found missing or wrong, until `take_damaged`."""
        self.on_damage: Callable[[], None] = lambda: None
        """Called, under the lock, when one is added."""
        self._refused: set[tuple[str, int]] = set()
        """Queues whose names would point outside the directory; each is logged once."""
        self._left_out_end = 0
        """End of the last record that has no unit, since its queue offset cannot be."""

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
        finish: Callable[[ConsumeQueue, bool], None] = lambda _queue, _was_read: None,
        *,
        min_phy_offset: int = 0,
        states: QueueStates | None = None,
        count: StatesCount = StatesCount.AT_LEAST,
        add_missing: bool = False,
        complete_until_ms: int = 0,
    ) -> None:
        """Load the files of all queues. How far `states` are believed says `count`; add_missing:
        nobody else can have deleted a queue since.

        on_progress(done, all) is called from time to time. finish: does what else recovery has to
        do with a queue, and hears whether its files were read; they need not be opened again then.
        complete_until_ms: see ConsumeQueue.recover. Raises WrongFileSizeError, OSError.
        """
        states = states or QueueStates()
        read = 0
        with self.lock:
            if add_missing:
                self._add_missing(states)
            for done, queue in enumerate(self._queues.values()):
                if on_progress is not None and done % _PROGRESS_STEP == 0:
                    on_progress(done, len(self._queues))
                was_read = _recover(queue, states, count, complete_until_ms)
                read += was_read
                queue.correct_min_offset(min_phy_offset)
                finish(queue, was_read)
                if queue.is_dirty:
                    self._dirty[queue] = None
            if on_progress is not None:
                on_progress(len(self._queues), len(self._queues))
        log.info("%s consume queues, %s of them had to be read", len(self), read)

    def _add_missing(self, states: QueueStates) -> None:
        """The queues of the last stop whose directories are gone."""
        for topic, by_id in states.queues.items():
            for queue_id, state in by_id.items():
                if state.end and (topic, queue_id) not in self._queues and is_safe_topic(topic):
                    log.error("queue %s/%s: its directory is missing", topic, queue_id)
                    self._add(topic, queue_id)

    def take_doubtful(self) -> dict[ConsumeQueue, int]:
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

    def empty_late_starters(self) -> dict[ConsumeQueue, int]:
        """The same for queues that lack their first units, as dispatch has found: they are emptied
        to be built from the log's start."""
        with self.lock:
            found = [queue for queue in self._queues.values() if queue.starts_late]
            for queue in found:
                queue.empty()
                queue.starts_late = False
            return dict.fromkeys(found, 0)

    def take_damaged(self) -> list[ConsumeQueue]:
        """The queues to be rebuilt that were found since the last call."""
        with self.lock:
            found = list(self.damaged)
            self.damaged.clear()
        return found

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

    def dispatch(self, records: RecordArrays, only: Collection[ConsumeQueue] | None = None) -> None:
        """Append the units of `records`, or those of the queues `only`, and publish the changes.

        Units that already exist are skipped. Raises DiskFullError, StoreError.
        """
        if records.count:
            self.append_runs(runs_of_units(records), only)

    def append_runs(
        self, runs: Iterable[UnitRun], only: Collection[ConsumeQueue] | None = None
    ) -> None:
        """The same for units that are sorted by queue already."""
        moved: dict[ConsumeQueue, None] = {}
        with self.lock:
            try:
                self._build(runs, moved, only)
            finally:
                # Even if the disk fills up half-way: the same records will not move them again.
                for queue in moved:
                    self._publish(queue)
                self._dirty.update(moved)

    def reaches(self, topic: str, queue_id: int, phy_offset: int) -> bool:
        """Whether the queue has units of records up to `phy_offset`, or was not to have them. The
        dispatch thread only."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return (topic, queue_id) in self._refused
        return queue.max_phy_offset >= phy_offset or self._left_out_end >= phy_offset

    def _build(
        self,
        runs: Iterable[UnitRun],
        moved: dict[ConsumeQueue, None],
        only: Collection[ConsumeQueue] | None,
    ) -> None:
        for run in runs:
            if only is None:
                queue = self._find_or_create(run.topic, run.queue_id)
            else:
                queue = self._queues.get((run.topic, run.queue_id))
                queue = queue if queue in only else None
            if queue is None:
                continue
            if run.queue_offset > queue.max_offset and not self._jumps.allows(
                queue, run.queue_offset, len(run.units) // CQ_UNIT_SIZE, run.first_end
            ):
                self._left_out_end = max(self._left_out_end, run.last_end)
                continue
            if queue.append(run.units, run.queue_offset, run.first_end, run.last_end):
                moved[queue] = None

    def _publish(self, queue: ConsumeQueue, *, moved: bool = True) -> None:
        publisher = self._publisher
        if queue.row < 0:
            row = publisher.row(queue.topic, queue.queue_id)
            queue.row = -1 if row is None else row
        if queue.row >= 0:
            if queue.emptied:
                publisher.reset(queue.row)
                queue.emptied = False
            publisher.set_offsets(queue.row, queue.min_offset, queue.max_offset)
            if moved:
                publisher.mark_moved(queue.row)
        if not queue.whole and queue not in self.damaged:
            self.damaged[queue] = None
            self.on_damage()

    def publish_rebuilt(self, queue: ConsumeQueue, min_phy_offset: int) -> None:
        """Units of `queue` were rewritten: readers open its files again, held pulls run again.
        Call it under the lock."""
        if self._queues.get((queue.topic, queue.queue_id)) is not queue:
            return
        self._dirty[queue] = None
        queue.whole = True
        queue.correct_min_offset(min_phy_offset)
        self._renew(queue)
        self._publish(queue)

    def publish_compacted(
        self, topic: str, queue_id: int, generation: int, max_offset: int
    ) -> None:
        """The compaction log of a queue has grown, or has other files (another generation); what
        waits for the queue looks there again."""
        with self.lock:
            row = self._publisher.row(topic, queue_id)
            if row is None:
                return
            self._publisher.set_compacted(row, generation, max_offset)
            self._publisher.mark_moved(row)

    def _renew(self, queue: ConsumeQueue) -> None:
        """Units that readers may have read before were written over."""
        if queue.row >= 0:
            self._publisher.renew(queue.row)

    # -- truncation and deletion ---------------------------------------------------------------

    def blank_out(self, low: int, high: int) -> list[tuple[str, int, int]]:
        """The records in [low, high) of the log cannot be read: their units become blank ones.

        Returns topic, queue id and the queue offset behind the last of them for each queue that
        had any. Raises DiskFullError, StoreError.
        """
        found = []
        with self.lock:
            for queue in self._queues.values():
                following = queue.blank_out(low, high)
                if following:
                    found.append((queue.topic, queue.queue_id, following))
                    self._dirty[queue] = None
                    self._renew(queue)
        return found

    def ends_behind(self, low: int) -> list[tuple[str, int, int]]:
        """Topic, queue id and max offset of each queue that has a record behind `low`."""
        with self.lock:
            return [
                (queue.topic, queue.queue_id, queue.max_offset)
                for queue in self._queues.values()
                if queue.max_phy_offset > low
            ]

    def fill_blanks(self, records: RecordArrays) -> None:
        """These records can be read again: units that were made blank name them. A queue that ended
        before them, for nothing of it is behind them in the log, gets them at its end. Raises
        DiskFullError, StoreError."""
        with self.lock:
            for run in runs_of_units(records):
                queue = self._queues.get((run.topic, run.queue_id))
                if queue is not None:
                    self._fill_blanks(queue, run, records.count)

    def _fill_blanks(self, queue: ConsumeQueue, run: UnitRun, most_missing: int) -> None:
        for offset, unit in enumerate(CQ_UNIT.iter_unpack(run.units), run.queue_offset):
            missing = offset - queue.max_offset
            if 0 <= missing < most_missing and unit[0] >= queue.max_phy_offset:
                queue.reserve(offset + 1)
            if queue.fill_blank(offset, *unit):
                self._dirty[queue] = None
                self._renew(queue)
                self._publish(queue)

    def reserve(self, topic: str, queue_id: int, following: int) -> None:
        """The queue offsets before `following` are used up, whatever the log shows. Raises
        DiskFullError, StoreError."""
        with self.lock:
            queue = self._find_or_create(topic, queue_id)
            if queue is not None and queue.reserve(following):
                self._dirty[queue] = None
                self._publish(queue)

    def reserve_ends(self, states: QueueStates, log_end: int) -> None:
        """The log, which ends at `log_end`, has damage that may hide the last records of a queue:
        what an earlier stop knew of it counts. Raises DiskFullError, StoreError."""
        with self.lock:
            for queue in self:
                state = states.find(queue.topic, queue.queue_id)
                if (
                    state is not None
                    and state.max_phy_offset <= log_end
                    and queue.falls_short_of(state)
                    and queue.reserve(state.end // CQ_UNIT_SIZE)
                ):
                    self._dirty[queue] = None
                    self._publish(queue)

    def delete_topic(self, topic: str) -> int:
        """Delete all queues of `topic`; returns their number."""
        with self.lock:
            return self._destroy([queue for queue in self if queue.topic == topic])

    def delete_expired_queues(self, min_phy_offset: int, spared: Collection[str]) -> int:
        """Delete queues (306) whose last record is before `min_phy_offset`, except for the topics
        in `spared` (the schedule topic); returns their number."""
        with self.lock:
            expired = [queue for queue in self if queue.is_expired(min_phy_offset)]
            return self._destroy([queue for queue in expired if queue.topic not in spared])

    def _destroy(self, queues: list[ConsumeQueue]) -> int:
        if queues:
            self._on_deleted([(queue.topic, queue.queue_id) for queue in queues])
        for queue in queues:
            log.info("%r: deleted", queue)
            queue.destroy()
            self._publish(queue)
            del self._queues[queue.topic, queue.queue_id]
            self._forget(queue)
        return len(queues)

    def _forget(self, queue: ConsumeQueue) -> None:
        self._jumps.forget(queue)
        self._dirty.pop(queue, None)

    def make(self, names: Collection[tuple[str, int]]) -> list[ConsumeQueue]:
        """The queues of these names, made where there are none; of names that can be."""
        with self.lock:
            found = [self._find_or_create(topic, queue_id) for topic, queue_id in names]
        return [queue for queue in found if queue is not None]

    def publish_anew(self, names: Collection[tuple[str, int]]) -> None:
        """Those of these queues that are here: their rows told of others meanwhile."""
        with self.lock:
            for name in names:
                if (queue := self._queues.get(name)) is not None:
                    self._publish(queue)

    def queues_of(self, topics: Collection[str]) -> list[ConsumeQueue]:
        """The queues of these topics."""
        return [queue for queue in self if queue.topic in topics] if topics else []

    def first_phy_offset(self, queues: Collection[ConsumeQueue]) -> int:
        """Log position of the first record that has a unit in one of `queues`; 0: unknown."""
        with self.lock:
            units = [queue.read_units(queue.start_offset, 1) for queue in queues]
        return min((int(each[0]["phy_offset"]) if len(each) else 0 for each in units), default=0)

    def give_up(self, queues: Collection[ConsumeQueue]) -> None:
        """Delete `queues` and tell no reader: batch queues have taken their place."""
        with self.lock:
            self._on_deleted([(queue.topic, queue.queue_id) for queue in queues])
            for queue in queues:
                queue.destroy()
                self._queues.pop((queue.topic, queue.queue_id), None)
                self._forget(queue)

    def clean_queue(self, queue: ConsumeQueue, min_phy_offset: int) -> bool:
        """See QueuesToClean."""
        with self.lock:
            if self._queues.get((queue.topic, queue.queue_id)) is not queue:
                return False
            deleted = queue.delete_first_expired(min_phy_offset)
            if queue.correct_min_offset(min_phy_offset) or deleted or not queue.whole:
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


def _recover(
    queue: ConsumeQueue, states: QueueStates, count: StatesCount, complete_until_ms: int
) -> bool:
    """Load its files or believe its state; whether they were read."""
    state = states.find(queue.topic, queue.queue_id)
    if state is not None and count is not StatesCount.AT_LEAST:
        if queue.restore(state, states.min_phy_offset):
            return False
        if count is StatesCount.FOR_OFFSETS:
            queue.adopt(state, states.min_phy_offset)
            return False
    queue.recover(complete_until_ms)
    if state is not None and queue.falls_short_of(state):
        log.error(
            "%r: units are missing: it ended at %s at the last stop",
            queue,
            state.end // CQ_UNIT_SIZE,
        )
        queue.doubt_end()
    return True


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
