"""DeliveryNotes: counts what TimerDequeueService delivers, and writes it down for after a kill.

Loop thread of `remoting`. In three files: what is in the log and not published yet
(UnpublishedDeliveries), then slots that are over (TimerProgress) and those that are not
(EarlyDeliveries). Knows nothing of what a message says.

Tested by tests/broker/timer/test_open_slots.py.
"""

from __future__ import annotations

from broker.timer.dequeue_parts import DequeueParts
from broker.timer.open_slot import OpenSlot
from broker.timer.slot_delivery import SlotDelivery
from broker.timer.unpublished_deliveries import OPEN_SLOT, Unpublished


class DeliveryNotes:
    """See the module. Owned by: the loop thread."""

    def __init__(self, parts: DequeueParts) -> None:
        self._progress = parts.progress
        self._open_slots = parts.early
        self._unpublished = parts.unpublished
        self._changed: set[SlotDelivery] = set()
        self._early: list[tuple[int, int]] = []
        """Slot and record of what was delivered of open slots."""

    def open(self, log_end: int) -> None:
        """Take up what an earlier life has left, that of a turn which a kill has ended, too.
        log_end: of the log now; UnpublishedDeliveries were settled when it was opened. Raises
        OSError."""
        self._progress.open(log_end)
        self._open_slots.open(log_end)
        for slot_ms, pos, number, _end in self._unpublished.open(log_end):
            if pos == OPEN_SLOT:
                self._open_slots.record(slot_ms, number, log_end)
            else:
                self._progress.record(slot_ms, number, pos, log_end)
        self._unpublished.clear()

    def close(self) -> None:
        """At an orderly stop, after the last commit. Raises OSError."""
        self._progress.close()
        self._open_slots.close()
        self._unpublished.close()

    def count(self, slot: SlotDelivery | OpenSlot) -> None:
        """A slot's next message is done with: delivered, or never to be."""
        if isinstance(slot, OpenSlot):
            self._early.append((slot.slot_ms, slot.count_one()))
        else:
            slot.count_one()
            self._changed.add(slot)

    def count_placed(self, slot: SlotDelivery | OpenSlot, log_end: int) -> None:
        """It is in the log, up to `log_end`; published at the end of the turn."""
        self.count(slot)
        if isinstance(slot, OpenSlot):
            placed = Unpublished(slot.slot_ms, OPEN_SLOT, self._early[-1][1], log_end)
        else:
            placed = Unpublished(slot.slot_ms, slot.last_pos, slot.delivered, log_end)
        self._unpublished.note(placed)

    def turn_end(self, log_end: int, read_time_ms: int) -> None:
        """The log's records of this turn are published: they are delivered. read_time_ms: all of
        the slots before it is."""
        if not self._changed and not self._early:
            return
        for slot_ms, phy_offset in self._early:
            self._open_slots.record(slot_ms, phy_offset, log_end)
        for slot in self._changed:
            self._progress.record(slot.slot_ms, slot.delivered, slot.last_pos, log_end)
        self._early.clear()
        self._changed.clear()
        self._unpublished.clear()
        self._open_slots.free_before(read_time_ms)
