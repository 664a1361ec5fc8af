"""SlotDelivery: one slot of the wheel on its way out, in steps.

Loop thread of `remoting`. The slot is closed: its chain of units does not change any more, so "the
first n of it are delivered" has a meaning over restarts. The chain is walked from its newest unit
on, which finds the recalls; then the units are taken from the oldest on. Corresponds to the
stages TimerDequeueGetService and TimerDequeueGetMessageService of RocketMQ.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from broker.append.diverted_messages import REAL_TOPIC
from broker.timer.timer_hook import TIMER_DELETE_KEY
from store.message import Message
from store.put_aside import ReadBy, RecordGuard
from store.timer.timer_log import TimerLogReader, TimerUnit

_UNIQUE_KEY: Final = "UNIQ_KEY"
_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class DueMessage:
    """A message of a slot; `message` is None where there is nothing to deliver: recalled, itself a
    recall, delivered before, or `lost` (its record cannot be read)."""

    unit: TimerUnit | None
    message: Message | None
    lost: bool = False


class SlotDelivery:
    """See the module. Owned by: TimerDequeueService."""

    def __init__(
        self,
        slot_ms: int,
        last_pos: int,
        delivered: tuple[int, int],
        units: TimerLogReader,
        read_message: Callable[[int], Message | None],
        early: AbstractSet[int] = frozenset(),
    ) -> None:
        """delivered: as TimerProgress has it. read_message: the record of the timer topic at a phy
        offset. early: the records that were delivered while the slot was open (EarlyDeliveries)."""
        self.slot_ms: Final = slot_ms
        self.delivered, self._delivered_pos = delivered
        """Messages from the oldest on that are in the log or dropped."""
        self.waits = False
        """The next message is with the append queue."""
        self._next_pos = last_pos
        self._units = units
        self._read_message = read_message
        self._early = early
        self._guard = RecordGuard(ReadBy.TIMER_DELIVERY)
        self._positions = array("q")
        """From the newest unit on; ~position where there is nothing to deliver any more."""
        self._recalled: set[str] = set()

    @property
    def is_walked(self) -> bool:
        """Whether all of the chain is known."""
        return self._next_pos == _NONE

    @property
    def is_done(self) -> bool:
        """Whether nothing is left."""
        return self.is_walked and self.delivered >= len(self._positions)

    def walk(self, most: int) -> None:
        """Follow the chain over up to `most` units. Raises StoreError."""
        for _ in range(most):
            unit = self._units.unit(self._next_pos)
            if unit is None:
                break
            if unit.deletes and not unit.rolls:
                self._note_recall(unit)
            is_gone = unit.phy_offset in self._early
            self._positions.append(~self._next_pos if is_gone else self._next_pos)
            if not 0 <= unit.prev_pos < self._next_pos:
                break
            self._next_pos = unit.prev_pos
        else:
            return
        self._next_pos = _NONE
        if self.delivered and self.last_pos != self._delivered_pos:
            # Of a slot that was built anew: rather twice than never.
            self.delivered = 0

    def count_one(self) -> None:
        """The oldest that was not delivered is, or never will be."""
        self.delivered += 1
        self.waits = False

    def put_back(self) -> None:
        """It was not stored: it is due again."""
        self.waits = False

    @property
    def last_pos(self) -> int:
        """Position of the newest unit that is delivered; -1: none."""
        if not 0 < self.delivered <= len(self._positions):
            return _NONE
        pos = self._positions[-self.delivered]
        return pos if pos >= 0 else ~pos

    def next_due(self) -> DueMessage:
        """The oldest message that is not delivered. Raises StoreError."""
        pos = self._positions[-1 - self.delivered]
        unit = None if pos < 0 else self._units.unit(pos)
        if unit is None:
            return DueMessage(unit, None)
        message = self._read_message(unit.phy_offset)
        with self._guard.of(unit.phy_offset):
            return self._judge(unit, message)
        return DueMessage(unit, None)

    def _judge(self, unit: TimerUnit, message: Message | None) -> DueMessage:
        # One with the delete bit is a recall by its record only (TimerLog.mark_delivered).
        if message is None:
            return DueMessage(unit, None, lost=not unit.deletes)
        if is_recalled(message, self._recalled) or (
            not unit.rolls and message.find_property(TIMER_DELETE_KEY)
        ):
            return DueMessage(unit, None)
        return DueMessage(unit, message)

    def _note_recall(self, unit: TimerUnit) -> None:
        message = self._read_message(unit.phy_offset)
        with self._guard.of(unit.phy_offset):
            if message is not None:
                self._recalled.update(find_recalled(message))


def delete_key(topic: str, unique_key: str, *, append_topic: bool) -> str:
    """The TIMER_DEL_UNIQKEY of a recall: topic+UNIQ_KEY until 5.4, the latter alone in 5.5."""
    return f"{topic}+{unique_key}" if append_topic else unique_key


def find_recalled(message: Message) -> tuple[str, ...]:
    """What a recall of the timer topic recalls, each as topic+UNIQ_KEY; nothing for a message that
    is no recall. A key alone that begins like topic+ is taken for both.

    Always of its own topic: whoever may send to a topic recalls messages of that topic. (RocketMQ
    believes what a recall says; its own are of their topic.)
    """
    key, topic = message.find_property(TIMER_DELETE_KEY), message.find_property(REAL_TOPIC)
    if not key or not topic:
        return ()
    alone = f"{topic}+{key}"
    return (key, alone) if key.startswith(f"{topic}+") else (alone,)


def is_recalled(message: Message, recalled: AbstractSet[str]) -> bool:
    """Whether a recall of `recalled` (see find_recalled) means this message."""
    if not recalled:
        return False
    topic, key = message.find_property(REAL_TOPIC), message.find_property(_UNIQUE_KEY)
    return f"{topic}+{key}" in recalled
