"""FlushRealTimeService: ASYNC_FLUSH. The log goes to disk a little behind the writer.

Thread of the `store` process. Every interval it flushes when enough pages wait or a file is full;
every thorough interval, and at the stop, whatever waits. Corresponds to RocketMQ's
CommitLog.FlushRealTimeService.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ipc.clock import Clock
from ipc.service_thread import FailureHandler, ServiceThread
from store.log_flusher import LogFlusher
from store.message_store_config import MessageStoreConfig

_PAGE_SIZE: Final = 4096


class FlushRealTimeService(ServiceThread):
    """Owns its LogFlusher once started."""

    def __init__(
        self,
        flusher: LogFlusher,
        config: MessageStoreConfig,
        clock: Clock,
        *,
        is_wanted: Callable[[], bool] = lambda: False,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """is_wanted: whether somebody waits for a flush; whoever begins to wait calls `wakeup`."""
        super().__init__("FlushRealTimeService", on_failure=on_failure)
        self._is_wanted = is_wanted
        self._flusher = flusher
        self._clock = clock
        self._interval_ms = config.flush_interval_commit_log
        self._least_bytes = config.flush_commit_log_least_pages * _PAGE_SIZE
        self._thorough_interval_ms = config.flush_commit_log_thorough_interval
        self._last_thorough_ms = clock.monotonic_ms()

    def step(self) -> None:
        """Wait one interval, then flush if it is due."""
        if not self._is_wanted():
            self.wait_for_running(self._interval_ms)
        if not self.stopped:
            self.flush_if_due()

    def flush_if_due(self) -> bool:
        """Flush when a file is full, enough pages or somebody waits, or the thorough interval is
        over."""
        now_ms = self._clock.monotonic_ms()
        thorough = now_ms >= self._last_thorough_ms + self._thorough_interval_ms
        if thorough:
            self._last_thorough_ms = now_ms
        enough = self._flusher.unflushed >= self._least_bytes
        if thorough or enough or self._flusher.has_full_file or self._is_wanted():
            return self._flusher.flush()
        return False

    def finish(self) -> None:
        """The writer has stopped: all of it goes to disk."""
        while self._flusher.flush():
            pass
        self._flusher.close()
