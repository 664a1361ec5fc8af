"""StoreSleeper: how the dispatch thread of process `store` sleeps.

On the process' bell, which whoever publishes or waits for a flush rings. It knows no files.
"""

from __future__ import annotations

from collections.abc import Callable

from ipc.bell import Bell
from ipc.control_page import ControlPage, ProcessIndex
from store.control_slots import FLUSHED_OFFSET, SYNC_FLUSH_WANTED


class StoreSleeper:
    """The dispatch thread's sleep: on the store's bell. Its waking also wakes the group commit,
    since the same ring says that somebody waits for a flush."""

    def __init__(
        self,
        page: ControlPage,
        bell: Bell,
        wake_flush: Callable[[], None],
        look: Callable[[], None] | None = None,
    ) -> None:
        """look: called after each sleep; something has changed, perhaps."""
        self._page = page
        self._bell = bell
        self._wake_flush = wake_flush
        self._look = look

    def announce_sleep(self) -> None:
        """Announce a sleep; each turn of the dispatch thread is a beat."""
        self._page.beat(ProcessIndex.STORE)
        self._bell.announce_sleep()

    def announce_awake(self) -> None:
        """Announce being awake."""
        self._bell.announce_awake()

    def wait(self, timeout_ms: float) -> None:
        """Until rung, or the time is over."""
        self._bell.wait(timeout_ms)
        self.look_for_flush()
        if self._look is not None:
            self._look()

    def ring(self) -> None:
        """End the sleep, from another thread of this process."""
        self._bell.ring()

    def look_for_flush(self) -> None:
        """Wake the group commit when an answer waits for it."""
        counters = self._page.counters
        if counters[SYNC_FLUSH_WANTED] > counters[FLUSHED_OFFSET]:
            self._wake_flush()
