"""GroupCommitService: SYNC_FLUSH. One fdatasync for all who wait at that moment.

Thread of the `store` process. It is woken when an answer begins to wait (`wakeup`, through the
store's bell) and looks by itself every 10 ms; whatever was published before an fdatasync is on
disk after it, so waiting answers share one. Who waits, and until when, is the business of the
process that answers: it watches the published flushed_offset. Kin: CommitLog.GroupCommitService.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ipc.service_thread import FailureHandler, ServiceThread
from store.log_flusher import LogFlusher

_INTERVAL_MS: Final = 10


class GroupCommitService(ServiceThread):
    """Owns its LogFlusher once started."""

    def __init__(
        self,
        flusher: LogFlusher,
        wanted_offset: Callable[[], int],
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """wanted_offset: an answer waits until this offset is on disk (control page)."""
        super().__init__("GroupCommitService", on_failure=on_failure)
        self._flusher = flusher
        self._wanted_offset = wanted_offset

    def step(self) -> None:
        """Flush at once while someone waits; else sleep, then flush what nobody waits for."""
        flusher = self._flusher
        waited_for = self._wanted_offset() > flusher.flushed_offset and flusher.unflushed > 0
        if not waited_for:
            self.wait_for_running(_INTERVAL_MS)
        flusher.flush()

    def finish(self) -> None:
        """The writer has stopped: all of it goes to disk."""
        while self._flusher.flush():
            pass
        self._flusher.close()
