"""LogStart: gives a slave's empty log its first offset, on behalf of the replicator.

Runs on the main thread of process `store`, which serves the command. The log's writer waits
meanwhile (ReplicaLog.reset_start) and goes there afterwards (ReplicaLog.begin). It knows no
master.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from ipc.clock import Clock
from ipc.control_page import ControlPage
from store.allocate_mapped_file_service import AllocateMappedFileService
from store.control_slots import (
    ALLOCATED_END,
    DISPATCHED_OFFSET,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
)
from store.controller_mode import RoleNow
from store.errors import StoreError
from store.log_dispatch import LogDispatch
from store.log_flusher import LogFlusher
from store.message_store_config import MessageStoreConfig

log = logging.getLogger(__name__)

_POLL_MS: Final = 2.0


class LogStart:
    """See the module. Owned by: the main thread of process `store`."""

    def __init__(
        self,
        config: MessageStoreConfig,
        page: ControlPage,
        role: RoleNow,
        clock: Clock,
        allocate: AllocateMappedFileService,
        flusher: LogFlusher,
        dispatch: LogDispatch,
    ) -> None:
        """The services that continue from the new offset."""
        self._role = role
        self._file_size = config.mapped_file_size_commit_log
        self._counters = page.counters
        self._clock = clock
        self._allocate = allocate
        self._flusher = flusher
        self._dispatch = dispatch
        self._pause = threading.Event()
        """Never set: for short waits."""

    def start_at(self, phy_offset: int, deadline_ms: int) -> None:
        """The empty log starts at `phy_offset`, the start of a file; a repeated call changes
        nothing. deadline_ms: monotonic.

        Raises StoreError: the log holds bytes, is a master's, or the offset is not the start of a
        file; TimeoutError.
        """
        self._check(phy_offset)
        self._allocate.begin_at(phy_offset)
        while self._allocate.is_beginning:
            if self._clock.monotonic_ms() >= deadline_ms:
                raise TimeoutError(f"start at {phy_offset}: the allocation is busy; try again")
            self._pause.wait(_POLL_MS / 1000)
        if not self._allocate.begins_at(phy_offset):
            raise StoreError(f"start at {phy_offset}: some files hold bytes; see store.log")
        # Nobody reads below min, and there is nothing to flush or to dispatch.
        self._flusher.begin_at(phy_offset)
        self._dispatch.reput_from_offset = phy_offset
        counters = self._counters
        counters[FLUSHED_OFFSET] = counters[DISPATCHED_OFFSET] = phy_offset
        counters[MIN_PHY_OFFSET] = phy_offset
        log.info("the log starts at %s", phy_offset)

    def begin_to_lead(self) -> None:
        """The log of a broker that leads has a file, though it never had a byte. In controller
        mode, by the dispatch thread, now and then."""
        counters = self._counters
        if not counters[ALLOCATED_END] and not self._role.is_slave():
            self._allocate.begin_at(counters[MAX_PHY_OFFSET])

    def _check(self, phy_offset: int) -> None:
        low, end = self._counters[MIN_PHY_OFFSET], self._counters[MAX_PHY_OFFSET]
        if not self._role.is_slave():
            raise StoreError(f"start at {phy_offset}: this is a master's log")
        if phy_offset % self._file_size:
            raise StoreError(
                f"start at {phy_offset}: not the start of a file of {self._file_size} bytes"
            )
        if end > low:
            raise StoreError(f"start at {phy_offset}: the log holds [{low}, {end})")
