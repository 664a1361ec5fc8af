"""TimerRecovery: wheel and log brought to agree with each other and with the commit log.

Runs once at the start of TimerMessageStore, on its thread, before anything is read. The commit log
is the truth: what wheel and log lack is entered again by the service, from the queue offset that is
found here. Corresponds to TimerMessageStore.recover of RocketMQ, which keeps a damaged slot.

    found                                         what happens
    units behind the last flush                   put into the wheel
    units of records the commit log lacks         dropped, the wheel is built from the log
    wheel missing, of another length, older than
      snapshots of it (5.5), or its chains lead
      to units that are not its own               the wheel is built from the log
    log missing, or ends before its last flush    both are built from the commit log

Tested by tests/store/test_timer_message_store.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from store.errors import StoreError
from store.timer.slot import Slot
from store.timer.timer_checkpoint import TimerCheckpoint
from store.timer.timer_log import UNIT_SIZE, TimerLog, TimerUnit
from store.timer.timer_queue import TimerQueue
from store.timer.timer_wheel import TimerWheel

log = logging.getLogger(__name__)

_BEFORE_FLUSH = 4096 * UNIT_SIZE
"""A wheel of Java's may lack units from before its last flush of the log."""


class TimersDamagedError(StoreError):
    """A unit is not what its slot or its follower says."""


@dataclass(frozen=True, slots=True)
class RecoveredTimers:
    """queue_offset: of the first record that is not in the wheel; before replay_end such a record
    may be one that is delivered already."""

    queue_offset: int
    replay_end: int


def first_read_time(checkpoint_ms: int, stored_ms: int, now_ms: int, precision_ms: int) -> int:
    """Where delivery begins after a start of the whole broker. Without a check point (0) the slots
    count as delivered that were past when the log's last record was stored (0: none)."""
    read_ms = checkpoint_ms or (stored_ms - 2 * precision_ms if stored_ms else now_ms)
    return max(read_ms - read_ms % precision_ms, 0)


class TimerRecovery:
    """See the module. Used once."""

    def __init__(
        self,
        wheel: TimerWheel,
        timer_log: TimerLog,
        queue: TimerQueue,
        checkpoint: TimerCheckpoint,
        read_time_ms: int,
    ) -> None:
        """read_time_ms: slots before it are of no interest."""
        self._wheel = wheel
        self._log = timer_log
        self._queue = queue
        self._checkpoint = checkpoint
        self._read_time_ms = read_time_ms

    def recover(self) -> RecoveredTimers:
        """Raises DiskFullError, StoreError, OSError."""
        found = self._recover()
        self._wheel.remove_snapshots()
        return found

    def _recover(self) -> RecoveredTimers:
        is_wheel = self._wheel.open()
        end = self._find_end()
        flushed = self._checkpoint.last_timer_log_flush_pos
        if end < flushed or not end:
            return self.start_over(f"the timer log ends at {end}, it was flushed up to {flushed}")
        self._log.begin_at(end)
        if not is_wheel and end:
            self._rebuild_wheel("the wheel was missing or of another length")
        elif self._wheel.has_snapshots():
            # RocketMQ takes the newest; the log has all that is in it, and what came later.
            self._rebuild_wheel("a broker with timerWheelSnapshotFlush kept it in other files")
        elif reason := self._find_contradiction():
            self._rebuild_wheel(reason)
        else:
            self._enter_units(max(flushed - _BEFORE_FLUSH, 0))
        return RecoveredTimers(
            self._next_queue_offset(), self._checkpoint.master_timer_queue_offset
        )

    def start_over(self, reason: str) -> RecoveredTimers:
        """Empty wheel and log; all timers are entered again. Raises DiskFullError, OSError."""
        low, high = self._queue.bounds
        if high > low:
            log.error("rebuilding timers from the commit log: %s", reason)
        self._wheel.clear()
        self._log.begin_at(0)
        return RecoveredTimers(low, self._checkpoint.master_timer_queue_offset or high)

    def waiting_units(self) -> Iterator[TimerUnit]:
        """All units of the slots from the read time on. Raises TimersDamagedError: a chain leads to
        what is no unit of its slot."""
        start = self._log_start
        for time_ms in self._wheel.reader.used_slots(self._read_time_ms):
            slot = self._wheel.slot(time_ms)
            pos = -1 if slot is None else slot.last_pos
            while pos >= start:
                unit = self._log.reader.unit(pos)
                if unit is None or unit.slot_time_ms != time_ms or unit.prev_pos >= pos:
                    raise TimersDamagedError(f"unit {pos} of slot {time_ms} is damaged")
                yield unit
                pos = unit.prev_pos

    # -- the log -------------------------------------------------------------------------------

    def _find_end(self) -> int:
        """Where the valid units of existing records end."""
        starts = self._log.start_offsets()
        size = self._log.file_size
        first = self._checkpoint.last_timer_log_flush_pos - size
        near = [start for start in starts if start + size > first] or starts
        while near and near[0] != starts[0] and not self._begins_within(near[0]):
            near.insert(0, starts[starts.index(near[0]) - 1])
        end = near[0] if near else 0
        for start in near:
            if start != end:
                break
            units, is_full = self._log.units_of_file(start)
            lost = units["phy_offset"].astype(np.int64) >= self._queue.max_phy_offset
            if lost.any():
                count = int(lost.argmax())
                log.warning(
                    "dropped %s timers whose messages the commit log has lost",
                    len(units) - count,
                )
                return start + count * UNIT_SIZE
            end = start + (size if is_full else len(units) * UNIT_SIZE)
            if not is_full:
                break
        return end

    def _begins_within(self, file_start: int) -> bool:
        """Whether the record of a file's first unit is in the commit log."""
        unit = self._log.reader.unit(file_start)
        return unit is not None and unit.phy_offset < self._queue.max_phy_offset

    def _last_unit(self) -> TimerUnit | None:
        end, size = self._log.end, self._log.file_size
        if end % size == 0 and end:
            return self._log.last_unit_of_file(end - size)
        return self._log.reader.unit(end - UNIT_SIZE)

    def _next_queue_offset(self) -> int:
        """Behind the record of the last unit, or where the check point says."""
        low, high = self._queue.bounds
        unit = self._last_unit()
        found = low if unit is None else self._queue.offset_behind(unit.phy_offset)
        return min(max(found, self._checkpoint.last_timer_queue_offset, low), high)

    # -- the wheel -----------------------------------------------------------------------------

    def _find_contradiction(self) -> str:
        """Why wheel and log do not belong together, empty: they do. Looks at each waiting slot's
        newest unit, and at the newest of all, which shows another precision; `waiting_units` looks
        at all units."""
        start = self._log_start
        newest = self._wheel.reader.newest_slot()
        for time_ms in (newest.time_ms, *self._wheel.reader.used_slots(self._read_time_ms)):
            slot = newest if time_ms == newest.time_ms else self._wheel.slot(time_ms)
            if slot is None or slot.last_pos < start or not slot.time_ms:
                continue
            if slot.last_pos >= self._log.end:
                return f"slot {time_ms} names unit {slot.last_pos}, the log ends at {self._log.end}"
            unit = self._log.reader.unit(slot.last_pos)
            if unit is None or unit.slot_time_ms != time_ms:
                return f"slot {time_ms} names unit {slot.last_pos}, which is not its own"
        return ""

    @property
    def _log_start(self) -> int:
        starts = self._log.start_offsets()
        return starts[0] if starts else 0

    def _rebuild_wheel(self, reason: str) -> None:
        log.error("rebuilding the timer wheel from the timer log: %s", reason)
        self._wheel.clear()
        self._enter_units(0)

    def _enter_units(self, pos: int) -> None:
        """Slots for the units from `pos` on that they do not contain yet."""
        for at, unit in self._units_from(pos):
            slot = self._wheel.slot(unit.slot_time_ms) or Slot(unit.slot_time_ms, at, -1)
            if slot.last_pos < at:
                change = -1 if unit.deletes else 1
                self._wheel.put_slot(slot._replace(last_pos=at, num=slot.num + change))
        self._wheel.write_out()

    def _units_from(self, pos: int) -> Iterator[tuple[int, TimerUnit]]:
        for start in self._log.start_offsets():
            if start + self._log.file_size <= pos:
                continue
            units, _ = self._log.units_of_file(start)
            times = units["write_time"].astype(np.int64) + units["delay"]
            for number in np.flatnonzero(times >= self._read_time_ms):
                at = start + int(number) * UNIT_SIZE
                if at >= pos and at < self._log.end:
                    unit = units[number].tolist()
                    yield at, TimerUnit(*unit[1:-1])
