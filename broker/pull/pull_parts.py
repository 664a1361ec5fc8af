"""PullParts: what pulls are answered with, put together once.

Data of the loop thread of `remoting`; made by wiring/pull_path.py, used by PullMessageProcessor and
KnownPulls. Most are the owners of tables; those that are None belong to features that are off.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Protocol

from broker.filter.unit_marks import LogViews
from broker.metrics.hot_path_stats import PullCounts
from broker.processor.held_rights import HoldRights, no_rights
from broker.pull.batch_pull import BatchPull
from broker.pull.cold_pulls import ColdPulls
from broker.pull.compaction_pull import CompactionPull
from broker.pull.pull_start import PullStart
from broker.pull.pull_subscription import IsReadable, PullConsumers, PullFilters
from broker.store_access.checked_units import CheckedUnits
from broker.store_access.pages_ahead import PagesAhead
from broker.topic.table_protocols import FindGroup, FindTopic
from ipc.control_page import ControlPage
from ipc.queue_table import QueueTableReader
from remoting.body.heartbeat import SubscriptionData

CommitOffset = Callable[[str, str, str, int, int], None]
"""Remember how far a group has come: (remote address, group, topic, queue id, offset)
(ConsumerOffsetManager.commit_offset)."""

NotePull = Callable[[str, str, int, int], None]
"""(group, topic, queue id, offset): the group's next pull goes on from there
(ConsumerOffsetManager.commit_pull_offset)."""


class KnownConsumers(Protocol):
    """The part of ConsumerManager used here."""

    def revision(self, group: str) -> int:
        """Another number when the group's mode or subscriptions are others."""

    def is_broadcasting(self, group: str) -> bool:
        """Whether the group consumes in broadcasting mode."""

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The group's subscription to `topic`, from its latest heartbeat."""


class KnownPullStats(Protocol):
    """Where pulls are counted."""

    @property
    def pulls(self) -> PullCounts:
        """Where those of code 11 are."""

    def add_answers(self, request_code: int, code: int, count: int = 1) -> None:
        """`count` requests of this turn were answered with `code`."""

    def add_get(self, group: str, topic: str, count: int, size: int) -> None:
        """`count` messages of `size` bytes were given to `group`."""


NoteMoved = Callable[[str, str, int, int, int], None]
"""A pull of a group was told to go on elsewhere: (group, topic, queue id, asked, corrected)
(OffsetMovedEvents.add)."""


class PullStats(KnownPullStats, Protocol):
    """Where pulls are counted."""

    def add_late_answer(self, request_code: int, code: int, held_ms: int) -> None:
        """A pull was answered with `code` after it had been held for `held_ms`."""


class Consumers(PullConsumers, KnownConsumers, Protocol):
    """The parts of ConsumerManager used here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullParts:
    """See the module."""

    page: ControlPage
    table: QueueTableReader
    units: CheckedUnits
    log_reader: LogViews
    find_topic: FindTopic
    find_group: FindGroup
    is_readable: IsReadable
    consumers: Consumers
    filters: PullFilters
    """The groups' compiled expressions."""
    commit_offset: CommitOffset
    note_pull: NotePull
    note_moved: NoteMoved
    """Hears of corrected offsets."""
    stats: PullStats
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
