"""OpenSlot: a slot of the wheel that is not over yet, read ahead for what is due inside of it.

Loop thread of `remoting`. Process `store` only adds units to such a slot: first the unit, then the
slot's last position (timer_slots.py). So its chain is walked from the newest unit down to the one
that was the newest at the last look, again and again; each unit is a recall, or a message with the
ms at which it asks to be delivered, or something that waits until the slot is over. What is read
while `store` writes may be torn: a unit counts only if it is one of this slot, and the chain must
meet the unit where the last walk began; else all is read anew.

Tested by tests/broker/timer/test_open_slots_model.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from broker.timer.slot_delivery import DueMessage, find_recalled, is_recalled
from broker.timer.timer_hook import TIMER_DELETE_KEY
from store.message import Message
from store.put_aside import ReadBy, RecordGuard
from store.timer.early_file import CAPACITY
from store.timer.timer_log import TimerLogReader, TimerUnit

_NONE: Final = -1
_MOST_FAILURES: Final = 16
"""From then on the slot waits until it is over."""


class SlotReads(NamedTuple):
    """How a slot is read. Each raises StoreError."""

    units: TimerLogReader
    asked_ms: Callable[[int], int | None]
    """Of the record of the timer topic at a phy offset; None: not known."""
    message: Callable[[int], Message | None]


class _Waiting(NamedTuple):
    """In the order of delivery."""

    asked_ms: int
    pos: int
    unit: TimerUnit


class OpenSlot:
    """See the module. Owned by: OpenSlots. What it lacks, the slot has when it is over."""

    def __init__(self, slot_ms: int, early: AbstractSet[int], reads: SlotReads) -> None:
        """early: records of the slot that an earlier life has delivered, by phy offset."""
        self.slot_ms: Final = slot_ms
        self.recalls_until: int | None = None
        """Queue offset of the timer topic when the slot began: no recall for it comes later."""
        self._reads = reads
        self._guard = RecordGuard(ReadBy.TIMER_DELIVERY)
        self.delivered: Final = set(early)
        """Records that are in the log, or can never be."""
        self._known = set(early)
        """Those, what waits in the heap, and what was recalled."""
        self._heap: list[_Waiting] = []
        self._put: _Waiting | None = None
        """The message that is with the append queue."""
        self._recalled: set[str] = set()
        self._top = self._from = self._at = _NONE
        """The newest unit that is read, where this walk began, and where it is."""
        self._is_settled = self._is_begun = False
        self._failures = 0

    # -- reading -------------------------------------------------------------------------------

    def look(self, last_pos: int, *, is_settled: bool) -> None:
        """last_pos: of the slot now. is_settled: when it was read, all recalls were entered."""
        if self.is_walking or self._failures > _MOST_FAILURES:
            return
        if last_pos == self._top:
            self._is_begun |= is_settled
        else:
            self._from = self._at = last_pos
            self._is_settled = is_settled

    @property
    def is_walking(self) -> bool:
        """Whether there are units that are not read yet."""
        return self._from != self._top

    def walk(self, most: int) -> None:
        """Read up to `most` units. Raises StoreError."""
        for _ in range(most):
            unit = self._reads.units.unit(self._at)
            if (
                unit is None
                or unit.slot_time_ms != self.slot_ms
                or not self._top <= unit.prev_pos < self._at
            ):
                self._fail()
                return
            self._note(unit, self._at)
            self._at = unit.prev_pos
            if self._at == self._top:
                self._top = self._from
                self._is_begun |= self._is_settled
                return

    def _fail(self) -> None:
        """This was no chain that grew: its newest unit was torn, or the slot was built anew."""
        self._failures += 1
        if self._at == self._from > self._top:
            self._from = self._at = self._top
            return
        self._known.difference_update(each.unit.phy_offset for each in self._heap)
        self._heap.clear()
        self._recalled.clear()
        self._top = self._from = self._at = _NONE
        self._is_begun = False

    def _note(self, unit: TimerUnit, pos: int) -> None:
        if unit.deletes and not unit.rolls:
            message = self._reads.message(unit.phy_offset)
            with self._guard.of(unit.phy_offset):
                if message is not None:
                    self._recalled.update(find_recalled(message))
                    if message.find_property(TIMER_DELETE_KEY):
                        return
            if message is None or self._guard.failed:
                return
        if unit.phy_offset in self._known:
            return
        is_full = len(self._known) >= CAPACITY
        asked_ms = None if unit.rolls or is_full else self._reads.asked_ms(unit.phy_offset)
        if asked_ms is not None:
            self._known.add(unit.phy_offset)
            heapq.heappush(self._heap, _Waiting(asked_ms, pos, unit))

    # -- delivering ----------------------------------------------------------------------------

    @property
    def due_ms(self) -> int | None:
        """When the next message asks to be delivered; None when nothing is known to wait."""
        return self._heap[0].asked_ms if self._heap else None

    @property
    def waits(self) -> bool:
        """Whether a message is with the append queue."""
        return self._put is not None

    def is_due(self, now_ms: int) -> bool:
        """Whether a message can be delivered: all recalls are known that can come in time."""
        if self._put or not self._is_begun or self.is_walking or not self._heap:
            return False
        return self._heap[0].asked_ms <= now_ms

    def next_due(self) -> DueMessage:
        """Take out the message that is due; without one there is none to deliver, or it is left
        until the slot is over. Raises StoreError."""
        waiting = self._heap[0]
        message = self._reads.message(waiting.unit.phy_offset)
        heapq.heappop(self._heap)
        if message is None:
            return DueMessage(waiting.unit, None, lost=True)
        recalled = True
        with self._guard.of(waiting.unit.phy_offset):
            recalled = is_recalled(message, self._recalled)
        if recalled:
            return DueMessage(waiting.unit, None)
        self._put = waiting
        return DueMessage(waiting.unit, message)

    def count_one(self) -> int:
        """What was taken out is delivered, or never will be; its phy offset."""
        assert self._put is not None
        phy_offset, self._put = self._put.unit.phy_offset, None
        self.delivered.add(phy_offset)
        return phy_offset

    def put_back(self) -> None:
        """It was not stored: it is due again."""
        if self._put is not None:
            heapq.heappush(self._heap, self._put)
            self._put = None
