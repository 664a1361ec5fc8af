"""What TimerDequeueService works with; no behaviour of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.append.append_queue import AppendQueue
from broker.append.room_waits import RoomWaits
from broker.timer.early_deliveries import EarlyDeliveries
from broker.timer.timer_progress import TimerProgress
from broker.timer.unpublished_deliveries import UnpublishedDeliveries
from broker.topic.lost_topics import PutBackTopic
from broker.topic.table_protocols import PutStats
from ipc.clock import Clock
from store.commit_log import CommitLog
from store.commit_log_reader import CommitLogReader
from store.timer.timer_log import TimerLogReader
from store.timer.timer_wheel import TimerWheelReader


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
    unpublished: UnpublishedDeliveries
    counters: memoryview[int]
    """The control page."""
    safe_offset: Callable[[], int]
    """Up to where the log is as durable as sends are answered."""
    stats: PutStats
    clock: Clock
    room_waits: RoomWaits
    put_back_topic: PutBackTopic
