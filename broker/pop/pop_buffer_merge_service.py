"""PopBufferMergeService: the buffer of check points, between Pops and what outlives a process.

Runs on the loop thread of `remoting`, on masters only. A pop's check point stays here for some
seconds; a message acknowledged meanwhile costs no record. What is not acknowledged by then is
stored as a check point of the rest. The offset of a group in a queue moves to the next offset of a
pop when that pop and all before it are settled: wholly acknowledged, or stored and flushed. A
message whose invisible time was changed is settled with its new check point. All of that is decided
in Pops; here its effects are carried out.

RocketMQ's service (off by default there) loses its buffer in a crash. Here each change is mirrored
in PopJournal before the answer leaves: killed processes forget nothing, and what an OS crash takes
stands before no committed offset, so it is handed out again. Times are ms of the wall clock, as in
the handles. Knows no request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.pop.buffered_pops import OffsetQueue, PopCheckPointWrapper, QueueKey
from broker.pop.check_point import CheckPoint, CheckPointKey
from broker.pop.pop_check_point import stored_point
from broker.pop.pop_effects import Commit, FreeQueue, FreeRow, SetBits, SetStored
from broker.pop.pop_journal import JournalRow, PopJournal
from broker.pop.pop_limits import PopLimits
from broker.pop.pop_recovery import Found, recover
from broker.pop.pops import Pops
from broker.pop.revive_records import ReviveRecords
from broker.settings.broker_config import BrokerConfig

log = logging.getLogger(__name__)

SCAN_MS: Final = 20


class PopBufferMergeService:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        settings: BrokerConfig,
        limits: PopLimits,
        journal: PopJournal,
        records: ReviveRecords,
        offsets: ConsumerOffsetManager,
        now_ms: Callable[[], int],
        flushed_offset: Callable[[], int],
    ) -> None:
        """limits: what a row of the journal may hold. now_ms: wall clock. flushed_offset: of the
        commit log."""
        self.pops = Pops(settings)
        """Another one where this broker leads no more (PopPath)."""
        self._settings = settings
        self._limits = limits
        self._journal = journal
        self._records = records
        self._offsets = offsets
        self._now_ms = now_ms
        self._flushed_offset = flushed_offset
        self.on_work: Callable[[], None] = lambda: None
        """Called when `scan` has something to do. Set before the first pop."""
        self.let_go = 0
        """Check points of the journal that were dropped, or given other times, at the start."""

    @property
    def check_point_count(self) -> int:
        """Check points in the buffer."""
        return self.pops.check_point_count

    @property
    def offset_count(self) -> int:
        """Pops whose offset has not moved yet."""
        return sum(len(queue.waits) for queue in self.pops.queues.values())

    def latest_offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Where the next pop of a queue begins, as far as pops decide it; None without any lately.
        Any thread."""
        queue = self.pops.queues.get((topic, group, queue_id))
        return None if queue is None else queue.latest

    def popping(self) -> set[tuple[str, str]]:
        """(group, topic) of the pops of late. Any thread."""
        return {(group, topic) for topic, group, _ in list(self.pops.queues)}

    def use(self, settings: BrokerConfig, limits: PopLimits) -> None:
        """Apply changed settings."""
        self._settings = self.pops.settings = settings
        self._limits = limits

    def recover(self, log_end: int, queue_end: Callable[[str, int], int | None]) -> None:
        """Rebuild from the journal; the log is open. log_end: its published end. queue_end: the
        next queue offset of a queue, None for one without messages."""
        queues, rows = self._journal.open()
        found = Found(self._limits, self._now_ms(), log_end, queue_end, self._stored_offset)
        for what, fault, is_dropped in recover(self.pops, queues, rows, found):
            self.let_go += isinstance(what, JournalRow)
            if is_dropped:
                log.warning("pop journal: dropped %s: %s", what, fault)
            else:
                log.error("pop journal: %s is not valid: %s", what, fault)
        if rows:
            log.info("pop journal: %s rows of %s queues", len(rows), len(queues))
        self._carry_out()

    # -- what Pops wants done ------------------------------------------------------------------

    def _carry_out(self) -> None:
        """In this order: a kill in between leaves what can be taken up again."""
        effects, journal = self.pops.effects, self._journal
        while effects:
            effect = effects.popleft()
            if isinstance(effect, Commit):
                self._commit(effect.queue, effect.offset)
                for row in effect.rows:
                    journal.free(row)
            elif isinstance(effect, SetBits):
                journal.set_bits(effect.row, effect.bits)
            elif isinstance(effect, FreeRow):
                journal.free(effect.row)
            elif isinstance(effect, SetStored):
                journal.set_stored(effect.row, effect.end)
            elif isinstance(effect, FreeQueue):
                journal.free_queue(effect.number)
            else:
                self._store(effect.wrapper, effect.left)

    def _stored_offset(self, key: QueueKey) -> int | None:
        topic, group, queue_id = key
        return self._offsets.query_offset(group, topic, queue_id)

    def _commit(self, queue: OffsetQueue, offset: int) -> None:
        topic, group, queue_id = queue.key
        stored = self._offsets.query_offset(group, topic, queue_id)
        queue.committed = offset = max(offset, -1 if stored is None else stored)
        self._journal.set_committed(queue.number, offset)
        self._offsets.commit_offset("PopBufferMergeService", group, topic, queue_id, offset)

    def _store(self, wrapper: PopCheckPointWrapper, left: CheckPoint) -> None:
        self._records.put_check_point(
            stored_point(left, self._limits.broker_name),
            left.revive_queue_id,
            lambda end: self._on_stored(wrapper, end),
            lambda remark: self._on_refused(wrapper, remark),
        )

    def _on_stored(self, wrapper: PopCheckPointWrapper, end: int) -> None:
        row = self.pops.stored(wrapper, end)
        if row >= 0:
            self._journal.set_stored(row, end)
            self.on_work()

    def _on_refused(self, wrapper: PopCheckPointWrapper, remark: str) -> None:
        if self.pops.refused(wrapper, self._now_ms()):
            log.warning("check point of %s is not stored yet: %s", wrapper.point, remark)
            self.on_work()

    # -- pops ----------------------------------------------------------------------------------

    def pop_offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Where the next pop of a queue begins; None: the group has no offset there yet. An offset
        that somebody set back counts: what was handed out after it is forgotten here."""
        stored = self._offsets.query_offset(group, topic, queue_id)
        queue = self.pops.queues.get((topic, group, queue_id))
        if queue is None:
            return stored
        offset = queue.next_offset(stored)
        if offset is None:
            self.clear_offset_queue(topic, group, queue_id)
            return stored
        return offset

    def can_add(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether a pop of the queue has room here."""
        queue = self.pops.queues.get((topic, group, queue_id))
        return queue is None or len(queue.waits) < self._settings.pop_ck_offset_max_queue_size

    def add(self, point: CheckPoint) -> bool:
        """A pop took messages, or found that none matches; False: they must not be handed out,
        there is no room, or the same pop is here already."""
        pops, now_ms = self.pops, self._now_ms()
        queue = self._queue(point, now_ms)
        if queue is None:
            return False
        if not point.diffs and not queue.waits:
            pops.pass_over(queue, point.next_offset, now_ms)
            self._carry_out()
            return True
        key = point.key
        row = self._row(queue, key, point)
        if row < 0:
            return False
        pops.pop(queue, key, point, row, now_ms)
        self.on_work()
        return True

    def _queue(self, point: CheckPoint, now_ms: int) -> OffsetQueue | None:
        key = point[:3]
        queue = self.pops.queues.get(key)
        if queue is None:
            # A pop has committed where it began; a changed message is behind others.
            committed = max(self._stored_offset(key) or 0, 0)
            queue = self._open_queue(key, committed, now_ms)
            if queue is None:
                log.error("no room in the pop journal for queue %s", key)
        return queue

    def _open_queue(self, key: QueueKey, committed: int, now_ms: int) -> OffsetQueue | None:
        number = self._journal.add_queue(*key, committed)
        return None if number is None else self.pops.open_queue(number, key, committed, now_ms)

    def _row(self, queue: OffsetQueue, key: CheckPointKey, point: CheckPoint) -> int:
        """A row of the journal that says it; -1: there is no room, or one of its key is here."""
        if point.diffs and self.pops.holds(key):
            return -1
        row = self._journal.add(queue.number, point)
        if row is None:
            log.warning("the pop journal is full: no more messages are handed out")
            return -1
        return row

    # -- acks ----------------------------------------------------------------------------------

    def ack(self, key: CheckPointKey, offsets: Iterable[int]) -> bool:
        """Acknowledge messages of a check point that is here. False: it is not, or is stored; the
        ack has to be stored."""
        found = self.pops.ack(key, offsets)
        if found is None:
            return False
        self._journal.set_bits(*found)
        if self.pops.effects:
            self._carry_out()
        return True

    def change(self, point: CheckPoint, old_key: CheckPointKey) -> bool | None:
        """The message of `point` (one, next offset -1) gets a new check point in the place of its
        old one. True: done. False: the new one is kept, but the old one is not here, so that the
        new one was handed to the log and the ack has to be stored behind it. None: no room."""
        now_ms = self._now_ms()
        owner = self._queue(point, now_ms)
        if owner is None:
            return None
        row = self._row(owner, point.key, point)
        if row < 0:
            return None
        is_merged = self.pops.change(owner, point, row, old_key, now_ms)
        self._carry_out()
        self.on_work()
        return is_merged

    # -- time ----------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether `scan` has something to do, now or later."""
        return self.pops.has_work

    def scan(self) -> None:
        """Store what has stayed long enough; move the offsets over what is on disk. To be called
        every SCAN_MS while there is work."""
        self.pops.tick(self._now_ms(), self._flushed_offset())
        self._carry_out()

    # -- forgetting ----------------------------------------------------------------------------

    def offset_was_set(self, topic: str, group: str, queue_id: int, *, is_reset: bool) -> None:
        """Somebody set the group's offset back (is_reset: or anywhere, as an operator may), and no
        pop has seen it: what was handed out is forgotten now. After a kill before the next pop the
        journal's offset, which was further, counted again."""
        key = topic, group, queue_id
        queue, stored = self.pops.queues.get(key), self._stored_offset(key)
        if queue is None or stored is None or not (is_reset or stored < queue.committed):
            return
        self.clear_offset_queue(*key)
        # consumerOffset.json, which is saved later, may say less than this.
        self._open_queue(key, max(stored, 0), self._now_ms())

    def clear_offset_queue(self, topic: str, group: str, queue_id: int) -> None:
        """The group's offset was set by somebody: pops before that do not move it any more."""
        if (topic, group, queue_id) in self.pops.queues:
            log.info("group %s: offset of %s@%s was set: no pops now", group, topic, queue_id)
            self.pops.forget((topic, group, queue_id))
            self._carry_out()

    def clean(self, is_known: Callable[[str, str], bool]) -> None:
        """Forget queues without pops for long, and those whose topic or group no longer exists:
        is_known(topic, group). To be called twice a minute."""
        for key in list(self.pops.queues):
            if not is_known(*key[:2]):
                self.clear_offset_queue(*key)
        self.pops.drop_idle(self._now_ms())
        self._carry_out()

    # -- orderly stop --------------------------------------------------------------------------

    def drain(self) -> None:
        """Store what is left, whatever its time: the next broker finds all in the log."""
        self.pops.drain()
        self._carry_out()

    def finish(self) -> None:
        """After the last commit of an orderly stop, before the offsets are saved: what was stored
        counts."""
        self.pops.finish()
        self._carry_out()

    def remove_journal(self) -> None:
        """The offsets are saved after `finish`: the journal is not needed, if all was stored."""
        left = self.pops.unstored_count
        if left:
            log.warning("%s check points could not be stored; kept in the journal", left)
        else:
            self._journal.remove()
