"""Pops: what was handed out and is not settled yet, as a state machine.

Pure: no loop, no log, no clock, no file. It is told what happens (pop, ack, change, stored,
refused), what time it is and up to where the log is flushed (tick); it answers at once what that
means, and leaves in `effects` what has to be done about it, in this order: words of the journal,
offsets to commit, check points to store. Whoever feeds it (PopBufferMergeService) carries them out
before it answers a client. If it is killed in between, what was carried out so far is enough to
begin again (pop_recovery.py):

    an offset moves only when all before it are acknowledged, or stored and flushed
    a row is freed only after the offset that waited for it
    a queue is forgotten before its rows, so that no row is left of those behind one that is gone

A row of the journal is taken before `pop` or `change` is told, since only the journal knows whether
there is room. Times are ms of the wall clock, as in the handles.

Tested by tests/broker/pop/test_pops.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from broker.pop.buffered_pops import OffsetQueue, PopCheckPointWrapper, QueueKey, bit_of, take_place
from broker.pop.check_point import CheckPoint, CheckPointKey
from broker.pop.due_check_points import DueCheckPoints
from broker.pop.pop_effects import Commit, Effect, FreeQueue, FreeRow, SetBits, SetStored, Store
from broker.settings.broker_config import BrokerConfig

_MIN_BUFFERED_MS: Final = 1_500
"""A check point is buffered only if there is so much more time than popCkStayBufferTimeOut."""
_AGAIN_MS: Final = 500
"""Until a refused check point is tried again."""
_PER_TICK: Final = 1_000
"""Check points stored in one turn, so that requests are served in between."""
_IDLE_MS: Final = 300_000
"""A queue without pops is forgotten, if its offset did not move since the last look: it is in
consumerOffset.json then."""


class Pops:
    """See the module. Owned by: the loop thread."""

    def __init__(self, settings: BrokerConfig) -> None:
        self.settings = settings
        self.effects: deque[Effect] = deque()
        """To be carried out, the first first."""
        self.queues: dict[QueueKey, OffsetQueue] = {}
        self._buffer: dict[CheckPointKey, PopCheckPointWrapper] = {}
        self._due = DueCheckPoints()
        self._unflushed: deque[PopCheckPointWrapper] = deque()
        """Stored, and not known to be on disk, in the log's order."""
        self._flushed = 0
        """The log's flushed end, as the last tick said."""
        self._recovered: set[PopCheckPointWrapper] = set()
        """Found in the journal without parent; until they are safe no offset moves."""
        self._holds_offsets = False
        """The journal had rows, and not every offset has been looked at since."""
        self._leaving: set[CheckPointKey] = set()
        """Of check points in the append queue."""

    @property
    def check_point_count(self) -> int:
        """Check points in the buffer."""
        return len(self._buffer)

    @property
    def unstored_count(self) -> int:
        """Check points that are not in the log."""
        return len(self._buffer) + len(self._leaving)

    @property
    def has_work(self) -> bool:
        """Whether `tick` has something to do, now or later."""
        return bool(self._unflushed) or not self._due.is_empty or self._holds_offsets

    # -- pops ----------------------------------------------------------------------------------

    def open_queue(self, number: int, key: QueueKey, committed: int, now_ms: int) -> OffsetQueue:
        """A queue that has its number in the journal."""
        queue = self.queues[key] = OffsetQueue(number, key, committed, now_ms)
        return queue

    def holds(self, key: CheckPointKey) -> bool:
        """Whether a check point of this key is in the buffer, or may come back to it from the
        append queue: there may be no second one."""
        return key in self._buffer or key in self._leaving

    def pass_over(self, queue: OffsetQueue, next_offset: int, now_ms: int) -> None:
        """A pop found that nothing matches, and none before it is open."""
        queue.used_ms = now_ms
        queue.latest = next_offset
        self.effects.append(Commit(queue, next_offset, []))

    def pop(
        self, queue: OffsetQueue, key: CheckPointKey, point: CheckPoint, row: int, now_ms: int
    ) -> None:
        """Messages are handed out, or none matches; `key`, that of the point, is not held."""
        wrapper = PopCheckPointWrapper(point, key, row, queue)
        queue.used_ms = now_ms
        queue.latest = point.next_offset
        queue.waits.append(wrapper)
        if point.diffs:
            self._buffer[key] = wrapper
            self._schedule(wrapper, now_ms)

    def _schedule(self, wrapper: PopCheckPointWrapper, now_ms: int, *, is_new: bool = True) -> None:
        """When it is stored, if it is not acknowledged before: a new one at once, if it has not
        the time to be buffered."""
        settings, pop_ms = self.settings, wrapper.point.pop_time_ms
        invisible_ms = wrapper.point.invisible_time_ms
        latest_ms = pop_ms + invisible_ms - settings.pop_ck_stay_buffer_time_out
        # A pop time may be ahead of a clock that was set back, or be a client's.
        due_ms = min(min(pop_ms, now_ms) + settings.pop_ck_stay_buffer_time, latest_ms)
        is_short = latest_ms - now_ms < _MIN_BUFFERED_MS
        if is_new and (is_short or not settings.enable_pop_buffer_merge):
            due_ms = 0
        self._due.push(due_ms, wrapper)

    # -- acks ----------------------------------------------------------------------------------

    def ack(self, key: CheckPointKey, offsets: Iterable[int]) -> tuple[int, int] | None:
        """Messages of a check point are acknowledged. Returns the row that has to say so, and the
        bits, before `effects` are carried out: all that there is to do about nearly every ack.
        None: the check point is not here, or is stored; the ack has to be stored."""
        wrapper = self._buffer.get(key)
        if wrapper is None:
            return None
        bits = wrapper.bits
        for offset in offsets:
            bits |= bit_of(wrapper, offset)
        wrapper.bits = bits
        row = wrapper.row
        if wrapper.is_acked:
            del self._buffer[key]
            self._settle(wrapper)
        return row, bits

    def change(
        self,
        owner: OffsetQueue,
        point: CheckPoint,
        row: int,
        old_key: CheckPointKey,
        now_ms: int,
    ) -> bool:
        """The message of `point` (one, next offset -1; its key is not held) gets a new check point
        in the place of its old one. False: the old one is not here, so that the new one is stored,
        and the ack of the old one has to be stored behind it."""
        owner.used_ms = now_ms
        old = self._buffer.get(old_key)
        new = PopCheckPointWrapper(point, point.key, row, None)
        self._buffer[new.key] = new
        self._schedule(new, now_ms)
        owner.own(new)
        bit = 0 if old is None else bit_of(old, point.start_offset)
        if old is None or not bit or old.bits & bit:
            self._store(new)
            return False
        new.parent = old
        old.children = [*old.children, new]
        old.bits |= bit
        self.effects.append(SetBits(old.row, old.bits))
        if old.is_acked:
            del self._buffer[old_key]
            self._settle(old)
        if old.queue is None and old.is_acked and old not in self._recovered:
            # Renewed again: rows of those in between filled the journal, and nobody could pop.
            take_place(old, new)
            self._free(old)
        return True

    # -- settling ------------------------------------------------------------------------------

    def _settle(self, wrapper: PopCheckPointWrapper) -> None:
        """The wrapper may have been what an offset waited for."""
        while wrapper.queue is None:
            if not wrapper.is_settled(self._flushed):
                return
            parent = wrapper.parent
            self._free(wrapper)
            if parent is None:
                return
            parent.children = [child for child in parent.children if child is not wrapper]
            wrapper = parent
        self._advance(wrapper.queue)

    def _advance(self, queue: OffsetQueue) -> None:
        """Move the group's offset over the settled pops at the head."""
        if self._recovered:
            return
        waits, rows, offset = queue.waits, [], -1
        while waits and waits[0].is_settled(self._flushed):
            wrapper = waits.popleft()
            offset = wrapper.point.next_offset
            rows.append(wrapper.row)
            wrapper.row = -1
        if rows:
            self.effects.append(Commit(queue, offset, rows))

    def _free(self, wrapper: PopCheckPointWrapper) -> None:
        self._recovered.discard(wrapper)
        if wrapper.row >= 0:
            self.effects.append(FreeRow(wrapper.row))
            wrapper.row = -1
        if wrapper.owner is not None:
            wrapper.owner.renewed.discard(wrapper)

    # -- storing -------------------------------------------------------------------------------

    def tick(self, now_ms: int, flushed: int) -> None:
        """Store what has stayed long enough; move the offsets over what is on disk, up to
        `flushed` of the log."""
        due = self._due
        for _ in range(_PER_TICK):
            wrapper = due.pop(now_ms)
            if wrapper is None:
                break
            if not wrapper.is_leaving and self._is_here(wrapper):
                self._store(wrapper)
        self._flushed = flushed
        unflushed = self._unflushed
        while unflushed and unflushed[0].stored_end <= flushed:
            wrapper = unflushed.popleft()
            if wrapper.row >= 0:  # else its queue is forgotten
                self._settle(wrapper)
        if self._holds_offsets and not self._recovered:
            self._holds_offsets = False
            for queue in self.queues.values():
                self._advance(queue)

    def _is_here(self, wrapper: PopCheckPointWrapper) -> bool:
        return self._buffer.get(wrapper.key) is wrapper

    def _store(self, wrapper: PopCheckPointWrapper) -> None:
        """Store what is left of a check point; from now on its acks are stored, too."""
        del self._buffer[wrapper.key]
        wrapper.is_leaving = True
        self._leaving.add(wrapper.key)
        self.effects.append(Store(wrapper, wrapper.left()))

    def stored(self, wrapper: PopCheckPointWrapper, end: int) -> int:
        """It is in the log, which ends at `end` behind it. Returns the row that has to say so,
        before anything else is done; -1: its queue is forgotten."""
        self._leaving.discard(wrapper.key)
        if wrapper.row >= 0:
            wrapper.stored_end = end
            self._unflushed.append(wrapper)
        return wrapper.row

    def refused(self, wrapper: PopCheckPointWrapper, now_ms: int) -> bool:
        """The log did not take it: it is tried again, by a tick. False: its queue is forgotten."""
        self._leaving.discard(wrapper.key)
        if wrapper.row < 0:
            return False
        wrapper.is_leaving = False
        self._buffer[wrapper.key] = wrapper
        self._due.push(now_ms + _AGAIN_MS, wrapper)
        return True

    # -- forgetting ----------------------------------------------------------------------------

    def forget(self, key: QueueKey) -> None:
        """The group's offset was set by somebody: pops before that do not move it any more."""
        queue = self.queues.pop(key, None)
        if queue is None:
            return
        # First, so that its rows are of no queue: with some of them left by a kill, the group went
        # on behind these, and those before them were lost.
        self.effects.append(FreeQueue(queue.number))
        for wrapper in [*queue.waits, *queue.renewed]:
            if self._is_here(wrapper):
                del self._buffer[wrapper.key]
            wrapper.is_leaving = True
            self._free(wrapper)
        queue.waits.clear()

    def drop_idle(self, now_ms: int) -> None:
        """Forget queues without pops for long. To be called twice a minute."""
        for key, queue in list(self.queues.items()):
            if queue.is_idle and now_ms - queue.used_ms > _IDLE_MS:
                del self.queues[key]
                self.effects.append(FreeQueue(queue.number))
            else:
                queue.committed_before = queue.committed

    # -- orderly stop --------------------------------------------------------------------------

    def drain(self) -> None:
        """Store what is left, whatever its time: the next broker finds all in the log."""
        for wrapper in list(self._buffer.values()):
            self._store(wrapper)

    def finish(self) -> None:
        """Everything stored is on disk: it counts."""
        self._holds_offsets = True
        self.tick(-1, 1 << 62)  # nothing is due

    # -- recovery (pop_recovery.py) ------------------------------------------------------------

    def recover_row(
        self, found: PopCheckPointWrapper, queue: OffsetQueue, log_end: int, now_ms: int
    ) -> None:
        """A row of the journal, in the order in which they were made. log_end: a record behind it
        was not published."""
        is_queued, point = found.queue is not None, found.point
        if is_queued:
            queue.waits.append(found)
            queue.latest = max(queue.latest, point.next_offset)
        else:
            self._recovered.add(found)
            queue.own(found)
        if 0 < found.stored_end <= log_end:
            found.is_leaving = True
            self._unflushed.append(found)
            return
        if found.stored_end:
            # The log will soon be longer than it was when its record was appended.
            found.stored_end = 0
            self.effects.append(SetStored(found.row, 0))
        if not found.is_acked:
            self._enter(found)
        if not found.is_acked:
            if is_queued:
                self._schedule(found, now_ms, is_new=False)
            else:
                self._due.push(0, found)
        elif not is_queued:
            self._free(found)

    def _enter(self, found: PopCheckPointWrapper) -> None:
        """It is in the buffer. There may be two of one key, whose records were not published: a
        message that was renewed twice in a ms, or in the ms of a pop that begins with it. The one
        that names all messages counts, of two that name the same the later."""
        same = self._buffer.get(found.key)
        if same is not None:
            of_found, of_same = set(found.point.diffs), set(same.point.diffs)
            if of_found < of_same:
                found.bits = (1 << len(found.point.diffs)) - 1
                return
            if of_same <= of_found:
                same.bits = (1 << len(same.point.diffs)) - 1
                if same.queue is None:
                    self._free(same)
                del self._buffer[same.key]
        while found.key in self._buffer:  # neither stands for the other
            found.point = found.point._replace(pop_time_ms=found.point.pop_time_ms - 1)
            found.key = found.point.key
        self._buffer[found.key] = found

    def all_recovered(self, *, holds_offsets: bool) -> None:
        """No row is left. holds_offsets: there was one."""
        self._unflushed = deque(sorted(self._unflushed, key=lambda one: one.stored_end))
        self._holds_offsets = holds_offsets
