"""ConsumeQueueTable: all consume queues of the store, built from batches of records.

Used in process `store`. The dispatch thread builds the queues, the flush and clean threads maintain
the files (stored_queue_table.py). A batch is sorted by queue once, so that each queue gets its
units in one write. It must not know what a record looks like, or who reads the queues. Follows the
consumeQueueTable of DefaultMessageStore and CommitLogDispatcherBuildConsumeQueue.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final

from store.consume_queue import ConsumeQueue
from store.consume_queue_files import ConsumeQueueFiles, is_safe_topic
from store.queue_jumps import QueueJumps
from store.queue_recovery import QueueRecovery
from store.queue_states import QueueStates, StatesCount
from store.record_arrays import RecordArrays
from store.stored_queue_table import StoredQueueTable
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE
from store.unit_runs import UnitRun, runs_of_units

if TYPE_CHECKING:
    from ipc.queue_table import QueueTableWriter

log = logging.getLogger(__name__)

_PROGRESS_STEP: Final = 500


class ConsumeQueueTable(StoredQueueTable[ConsumeQueue]):
    """See the module and StoredQueueTable."""

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
        super().__init__(files, publisher, threading.Lock(), self._note_damaged)
        self._on_deleted = on_deleted
        self._jumps: Final = QueueJumps(on_left_out)
        self.damaged: dict[ConsumeQueue, None] = {}
        """Queues with units that were found missing or wrong, until `take_damaged`."""
        self.on_damage: Callable[[], None] = lambda: None
        """Called, under the lock, when one is added."""
        self._left_out_end = 0
        """End of the last record that has no unit, since its queue offset cannot be."""

    def _new(self, topic: str, queue_id: int) -> ConsumeQueue:
        return ConsumeQueue(self._files, topic, queue_id)

    # -- life ----------------------------------------------------------------------------------

    def load(self) -> int:
        """Find the queues' directories; returns their number. Reads no file. Raises OSError."""
        with self.lock:
            self._add_stored()
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
        complete_until_ms: see QueueRecovery.recover. Raises WrongFileSizeError, OSError.
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

    def empty_late_starters(self) -> dict[ConsumeQueue, int]:
        """As take_doubtful, for queues that lack their first units, as dispatch has found: they are
        emptied to be built from the log's start."""
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
                self._publish_moved(moved)

    def reaches(self, topic: str, queue_id: int, phy_offset: int) -> bool:
        """Whether the queue has units of records up to `phy_offset`, or was not to have them. The
        dispatch thread only."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return (topic, queue_id) in self._refused
        return queue.bounds.max_phy_offset >= phy_offset or self._left_out_end >= phy_offset

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

    def _note_damaged(self, queue: ConsumeQueue) -> None:
        if queue not in self.damaged:
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
        self._published.renew(queue)
        self._published.publish(queue)

    def publish_compacted(
        self, topic: str, queue_id: int, generation: int, max_offset: int
    ) -> None:
        """The compaction log of a queue has grown, or has other files (another generation); what
        waits for the queue looks there again."""
        with self.lock:
            self._published.publish_compacted(topic, queue_id, generation, max_offset)

    # -- damage in the log ---------------------------------------------------------------------

    def blank_out(self, low: int, high: int) -> list[tuple[str, int, int]]:
        """The records in [low, high) of the log cannot be read: their units become blank ones.

        Returns topic, queue id and the queue offset behind the last of them for each queue that
        had any. Raises DiskFullError, StoreError.
        """
        found = []
        with self.lock:
            for queue in self._queues.values():
                if (queue.topic, queue.queue_id) in self._files.unwritable:
                    continue
                following = 0
                with self._files.unwritable.passing_by((queue.topic, queue.queue_id)):
                    following = queue.repair.blank_out(low, high)
                if following:
                    found.append((queue.topic, queue.queue_id, following))
                    self._dirty[queue] = None
                    self._published.renew(queue)
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
                if queue is not None and (run.topic, run.queue_id) not in self._files.unwritable:
                    with self._files.unwritable.passing_by((queue.topic, queue.queue_id)):
                        self._fill_blanks(queue, run, records.count)

    def _fill_blanks(self, queue: ConsumeQueue, run: UnitRun, most_missing: int) -> None:
        for offset, unit in enumerate(CQ_UNIT.iter_unpack(run.units), run.queue_offset):
            missing = offset - queue.max_offset
            if 0 <= missing < most_missing and unit[0] >= queue.max_phy_offset:
                queue.reserve(offset + 1)
            if queue.repair.fill_blank(offset, *unit):
                self._dirty[queue] = None
                self._published.renew(queue)
                self._published.publish(queue)

    def reserve(self, topic: str, queue_id: int, following: int) -> None:
        """The queue offsets before `following` are used up, whatever the log shows. Raises
        DiskFullError, StoreError."""
        with self.lock:
            queue = self._find_or_create(topic, queue_id)
            if queue is not None and queue.reserve(following):
                self._dirty[queue] = None
                self._published.publish(queue)

    def reserve_ends(self, states: QueueStates, log_end: int) -> None:
        """The log, dispatched up to `log_end`, has damage that may hide a queue's last records:
        what an earlier stop knew of it counts. Raises DiskFullError, StoreError."""
        with self.lock:
            for queue in self:
                state = states.find(queue.topic, queue.queue_id)
                if (
                    state is not None
                    and state.max_phy_offset <= log_end
                    and QueueRecovery(queue).falls_short_of(state)
                    and queue.reserve(state.end // CQ_UNIT_SIZE)
                ):
                    self._dirty[queue] = None
                    self._published.publish(queue)

    # -- deletion ------------------------------------------------------------------------------

    def _destroy(self, queues: Collection[ConsumeQueue]) -> int:
        if queues:
            self._on_deleted([(queue.topic, queue.queue_id) for queue in queues])
        return super()._destroy(queues)

    def _forget(self, queue: ConsumeQueue) -> None:
        super()._forget(queue)
        self._jumps.forget(queue)

    # -- queues that become batch queues, and back ---------------------------------------------

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
                    self._published.publish(queue)

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
                self._forget(queue)


def _recover(
    queue: ConsumeQueue, states: QueueStates, count: StatesCount, complete_until_ms: int
) -> bool:
    """Load its files or believe its state; whether they were read."""
    recovery = QueueRecovery(queue)
    state = states.find(queue.topic, queue.queue_id)
    if state is not None and count is not StatesCount.AT_LEAST:
        if recovery.restore(state, states.min_phy_offset):
            return False
        if count is StatesCount.FOR_OFFSETS:
            recovery.adopt(state, states.min_phy_offset)
            return False
    recovery.recover(complete_until_ms)
    if state is not None and recovery.falls_short_of(state):
        log.error(
            "%r: units are missing: it ended at %s at the last stop",
            queue,
            state.end // CQ_UNIT_SIZE,
        )
        queue.doubt_end()
    return True
