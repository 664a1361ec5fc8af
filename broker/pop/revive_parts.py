"""ReviveParts: what PopReviveService works with.

Pure data, put together by broker/wiring; used on the loop thread of `remoting`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.append.append_queue import AppendQueue
from broker.append.room_waits import RoomWaits
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.pop.pop_inflight_message_counter import PopInflightMessageCounter
from broker.pop.pop_stats import CountsRecords, PopStats
from broker.pop.revive_progress import ReviveProgress
from broker.pop.revive_records import ReviveRecords
from broker.store_access.checked_units import CheckedUnits
from broker.topic.table_protocols import FindGroup, FindTopic
from broker.topic.topic_config_manager import TopicConfigManager
from ipc.queue_table import QueueTableReader
from store.commit_log import CommitLog
from store.commit_log_reader import CommitLogReader


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviveParts:
    """The collaborators of the service."""

    commit_log: CommitLog
    append_queue: AppendQueue
    table: QueueTableReader
    units: CheckedUnits
    reader: CommitLogReader
    offsets: ConsumerOffsetManager
    records: ReviveRecords
    topics: TopicConfigManager
    find_topic: FindTopic
    find_group: FindGroup
    inflight: PopInflightMessageCounter
    progress: ReviveProgress
    stats: PopStats
    counts: CountsRecords
    room_waits: RoomWaits
    timer_read_time_ms: Callable[[], int]
    """Every timer message due before is appended (TimerDequeueService.read_time_ms)."""
    published_offset: Callable[[], int]
    flushed_offset: Callable[[], int]
