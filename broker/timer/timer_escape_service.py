"""TimerEscapeService: an acting slave delivers timer messages to the cluster's other brokers.

With enableSlaveActingMaster and enableRemoteEscape. While this slave stands in for its master its
log stands still, so once process `store` has entered all of the timer topic, the wheel's past slots
do not change. They are delivered one after the other, each message to another master that has the
topic (EscapeBridge); one whose slot lies further ahead than the wheel goes there as a timer message
again. A slot waits while nobody takes its next message. Records of pop's revive topic are not sent:
PopEscape revives what is due.

The read time, which the master takes back when it returns (60), passes a slot once all of it is
stored elsewhere, and what it began for pop is done. What comes twice: of the slot that was being
delivered, and what the master delivered before the slave copied its read time.

A thread of its own in process `remoting`, on slaves only. Corresponds to TimerMessageStore's
escapeBridgeHook in RocketMQ 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from broker.append.diverted_messages import TIMER_DELIVER_MS, TIMER_OUT_MS, home_of
from broker.append.send_properties import append_pairs, find_property, without_property
from broker.out.escape_bridge import EscapeBridge, EscapedMessage, EscapeError
from broker.schedule.due_message import escaped_message
from broker.timer.slot_delivery import SlotDelivery
from broker.timer.timer_hook import TIMER_DELETE_KEY
from broker.timer.timer_records import TimerRecords
from broker.topic.system_topics import TIMER_TOPIC, TRANS_HALF_TOPIC
from ipc.queue_table import QueueTableReader
from ipc.service_thread import FailureHandler, ServiceThread
from store.control_slots import DISPATCHED_OFFSET, MAX_PHY_OFFSET
from store.errors import StoreError
from store.message import Message
from store.put_aside import ReadBy, RecordGuard
from store.timer.timer_log import TimerLogReader, TimerUnit
from store.timer.timer_slots import (
    TIMER_COMMIT_QUEUE_OFFSET,
    TIMER_MASTER_QUEUE_OFFSET,
    TIMER_OPENED,
    TIMER_READ_TIME_MS,
    TIMER_START_TIME_MS,
    TIMER_TAKEN_BACK_MS,
    TIMER_WRITE_TIME_MS,
)
from store.timer.timer_wheel import TimerWheelReader

log = logging.getLogger(__name__)

LOOK_MS: Final = 100
RETRY_MS: Final = 1_000
_WALKED: Final = 4_096
CLOCK_STEP_MS: Final = 60_000
"""A read time that lies further ahead of the write time is of a clock that was set back."""


class RevivesPops(Protocol):
    """PopEscape, of this thread."""

    @property
    def topic(self) -> str:
        """Of its records."""

    def take(self, message: Message, slot_ms: int) -> None:
        """A record of the revive topic is due, in this slot. Raises EscapeError, StoreError."""

    def settle(self, read_ms: int) -> None:
        """All slots before are delivered: revive what is due. Raises EscapeError, StoreError."""

    def waits_from(self) -> int | None:
        """The slot of the oldest record that was taken and is not done with."""

    def forget(self) -> None:
        """This slave acts no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerEscapeParts:
    """The collaborators of the service."""

    wheel: TimerWheelReader
    units: TimerLogReader
    records: TimerRecords
    table: QueueTableReader
    counters: memoryview[int]
    """The control page."""
    bridge: EscapeBridge
    pops: RevivesPops


class TimerEscapeService(ServiceThread):
    """See the module. Owned by: its thread."""

    def __init__(
        self,
        may_deliver: Callable[[], bool],
        parts: TimerEscapeParts,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """may_deliver: ActingMaster."""
        super().__init__("TimerEscapeService", on_failure=on_failure)
        self._may_deliver = may_deliver
        self._parts = parts
        self._counters = parts.counters
        self._guard = RecordGuard(ReadBy.TIMER_DELIVERY)
        self._next_ms = 0
        """Slots before it are delivered; 0: this slave does not act."""
        self._slot: SlotDelivery | None = None
        """The one that is being delivered."""
        self._delivered = 0
        self._trouble = ""
        """As it was logged last."""

    def step(self) -> None:
        """Deliver what is due."""
        self._follow_clock()
        if not self._may_deliver():
            self._end_of_acting()
            self.wait_for_running(LOOK_MS)
            return
        wait_ms = LOOK_MS
        try:
            if self._is_entered():
                self._deliver_slots()
                self._trouble = ""
        except (EscapeError, StoreError) as error:
            wait_ms = RETRY_MS
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.warning("timers wait at %s ms: %s", self._next_ms, error)
        self.wait_for_running(wait_ms)

    def _follow_clock(self) -> None:
        """After the wall clock was set back the slots from then on come again, with others in
        them: none of these was delivered."""
        counters = self._counters
        write_ms = counters[TIMER_WRITE_TIME_MS]
        if not write_ms or counters[TIMER_TAKEN_BACK_MS] <= write_ms + CLOCK_STEP_MS:
            return
        log.warning("the wall clock was set back: timers are delivered from %s ms on", write_ms)
        counters[TIMER_TAKEN_BACK_MS] = counters[TIMER_READ_TIME_MS] = write_ms
        if self._next_ms:
            self._next_ms, self._slot = write_ms, None

    def _end_of_acting(self) -> None:
        if self._delivered:
            log.info("%s timer messages were delivered to other brokers", self._delivered)
        self._delivered, self._next_ms, self._slot = 0, 0, None
        self._parts.pops.forget()

    def _is_entered(self) -> bool:
        """Whether the wheel holds every timer of this log, which has no writer now. `store` enters
        on a slave what the master had entered: from here on everything."""
        counters = self._counters
        if counters[DISPATCHED_OFFSET] < counters[MAX_PHY_OFFSET]:
            return False
        end = self._parts.table.offsets(TIMER_TOPIC, 0)[1]
        counters[TIMER_MASTER_QUEUE_OFFSET] = max(counters[TIMER_MASTER_QUEUE_OFFSET], end)
        return bool(counters[TIMER_OPENED]) and counters[TIMER_COMMIT_QUEUE_OFFSET] >= end

    def _deliver_slots(self) -> None:
        """Up to the slot of now. Raises EscapeError, StoreError: go on there."""
        counters, parts = self._counters, self._parts
        if not self._next_ms:
            self._next_ms = counters[TIMER_READ_TIME_MS] or counters[TIMER_START_TIME_MS]
            log.info("delivering timers to other brokers from %s ms on", self._next_ms)
        write_ms = counters[TIMER_WRITE_TIME_MS]
        while not self._has_to_end:
            slot = self._slot or self._begin_slot(write_ms)
            if slot is not None:
                self._deliver_slot(slot)
                if not slot.is_done:
                    return
                self._next_ms = slot.slot_ms + parts.wheel.precision_ms
            self._slot = None
            parts.pops.settle(self._next_ms)
            self._publish()
            if slot is None:
                return

    @property
    def _has_to_end(self) -> bool:
        return self.stopped or not self._may_deliver()

    def _begin_slot(self, write_ms: int) -> SlotDelivery | None:
        parts = self._parts
        while (slot_ms := parts.wheel.next_slot(self._next_ms, write_ms)) is not None:
            self._next_ms = slot_ms
            if (slot := parts.wheel.slot(slot_ms)) is not None:
                self._slot = SlotDelivery(
                    slot_ms, slot.last_pos, (0, 0), parts.units, parts.records.message
                )
                return self._slot
            self._next_ms += parts.wheel.precision_ms
        self._next_ms = max(self._next_ms, write_ms)
        return None

    def _deliver_slot(self, slot: SlotDelivery) -> None:
        while not slot.is_walked:
            slot.walk(_WALKED)
        while not slot.is_done and not self._has_to_end:
            due = slot.next_due()
            if due.unit is not None and due.lost:
                # The master may have it: its slot is not passed.
                raise EscapeError(f"the record at {due.unit.phy_offset} cannot be read here")
            if due.unit is not None and due.message is not None:
                self._deliver(slot.slot_ms, due.unit, due.message)
            slot.count_one()

    def _deliver(self, slot_ms: int, unit: TimerUnit, message: Message) -> None:
        pops, found = self._parts.pops, None
        home = home_of(message.properties)
        if home is not None and home[0] == pops.topic:
            self._deliver_to_pops(slot_ms, unit, message, home[1])
            return
        with self._guard.of(unit.phy_offset):
            found = due_timer(message, rolls=unit.rolls)
        if found is None:
            log.error("slot %s: skipped the record at %s: no timer", slot_ms, unit.phy_offset)
            return
        self._parts.bridge.put(found)
        self._delivered += 1

    def _deliver_to_pops(
        self, slot_ms: int, unit: TimerUnit, message: Message, queue_id: int
    ) -> None:
        pops = self._parts.pops
        if unit.rolls:
            # No other broker knows what it is about. Behind it nothing is taken for delivered.
            raise EscapeError(f"the check point at {unit.phy_offset} lies too far ahead")
        pops.take(
            replace(message, topic=pops.topic, queue_id=queue_id, store_timestamp=slot_ms), slot_ms
        )

    def _publish(self) -> None:
        waits_from = self._parts.pops.waits_from()
        read_ms = self._next_ms if waits_from is None else min(waits_from, self._next_ms)
        for slot in (TIMER_TAKEN_BACK_MS, TIMER_READ_TIME_MS):
            self._counters[slot] = max(self._counters[slot], read_ms)


def due_timer(message: Message, *, rolls: bool) -> EscapedMessage | None:
    """A record of the timer topic as it is sent to another broker; None if there is nothing to be
    sent. rolls: its time has not come; it waits for it there. (What recalls such a message is not
    sent: whom it meets there is not known.)"""
    home = home_of(message.properties)
    if home is None or home[0] == TRANS_HALF_TOPIC:
        return None
    found = escaped_message(message, home[0])
    if not rolls:
        return found
    out_ms = find_property(found.properties, TIMER_OUT_MS)
    if (
        out_ms is None
        or not out_ms.isdecimal()
        or find_property(found.properties, TIMER_DELETE_KEY)
    ):
        return None
    # Behind it by a ms, as what is a multiple of the precision comes a slot earlier.
    again = f"{TIMER_DELIVER_MS}\x01{int(out_ms) + 1}"
    properties = without_property(found.properties, TIMER_OUT_MS)
    return replace(found, properties=append_pairs(properties, again))
