"""TimerDequeueService: delivers timer messages to their real topics when their slot is over.

Runs on the loop thread of `remoting`, on masters only. Process `store` enters the messages of the
timer topic into the wheel and says which slots are closed (store/timer/timer_slots.py); these are
read here. Several slots go out at a time, each for a share of the turn, so that one with very many
messages delays no other, and neither sends nor pulls. What cannot be put now is put later, until it
is: a message leaves a slot only when it is in the log, or can never be. Corresponds to the dequeue
services of RocketMQ's TimerMessageStore.

Progress: TimerProgress knows at once what is in the log; TIMER_READ_TIME_MS, up to where `store`
and slaves may take the timers for delivered, follows when it is flushed (and replicated, where
sends wait for that). So over kills of processes nothing is delivered twice, over an end of the
machine little is, and nothing is ever lost.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from broker.append.append_queue import AppendQueue
from broker.append.diverted_messages import REAL_TOPIC, home_of
from broker.timer.delivered_properties import delivered_properties
from broker.timer.slot_delivery import DueMessage, SlotDelivery
from broker.timer.timer_progress import SLOTS, TimerProgress
from broker.topic.system_topics import TIMER_TOPIC, TRANS_HALF_TOPIC
from ipc.clock import Clock
from remoting.response_code import ResponseCode
from store.commit_log import CommitLog, Record, TopicLog
from store.commit_log_reader import CommitLogReader
from store.control_slots import SYNC_FLUSH_WANTED
from store.errors import MessageIllegalError, StoreError
from store.message import Message
from store.message_codec import STORE_HOST_V6_FLAG, decode_record
from store.message_properties import PROPERTIES_LIMIT
from store.timer.timer_log import TimerLogReader, TimerUnit
from store.timer.timer_slots import (
    TIMER_OPENED,
    TIMER_READ_TIME_MS,
    TIMER_START_TIME_MS,
    TIMER_WRITE_TIME_MS,
)
from store.timer.timer_wheel import TimerWheelReader

log = logging.getLogger(__name__)

_FIRST_MS: Final = 500
_LOOK_MS: Final = 100
"""Maximum polling interval."""
_SOON_MS: Final = 5
_TURN_NS: Final = 2_000_000
"""Time in one turn of the loop, so that sends and pulls are served in between."""
_SLOTS_AT_A_TIME: Final = 32
_WALKED: Final = 256
_SHARE: Final = 16
"""Units that are walked, and messages that are delivered, before it is another slot's turn."""
_SNAPSHOTS: Final = 1_000
_DISK_WAIT_MS: Final = 1_000
_FLUSH_WAIT_MS: Final = 1_000


class DequeueLoop(Protocol):
    """The part of the loop used here."""

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> object:
        """Run `function` after `delay_ms`."""

    def call_soon_threadsafe(self, function: Callable[[], None]) -> None:
        """Run `function` in the next turn."""


class DequeueStats(Protocol):
    """Counts deliveries."""

    def add_put(self, topic: str, count: int, size: int, message_type: str = "normal") -> None:
        """`count` messages, `size` bytes of the log, were stored in `topic`."""

    def add_timer_delivered(self, topic: str) -> None:
        """A message for `topic` was delivered, or put off within the timers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DequeueParts:
    """The collaborators of the service."""

    commit_log: CommitLog
    append_queue: AppendQueue
    reader: CommitLogReader
    wheel: TimerWheelReader
    units: TimerLogReader
    progress: TimerProgress
    counters: memoryview[int]
    """The control page."""
    safe_offset: Callable[[], int]
    """Up to where the log is as durable as sends are answered."""
    stats: DequeueStats
    clock: Clock


@dataclass(frozen=True, slots=True)
class _Delivery:
    """A due message on its way into the log: Append."""

    service: TimerDequeueService
    slot: SlotDelivery
    topic: TopicLog
    real_topic: str
    records: tuple[Record]

    def placed(self, places: list[tuple[int, int]]) -> None:
        """See Append."""
        self.service.on_placed(self, places[0][0])

    def refused(self, code: ResponseCode, remark: str) -> None:
        """See Append."""
        self.service.on_refused(self, code, remark)


class TimerDequeueService:
    """See the module. Owned by: the loop thread.

    Many methods because each outcome of a delivery has its own.
    """

    def __init__(self, parts: DequeueParts, *, stopped: bool) -> None:
        """stopped: timerStopDequeue."""
        self._parts = parts
        self._log = parts.commit_log
        self._counters = parts.counters
        self._precision_ms = parts.wheel.precision_ms
        self._slots: deque[SlotDelivery] = deque()
        """Those that are being delivered; the order is whose turn it is."""
        self._next_ms = 0
        """The next slot to look at; 0: not known yet."""
        self._changed: set[SlotDelivery] = set()
        self._snapshots: deque[tuple[int, int]] = deque()
        """Log end, and the read time that is true at that log end."""
        self._read_ms = 0
        self._last_end = 0
        """Where the last delivered record ends."""
        self._not_before_ms = 0
        self._flush_asked_ms = 0
        self._stop_dequeue = stopped
        self._running = False
        self._loop: DequeueLoop | None = None
        self.delivered = 0
        """Messages that were delivered or rolled since the start."""

    # -- life ------------------------------------------------------------------------------------

    def start(self, loop: DequeueLoop) -> None:
        """Begin to deliver; the log is open. Raises OSError."""
        self._last_end = self._log.position
        self._parts.progress.open(self._last_end)
        self._loop = loop
        self._running = True
        loop.call_later(_FIRST_MS, self._look)

    def use(self, *, stopped: bool) -> None:
        """timerStopDequeue was changed."""
        self._stop_dequeue = stopped

    def stop(self) -> None:
        """Begin no other slot; those that are being delivered go on. Idempotent."""
        self._running = False

    @property
    def busy(self) -> bool:
        """Whether a slot is delivered in part."""
        return bool(self._slots)

    def finish(self) -> None:
        """After the last commit of an orderly stop: the store flushes what is in the log."""
        if self._next_ms:
            self._counters[TIMER_READ_TIME_MS] = self.read_time_ms
        self._parts.progress.close()

    @property
    def read_time_ms(self) -> int:
        """Every slot before it is delivered; 0: not known yet."""
        return min((slot.slot_ms for slot in self._slots), default=self._next_ms)

    def turn_end(self) -> None:
        """The log's records of this turn are published: they are delivered."""
        if not self._changed:
            return
        end = self._log.position
        for slot in self._changed:
            self._parts.progress.record(slot.slot_ms, slot.delivered, slot.last_pos, end)
        self._changed.clear()

    # -- delivering ------------------------------------------------------------------------------

    def _look(self) -> None:
        if not self._running and not self._slots:
            return
        assert self._loop is not None
        wait_ms = self.deliver_due()
        if wait_ms:
            self._loop.call_later(wait_ms, self._look)
        else:
            self._loop.call_soon_threadsafe(self._look)

    def deliver_due(self) -> int:
        """Deliver for a share of this turn; returns ms until the next call, 0: in the next turn."""
        counters = self._counters
        if not counters[TIMER_OPENED]:
            return _LOOK_MS
        write_ms = counters[TIMER_WRITE_TIME_MS]
        self._find_first()
        if write_ms < self._next_ms and not self._slots:
            self._set_back(write_ms)
        try:
            self._begin_slots(write_ms)
            left = self._deliver_some()
        except StoreError as error:
            log.error("timers wait: %s", error)
            return _DISK_WAIT_MS
        self._publish()
        if left:
            return 0 if left == "more" else _SOON_MS
        slot_end_ms = self._next_ms + self._precision_ms - self._parts.clock.now_ms()
        return min(max(slot_end_ms, _SOON_MS), _LOOK_MS)

    def _find_first(self) -> None:
        """Go on where the last life ended; the control page outlives this process."""
        if not self._next_ms:
            read_ms = self._counters[TIMER_READ_TIME_MS] or self._counters[TIMER_START_TIME_MS]
            self._next_ms = self._read_ms = self._counters[TIMER_READ_TIME_MS] = read_ms
            log.info("timers are delivered from %s ms on", read_ms)

    def _set_back(self, write_ms: int) -> None:
        """The wall clock was set back: the slots from then on come again, with others in them."""
        log.warning(
            "the wall clock was set back: timers from %s ms on, not from %s",
            write_ms,
            self._next_ms,
        )
        self._parts.progress.clear(self._log.position)
        self._snapshots.clear()
        self._next_ms = self._read_ms = self._counters[TIMER_READ_TIME_MS] = write_ms

    def _begin_slots(self, write_ms: int) -> None:
        if self._stop_dequeue or not self._running:
            return
        parts = self._parts
        while self._next_ms < write_ms and len(self._slots) < _SLOTS_AT_A_TIME:
            slot_ms = parts.wheel.next_slot(self._next_ms, write_ms)
            if slot_ms is None:
                self._next_ms = write_ms
                return
            if slot_ms - self.read_time_ms >= SLOTS * self._precision_ms and self._slots:
                return
            slot = parts.wheel.slot(slot_ms)
            self._next_ms = slot_ms + self._precision_ms
            if slot is not None:
                delivered = parts.progress.delivered(slot_ms)
                self._slots.append(
                    SlotDelivery(slot_ms, slot.last_pos, delivered, parts.units, self._read)
                )

    def _deliver_some(self) -> str:
        """Until the turn's time is over. "": nothing is left; "more", or "held" by the log."""
        began_ns = self._parts.clock.monotonic_ns()
        while self._slots:
            if self._parts.append_queue.held or not self._log.writable:
                return "held"
            if self._parts.clock.monotonic_ns() - began_ns > _TURN_NS:
                return "more"
            if self._parts.clock.monotonic_ms() < self._not_before_ms:
                return "held"
            slot = self._slots[0]
            self._deliver_share(slot)
            if slot.is_done:
                self._slots.popleft()
            else:
                self._slots.rotate(-1)
        return ""

    def _deliver_share(self, slot: SlotDelivery) -> None:
        if not slot.is_walked:
            slot.walk(_WALKED)
            return
        for _ in range(_SHARE):
            if slot.is_done or slot.waits:
                return
            due = slot.next_due()
            if due.message is None or due.unit is None:
                self._drop(slot, due)
            else:
                self._deliver(slot, due.unit, due.message)

    def _read(self, phy_offset: int) -> Message | None:
        raw = self._parts.reader.record_at(phy_offset)
        message = None if raw is None else decode_record(raw, 0)[0]
        return message if message is not None and message.topic == TIMER_TOPIC else None

    def _drop(self, slot: SlotDelivery, due: DueMessage) -> None:
        if due.lost and due.unit is not None:
            log.error("slot %s: no timer message at %s: dropped", slot.slot_ms, due.unit.phy_offset)
        self._count(slot)

    def _deliver(self, slot: SlotDelivery, unit: TimerUnit, message: Message) -> None:
        home = (TIMER_TOPIC, 0) if unit.rolls else home_of(message.properties)
        if home is None or home[0] == TRANS_HALF_TOPIC:
            log.error(
                "slot %s: timer message at %s has no real topic: dropped",
                slot.slot_ms,
                message.phy_offset,
            )
            self._count(slot)
            return
        properties = delivered_properties(message.properties, unit, self._parts.clock.now_ms())
        try:
            topic = self._log.topic(home[0])
            if len(properties) > PROPERTIES_LIMIT:
                raise MessageIllegalError(f"properties of {len(properties)} bytes")
        except MessageIllegalError as error:
            self._give_up(slot, str(error))
            return
        record = Record(
            queue_id=home[1],
            flag=message.flag,
            sys_flag=message.sys_flag & ~STORE_HOST_V6_FLAG | self._log.store_host_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
            body=message.body,
            properties=properties,
        )
        slot.waits = True
        real_topic = message.find_property(REAL_TOPIC) or home[0]
        self._parts.append_queue.append(_Delivery(self, slot, topic, real_topic, (record,)))

    # -- results -----------------------------------------------------------------------------------

    def on_placed(self, delivery: _Delivery, phy_offset: int) -> None:
        """A message is in the log; published at the end of the turn."""
        self._last_end = end = self._log.position
        self._parts.stats.add_put(delivery.topic.name, 1, end - phy_offset)
        self._parts.stats.add_timer_delivered(delivery.real_topic)
        self.delivered += 1
        delivery.slot.waits = False
        self._count(delivery.slot)

    def on_refused(self, delivery: _Delivery, code: ResponseCode, remark: str) -> None:
        """Nothing was stored: it is put again, unless it can never be stored."""
        delivery.slot.waits = False
        if code is ResponseCode.MESSAGE_ILLEGAL:
            self._give_up(delivery.slot, remark)
        else:
            log.warning("slot %s: delivery delayed: %s", delivery.slot.slot_ms, remark)
            self._not_before_ms = self._parts.clock.monotonic_ms() + _LOOK_MS

    def _give_up(self, slot: SlotDelivery, why: str) -> None:
        log.error("slot %s: a timer message can never be stored: dropped: %s", slot.slot_ms, why)
        self._count(slot)

    def _count(self, slot: SlotDelivery) -> None:
        slot.delivered += 1
        self._changed.add(slot)

    def _publish(self) -> None:
        """Store and slaves learn of what is durable."""
        read_ms, snapshots = self.read_time_ms, self._snapshots
        if read_ms != self._read_ms:
            self._read_ms = read_ms
            if snapshots and (snapshots[-1][0] == self._last_end or len(snapshots) >= _SNAPSHOTS):
                snapshots.pop()
            snapshots.append((self._last_end, read_ms))
        safe, reached = self._parts.safe_offset(), 0
        while snapshots and snapshots[0][0] <= safe:
            reached = snapshots.popleft()[1]
        if reached:
            self._counters[TIMER_READ_TIME_MS] = reached
        now_ms = self._parts.clock.monotonic_ms()
        if not snapshots:
            self._flush_asked_ms = now_ms
        elif now_ms - self._flush_asked_ms > _FLUSH_WAIT_MS:
            # The log's own flush may be ten seconds away.
            self._flush_asked_ms = now_ms
            wanted = max(snapshots[-1][0], self._counters[SYNC_FLUSH_WANTED])
            self._counters[SYNC_FLUSH_WANTED] = wanted
