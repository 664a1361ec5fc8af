"""TimerEnqueue: records of the timer topic become units of the timer log and slots of the wheel.

Called by TimerMessageStore on its thread. Timers whose slot is closed already ("late") go into the
first open slot. On a slave, and of records that may have been entered before (a wheel built again),
those are left out that were stored well before the read time: they are delivered. It knows no clock
and no flush. Corresponds to enqueue and doEnqueue of RocketMQ's TimerMessageStore.

Tested by tests/store/test_timer_message_store.py.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from ipc.control_page import ControlPage
from store.message_store_config import MessageStoreConfig
from store.put_aside import ReadBy, RecordGuard
from store.timer.pending_timers import PendingTimers
from store.timer.placement import Placement, round_down
from store.timer.slot import Slot
from store.timer.timer_log import MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL, TimerLog, TimerUnit
from store.timer.timer_queue import TimerQueue, TimerRecord
from store.timer.timer_slots import TIMER_COMMIT_QUEUE_OFFSET
from store.timer.timer_wheel import TimerWheel

log = logging.getLogger(__name__)

BATCH: Final = 1000

CountEntered = Callable[[Counter[str]], None]
"""Told how many timers of each topic were entered."""


class TimerEnqueue:
    """See the module."""

    def __init__(
        self,
        config: MessageStoreConfig,
        page: ControlPage,
        queue: TimerQueue,
        wheel: TimerWheel,
        timer_log: TimerLog,
        pending: PendingTimers,
        count: CountEntered,
    ) -> None:
        self._count = count
        self._precision_ms = config.timer_precision_ms
        self._placement = Placement(config.timer_precision_ms, config.timer_roll_window_slot)
        self._counters = page.counters
        self._queue = queue
        self._wheel = wheel
        self._log = timer_log
        self._pending = pending
        self._guard = RecordGuard(ReadBy.TIMER_ENQUEUE)
        self.follows = queue.role.is_slave()
        """Whether timers are entered as on a slave. TimerMessageStore changes it."""
        self.has_files = False
        self.queue_offset = 0
        """Everything before is in the wheel."""
        self.replay_end = 0
        """Records before may have been entered, and delivered, before."""

    @property
    def is_replaying(self) -> bool:
        """Whether what is to be entered next may have been entered, and delivered, before."""
        return self.queue_offset < self.replay_end

    def enter(self, end: int, write_ms: int, read_ms: int, now_ms: int) -> int:
        """Enter a batch of the records before queue offset `end`; returns how many were read.

        write_ms: the first open slot. read_ms: slots before it are delivered. Raises DiskFullError:
        call `write_out` again.
        """
        low, high = self._queue.bounds
        if self.queue_offset < low:
            log.warning("timers %s to %s were deleted", self.queue_offset, low)
            self.queue_offset = low
        end = min(high, end)
        if self.queue_offset >= end:
            return 0
        if not self.has_files:
            self._create_files()
        start = following = self.queue_offset
        units: list[TimerUnit] = []
        topics: Counter[str] = Counter()
        for queue_offset, record in self._queue.read(start, min(BATCH, end - start)):
            following = queue_offset + 1
            unit = None if record is None else self._find_unit(record, write_ms, read_ms)
            if record is not None and unit is not None:
                units.append(self._link(unit))
                topics[record.topic] += 1
        self.queue_offset = following
        self._pending.count(units, 1, now_ms)
        self._count(topics)
        self.write_out()
        return following - start

    def write_out(self) -> None:
        """Units before slots, slots before the queue offset. Raises DiskFullError: the rest is
        kept."""
        if self.has_files:
            self._log.write_out()
            self._wheel.write_out()
        self._counters[TIMER_COMMIT_QUEUE_OFFSET] = self.queue_offset

    def _create_files(self) -> None:
        """For the first timer that the store sees."""
        self._wheel.open()
        self._log.begin_at(0)
        self.has_files = True

    def _find_unit(self, record: TimerRecord, write_ms: int, read_ms: int) -> TimerUnit | None:
        with self._guard.of(record.phy_offset):
            unit = self._place(record, write_ms, read_ms)
            if unit is not None:
                unit.encode()  # Raises for numbers that do not fit.
            return unit
        return None

    def _place(self, record: TimerRecord, write_ms: int, read_ms: int) -> TimerUnit | None:
        """The unit of a record, None if it is delivered already."""
        first_ms = read_ms if self.follows else write_ms
        is_replay = self.follows or record.queue_offset < self.replay_end
        if is_replay:
            write_ms = round_down(record.stored_ms, self._precision_ms)
        slot_ms, rolls = self._placement.place(record.out_ms, write_ms)
        if slot_ms < first_ms:
            if is_replay and record.stored_ms < read_ms - 2 * self._precision_ms:
                return None
            slot_ms = first_ms
        write_ms = min(write_ms, slot_ms)
        magic = MAGIC_DEFAULT | (MAGIC_ROLL if rolls else 0)
        magic |= MAGIC_DELETE if record.deletes else 0
        return TimerUnit(
            -1,
            magic,
            write_ms,
            slot_ms - write_ms,
            record.phy_offset,
            record.size,
            self._pending.hash_of(record.topic),
        )

    def _link(self, unit: TimerUnit) -> TimerUnit:
        """Append the unit and make it the newest of its slot."""
        time_ms = unit.slot_time_ms
        slot = self._wheel.slot(time_ms)
        unit = unit._replace(prev_pos=-1 if slot is None else slot.last_pos)
        pos = self._log.append(unit)
        first_pos = pos if slot is None else slot.first_pos
        num = (0 if slot is None else slot.num) + (-1 if unit.deletes else 1)
        self._wheel.put_slot(Slot(time_ms, first_pos, pos, num))
        return unit
