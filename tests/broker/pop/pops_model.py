"""Pops alone against a list of messages: what was carried out when it was killed is all there is.

No file, no log, no loop: the journal is a dict, the log a list, time a number. Each effect that
outlives a process may be the last (`fuse`). Checked while a history runs: a pop begins where the
last one ended; an ack is taken here as long as its check point is; a stored check point names what
is left, in time; no offset passes a message that is neither acknowledged nor on the disk. In the
end: what was not acknowledged is in the log, nothing else is, and no row is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from broker.pop.buffered_pops import OffsetQueue, PopCheckPointWrapper, QueueKey
from broker.pop.check_point import CheckPoint, CheckPointKey
from broker.pop.pop_effects import Commit, FreeQueue, FreeRow, SetBits, SetStored, Store
from broker.pop.pop_journal import JournalQueue, JournalRow
from broker.pop.pop_limits import PopLimits
from broker.pop.pop_recovery import Found, recover
from broker.pop.pops import Pops
from broker.settings.broker_config import BrokerConfig
from tests.broker.pop.pop_histories import Step

KEYS: tuple[QueueKey, ...] = (("T", "G", 0), ("T", "G", 1), ("T", "H", 0))
TIMES_MS = (0, 1, 900, 4_600, 12_000, 60_000)
PAUSES_MS = (1, 20, 500, 3_000, 11_000)
STAY_OUT_MS = 3_000
LIMITS = PopLimits(revive_queue_num=8, max_invisible_ms=3 * 86_400_000, broker_name="b")
_RECORD = 10
_AGAIN_MS = 500
"""A refused check point is tried again."""
_ROUNDS = 200


class Killed(BaseException):
    """The process ended here."""


@dataclass
class Row:
    """Of the journal."""

    queue: int
    point: CheckPoint
    sequence: int
    bits: int = 0
    stored_end: int = 0


@dataclass
class Message:
    """What the group may expect of one."""

    handle: CheckPointKey
    """It was handed out with last."""
    is_acked: bool = False
    may_be_acked: bool = False
    may_come_twice: bool = False


@dataclass
class Handed:
    """One check point."""

    offsets: list[int]
    latest_ms: int
    """When it has to be on its way into the log."""
    done: set[int] = field(default_factory=set)
    """Acknowledged or renewed."""
    maybe: set[int] = field(default_factory=set)
    """The process was killed meanwhile."""
    is_here: bool | None = True
    """It is with Pops; None: the process was killed."""


class CoreHistory:
    """One history (pop_histories.Runs)."""

    def __init__(self, _root: Path, seed: int = 0) -> None:
        self._settings = BrokerConfig(
            enable_pop_buffer_merge=seed % 7 > 0,
            pop_ck_stay_buffer_time=10_000 if seed % 3 else 100,
            pop_ck_stay_buffer_time_out=STAY_OUT_MS,
        )
        self.fuse: int | None = None
        self.now_ms = 1_795_000_000_000
        # What outlives a process.
        self.rows: dict[int, Row] = {}
        self.numbers: dict[int, tuple[QueueKey, int]] = {}
        self.log: list[tuple[CheckPointKey, list[int], bool]] = []
        """Check points (and acks: True) with their offsets, 10 bytes each."""
        self.published = self.flushed = 0
        self.saved: dict[QueueKey, int] = {}
        # What does not.
        self.table: dict[QueueKey, int] = {}
        self.held: list[PopCheckPointWrapper | tuple[CheckPointKey, list[int]]] = []
        """What waits for room in the log: check points and acks."""
        self.mode = 0
        self._sequence = 0
        # What clients know.
        self.messages: dict[QueueKey, dict[int, Message]] = {key: {} for key in KEYS}
        """Of those that were handed out."""
        self.handed: dict[CheckPointKey, Handed] = {}
        self.handles: list[tuple[CheckPointKey, int]] = []
        self.next: dict[QueueKey, set[int]] = {key: {0} for key in KEYS}
        """Where the next pop may begin."""
        self.pops = Pops(self._settings)

    # -- the shell -------------------------------------------------------------------------------

    def _touch(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Killed

    def _carry_out(self) -> None:
        while self.pops.effects:
            effect = self.pops.effects.popleft()
            if isinstance(effect, Commit):
                self._commit(effect.queue, effect.offset)
                for row in effect.rows:
                    self._free(row)
            elif isinstance(effect, Store):
                self._store(effect.wrapper, effect.left)
            elif isinstance(effect, FreeRow):
                self._free(effect.row)
            elif isinstance(effect, FreeQueue):
                self._touch()
                del self.numbers[effect.number]
            elif isinstance(effect, SetBits):
                self._touch()
                self.rows[effect.row].bits = effect.bits
            else:
                assert isinstance(effect, SetStored)
                self._touch()
                self.rows[effect.row].stored_end = effect.end

    def _free(self, row: int) -> None:
        self._touch()
        del self.rows[row]

    def _commit(self, queue: OffsetQueue, offset: int) -> None:
        queue.committed = offset = max(offset, self.table.get(queue.key, -1))
        self._touch()
        self.numbers[queue.number] = queue.key, offset
        self._touch()
        self.table[queue.key] = offset
        for at, message in self.messages[queue.key].items():
            is_safe = message.is_acked or message.may_be_acked or self._is_on_disk(queue.key, at)
            assert at >= offset or is_safe, f"{queue.key} passes the message at {at}"

    def _is_on_disk(self, key: QueueKey, offset: int) -> bool:
        flushed = self.log[: self.flushed // _RECORD]
        return any(
            of[:3] == key and offset in offsets for of, offsets, is_ack in flushed if not is_ack
        )

    def _store(self, wrapper: PopCheckPointWrapper, left: CheckPoint) -> None:
        handed = self.handed[wrapper.key]
        offsets = set(left.offsets)
        assert not offsets & (handed.done - handed.maybe), f"{wrapper.key}: acknowledged is stored"
        assert offsets >= set(handed.offsets) - handed.done - handed.maybe, "not all is stored"
        handed.is_here = False
        if self.mode == 1:
            self._refused(wrapper)
        elif self.mode == 2:
            self.held.append(wrapper)
        else:
            self._stored(wrapper, left)

    def _stored(self, wrapper: PopCheckPointWrapper, left: CheckPoint) -> None:
        self._touch()
        self.log.append((wrapper.key, left.offsets, False))
        row = self.pops.stored(wrapper, len(self.log) * _RECORD)
        if row >= 0:
            self._touch()
            self.rows[row].stored_end = len(self.log) * _RECORD

    def _refused(self, wrapper: PopCheckPointWrapper) -> None:
        handed = self.handed[wrapper.key]
        before = len(self.pops.effects)
        handed.is_here = self.pops.refused(wrapper, self.now_ms)
        assert len(self.pops.effects) == before, "nobody carries them out now"
        handed.latest_ms = max(handed.latest_ms, self.now_ms + _AGAIN_MS)

    def _store_ack(self, key: CheckPointKey, offsets: list[int]) -> bool:
        """Whether it is in the log: it goes the way of the check points before it."""
        if self.mode == 2:
            self.held.append((key, offsets))
        elif self.mode == 0:
            self._touch()
            self.log.append((key, offsets, True))
        return self.mode == 0

    def _publish(self) -> None:
        self._touch()
        self.published = len(self.log) * _RECORD

    def _queue(self, key: QueueKey) -> OffsetQueue:
        queue = self.pops.queues.get(key)
        return queue or self._open(key, max(self.table.get(key, 0), 0))

    def _open(self, key: QueueKey, committed: int) -> OffsetQueue:
        number = next(one for one in range(100) if one not in self.numbers)
        self._touch()
        self.numbers[number] = key, committed
        return self.pops.open_queue(number, key, committed, self.now_ms)

    def _add(self, queue: OffsetQueue, point: CheckPoint) -> int:
        row = next(one for one in range(1_000) if one not in self.rows)
        self._touch()
        self._sequence += 1
        self.rows[row] = Row(queue.number, point, self._sequence)
        return row

    def _start(self) -> None:
        """A new process: it has what is on the disk, up to what was published."""
        del self.log[self.published // _RECORD :]
        self.flushed = min(self.flushed, self.published)
        self.table, self.held, self.mode = dict(self.saved), [], 0
        self.pops = Pops(self._settings)
        queues = [
            JournalQueue(number, topic, group, queue_id, committed)
            for number, ((topic, group, queue_id), committed) in self.numbers.items()
        ]
        rows = [
            JournalRow(row.point, row.queue, number, row.sequence, row.bits, row.stored_end)
            for number, row in sorted(self.rows.items(), key=lambda one: one[1].sequence)
        ]
        found = Found(
            LIMITS,
            self.now_ms,
            self.published,
            lambda *_of: 1 << 40,
            lambda key: self.table.get(key),
        )
        for handed in self.handed.values():
            handed.is_here = None
        recover(self.pops, queues, rows, found)
        self._carry_out()
        self._publish()

    # -- running ---------------------------------------------------------------------------------

    def run(self, steps: list[Step]) -> None:
        """Raises AssertionError for a promise that is broken."""
        for name, *numbers in steps:
            step: Callable[..., None] = getattr(self, f"_do_{name}")
            try:
                step(*numbers)
                self._carry_out()
                self._publish()
            except Killed:
                self.fuse = numbers[2] % 20 if numbers[1] % 4 == 0 else None
                self._restart()
        self.fuse = None
        self._finish()

    def close(self) -> None: ...

    def _restart(self) -> None:
        try:
            self._start()
        except Killed:
            self.fuse = None
            self._start()
        self.fuse = None

    def _held_handle(self, number: int) -> tuple[CheckPointKey, int] | None:
        return self.handles[number % len(self.handles)] if self.handles else None

    # -- steps -----------------------------------------------------------------------------------

    def _do_pop(self, who: int, count: int, invisible: int) -> None:
        key = KEYS[who % len(KEYS)]
        stored = self.table.get(key)
        if stored is None:
            self.table[key] = stored = 0
        queue = self.pops.queues.get(key)
        start = stored if queue is None else queue.next_offset(stored)
        assert start is not None, f"{key} was not set back"
        assert start in self.next[key], f"{key}: a pop at {start}, not {self.next[key]}"
        following = start + count % 6
        taken = [at for at in range(start, following) if at % 5 < 4]  # the others do not match
        if following == start:
            return
        point = CheckPoint(
            *key, start, tuple(at - start for at in taken), self.now_ms,
            TIMES_MS[invisible % len(TIMES_MS)], 5, following,
        )  # fmt: skip
        queue = self._queue(key)
        if not taken and not queue.waits:
            self.next[key] = {start, following}
            self.pops.pass_over(queue, following, self.now_ms)
            self._carry_out()
        else:
            if point.key in self.handed:
                return
            self._note(point)
            self.next[key] = {start, following}
            row = self._add(queue, point)
            self.pops.pop(queue, point.key, point, row, self.now_ms)
        self.next[key] = {following}
        self.handles += [(point.key, at) for at in taken]

    def _note(self, point: CheckPoint) -> None:
        latest_ms = point.revive_time_ms - STAY_OUT_MS
        self.handed[point.key] = Handed(point.offsets, latest_ms)
        for at in point.offsets:
            known = self.messages[point[:3]].get(at)
            self.messages[point[:3]][at] = Message(
                point.key, may_come_twice=known is not None and known.may_come_twice
            )

    def _do_ack(self, which: int, _b: int, _c: int) -> None:
        held = self._held_handle(which)
        if held is not None:
            self._ack(held[0], [held[1]])

    def _do_ack_all(self, which: int, _b: int, _c: int) -> None:
        held = self._held_handle(which)
        if held is not None:
            self._ack(held[0], self.handed[held[0]].offsets)

    def _ack(self, key: CheckPointKey, offsets: list[int]) -> None:
        handed = self.handed[key]
        mine = [self.messages[key[:3]][at] for at in offsets]
        mine = [message for message in mine if message.handle == key]
        before = [message.may_be_acked for message in mine]
        for message in mine:
            message.may_be_acked = True
        unsure = set(offsets) - handed.done
        handed.maybe |= unsure
        found = self.pops.ack(key, offsets)
        is_here = handed.is_here and not handed.done >= set(handed.offsets)
        assert handed.is_here is None or (found is not None) == is_here, f"{key}: {found}"
        if found is None:
            if not self._store_ack(key, offsets):
                return
        else:
            self._touch()
            self.rows[found[0]].bits = found[1]
            self._carry_out()
        self._publish()
        handed.maybe -= unsure
        if found is not None:
            handed.done |= unsure
        for message, was_unsure in zip(mine, before, strict=True):
            message.is_acked, message.may_be_acked = True, was_unsure

    def _do_change(self, which: int, invisible: int, _c: int) -> None:
        held = self._held_handle(which)
        if held is None:
            return
        old_key, at = held
        of, old = old_key[:3], self.handed[old_key]
        pop_ms = max(self.now_ms, old_key[4] + 1)
        time_ms = TIMES_MS[invisible % len(TIMES_MS)]
        point = CheckPoint(*of, at, (0,), pop_ms, time_ms, 5)
        if point.key in self.handed:
            return
        message = self.messages[of][at]
        is_last = message.handle == old_key and not message.is_acked
        was_done, was_twice = at in old.done, message.may_come_twice
        old.maybe.add(at)
        message.may_come_twice = True
        self.handed[point.key] = Handed([at], pop_ms + time_ms - STAY_OUT_MS)
        queue = self._queue(of)
        row = self._add(queue, point)
        is_merged = self.pops.change(queue, point, row, old_key, self.now_ms)
        self._carry_out()
        is_done = is_merged or self._store_ack(old_key, [at])
        self._publish()
        if is_merged and not was_done:
            old.maybe.discard(at)
            old.done.add(at)
        message.may_come_twice = was_twice or not is_last or not is_done
        if not is_done:
            return  # The client hears that it failed, or nothing yet: it has its old handle.
        if is_last:
            message.handle = point.key
        self.handles.append((point.key, at))

    def _do_forge(self, which: int, how: int, _c: int) -> None:
        """What was never handed out changes nothing."""
        held = self._held_handle(which)
        if held is None:
            return
        (topic, group, queue_id, start, pop_ms), at = held
        forged: tuple[CheckPointKey, int] = (
            ((topic, group, queue_id, start, pop_ms + 86_400_000), at),
            ((topic, group, queue_id, start + 1_000, pop_ms), at),
            ((topic, "X", queue_id, start, pop_ms), at),
            ((topic, group, queue_id, start, pop_ms), at + 1_000),
            ((topic, group, queue_id, start, pop_ms), -at - 1),
        )[how % 5]  # fmt: skip
        found = self.pops.ack(forged[0], [forged[1]])
        assert not self.pops.effects
        if how % 5 < 3:
            assert found is None
        elif found is not None:
            assert self.rows[found[0]].bits == found[1], "a bit of a message that it has not"

    def _do_tick(self, length: int, _b: int, _c: int) -> None:
        self.now_ms += PAUSES_MS[length % len(PAUSES_MS)]
        self._tick()

    def _tick(self) -> None:
        self.pops.tick(self.now_ms, self.flushed)
        self._carry_out()
        for key, handed in self.handed.items():
            is_open = handed.is_here and not handed.done >= set(handed.offsets)
            if self.mode == 0 and is_open and not handed.maybe:
                assert self.now_ms < handed.latest_ms, f"{key} is not stored in time"

    def _do_jump(self, length: int, _b: int, _c: int) -> None:
        """Somebody sets the clock."""
        self.now_ms += (-3_600_000, 3_600_000, -5_000, 5_000)[length % 4]

    def _do_flush(self, _a: int, _b: int, _c: int) -> None:
        self.flushed = self.published

    def _do_save(self, _a: int, _b: int, _c: int) -> None:
        self.saved = dict(self.table)

    def _do_mode(self, mode: int, take: int, _c: int) -> None:
        """The log takes check points, refuses them, or lets them wait."""
        self.mode = mode % 3
        held, self.held = self.held, []
        for one in held:
            if isinstance(one, tuple):
                if not take % 2:
                    self._touch()
                    self.log.append((*one, True))
            elif take % 2:
                self._refused(one)
            else:
                self._stored(one, one.left())

    def _do_fuse(self, count: int, _b: int, _c: int) -> None:
        self.fuse = count % 25

    def _do_kill(self, _a: int, _b: int, _c: int) -> None:
        raise Killed

    def _do_stop(self, _a: int, _b: int, _c: int) -> None:
        """An orderly stop."""
        self._do_mode(0, 0, 0)
        self.pops.drain()
        self._carry_out()
        self._publish()
        self.flushed = self.published
        self.pops.finish()
        self._carry_out()
        self.saved = dict(self.table)
        assert not self.pops.unstored_count
        assert not self.rows, "not all was stored"
        self.numbers.clear()
        self._start()

    def _do_power(self, _a: int, _b: int, _c: int) -> None:
        """The machine stops: the journal is of another boot."""
        self.rows.clear()
        self.numbers.clear()
        self.published = self.flushed
        for key in KEYS:
            for at, message in self.messages[key].items():
                message.may_come_twice = True
                # It is handed out again: from there on nothing is known of it.
                if at < self.saved.get(key, 0):
                    message.may_be_acked |= message.is_acked
                    message.is_acked = False
            for at in [at for at in self.messages[key] if at >= self.saved.get(key, 0)]:
                self.messages[key][at].may_be_acked = False
                self.messages[key][at].is_acked = False
            self.next[key] = {self.saved.get(key, 0)}
        self.handles.clear()
        raise Killed

    def _do_reset(self, who: int, where: int, _c: int) -> None:
        """An operator sets an offset; it is saved."""
        key = KEYS[who % len(KEYS)]
        queue = self.pops.queues.get(key)
        if queue is None:
            return
        offset = where % (max(self.next[key]) + 1)
        self.saved = {**self.table, key: offset}
        self.table[key] = offset
        for at, message in self.messages[key].items():
            message.may_come_twice = True
            message.may_be_acked |= message.is_acked or at < offset
        self.next[key] = set(range(max(self.next[key]) + 1))
        self.handles = [one for one in self.handles if one[0][:3] != key]
        self.pops.forget(key)
        for of, handed in self.handed.items():
            if of[:3] == key:
                handed.is_here = None
        self._carry_out()
        self._open(key, offset)
        self.next[key] = {offset}

    def _do_idle(self, _a: int, _b: int, _c: int) -> None:
        """Nobody pops for so long that queues are forgotten."""
        for _ in range(3):
            self.now_ms += 301_000
            self._tick()
            self.pops.drop_idle(self.now_ms)
            self._carry_out()
            self._publish()
            self.saved = dict(self.table)

    # -- the end ---------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._do_mode(0, 0, 0)
        self._carry_out()
        self.now_ms += 400_000_000
        for _ in range(_ROUNDS):
            self._publish()
            self.flushed = self.published
            if not self.pops.has_work:
                break
            self.now_ms += 20
            self._tick()
        assert not self.pops.has_work, "it never ends"
        assert not self.rows, f"rows are left: {self.rows}"
        assert not self.pops.unstored_count, "check points are left"
        kept = [
            one for queue in self.pops.queues.values() for one in (*queue.waits, *queue.renewed)
        ]
        assert not kept, f"what is settled is kept: {kept}"
        acked = {(of, at) for of, offsets, is_ack in self.log if is_ack for at in offsets}
        again = {
            (of[:3], at)
            for of, offsets, is_ack in self.log
            for at in offsets
            if not is_ack and (of, at) not in acked
        }
        for key in KEYS:
            end = self.table.get(key, 0)
            assert end in self.next[key], f"{key}: its offset is {end}, not {self.next[key]}"
            for at, message in self.messages[key].items():
                comes = (key, at) in again
                is_due = message.is_acked or message.may_be_acked or at >= end
                assert comes or is_due, f"{key}: the message at {at} is lost"
                assert message.may_come_twice or not (comes and message.is_acked), (
                    f"{key}: the message at {at} was acknowledged, and comes again"
                )


WEIGHTS = {
    "pop": 24, "ack": 20, "ack_all": 8, "change": 16, "forge": 4, "tick": 16, "jump": 2,
    "flush": 6, "save": 3, "mode": 5, "fuse": 6, "kill": 3, "stop": 1, "power": 1, "reset": 3,
    "idle": 1,
}  # fmt: skip
