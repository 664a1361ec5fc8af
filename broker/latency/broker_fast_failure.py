"""BrokerFastFailure: decides whether sends that wait for the log are rejected early.

Runs on the loop thread of `remoting`; observes process `store` through the control page; knows no
request and no record. Counterparts in RocketMQ: BrokerFastFailure and
SendMessageProcessor.rejectRequest, which check a queue of requests and a lock. Here sends run on
the loop without either, and the only thing a send waits for before it is stored is the next file of
the commit log (AppendQueue). A late file has two possible causes that look the same from here.
Either the disk is slow; then producers should be told early and use another broker. Or `store`,
which creates the files, was killed and is restarting; that takes seconds, and clients should not
notice. The heartbeat of `store` distinguishes the two: only waiting time during which it beats
counts, and none counts for a while after a restart. A send whose waiting time does not count waits
until the queue's own timeout.

Not measured: how long a request stayed in the kernel's socket buffer during a long turn of the
loop. The kernel does not report when bytes arrived, so a request's age starts when the loop reads
it; storing it then is cheaper than rejecting it and receiving it again. Responses that wait for a
flush or a replica have timeouts of their own (DurabilityWaiters), and requests that wait for a
thread are rejected by their pool (RequestExecutor).
"""

from __future__ import annotations

from typing import Final

from broker.settings.broker_config import BrokerConfig
from ipc.clock import Clock
from ipc.control_page import BEAT, STARTS, ControlPage, ProcessIndex
from store.control_slots import ALLOCATED_END, STORE_STATE, StoreState
from store.message_store_config import MessageStoreConfig

_BEAT_GAP_MS: Final = 400
"""`store` beats every 250 ms when idle, and with every chunk that it dispatches."""
_SETTLING_MS: Final = 5_000
"""How long a restarted `store` may take to catch up."""


class BrokerFastFailure:
    """See the module. Times are monotonic ms. Owned by: the loop thread."""

    def __init__(
        self, broker: BrokerConfig, store: MessageStoreConfig, page: ControlPage, clock: Clock
    ) -> None:
        self._enabled = broker.broker_fast_failure_enable
        self._wait_ms = broker.wait_time_mills_in_send_queue
        self._busy_ms = store.os_page_cache_busy_time_out_mills
        self._counters = page.counters
        self._clock = clock
        self._starts = -1
        self._is_back = False
        self._beat = -1
        self._beat_at_ms = 0
        self._counts_from_ms = 0
        """Waiting time before this moment does not count."""
        self._blocked: tuple[int, int] | None = None
        """ALLOCATED_END when the log ran out of room, and when that was; None while it has room."""

    def look(self) -> None:
        """Check the heartbeat of `store`: several times a second, and every turn while sends
        wait."""
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
        """The log has no room until its next file exists."""
        self.look()
        if not self.blocked_ms():
            allocated_end = self._counters[ALLOCATED_END]
            self._blocked = (allocated_end, self._clock.monotonic_ms())

    def note_room(self) -> None:
        """The log accepted a record."""
        self._blocked = None

    def blocked_ms(self) -> int:
        """How long the log has had no room; 0 if it has room. Any thread."""
        blocked = self._blocked
        if blocked is None or self._counters[ALLOCATED_END] != blocked[0]:
            return 0
        return self._clock.monotonic_ms() - blocked[1]

    # -- decisions --------------------------------------------------------------------------------

    def is_late(self, queued_ms: int) -> bool:
        """Whether a send that has waited since `queued_ms` is to be rejected."""
        return self._enabled and self._counted_ms(queued_ms) >= self._wait_ms

    def is_busy(self) -> bool:
        """Whether the log has been blocked for so long that sends are no longer queued."""
        blocked_ms = self.blocked_ms()
        if not self._enabled or not blocked_ms:
            return False
        since_ms = self._clock.monotonic_ms() - blocked_ms
        return self._counted_ms(since_ms) > self._busy_ms

    def _counted_ms(self, since_ms: int) -> int:
        """The time from `since_ms` to the last beat; negative: none of it counts."""
        return self._beat_at_ms - max(since_ms, self._counts_from_ms)
