"""TimerDequeueService: delivers timer messages to their real topics at the ms that they ask for.

Runs on the loop thread of `remoting`, on masters only. Process `store` enters the messages of the
timer topic into the wheel and says which slots are closed (store/timer/timer_slots.py). Of open
slots goes what is due and says exactly when it asks to be delivered (asked_time.py); when they are
closed, the rest. Several slots go out at a time, each for a share of the turn, so that one with
very many messages delays no other, and neither sends nor pulls. What cannot be put now is put
later, until it is: a message leaves a slot only when it is in the log, or can never be. One whose
queue has no room waits alone: it goes back to the timer topic for a later slot, as one that rolls.
Corresponds to the dequeue services of RocketMQ's TimerMessageStore.

Progress: DeliveryNotes know at once what is in the log; TIMER_READ_TIME_MS, up to where `store` and
slaves may take the timers for delivered, follows when a slot is closed and all of it flushed (and
replicated, where sends wait for that). So over kills of processes nothing is delivered twice, over
an end of the machine little is, and nothing is ever lost.

Tested by tests/broker/timer/test_open_slots.py.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from broker.append.delivery_rounds import deliver_in_rounds
from broker.append.diverted_messages import REAL_TOPIC, home_of
from broker.timer.delivered_properties import delivered_properties, put_off_properties
from broker.timer.delivery_notes import DeliveryNotes
from broker.timer.dequeue_parts import DequeueParts
from broker.timer.open_slot import OpenSlot, SlotReads
from broker.timer.open_slots import OpenSlots
from broker.timer.published_read_time import PublishedReadTime
from broker.timer.slot_delivery import DueMessage, SlotDelivery
from broker.timer.timer_progress import SLOTS
from broker.timer.timer_records import TimerRecords
from broker.topic.system_topics import TIMER_TOPIC, TRANS_HALF_TOPIC
from remoting.response_code import ResponseCode
from store.commit_log import TopicLog
from store.control_slots import PutOffBy
from store.errors import MessageIllegalError, QueueTableFullError, StoreError
from store.message import Message
from store.put_aside import ReadBy, RecordGuard
from store.record import Record
from store.record_again import record_again
from store.timer.slot import Slot
from store.timer.timer_log import TimerUnit
from store.timer.timer_slots import (
    TIMER_COMMIT_QUEUE_OFFSET,
    TIMER_OPENED,
    TIMER_READ_TIME_MS,
    TIMER_START_TIME_MS,
    TIMER_TAKEN_BACK_MS,
    TIMER_WRITE_TIME_MS,
)

if TYPE_CHECKING:
    from remoting.selector_loop import SelectorLoop

log = logging.getLogger(__name__)

_FIRST_MS: Final = 500
_LOOK_MS: Final = 100
"""Maximum polling interval."""
_IDLE_MS: Final = 1_000
_SOON_MS: Final = 5
_TURN_NS: Final = 2_000_000
"""Time in one turn of the loop, so that sends and pulls are served in between."""
_SLOTS_AT_A_TIME: Final = 32
_WALKED: Final = 256
_SHARE: Final = 16
"""Units that are walked, and messages that are delivered, before it is another slot's turn."""
_READ: Final = 32
"""Units of an open slot that are read, with their records, before it is another's turn."""
_DISK_WAIT_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Delivery:
    """A due message on its way into the log: Append."""

    service: TimerDequeueService
    slot: SlotDelivery | OpenSlot
    phy_offset: int
    """Of the timer message."""
    topic: TopicLog
    real_topic: str
    records: tuple[Record]
    full: QueueTableFullError | None
    """Why it goes back to the timer topic instead."""

    def placed(self, places: list[tuple[int, int]]) -> None:
        """See Append."""
        self.service.on_placed(self, places[0][0])

    def refused(self, code: ResponseCode, remark: str) -> None:
        """See Append."""
        self.service.on_refused(self, code, remark)


class TimerDequeueService:
    """See the module. Owned by: the loop thread."""

    def __init__(self, parts: DequeueParts, *, stopped: bool) -> None:
        """stopped: timerStopDequeue."""
        self._parts = parts
        self._log = parts.commit_log
        self._counters = parts.counters
        self._precision_ms = parts.wheel.precision_ms
        self._records = TimerRecords(parts.reader, self._precision_ms)
        self._guard = RecordGuard(ReadBy.TIMER_DELIVERY)
        self._counting = RecordGuard(ReadBy.TIMER_DELIVERY)
        """For statistics: what is delivered is not put aside for them."""
        self._open = OpenSlots(
            parts.wheel,
            SlotReads(parts.units, self._records.asked_ms, self._records.message),
            parts.early,
            parts.counters,
            self._queue_end,
        )
        self._slots: deque[SlotDelivery] = deque()
        """Closed ones that are being delivered; the order is whose turn it is."""
        self._next_ms = 0
        """The next slot to look at; 0: not known yet."""
        self._notes = DeliveryNotes(parts)
        self._published = PublishedReadTime(parts.counters, parts.safe_offset, parts.clock)
        self._last_end = 0
        """Where the last delivered record ends."""
        self._not_before_ms = 0
        self._stop_dequeue = stopped
        self._running = False
        self.delivered = 0
        """Messages that were delivered or rolled since the start."""

    # -- life ------------------------------------------------------------------------------------

    def start(self, loop: SelectorLoop) -> None:
        """Begin to deliver; the log is open. Raises OSError."""
        self._last_end = self._log.position
        self._notes.open(self._last_end)
        self._running = True
        deliver_in_rounds(
            loop,
            self.deliver_due,
            lambda: self._running or bool(self._slots),
            first_ms=_FIRST_MS,
            idle_ms=_IDLE_MS,
        )

    def use(self, *, stopped: bool) -> None:
        """timerStopDequeue was changed."""
        self._stop_dequeue = stopped

    def stop(self, *, at_once: bool = False) -> None:
        """Begin no other slot; those that are being delivered go on, unless `at_once`: another
        service goes on from the files. Idempotent."""
        self._running = False
        if at_once:
            self._slots.clear()

    @property
    def busy(self) -> bool:
        """Whether a closed slot is delivered in part, or a message is with the append queue."""
        return bool(self._slots) or self._open.waits

    def finish(self) -> None:
        """After the last commit of an orderly stop: the store flushes what is in the log."""
        if self._next_ms:
            self._counters[TIMER_READ_TIME_MS] = self.read_time_ms
        self._notes.close()

    @property
    def read_time_ms(self) -> int:
        """Every slot before it is delivered; 0: not known yet."""
        return min((slot.slot_ms for slot in self._slots), default=self._next_ms)

    def turn_end(self) -> None:
        """The log's records of this turn are published: they are delivered."""
        self._notes.turn_end(self._log.position, self.read_time_ms)

    # -- delivering ------------------------------------------------------------------------------

    def deliver_due(self) -> int:
        """Deliver for a share of this turn; returns ms until the next call, 0: in the next turn."""
        counters = self._counters
        if not counters[TIMER_OPENED]:
            return _LOOK_MS
        write_ms = counters[TIMER_WRITE_TIME_MS]
        if not self._next_ms and not self._find_first(write_ms):
            return _LOOK_MS
        if write_ms < self._next_ms and not self._slots:
            self._set_back(write_ms)
        try:
            self._begin_slots(write_ms)
            if self._may_begin:
                self._open.follow(max(write_ms, self._next_ms), self._log.now_ms)
            left = self._deliver_some()
        except StoreError as error:
            log.error("timer delivery is paused: %s", error)
            return _DISK_WAIT_MS
        self._published.follow(self.read_time_ms, self._last_end)
        if left:
            return 0 if left == "more" else _SOON_MS
        if not counters[TIMER_COMMIT_QUEUE_OFFSET]:
            # There never was a timer: no slot's end is worth being in time for.
            return _IDLE_MS if self._queue_end() == 0 else _LOOK_MS
        slot_end_ms = self._next_ms + self._precision_ms - self._parts.clock.now_ms()
        wait_ms = self._open.wait_ms(self._log.now_ms) if self._may_begin else None
        return min(max(slot_end_ms, _SOON_MS), wait_ms or _LOOK_MS)

    @property
    def _may_begin(self) -> bool:
        return self._running and not self._stop_dequeue

    def _find_first(self, write_ms: int) -> bool:
        """Go on where the last life ended; the control page outlives this process. What a slave
        delivered in this broker's place is left out, once `store` has closed these slots (the read
        time is never beyond the write time): False until then."""
        counters = self._counters
        read_ms = counters[TIMER_READ_TIME_MS] or counters[TIMER_START_TIME_MS]
        if (taken_ms := counters[TIMER_TAKEN_BACK_MS]) > read_ms:
            if taken_ms > write_ms:
                return False
            counters[TIMER_READ_TIME_MS] = read_ms = taken_ms
        self._next_ms = read_ms
        self._published.begin(read_ms)
        self._parts.early.free_before(read_ms)
        log.info("delivering timers from %s ms on", read_ms)
        return True

    def _set_back(self, write_ms: int) -> None:
        """The wall clock was set back: the slots from then on come again, with others in them."""
        log.warning(
            "the wall clock was set back: delivering timers from %s ms on, instead of %s",
            write_ms,
            self._next_ms,
        )
        self._parts.progress.clear(self._log.position)
        self._next_ms = write_ms
        self._published.begin(write_ms)

    def _begin_slots(self, write_ms: int) -> None:
        if not self._may_begin:
            return
        parts = self._parts
        while self._next_ms < write_ms and len(self._slots) < _SLOTS_AT_A_TIME:
            slot_ms = parts.wheel.next_slot(self._next_ms, write_ms)
            if slot_ms is None:
                self._next_ms = write_ms
                return
            if slot_ms - self.read_time_ms >= SLOTS * self._precision_ms and self._slots:
                return
            slot, open_slot = parts.wheel.slot(slot_ms), self._open.find(slot_ms)
            if open_slot is not None and open_slot.waits:
                return
            self._open.close(slot_ms)
            self._next_ms = slot_ms + self._precision_ms
            if slot is not None:
                self._slots.append(self._begin_slot(slot, open_slot))

    def _begin_slot(self, slot: Slot, open_slot: OpenSlot | None) -> SlotDelivery:
        parts, slot_ms = self._parts, slot.time_ms
        early = parts.early.of_slot(slot_ms) if open_slot is None else open_slot.delivered
        delivered = parts.progress.delivered(slot_ms)
        return SlotDelivery(
            slot_ms, slot.last_pos, delivered, parts.units, self._records.message, early
        )

    def _deliver_some(self) -> str:
        """Until the turn's time is over. "": nothing is left; "more", or "held" by the log."""
        began_ns = self._parts.clock.monotonic_ns()
        while True:
            open_slot = self._next_open()
            if not self._slots and open_slot is None:
                return ""
            if self._parts.append_queue.held or not self._parts.append_queue.is_writable:
                return "held"
            if self._parts.clock.monotonic_ns() - began_ns > _TURN_NS:
                return "more"
            if self._parts.clock.monotonic_ms() < self._not_before_ms:
                return "held"
            if self._slots:
                slot = self._slots[0]
                self._deliver_share(slot)
                if slot.is_done:
                    self._slots.popleft()
                else:
                    self._slots.rotate(-1)
            if open_slot is not None:
                self._deliver_open_share(open_slot)

    def _deliver_share(self, slot: SlotDelivery) -> None:
        if not slot.is_walked:
            slot.walk(_WALKED)
            return
        not_before_ms = self._not_before_ms
        for _ in range(_SHARE):
            if slot.is_done or slot.waits or self._not_before_ms != not_before_ms:
                return
            due = slot.next_due()
            if due.message is None or due.unit is None:
                self._drop(slot, due)
            else:
                slot.waits = True
                self._deliver(slot, due.unit, due.message)

    def _next_open(self) -> OpenSlot | None:
        if not self._may_begin:
            return None
        return self._open.next_ready(self._log.now_ms, self._log.position)

    def _deliver_open_share(self, slot: OpenSlot) -> None:
        if slot.is_walking:
            slot.walk(_READ)
            return
        not_before_ms = self._not_before_ms
        for _ in range(_SHARE):
            if not slot.is_due(self._log.now_ms) or self._not_before_ms != not_before_ms:
                return
            due = slot.next_due()
            if due.message is not None and due.unit is not None:
                self._deliver(slot, due.unit, due.message)

    def _queue_end(self) -> int | None:
        if self._parts.append_queue.held:
            return None
        return self._log.next_offset(TIMER_TOPIC, 0) or 0

    def _drop(self, slot: SlotDelivery, due: DueMessage) -> None:
        if due.lost and due.unit is not None:
            log.error("slot %s: no timer message at %s: dropped", slot.slot_ms, due.unit.phy_offset)
        self._notes.count(slot)

    def _deliver(self, slot: SlotDelivery | OpenSlot, unit: TimerUnit, message: Message) -> None:
        with self._guard.of(unit.phy_offset):
            self._put(slot, unit, message)
            return
        self._notes.count(slot)

    def _put(self, slot: SlotDelivery | OpenSlot, unit: TimerUnit, message: Message) -> None:
        home = (TIMER_TOPIC, 0) if unit.rolls else home_of(message.properties)
        if home is None or home[0] == TRANS_HALF_TOPIC:
            log.error(
                "slot %s: timer message at %s has no real topic: dropped",
                slot.slot_ms,
                message.phy_offset,
            )
            self._notes.count(slot)
            return
        now_ms, full = self._parts.clock.now_ms(), None
        properties = delivered_properties(message.properties, unit, now_ms)
        try:
            self._parts.put_back_topic(*home, message.phy_offset)
            topic = self._log.topic(home[0])
            self._log.check_room(topic, home[1])
        except MessageIllegalError as error:
            self._give_up(slot, message.phy_offset, error)
            return
        except QueueTableFullError as error:
            topic, home, full = self._log.topic(TIMER_TOPIC), (TIMER_TOPIC, 0), error
            properties = put_off_properties(message.properties, unit, now_ms, self._precision_ms)
        record = record_again(message, home[1], properties, self._log.store_host_flag)
        real_topic = message.find_property(REAL_TOPIC) or home[0]
        self._parts.append_queue.append(
            _Delivery(self, slot, message.phy_offset, topic, real_topic, (record,), full)
        )

    # -- results -----------------------------------------------------------------------------------

    def on_placed(self, delivery: _Delivery, phy_offset: int) -> None:
        """A message is in the log; published at the end of the turn."""
        self._last_end = end = self._log.position
        self.delivered += 1
        self._notes.count_placed(delivery.slot, end)
        if delivery.full is not None:
            self._parts.room_waits.put_off(
                PutOffBy.TIMER_DELIVERY, delivery.phy_offset, delivery.full
            )
        with self._counting.of(delivery.phy_offset):
            self._parts.stats.add_put(delivery.topic.name, 1, end - phy_offset)
            self._parts.stats.add_timer_delivered(delivery.real_topic)

    def on_refused(self, delivery: _Delivery, code: ResponseCode, remark: str) -> None:
        """Nothing was stored: it is put again, unless it can never be stored."""
        if code is ResponseCode.MESSAGE_ILLEGAL:
            self._give_up(delivery.slot, delivery.phy_offset, MessageIllegalError(remark))
        else:
            delivery.slot.put_back()
            log.warning("slot %s: delivery delayed: %s", delivery.slot.slot_ms, remark)
            self._not_before_ms = self._parts.clock.monotonic_ms() + _LOOK_MS

    def _give_up(
        self, slot: SlotDelivery | OpenSlot, phy_offset: int, why: MessageIllegalError
    ) -> None:
        """It can never be stored."""
        self._guard.put(phy_offset, why)
        self._notes.count(slot)
