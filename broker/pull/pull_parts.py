"""PullParts: what pulls are answered with, put together once.

Data of the loop thread of `remoting`; made by wiring/pull_path.py, used by PullMessageProcessor and
KnownPulls. Most are the owners of tables; those that are None belong to features that are off.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from broker.client.consumer_manager import ConsumerManager
from broker.filter.consumer_filter_manager import ConsumerFilterManager
from broker.metrics.path_stats import PathStats
from broker.processor.held_rights import HoldRights, no_rights
from broker.pull.batch_pull import BatchPull
from broker.pull.cold_pulls import ColdPulls
from broker.pull.compaction_pull import CompactionPull
from broker.pull.pull_start import PullStart
from broker.pull.pull_subscription import IsReadable
from broker.store_access.checked_units import CheckedUnits
from broker.store_access.pages_ahead import PagesAhead
from broker.topic.table_protocols import FindGroup, FindTopic
from ipc.control_page import ControlPage
from ipc.queue_table import QueueTableReader
from store.commit_log_reader import CommitLogReader

CommitOffset = Callable[[str, str, str, int, int], None]
"""Remember how far a group has come: (remote address, group, topic, queue id, offset)
(ConsumerOffsetManager.commit_offset)."""

NotePull = Callable[[str, str, int, int], None]
"""(group, topic, queue id, offset): the group's next pull goes on from there
(ConsumerOffsetManager.commit_pull_offset)."""


NoteMoved = Callable[[str, str, int, int, int], None]
"""A pull of a group was told to go on elsewhere: (group, topic, queue id, asked, corrected)
(OffsetMovedEvents.add)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullParts:
    """See the module."""

    page: ControlPage
    table: QueueTableReader
    units: CheckedUnits
    log_reader: CommitLogReader
    find_topic: FindTopic
    find_group: FindGroup
    is_readable: IsReadable
    consumers: ConsumerManager
    filters: ConsumerFilterManager
    """The groups' compiled expressions."""
    commit_offset: CommitOffset
    note_pull: NotePull
    note_moved: NoteMoved
    """Hears of corrected offsets."""
    stats: PathStats
    monotonic_ms: Callable[[], int]
    start: PullStart | None = None
    """None where no pull is ever told to begin elsewhere."""
    static_topics: Container[str] = ()
    """Their pulls come to `PullMessageProcessor.pull`, already mapped; false while there are
    none."""
    cold: ColdPulls | None = None
    """Flow control of cold reads, if any."""
    compaction: CompactionPull | None = None
    """Reads compaction topics, if there may be any."""
    batch: BatchPull | None = None
    """Where there may be topics with batch consume queues."""
    pages: PagesAhead | None = None
    """Brings old records into memory; None: the loop waits for the disk."""
    hold_rights: HoldRights = no_rights
    """Of pulls that wait."""
