"""StoreProgress: what the services of process `store` publish, and what they read of each other.

Callbacks for the services, each on the thread of the service that calls it: every number has one
writing service. It knows the control page and the checkpoint, no files and no records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ipc.bell import Bell
from ipc.control_page import ControlPage, ProcessIndex
from store.control_slots import (
    ALLOCATED_END,
    DISPATCHED_OFFSET,
    FLUSHED_OFFSET,
    MASTER_FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    STORE_TIMESTAMP,
)
from store.controller_mode import FixedRole, RoleNow
from store.errors import DiskFullError
from store.message_store_config import MessageStoreConfig
from store.store_checkpoint import StoreCheckpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreBells:
    """What wakes process `store`, whom it wakes, and for whom it works."""

    own: Bell
    ring_readers: Callable[[], None]
    """Who follows flushed offsets and state."""
    ring_for_moves: Callable[[], None] | None = None
    """Who waits for queues to move; None: the same."""
    ring_replicator: Callable[[], None] = lambda: None
    """On a slave, whose log is written by process `ha`: when something was flushed or allocated, or
    old files went."""
    role: RoleNow | None = None
    """For whom it works: master, slave, or what changes; None: as the settings say, for life."""


class StoreProgress:
    """See the module. `dispatched_timestamp`: owned by the dispatch thread, read by any."""

    def __init__(
        self,
        config: MessageStoreConfig,
        page: ControlPage,
        bells: StoreBells,
    ) -> None:
        self._config = config
        self._page = page
        self._counters = page.counters
        self.role: Final = bells.role or FixedRole(page, is_slave=config.is_slave)
        self.ring_for_moves = bells.ring_for_moves or bells.ring_readers
        self._ring_replicator = bells.ring_replicator
        self.ring_readers = bells.ring_readers
        self.checkpoint = StoreCheckpoint(config.checkpoint_path)
        self.dispatched_timestamp = 0
        """Store timestamp (ms) of the newest dispatched record; 0 before the first."""

    def load_checkpoint(self, *, rejoins: bool) -> None:
        """Read the checkpoint file. rejoins: only this process starts again, so what `remoting` has
        set since then stands. Raises OSError."""
        self.checkpoint = StoreCheckpoint.load(self._config.checkpoint_path)
        if not rejoins:
            self._counters[MASTER_FLUSHED_OFFSET] = self.checkpoint.master_flushed_offset

    def write_checkpoint(self) -> None:
        """Write the checkpoint file, with what `remoting` was told and what is confirmed. Raises
        DiskFullError, FlushFailedError, OSError."""
        self.checkpoint.master_flushed_offset = self._counters[MASTER_FLUSHED_OFFSET]
        if (confirmed := self.role.confirm_offset()) is not None:
            self.checkpoint.confirm_offset = confirmed
        self.checkpoint.flush()

    # -- the log -------------------------------------------------------------------------------

    def publish_flushed(self, phy_offset: int) -> None:
        """The log is on disk up to `phy_offset`."""
        self._counters[FLUSHED_OFFSET] = phy_offset
        self.ring_readers()
        self._ring_replicator()

    def publish_allocated(self, end: int) -> None:
        """Log files exist up to `end`."""
        self._counters[ALLOCATED_END] = end
        self.ring_readers()
        self._ring_replicator()

    def publish_min_offset(self, phy_offset: int) -> None:
        """The log was deleted up to `phy_offset`."""
        self._counters[MIN_PHY_OFFSET] = phy_offset
        self._ring_replicator()

    def flushable_timestamp(self) -> int:
        """Store timestamp (ms) of the newest record that the next flush brings to disk. A slave's
        writer knows no records: there it is the newest dispatched one, or what was on disk before.
        """
        if self.role.is_slave():
            return max(self.dispatched_timestamp, self.checkpoint.physic_msg_timestamp)
        return self._counters[STORE_TIMESTAMP]

    def keep_from(self) -> int:
        """Start of the first file that must stay: the one with the last byte, and everything that
        is not dispatched or not flushed yet."""
        counters, size = self._counters, self._config.mapped_file_size_commit_log
        end = min(counters[MAX_PHY_OFFSET], counters[DISPATCHED_OFFSET], counters[FLUSHED_OFFSET])
        last = max(end - 1, 0)
        return last - last % size

    # -- the derived files ---------------------------------------------------------------------

    def publish_dispatched(self, phy_offset: int) -> None:
        """The log is dispatched up to `phy_offset`."""
        self._page.beat(ProcessIndex.STORE)
        self._counters[DISPATCHED_OFFSET] = phy_offset

    def set_dispatched_timestamp(self, timestamp_ms: int) -> None:
        """Store timestamp of the newest dispatched record."""
        self.dispatched_timestamp = timestamp_ms

    def queues_flushed(self, timestamp_ms: int, phy_offset: int) -> None:
        """The consume queues are on disk up to `phy_offset`, and up to records of this store
        timestamp; 0: unknown."""
        if timestamp_ms:
            self.checkpoint.logics_msg_timestamp = timestamp_ms
        self.checkpoint.logics_physical_offset = phy_offset
        self._flush_checkpoint()

    def index_flushed(self, timestamp_ms: int) -> None:
        """The index is on disk up to records of this store timestamp."""
        self.checkpoint.index_msg_timestamp = timestamp_ms
        self._flush_checkpoint()

    def _flush_checkpoint(self) -> None:
        """On a full disk the next flush tries again: an older checkpoint, or none, makes a recovery
        longer, and nothing else."""
        try:
            self.write_checkpoint()
        except DiskFullError as error:
            log.warning("cannot write the checkpoint: %s", error)
