"""What TimerDequeueService works with; no behaviour of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.append.append_queue import AppendQueue
from broker.append.room_waits import RoomWaits
from broker.timer.early_deliveries import EarlyDeliveries
from broker.timer.timer_progress import TimerProgress
from ipc.clock import Clock
from store.commit_log import CommitLog
from store.commit_log_reader import CommitLogReader
from store.timer.timer_log import TimerLogReader
from store.timer.timer_wheel import TimerWheelReader


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
    early: EarlyDeliveries
    counters: memoryview[int]
    """The control page."""
    safe_offset: Callable[[], int]
    """Up to where the log is as durable as sends are answered."""
    stats: DequeueStats
    clock: Clock
    room_waits: RoomWaits
