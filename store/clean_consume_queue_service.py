"""CleanConsumeQueueService: deletes consume queue and index files of records that are gone.

A thread of process `store`. It checks the commit log's minimum offset periodically and works only
when that has grown. It must not know why commit log files were deleted. Corresponds to
DefaultMessageStore.CleanConsumeQueueService of RocketMQ.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ipc.service_thread import FailureHandler, ServiceThread
from store.stored_queue_table import QueueT, StoredQueueTable

log = logging.getLogger(__name__)

CleanQueues = Callable[[int, Callable[[], bool]], int]
"""(min_phy_offset, pause) -> files deleted that only know earlier records; pause() is called after
each, True stops (clean_table)."""
CleanIndex = Callable[[int], int]
"""(min_phy_offset) -> index files deleted that only know earlier records
(IndexService.delete_expired)."""


def clean_table(
    table: StoredQueueTable[QueueT], min_phy_offset: int, pause: Callable[[], bool]
) -> int:
    """Delete the files of all queues whose records are gone; returns their number. `pause` is
    called after each, without a lock; True ends the pass early."""
    deleted = 0
    for queue in table:
        while table.clean_queue(queue, min_phy_offset):
            deleted += 1
            if pause():
                return deleted
    return deleted


class CleanConsumeQueueService(ServiceThread):
    """The service."""

    def __init__(
        self,
        clean_queues: CleanQueues,
        clean_index: CleanIndex,
        *,
        min_phy_offset: Callable[[], int],
        interval_ms: int,
        pause_ms: int,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """interval_ms: cleanResourceInterval. pause_ms: deleteConsumeQueueFilesInterval."""
        super().__init__("CleanConsumeQueueService", on_failure=on_failure)
        self._clean_queues = clean_queues
        self._clean_index = clean_index
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
        files = self._clean_queues(low, self._pause)
        if self.stopped:
            return
        index_files = self._clean_index(low)
        self._last_min_phy_offset = low
        if files or index_files:
            log.info(
                "deleted %s consume queue files and %s index files of records before %s",
                files,
                index_files,
                low,
            )

    def _pause(self) -> bool:
        self.wait_for_running(self._pause_ms)
        return self.stopped
