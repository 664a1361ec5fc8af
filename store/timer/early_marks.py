"""Marks in the timer log what is delivered already of slots that are not over.

Used by TimerMessageStore at an orderly stop, on its thread: a Java broker would deliver it again.

Tested by tests/store/test_timer_message_store.py.
"""

from __future__ import annotations

from store.message_store_config import MessageStoreConfig
from store.timer.early_file import read_stopped
from store.timer.timer_log import TimerLog, TimerUnit
from store.timer.timer_wheel import TimerWheel


def mark_delivered(
    wheel: TimerWheel,
    timer_log: TimerLog,
    config: MessageStoreConfig,
    settled_ms: int,
    log_end: int,
) -> list[TimerUnit]:
    """The units that were marked now, of slots from `settled_ms` on. log_end: of the commit log.
    Raises OSError."""
    if not timer_log.start_offsets():
        return []
    early = read_stopped(config.timer_early_path, config.timer_precision_ms, log_end)
    marked = []
    for slot_ms, delivered in early.items():
        slot = wheel.slot(slot_ms) if slot_ms >= settled_ms else None
        pos = -1 if slot is None else slot.last_pos
        while pos >= 0 and (unit := timer_log.reader.unit(pos)) is not None:
            if unit.phy_offset in delivered and not unit.deletes:
                timer_log.mark_delivered(pos, unit)
                marked.append(unit)
            pos = unit.prev_pos if unit.prev_pos < pos else -1
    return marked
