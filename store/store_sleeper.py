"""StoreSleeper: how the dispatch thread of process `store` sleeps.

On the process' bell, which whoever publishes or waits for a flush rings. It also says how long
dispatch rests after a small chunk: a record that is dispatched alone costs as much as fifty
together, 0.3 ms, and takes a core from the processes that a waiting send needs. It knows no files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ipc.bell import Bell
from ipc.clock import Clock
from ipc.control_page import ControlPage, ProcessIndex
from store.control_slots import FLUSHED_OFFSET, PULL_HELD_MS, SYNC_FLUSH_WANTED

_AWAITED_MS: Final = 1.0
"""While consumers wait; RocketMQ rests as long before every look."""
_UNAWAITED_MS: Final = 10.0
_RECENTLY_MS: Final = 1_000


class StoreSleeper:
    """The dispatch thread's sleep: on the store's bell. Its waking also wakes the group commit,
    since the same ring says that somebody waits for a flush."""

    def __init__(
        self, page: ControlPage, bell: Bell, clock: Clock, wake_flush: Callable[[], None]
    ) -> None:
        self._page = page
        self._bell = bell
        self._clock = clock
        self._wake_flush = wake_flush

    def announce_sleep(self) -> None:
        """Sleeper: announce a sleep; each turn of the dispatch thread is a beat."""
        self._page.beat(ProcessIndex.STORE)
        self._bell.announce_sleep()

    def announce_awake(self) -> None:
        """Sleeper: announce being awake."""
        self._bell.announce_awake()

    def wait(self, timeout_ms: float) -> None:
        """Sleeper: until rung, or the time is over."""
        self._bell.wait(timeout_ms)
        self.look_for_flush()

    def ring(self) -> None:
        """Sleeper: end the sleep, from another thread of this process."""
        self._bell.ring()

    def look_for_flush(self) -> None:
        """Wake the group commit when an answer waits for it."""
        counters = self._page.counters
        if counters[SYNC_FLUSH_WANTED] > counters[FLUSHED_OFFSET]:
            self._wake_flush()

    def pace_ms(self) -> float:
        """The rest after a small chunk: longer while no pull was held for a second."""
        held_ms = self._page.counters[PULL_HELD_MS]
        awaited = held_ms and self._clock.monotonic_ms() - held_ms < _RECENTLY_MS
        return _AWAITED_MS if awaited else _UNAWAITED_MS
