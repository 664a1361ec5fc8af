"""OpenSlots: the slots around now that `store` has not closed, and whose turn it is.

Loop thread of `remoting`. The slot of now, the one before it until it is closed, and the next,
which is read ahead so that nothing waits for that when it begins. A recall is taken only before its
slot begins (RecallMessageProcessor), and entered some ms later; so nothing is delivered of a slot
before all is entered that the timer topic held when the slot began. Knows no delivery.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from broker.timer.early_deliveries import EarlyDeliveries
from broker.timer.open_slot import OpenSlot, SlotReads
from store.timer.timer_slots import TIMER_COMMIT_QUEUE_OFFSET
from store.timer.timer_wheel import TimerWheelReader

_LEAST_PRECISION_MS: Final = 20
"""Shorter slots are over before it would matter."""
_SOON_MS: Final = 5
_PENDING_MS: Final = 20


class OpenSlots:
    """See the module. Owned by: TimerDequeueService."""

    def __init__(
        self,
        wheel: TimerWheelReader,
        reads: SlotReads,
        early: EarlyDeliveries,
        counters: memoryview[int],
        queue_end: Callable[[], int | None],
    ) -> None:
        """queue_end: of the timer topic, with all that was put; None while something is held."""
        self._wheel = wheel
        self._reads = reads
        self._early = early
        self._counters = counters
        self._queue_end = queue_end
        self._precision_ms = wheel.precision_ms
        self._slots: dict[int, OpenSlot] = {}
        self._turns: deque[OpenSlot] = deque()
        self._entered = 0
        self._is_growing = False

    def find(self, slot_ms: int) -> OpenSlot | None:
        """The slot of a time, if it was read."""
        return self._slots.get(slot_ms)

    @property
    def waits(self) -> bool:
        """Whether a message of some slot is with the append queue."""
        return any(slot.waits for slot in self._slots.values())

    def follow(self, first_ms: int, now_ms: int) -> None:
        """Look at what `store` has entered. first_ms: the first open slot; now_ms: the store time
        of what is delivered now. Raises StoreError."""
        if self._precision_ms < _LEAST_PRECISION_MS:
            return
        # Before the slots are read: what is entered by then is in them.
        entered = self._counters[TIMER_COMMIT_QUEUE_OFFSET]
        self._is_growing, self._entered = entered != self._entered, entered
        if not entered:
            return
        precision_ms = self._precision_ms
        current_ms = now_ms - now_ms % precision_ms
        begin_ms = max(first_ms, current_ms - precision_ms)
        self._forget_but(begin_ms, current_ms + precision_ms)
        for slot_ms in range(begin_ms, current_ms + precision_ms + 1, precision_ms):
            last_pos = self._last_pos(slot_ms)
            if last_pos is None:
                continue
            slot = self._slots.get(slot_ms) or self._begin(slot_ms)
            if slot.recalls_until is None and slot_ms < now_ms:
                slot.recalls_until = self._queue_end()
            is_settled = slot.recalls_until is not None and entered >= slot.recalls_until
            slot.look(last_pos, is_settled=is_settled)

    def next_ready(self, now_ms: int, log_end: int) -> OpenSlot | None:
        """A slot of which something is to be read, or to be delivered; they take turns."""
        for _ in range(len(self._turns)):
            slot = self._turns[0]
            self._turns.rotate(-1)
            if slot.is_walking:
                return slot
            if slot.is_due(now_ms) and self._early.claim(slot.slot_ms, log_end):
                return slot
        return None

    def wait_ms(self, now_ms: int) -> int | None:
        """How long until the next look; None: there is nothing that it should be soon for."""
        due_ms = [slot.due_ms for slot in self._slots.values() if slot.due_ms is not None]
        if due_ms:
            return min(max(min(due_ms) - now_ms + 1, _SOON_MS), _PENDING_MS)
        return _PENDING_MS if self._is_growing else None

    def close(self, slot_ms: int) -> None:
        """A slot is over, and another takes care of it."""
        slot = self._slots.pop(slot_ms, None)
        if slot is not None:
            self._turns.remove(slot)

    def _begin(self, slot_ms: int) -> OpenSlot:
        slot = OpenSlot(slot_ms, self._early.of_slot(slot_ms), self._reads)
        self._slots[slot_ms] = slot
        self._turns.append(slot)
        return slot

    def _forget_but(self, begin_ms: int, end_ms: int) -> None:
        """The wall clock may have been set."""
        for slot_ms in [each for each in self._slots if not begin_ms <= each <= end_ms]:
            if not self._slots[slot_ms].waits:
                self.close(slot_ms)

    def _last_pos(self, slot_ms: int) -> int | None:
        """None: the slot is empty, or being written just now."""
        found = self._wheel.slot(slot_ms)
        if found is None or found != self._wheel.slot(slot_ms):
            return None
        return found.last_pos
