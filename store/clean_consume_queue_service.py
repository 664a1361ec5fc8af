"""CleanConsumeQueueService: deletes consume queue and index files of records that are gone.

A thread of process `store`. It looks at the commit log's minimum offset from time to time and works
only when that has grown. It must not know why commit log files were deleted. Follows
DefaultMessageStore.CleanConsumeQueueService.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from ipc.service_thread import FailureHandler, ServiceThread

log = logging.getLogger(__name__)


class CleanableQueues(Protocol):
    """What is needed of ConsumeQueueTable."""

    def clean(self, min_phy_offset: int, pause: Callable[[], bool]) -> int:
        """Delete files before `min_phy_offset`; `pause` after each, True stops."""
        ...


class CleanableIndex(Protocol):
    """What is needed of IndexService."""

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete index files that only know records before `min_phy_offset`."""
        ...


class CleanConsumeQueueService(ServiceThread):
    """The service."""

    def __init__(
        self,
        queues: CleanableQueues,
        index: CleanableIndex,
        *,
        min_phy_offset: Callable[[], int],
        interval_ms: int,
        pause_ms: int,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """interval_ms: cleanResourceInterval. pause_ms: deleteConsumeQueueFilesInterval."""
        super().__init__("CleanConsumeQueueService", on_failure=on_failure)
        self._queues = queues
        self._index = index
        self._min_phy_offset = min_phy_offset
        self._interval_ms = interval_ms
        self._pause_ms = pause_ms
        self._last_min_phy_offset = 0

    def step(self) -> None:
        """Wait one interval, or until woken (clean now), then clean."""
        self.wait_for_running(self._interval_ms)
        if not self.stopped:
            self.clean_once()

    def clean_once(self) -> None:
        """One round; nothing when the log's minimum has not grown. Raises OSError."""
        low = self._min_phy_offset()
        if low <= self._last_min_phy_offset:
            return
        files = self._queues.clean(low, self._pause)
        if self.stopped:
            return
        index_files = self._index.delete_expired(low)
        self._last_min_phy_offset = low
        if files or index_files:
            log.info(
                "records before %s are gone: %s consume queue and %s index files deleted",
                low,
                files,
                index_files,
            )

    def _pause(self) -> bool:
        self.wait_for_running(self._pause_ms)
        return self.stopped
