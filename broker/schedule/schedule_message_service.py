"""ScheduleMessageService: delivers delayed messages to their real topics when they are due.

Runs on the loop thread of `remoting`, on masters only. Each delay level has a queue in the schedule
topic whose units carry the delivery time; due messages are read from the log and appended to their
real topics. A level's progress (delayOffset.json) advances past a message only when its delivery is
as durable as a send (flush and replicas as configured) and on disk: after a crash a message may be
delivered twice, but is never lost. One whose queue has no room waits alone, in another level.
Follows ScheduleMessageService of RocketMQ. Knows no request.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker.append.delivery_rounds import deliver_in_rounds
from broker.append.diverted_messages import home_of
from broker.append.room_waits import RoomWaits
from broker.append.writable_log import WritableLog
from broker.schedule.clock_steps import ClockSteps
from broker.schedule.put_off_levels import put_off_levels, put_off_properties
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.store_access.checked_units import CheckedUnits
from broker.topic.lost_topics import PutBackTopic
from broker.topic.system_topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from broker.topic.table_protocols import PutStats
from ipc.clock import Clock
from ipc.queue_table import QueueTableReader
from remoting.response_code import ResponseCode
from store.commit_log import TopicLog
from store.commit_log_reader import CommitLogReader
from store.control_slots import PutOffBy
from store.errors import MessageIllegalError, QueueTableFullError
from store.message_codec import CheckedRecord
from store.message_properties import PROPERTIES_LIMIT
from store.put_aside import ReadBy, RecordGuard
from store.record import Record
from store.record_again import record_again
from store.stored_units import CQ_UNIT, PRE_BLANK_SIZE

if TYPE_CHECKING:
    from remoting.selector_loop import SelectorLoop

log = logging.getLogger(__name__)

_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()
FIRST_DELAY_MS: Final = 1_000
_LOOK_MS: Final = 100
"""Maximum polling interval of a level with messages."""
_EMPTY_LOOK_MS: Final = 500
"""Of an empty level; with all of them empty, the next look comes when the loop has had events."""
_BUSY_MS: Final = 5
_PER_TURN: Final = 64
_TURN_NS: Final = 2_000_000
"""Limits of messages and time in one turn of the loop, so that sends and pulls are served in
between."""
_UNSAFE_LIMIT: Final = 2_000
"""Maximum deliveries that wait for flush or replicas (Java:
scheduleAsyncDeliverMaxPendingLimit)."""
_SNAPSHOTS: Final = 1_000
"""Maximum recorded progress steps that are not on disk yet; further steps are merged."""


class _Level:
    """One delay level: how far it was read, and up to where its deliveries are durable."""

    __slots__ = ("delay_ms", "level", "next_offset", "queue_id", "safe_offset")

    def __init__(self, level: int, delay_ms: int, offset: int) -> None:
        self.level = level
        self.queue_id = level - 1
        self.delay_ms = delay_ms
        self.next_offset = offset
        """Queue offset of the next message to examine."""
        self.safe_offset = offset
        """Messages before this offset need no delivery once the log is flushed up to the recorded
        end."""


@dataclass(frozen=True, slots=True)
class _Delivery:
    """A due message: its append (Append), then the wait for durability."""

    service: ScheduleMessageService
    level: _Level
    queue_offset: int
    phy_offset: int
    topic: TopicLog
    records: tuple[Record]
    full: QueueTableFullError | None
    """Why it goes to another level instead."""

    def placed(self, places: list[tuple[int, int]]) -> None:
        """See Append."""
        self.service.on_placed(self, places[0][0])

    def refused(self, code: ResponseCode, remark: str) -> None:
        """See Append."""
        self.service.on_refused(self, code, remark)

    def on_safe(self, _code: ResponseCode) -> None:
        """An Answer: the message is stored; a replica timeout is not reported."""
        self.service.on_safe(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleParts:
    """The collaborators of the service."""

    log: WritableLog
    reader: CommitLogReader
    table: QueueTableReader
    units: CheckedUnits
    offsets: ScheduleOffsetManager
    stats: PutStats
    clock: Clock
    clock_steps: ClockSteps
    room_waits: RoomWaits
    put_back_topic: PutBackTopic
    flushed_offset: Callable[[], int]
    """The flushed offset of the log."""


class ScheduleMessageService:
    """See the module. Owned by: the loop thread."""

    def __init__(self, parts: ScheduleParts, delay_level_ms: Mapping[int, int]) -> None:
        self._parts = parts
        self._log = parts.log.commit_log
        self._append_queue = parts.log.append_queue
        self._waiters = parts.log.waiters
        self._guard = RecordGuard(ReadBy.DELAY_DELIVERY)
        self._counting = RecordGuard(ReadBy.DELAY_DELIVERY)
        """For statistics: what is delivered is not put aside for them."""
        self._delay_level_ms = delay_level_ms
        self._levels: list[_Level] = []
        self._unsafe = 0
        self._moved = False
        self._snapshots: deque[tuple[int, dict[int, int]]] = deque()
        """Log end, and each level's durable offset at that log end."""
        self._running = False

    # -- lifecycle
    # ----------------------------------------------------------------------------------

    def start(self, loop: SelectorLoop) -> None:
        """Correct the stored offsets and start delivering after a second. The log must be open."""
        for level, delay_ms in self._delay_level_ms.items():
            self._levels.append(_Level(level, delay_ms, self._first_offset(level)))
        self._running = True
        deliver_in_rounds(
            loop,
            self.deliver_due,
            lambda: self._running,
            first_ms=FIRST_DELAY_MS,
            idle_ms=_EMPTY_LOOK_MS,
        )

    def stop(self) -> None:
        """Stop delivering; idempotent."""
        self._running = False

    @property
    def unsafe(self) -> int:
        """Number of deliveries that wait for flush or replicas."""
        return self._unsafe

    def finish(self) -> None:
        """Called after the last commit of an orderly shutdown: no delivery needs to be repeated."""
        self._snapshots.clear()
        for level in self._levels:
            self._parts.offsets.update_offset(level.level, level.next_offset)

    def _first_offset(self, level: int) -> int:
        """The stored offset, limited to the queue's range; the log knows its end before the queue
        does."""
        low, _high = self._parts.table.offsets(SCHEDULE_TOPIC, level - 1)
        high = self._end(level - 1)
        stored = self._parts.offsets.find_offset(level)
        offset = min(max(stored or 0, low), high)
        if stored is not None and offset != stored:
            log.error(
                "delay level %s: offset %s is outside its queue [%s, %s], corrected to %s",
                level,
                stored,
                low,
                high,
                offset,
            )
            self._parts.offsets.update_offset(level, offset)
        return offset

    def _end(self, queue_id: int) -> int:
        """Of the level's queue; the log knows it before the queue table does."""
        _low, high = self._parts.table.offsets(SCHEDULE_TOPIC, queue_id)
        return max(high, self._log.next_offset(SCHEDULE_TOPIC, queue_id) or 0)

    def waiting(self) -> dict[int, range]:
        """By queue id, the queue offsets of the messages that may have to be delivered still."""
        find_offset = self._parts.offsets.find_offset
        return {
            level - 1: range(find_offset(level) or 0, self._end(level - 1))
            for level in self._delay_level_ms
        }

    # -- delivering -------------------------------------------------------------------------------

    def deliver_due(self) -> int:
        """Deliver due messages within the limits of a turn; returns ms until the next poll, 0 for
        the next turn."""
        self._record_progress()
        began_ns = self._parts.clock.monotonic_ns()
        wait_ms = _EMPTY_LOOK_MS
        left = _PER_TURN
        for index, level in enumerate(self._levels):
            while True:
                due_ms = self._deliver_next(level)
                if due_ms:
                    break
                left -= 1
                if not left or self._parts.clock.monotonic_ns() - began_ns > _TURN_NS:
                    # The level that used up the turn comes last in the next one.
                    self._levels = self._levels[index + 1 :] + self._levels[: index + 1]
                    return 0
            wait_ms = min(wait_ms, due_ms)
        return wait_ms

    def _deliver_next(self, level: _Level) -> int:
        """Deliver the level's next message; returns 0 if one was processed, else ms until the next
        poll."""
        if self._unsafe >= _UNSAFE_LIMIT or self._append_queue.held:
            return _BUSY_MS
        if not self._parts.log.append_queue.is_writable:
            return _LOOK_MS
        low, high = self._parts.table.offsets(SCHEDULE_TOPIC, level.queue_id)
        if level.next_offset < low:
            self._skip(level, low - level.next_offset, "expired, undelivered")
        if level.next_offset >= high:
            is_coming = level.next_offset < self._end(level.queue_id)
            return _LOOK_MS if is_coming else _EMPTY_LOOK_MS
        unit = self._parts.units.read(SCHEDULE_TOPIC, level.queue_id, level.next_offset, 1, high)
        if len(unit) < CQ_UNIT.size:
            return _LOOK_MS
        phy_offset, size, deliver_ms = CQ_UNIT.unpack(unit)
        if size == PRE_BLANK_SIZE:
            self._skip(level, 1, "its record is lost")
            return 0
        due_ms = self._parts.clock_steps.due_ms(level.queue_id, level.next_offset, deliver_ms)
        left_ms: int = due_ms - self._log.now_ms
        if 0 < left_ms <= level.delay_ms:
            return min(left_ms, _LOOK_MS)
        # Due, or further ahead than the level allows: the level's delay was changed, or the clock
        # while another broker was the master.
        queue_offset = level.next_offset
        with self._guard.of(phy_offset):
            message = self._parts.reader.checked_at(phy_offset)
            if message is None or message.topic != _SCHEDULE_TOPIC:
                self._skip(level, 1, f"no delayed message at {phy_offset}")
            else:
                self._deliver(level, message)
        if self._guard.failed and level.next_offset == queue_offset:
            self._skip(level, 1, f"the message at {phy_offset} is put aside")
        # The same again: it was refused, for example since its topic's queues are being deleted.
        return 0 if level.next_offset != queue_offset else _LOOK_MS

    def _deliver(self, level: _Level, message: CheckedRecord) -> None:
        home = home_of(message.properties)
        if home is None or home[0] == TRANS_HALF_TOPIC:
            self._skip(level, 1, f"message at {message.phy_offset} has no real topic")
            return
        full, queue_id, properties = None, home[1], message.properties
        try:
            self._parts.put_back_topic(home[0], queue_id, message.phy_offset)
            topic = self._log.topic(home[0])
            self._log.check_room(topic, queue_id)
        except MessageIllegalError as error:
            self._guard.put(message.phy_offset, error)
            self._skip(level, 1, f"message at {message.phy_offset}: {error}")
            return
        except QueueTableFullError as error:
            topic, full = self._log.topic(SCHEDULE_TOPIC), error
            queue_id, properties = self._waiting_place(level, message.properties, home)
        record = record_again(message, queue_id, properties, self._log.store_host_flag)
        queue_offset = level.next_offset
        level.next_offset = queue_offset + 1
        self._unsafe += 1
        delivery = _Delivery(self, level, queue_offset, message.phy_offset, topic, (record,), full)
        self._append_queue.append(delivery)

    def _waiting_place(
        self, level: _Level, properties: bytes, home: tuple[str, int]
    ) -> tuple[int, bytes]:
        """Queue and properties of a message that waits for room: in a level whose queue is there,
        as that of its own is, or for which a row is kept."""
        for other in put_off_levels(level.level, self._delay_level_ms):
            moved = put_off_properties(properties, home, other)
            if len(moved) <= PROPERTIES_LIMIT and self._has_room(other - 1):
                return other - 1, moved
        return level.queue_id, properties

    def _has_room(self, queue_id: int) -> bool:
        try:
            self._log.check_room(self._log.topic(SCHEDULE_TOPIC), queue_id)
        except QueueTableFullError:
            return False
        return True

    def _skip(self, level: _Level, count: int, why: str) -> None:
        log.error(
            "delay level %s: skipped %s message(s) from offset %s: %s",
            level.level,
            count,
            level.next_offset,
            why,
        )
        if level.safe_offset == level.next_offset:
            level.safe_offset += count
            self._moved = True
        level.next_offset += count

    # -- results of deliveries -------------------------------------------------------------

    def on_placed(self, delivery: _Delivery, phy_offset: int) -> None:
        """A message was appended; it is durable now, or once the waiters report it."""
        end = self._log.position
        if self._waiters.active:
            self._waiters.add(end, delivery.on_safe, None)
        else:
            self.on_safe(delivery)
        if delivery.full is not None:
            self._parts.room_waits.put_off(
                PutOffBy.DELAY_DELIVERY, delivery.phy_offset, delivery.full
            )
        with self._counting.of(delivery.phy_offset):
            size = end - phy_offset
            self._parts.stats.add_put(delivery.topic.name, 1, size)
            self._parts.stats.add_scheduled_get(delivery.level.queue_id, size)

    def on_refused(self, delivery: _Delivery, code: ResponseCode, remark: str) -> None:
        """Nothing was stored: retry, unless the message can never be stored."""
        self._unsafe -= 1
        level = delivery.level
        level.next_offset = delivery.queue_offset
        if code is ResponseCode.MESSAGE_ILLEGAL:
            self._guard.put(delivery.phy_offset, MessageIllegalError(remark))
            self._skip(level, 1, remark)
        else:
            log.warning("delay level %s: delivery delayed: %s", level.level, remark)

    def on_safe(self, delivery: _Delivery) -> None:
        """A delivery is durable; deliveries of a level become durable in order."""
        self._unsafe -= 1
        delivery.level.safe_offset = delivery.queue_offset + 1
        self._moved = True

    def _record_progress(self) -> None:
        """Store the offsets whose deliveries are on disk."""
        snapshots = self._snapshots
        if self._moved:
            self._moved = False
            if len(snapshots) >= _SNAPSHOTS:
                snapshots.pop()
            safe = {level.level: level.safe_offset for level in self._levels}
            snapshots.append((self._log.position, safe))
        flushed = self._parts.flushed_offset()
        reached = None
        while snapshots and snapshots[0][0] <= flushed:
            reached = snapshots.popleft()[1]
        if reached is not None:
            for level, offset in reached.items():
                self._parts.offsets.update_offset(level, offset)
