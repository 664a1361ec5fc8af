"""PopBufferMergeService: matches acks with what was handed out, and moves the groups' offsets.

Runs on the loop thread of `remoting`, on masters only. A pop's check point stays here for some
seconds; a message acknowledged meanwhile costs no record. What is not acknowledged by then is
stored as a check point of the rest. The offset of a group in a queue moves to the next offset of a
pop when that pop and all before it are settled: wholly acknowledged, or stored and flushed. A
message whose invisible time was changed is settled with its new check point.

RocketMQ's service (off by default there) loses its buffer in a crash. Here each change is mirrored
in PopJournal before the answer leaves: killed processes forget nothing, and what an OS crash takes
stands before no committed offset, so it is handed out again. Times are ms of the wall clock, as in
the handles. Knows no request.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from broker.pop.buffered_pops import (
    OffsetQueue,
    PopCheckPointWrapper,
    QueueKey,
    bit_of,
    fault_of,
    take_place,
)
from broker.pop.check_point import CheckPoint, CheckPointKey
from broker.pop.due_check_points import DueCheckPoints
from broker.pop.pop_check_point import PopCheckPoint, stored_point
from broker.pop.pop_journal import JournalQueue, JournalRow, PopJournal
from broker.pop.pop_limits import PopLimits
from broker.pop.revive_records import Refused, Stored
from broker.settings.broker_config import BrokerConfig

log = logging.getLogger(__name__)

_MIN_BUFFERED_MS: Final = 1_500
"""A check point is buffered only if there is so much more time than popCkStayBufferTimeOut."""
_AGAIN_MS: Final = 500
"""Until a refused check point is tried again."""
_PER_SCAN: Final = 1_000
"""Check points stored in one turn, so that requests are served in between."""
_IDLE_MS: Final = 300_000
"""A queue without pops is forgotten, if its offset did not move since the last look: it is in
consumerOffset.json then."""
SCAN_MS: Final = 20


class StoresCheckPoints(Protocol):
    """The part of ReviveRecords used here."""

    def put_check_point(
        self, point: PopCheckPoint, revive_queue_id: int, stored: Stored, refused: Refused
    ) -> None:
        """Store it; the callback may run before this returns."""


class GroupOffsets(Protocol):
    """The part of ConsumerOffsetManager used here."""

    def commit_offset(
        self, remote: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """Store a group's offset."""

    def query_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The stored offset."""


class PopBufferMergeService:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        settings: BrokerConfig,
        limits: PopLimits,
        journal: PopJournal,
        records: StoresCheckPoints,
        offsets: GroupOffsets,
        now_ms: Callable[[], int],
        flushed_offset: Callable[[], int],
    ) -> None:
        """limits: what a row of the journal may hold. now_ms: wall clock. flushed_offset: of the
        commit log."""
        self.use(settings, limits)
        self._journal = journal
        self._records = records
        self._offsets = offsets
        self._now_ms = now_ms
        self._flushed_offset = flushed_offset
        self._queues: dict[QueueKey, OffsetQueue] = {}
        self._buffer: dict[CheckPointKey, PopCheckPointWrapper] = {}
        self._due = DueCheckPoints()
        self._unflushed: deque[PopCheckPointWrapper] = deque()
        """Stored, and not known to be on disk, in the log's order."""
        self.on_work: Callable[[], None] = lambda: None
        """Called when `scan` has something to do. Set before the first pop."""
        self._recovered: set[PopCheckPointWrapper] = set()
        """Found in the journal without parent; until they are safe no offset moves."""
        self._holds_offsets = False
        """The journal had rows, and not every offset has been looked at since."""
        self._leaving = 0
        """Check points in the append queue."""
        self.let_go = 0
        """Check points of the journal that were dropped, or given other times, at the start."""
        self.merged_acks = 0
        """Acknowledged messages that cost no record, since the start."""

    @property
    def check_point_count(self) -> int:
        """Check points in the buffer."""
        return len(self._buffer)

    @property
    def offset_count(self) -> int:
        """Pops whose offset has not moved yet."""
        return sum(len(queue.waits) for queue in self._queues.values())

    def latest_offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Where the next pop of a queue begins, as far as pops decide it; None without any lately.
        Any thread."""
        queue = self._queues.get((topic, group, queue_id))
        return None if queue is None else queue.latest

    def popping(self) -> set[tuple[str, str]]:
        """(group, topic) of the pops of late. Any thread."""
        return {(group, topic) for topic, group, _ in list(self._queues)}

    def use(self, settings: BrokerConfig, limits: PopLimits) -> None:
        """Apply changed settings."""
        self._settings = settings
        self._limits = limits

    # -- recovery ------------------------------------------------------------------------------

    def recover(self, log_end: int, queue_end: Callable[[str, int], int | None]) -> None:
        """Rebuild from the journal; the log is open. log_end: its published end. queue_end: the
        next queue offset of a queue, None for one without messages."""
        now_ms = self._now_ms()
        queues, rows = self._journal.open()
        by_number: dict[int, OffsetQueue] = {}
        for found in queues:
            self._recover_queue(found, queue_end, by_number, now_ms)
        kept = 0
        broken: set[OffsetQueue] = set()
        dropped: list[int] = []
        for row in rows:
            queue = by_number.get(row.queue)
            fault = (
                "its queue no longer exists" if queue is None else fault_of(row, queue, queue_end)
            )
            is_pop = row.point.next_offset != -1
            if queue is not None and is_pop and (fault or queue in broken):
                # The offset must not pass over its messages with those of later pops.
                fault = fault or "it is behind one that was dropped"
                broken.add(queue)
            if queue is None or fault:
                dropped.append(row.row)
                self.let_go += 1
                log.warning("pop journal: dropped %s: %s", row, fault)
            else:
                self._recover_row(row, queue, log_end, now_ms)
                kept += 1
        for number in reversed(dropped):  # a kill leaves none behind one that is gone
            self._journal.free(number)
        self._unflushed = deque(sorted(self._unflushed, key=lambda one: one.stored_end))
        self._holds_offsets = bool(rows)
        if rows:
            log.info("pop journal: %s check points of %s queues", kept, len(by_number))

    def _recover_queue(
        self,
        found: JournalQueue,
        queue_end: Callable[[str, int], int | None],
        by_number: dict[int, OffsetQueue],
        now_ms: int,
    ) -> None:
        end = queue_end(found.topic, found.queue_id) or 0
        if found.committed > end:
            log.warning("pop journal: dropped %s: the queue ends at %s", found, end)
            self._journal.free_queue(found.number)
            return
        queue = OffsetQueue(found, now_ms)
        stored = self._offsets.query_offset(found.group, found.topic, found.queue_id)
        if stored is None or stored < found.committed:
            self._commit(queue, found.committed)
        by_number[found.number] = queue
        self._queues[found.topic, found.group, found.queue_id] = queue

    def _recover_row(self, row: JournalRow, queue: OffsetQueue, log_end: int, now_ms: int) -> None:
        point = self._point_of(row, now_ms)
        is_queued = point.next_offset >= 0
        wrapper = PopCheckPointWrapper(point, point.key, row.row, queue if is_queued else None)
        wrapper.bits = row.bits & (1 << len(point.diffs)) - 1
        if is_queued:
            queue.waits.append(wrapper)
            queue.latest = max(queue.latest, point.next_offset)
        else:
            self._recovered.add(wrapper)
            queue.own(wrapper)
        if 0 < row.stored_end <= log_end:
            wrapper.is_leaving = True
            wrapper.stored_end = row.stored_end
            self._unflushed.append(wrapper)
            return
        if row.stored_end:
            # Its record was not published. The log will soon be longer than it was then.
            self._journal.set_stored(row.row, 0)
        if not wrapper.is_acked:
            self._enter(wrapper)
            self._schedule(wrapper, at_once=not is_queued)
        elif not is_queued:
            self._free(wrapper)

    def _point_of(self, row: JournalRow, now_ms: int) -> CheckPoint:
        """What a row says. No check point can wait for the times of some that older brokers took
        from clients, and every offset would wait for it: their messages come again at once."""
        limits, point = self._limits, row.point
        if (
            limits.fits_time(point.pop_time_ms, point.invisible_time_ms, now_ms)
            and 0 <= point.revive_queue_id < limits.revive_queue_num
        ):
            return point
        self.let_go += 1
        log.error("pop journal: %s of %s@%s is not valid", row, point.topic, point.group)
        return point._replace(
            # Each of another time: it is a part of its key.
            pop_time_ms=max(now_ms - row.row, 1),
            invisible_time_ms=0,
            revive_queue_id=row.row % limits.revive_queue_num,
        )

    # -- pops ----------------------------------------------------------------------------------

    def pop_offset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Where the next pop of a queue begins; None: the group has no offset there yet. An offset
        that somebody set back counts: what was handed out after it is forgotten here."""
        stored = self._offsets.query_offset(group, topic, queue_id)
        queue = self._queues.get((topic, group, queue_id))
        if queue is None:
            return stored
        if stored is None or stored < queue.committed:
            self.clear_offset_queue(topic, group, queue_id)
            return stored
        return max(stored, queue.latest)

    def can_add(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether a pop of the queue has room here."""
        queue = self._queues.get((topic, group, queue_id))
        return queue is None or len(queue.waits) < self._settings.pop_ck_offset_max_queue_size

    def add(self, point: CheckPoint) -> bool:
        """A pop took messages, or found that none matches; False: they must not be handed out,
        there is no room, or the same pop is here already."""
        queue = self._queue(point)
        if queue is None:
            return False
        queue.used_ms = self._now_ms()
        if not point.diffs and not queue.waits:
            queue.latest = point.next_offset
            self._commit(queue, point.next_offset)
            return True
        wrapper = self._add_wrapper(point, queue, queue)
        if wrapper is None:
            return False
        queue.waits.append(wrapper)
        queue.latest = point.next_offset
        return True

    def _queue(self, point: CheckPoint) -> OffsetQueue | None:
        topic, group, queue_id = key = point.topic, point.group, point.queue_id
        queue = self._queues.get(key)
        if queue is None:
            stored = self._offsets.query_offset(group, topic, queue_id)
            # A pop has committed where it began; a changed message is behind others.
            committed = max(stored or 0, 0)
            number = self._journal.add_queue(topic, group, queue_id, committed)
            if number is None:
                log.error("no room in the pop journal for queue %s of %s", key, group)
                return None
            found = JournalQueue(number, topic, group, queue_id, committed)
            queue = self._queues[key] = OffsetQueue(found, self._now_ms())
        return queue

    def _add_wrapper(
        self, point: CheckPoint, owner: OffsetQueue, queue: OffsetQueue | None
    ) -> PopCheckPointWrapper | None:
        key = point.key
        if point.diffs and key in self._buffer:
            return None
        row = self._journal.add(owner.number, point)
        if row is None:
            log.warning("the pop journal is full: no more messages are handed out")
            return None
        wrapper = PopCheckPointWrapper(point, key, row, queue)
        if point.diffs:
            self._buffer[key] = wrapper
            self._schedule(wrapper, at_once=not self._is_buffered(point))
        return wrapper

    def _is_buffered(self, point: CheckPoint) -> bool:
        settings = self._settings
        left_ms = point.revive_time_ms - self._now_ms()
        return (
            settings.enable_pop_buffer_merge
            and left_ms >= settings.pop_ck_stay_buffer_time_out + _MIN_BUFFERED_MS
        )

    def _schedule(self, wrapper: PopCheckPointWrapper, *, at_once: bool) -> None:
        settings, point = self._settings, wrapper.point
        # A pop time may be ahead of a clock that was set back, or be a client's.
        due_ms = min(
            min(point.pop_time_ms, self._now_ms()) + settings.pop_ck_stay_buffer_time,
            point.revive_time_ms - settings.pop_ck_stay_buffer_time_out,
        )
        self._due.push(0 if at_once else due_ms, wrapper)
        self.on_work()

    def _enter(self, wrapper: PopCheckPointWrapper) -> None:
        """It is, again, in the buffer. Of two with one key the later counts: a client renewed one
        message twice in a ms, while the log took neither."""
        key = wrapper.key
        same, self._buffer[key] = self._buffer.get(key), wrapper
        if same is not None:
            same.bits = (1 << len(same.point.diffs)) - 1
            self._settle(same)

    # -- acks ----------------------------------------------------------------------------------

    def ack(self, key: CheckPointKey, offsets: Iterable[int]) -> bool:
        """Acknowledge messages of a check point that is here. False: it is not, or is stored; the
        ack has to be stored."""
        wrapper = self._buffer.get(key)
        if wrapper is None:
            return False
        bits = wrapper.bits
        for offset in offsets:
            bits |= bit_of(wrapper, offset)
        self._set_bits(wrapper, bits)
        return True

    def change(self, point: CheckPoint, old_key: CheckPointKey) -> bool | None:
        """The message of `point` (one, next offset -1) gets a new check point in the place of its
        old one. True: done. False: the new one is kept, but the old one is not here, so that the
        new one was handed to the log and the ack has to be stored behind it. None: no room."""
        owner = self._queue(point)
        if owner is None:
            return None
        owner.used_ms = self._now_ms()
        old = self._buffer.get(old_key)
        new = self._add_wrapper(point, owner, None)
        if new is None:
            return None
        owner.own(new)
        bit = 0 if old is None else bit_of(old, point.start_offset)
        if old is None or not bit or old.bits & bit:
            self._store(new)
            return False
        new.parent = old
        old.children = [*old.children, new]
        self._set_bits(old, old.bits | bit)
        if old.queue is None and old.is_acked and old not in self._recovered:
            # Renewed again: rows of those in between filled the journal, and nobody could pop.
            take_place(old, new)
            self._free(old)
        return True

    def _set_bits(self, wrapper: PopCheckPointWrapper, bits: int) -> None:
        if bits == wrapper.bits:
            return
        self.merged_acks += (bits ^ wrapper.bits).bit_count()
        wrapper.bits = bits
        self._journal.set_bits(wrapper.row, bits)
        if wrapper.is_acked:
            del self._buffer[wrapper.key]
            self._settle(wrapper)

    # -- settling ------------------------------------------------------------------------------

    def _settle(self, wrapper: PopCheckPointWrapper) -> None:
        """The wrapper may have been what an offset waited for."""
        while wrapper.queue is None:
            if not self._is_settled(wrapper):
                return
            parent = wrapper.parent
            self._free(wrapper)
            if parent is None:
                return
            parent.children = [child for child in parent.children if child is not wrapper]
            wrapper = parent
        self._advance(wrapper.queue)

    def _is_settled(self, wrapper: PopCheckPointWrapper) -> bool:
        if wrapper.children:
            return False
        if not wrapper.point.diffs or (wrapper.is_acked and not wrapper.is_leaving):
            return True
        return 0 < wrapper.stored_end <= self._flushed_offset()

    def _advance(self, queue: OffsetQueue) -> None:
        """Move the group's offset over the settled pops at the head."""
        if self._recovered:
            return
        waits = queue.waits
        settled = []
        while waits and self._is_settled(waits[0]):
            settled.append(waits.popleft())
        if settled:
            self._commit(queue, settled[-1].point.next_offset)
            for wrapper in settled:
                self._free(wrapper)

    def _free(self, wrapper: PopCheckPointWrapper) -> None:
        self._recovered.discard(wrapper)
        if wrapper.row >= 0:
            self._journal.free(wrapper.row)
            wrapper.row = -1
        if wrapper.owner is not None:
            wrapper.owner.renewed.discard(wrapper)

    def _commit(self, queue: OffsetQueue, offset: int) -> None:
        """Never back: consumers that pull may have committed more meanwhile."""
        stored = self._offsets.query_offset(queue.group, queue.topic, queue.queue_id)
        queue.committed = offset = max(offset, -1 if stored is None else stored)
        self._journal.set_committed(queue.number, offset)
        self._offsets.commit_offset(
            "PopBufferMergeService", queue.group, queue.topic, queue.queue_id, offset
        )

    # -- storing -------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether `scan` has something to do, now or later."""
        return bool(self._unflushed) or not self._due.is_empty or self._holds_offsets

    def scan(self) -> None:
        """Store what has stayed long enough; move the offsets over what is on disk. To be called
        every SCAN_MS while there is work."""
        now_ms, due = self._now_ms(), self._due
        for _ in range(_PER_SCAN):
            wrapper = due.pop(now_ms)
            if wrapper is None:
                break
            if not wrapper.is_leaving and self._is_here(wrapper):
                self._store(wrapper)
        self._follow_flushes()
        if self._holds_offsets and not self._recovered:
            self._advance_all()

    def _is_here(self, wrapper: PopCheckPointWrapper) -> bool:
        return self._buffer.get(wrapper.key) is wrapper

    def _follow_flushes(self) -> None:
        unflushed = self._unflushed
        flushed = self._flushed_offset() if unflushed else 0
        while unflushed and unflushed[0].stored_end <= flushed:
            wrapper = unflushed.popleft()
            if wrapper.row >= 0:  # else its queue is forgotten
                self._settle(wrapper)

    def _advance_all(self) -> None:
        self._holds_offsets = False
        for queue in self._queues.values():
            self._advance(queue)

    def _store(self, wrapper: PopCheckPointWrapper) -> None:
        """Store what is left of a check point; from now on its acks are stored, too."""
        point = wrapper.point
        del self._buffer[wrapper.key]
        wrapper.is_leaving = True
        self._leaving += 1
        left = [diff for index, diff in enumerate(point.diffs) if not wrapper.bits >> index & 1]
        self._records.put_check_point(
            stored_point(point._replace(diffs=tuple(left)), self._limits.broker_name),
            point.revive_queue_id,
            lambda end: self._on_stored(wrapper, end),
            lambda remark: self._on_refused(wrapper, remark),
        )

    def _on_stored(self, wrapper: PopCheckPointWrapper, end: int) -> None:
        self._leaving -= 1
        if wrapper.row < 0:
            return
        wrapper.stored_end = end
        self._journal.set_stored(wrapper.row, end)
        self._unflushed.append(wrapper)
        self.on_work()

    def _on_refused(self, wrapper: PopCheckPointWrapper, remark: str) -> None:
        self._leaving -= 1
        if wrapper.row < 0:
            return
        log.warning("check point of %s is not stored yet: %s", wrapper.point, remark)
        wrapper.is_leaving = False
        self._enter(wrapper)
        self._due.push(self._now_ms() + _AGAIN_MS, wrapper)
        self.on_work()

    # -- forgetting ----------------------------------------------------------------------------

    def offset_was_set(self, topic: str, group: str, queue_id: int, *, is_reset: bool) -> None:
        """Somebody set the group's offset back (is_reset: or anywhere, as an operator may), and no
        pop has seen it: what was handed out is forgotten now. After a kill before the next pop the
        journal's offset, which was further, counted again."""
        key = topic, group, queue_id
        queue, stored = self._queues.get(key), self._offsets.query_offset(group, topic, queue_id)
        if queue is None or stored is None or not (is_reset or stored < queue.committed):
            return
        self.clear_offset_queue(*key)
        # consumerOffset.json, which is saved later, may say less than this.
        committed = max(stored, 0)
        number = self._journal.add_queue(*key, committed)
        if number is not None:
            found = JournalQueue(number, *key, committed)
            self._queues[key] = OffsetQueue(found, self._now_ms())

    def clear_offset_queue(self, topic: str, group: str, queue_id: int) -> None:
        """The group's offset was set by somebody: pops before that do not move it any more."""
        queue = self._queues.pop((topic, group, queue_id), None)
        if queue is None:
            return
        log.info("group %s: offset of %s@%s was set; forgetting its pops", group, topic, queue_id)
        # First, so that its rows are of no queue: with some of them left by a kill, the group went
        # on behind these, and those before them were lost.
        self._journal.free_queue(queue.number)
        for wrapper in [*queue.waits, *queue.renewed]:
            if self._is_here(wrapper):
                del self._buffer[wrapper.key]
            wrapper.is_leaving = True
            self._free(wrapper)
        queue.waits.clear()

    def clean(self, is_known: Callable[[str, str], bool]) -> None:
        """Forget queues without pops for long, and those whose topic or group no longer exists:
        is_known(topic, group). To be called twice a minute."""
        now_ms = self._now_ms()
        for key, queue in list(self._queues.items()):
            if not is_known(queue.topic, queue.group):
                self.clear_offset_queue(*key)
            elif queue.is_idle and now_ms - queue.used_ms > _IDLE_MS:
                del self._queues[key]
                self._journal.free_queue(queue.number)
            else:
                queue.committed_before = queue.committed

    def forget(self) -> None:
        """This broker leads no more: only the journal keeps what was handed out. What was with the
        append queue has been refused."""
        for table in (self._queues, self._buffer, self._unflushed, self._recovered):
            table.clear()
        self._due = DueCheckPoints()
        self._holds_offsets, self._leaving = False, 0
        self._journal.close()

    # -- orderly stop --------------------------------------------------------------------------

    def drain(self) -> None:
        """Store what is left, whatever its time: the next broker finds all in the log."""
        for wrapper in list(self._buffer.values()):
            self._store(wrapper)

    def finish(self) -> None:
        """After the last commit of an orderly stop, before the offsets are saved: what was stored
        counts."""
        self._flushed_offset = lambda: 1 << 62
        self._follow_flushes()
        self._advance_all()

    def remove_journal(self) -> None:
        """The offsets are saved after `finish`: the journal is not needed, if all was stored."""
        left = len(self._buffer) + self._leaving
        if left:
            log.warning("%s check points could not be stored; kept in the journal", left)
        else:
            self._journal.remove()
