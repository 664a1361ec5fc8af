"""BrokerFastFailure: whether sends that wait for the log are refused early, and with which words.

Runs on the loop thread of `remoting`; follows process `store` through the control page; knows no
request and no record. Kin: BrokerFastFailure and SendMessageProcessor.rejectRequest of the
original, which look at a queue of requests and at a lock. Here sends run on the loop, there is
neither, and a send waits before it is stored for one thing only: the next file of the commit log
(AppendLine). A file that is late has two causes that look alike from here. The disk is slow: then
whoever sends should hear of it early and go elsewhere. Or `store`, which makes the files, was
killed and is started again: that takes seconds, and clients are not to notice. The beat of `store`
tells them apart: only waiting during which it beats counts, and for a while after it came back
none does. Whoever does not count waits as long as the line lets him.

What is not measured: how long a request lay in the kernel while a turn of the loop was long. The
kernel does not say when bytes came, so a request's age begins when the loop reads it; and to store
it then costs less than to refuse it and get it again. Answers that wait for a flush or a replica
have time-outs of their own (DurabilityWaiters), and what waits for a thread is refused by its
pool (RequestExecutor).
"""

from __future__ import annotations

from typing import Final

import msgspec

from ipc.clock import Clock
from ipc.control_page import BEAT, STARTS, ControlPage, ProcessIndex
from store.control_slots import ALLOCATED_END, STORE_STATE, StoreState

_BEAT_GAP_MS: Final = 400
"""`store` beats every 250 ms when it has nothing to do, and with every chunk that it dispatches."""
_SETTLING_MS: Final = 5_000
"""How long a `store` that came back may take to make up leeway."""


class FastFailureSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of this module."""

    enabled: bool
    wait_ms: int
    """How long a send may wait (waitTimeMillsInSendQueue)."""
    busy_ms: int
    """The log stands still for longer: no send waits any more (osPageCacheBusyTimeOutMills)."""


class BrokerFastFailure:
    """See the module. Times are monotonic ms. Owned by: the loop thread."""

    def __init__(self, settings: FastFailureSettings, page: ControlPage, clock: Clock) -> None:
        self._settings = settings
        self._counters = page.counters
        self._clock = clock
        self._starts = -1
        self._is_back = False
        self._beat = -1
        self._beat_at_ms = 0
        self._counts_from_ms = 0
        """Waiting before this moment does not count."""
        self._blocked: tuple[int, int] | None = None
        """ALLOCATED_END when the log had no room, and since when that was so; None: it had."""

    def look(self) -> None:
        """See whether `store` beats: several times a second, each turn while somebody waits."""
        counters = self._counters
        starts = counters[STARTS + ProcessIndex.STORE]
        is_ready = counters[STORE_STATE] == StoreState.READY
        if starts != self._starts or not is_ready:
            self._starts, self._is_back = starts, False
        beat = counters[BEAT + ProcessIndex.STORE]
        if beat == self._beat:
            return
        now_ms = self._clock.monotonic_ms()
        if not self._is_back:
            self._is_back = is_ready
            self._counts_from_ms = now_ms + _SETTLING_MS
        elif now_ms - self._beat_at_ms > _BEAT_GAP_MS:
            self._counts_from_ms = max(self._counts_from_ms, now_ms)
        self._beat, self._beat_at_ms = beat, now_ms

    # -- the log ---------------------------------------------------------------------------------

    def note_blocked(self) -> None:
        """The log has no room before its next file is there."""
        self.look()
        if not self.blocked_ms():
            allocated_end = self._counters[ALLOCATED_END]
            self._blocked = (allocated_end, self._clock.monotonic_ms())

    def note_room(self) -> None:
        """The log took a record."""
        self._blocked = None

    def blocked_ms(self) -> int:
        """For how long the log has had no room; 0: it has, or has had none for no time at all.
        Any thread."""
        blocked = self._blocked
        if blocked is None or self._counters[ALLOCATED_END] != blocked[0]:
            return 0
        return self._clock.monotonic_ms() - blocked[1]

    # -- verdicts --------------------------------------------------------------------------------

    def is_late(self, came_ms: int) -> bool:
        """Whether a send that has waited since then is refused."""
        return self._settings.enabled and self._counted_ms(came_ms) >= self._settings.wait_ms

    def is_busy(self) -> bool:
        """Whether the log has stood still for so long that no send waits for it any more."""
        blocked_ms = self.blocked_ms()
        if not self._settings.enabled or not blocked_ms:
            return False
        since_ms = self._clock.monotonic_ms() - blocked_ms
        return self._counted_ms(since_ms) > self._settings.busy_ms

    def _counted_ms(self, since_ms: int) -> int:
        """The time from then to the last beat; negative: none of it counts."""
        return self._beat_at_ms - max(since_ms, self._counts_from_ms)
