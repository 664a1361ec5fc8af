"""StoreFollower: how the remoting loop observes the other processes through shared memory.

The SleepHooks of the loop. Before a wait it publishes the counts of the busy turns, announces the
sleep and checks for work again. After the wait it processes what the others have published: queues
that advanced wake their long polls, flushed and replicated offsets release waiting sends
(DurabilityFollower). Runs on the loop thread of `remoting` only.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.longpolling.notify_message_arriving_listener import HeldRequests
from broker.store_access.durability_follower import DurabilityFollower
from ipc.bell import Bell
from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.queue_table import QueueTableReader
from store.control_slots import PULL_HELD_MS


class StoreFollower:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        page: ControlPage,
        bell: Bell,
        table: QueueTableReader,
        held: HeldRequests,
        durability: DurabilityFollower,
        clock: Clock,
        *,
        begin_turn: Callable[[], None],
        publish_counts: Callable[[], None] = lambda: None,
    ) -> None:
        """begin_turn: called first after each wait: gives the log the time by which the turn that
        begins stores."""
        self._counters = page.counters
        self._bell = bell
        self._table = table
        self._hold = held
        self._durability = durability
        self._clock = clock
        self._begin_turn = begin_turn
        self._publish_counts = publish_counts

    def before_sleep(self) -> float | None:
        """SleepHooks: 0 if there is work, 5 ms while requests wait for a response."""
        self._publish_counts()
        holds = not self._hold.is_empty
        if holds:
            self._counters[PULL_HELD_MS] = self._clock.monotonic_ms()
        self._bell.announce_sleep(for_moves=holds)
        if holds and self._table.has_moves():
            return 0.0
        return self._durability.sleep_limit_s()

    def after_sleep(self) -> None:
        """SleepHooks: take up what the other processes have published."""
        self._bell.announce_awake()
        self._begin_turn()
        if self._hold.is_empty:
            self._table.skip_moves()
        elif self._table.has_moves():
            self._wake_held()
        self._durability.release()

    def acknowledged(self) -> None:
        """A replica's report came over a connection of this process."""
        self._durability.release()

    def waits_for_peer(self) -> bool:
        """SleepHooks: sends wait for the replicas. (Disks are too slow for spinning.)"""
        return self._durability.waits_for_replicas()

    def peer_has_answered(self) -> bool:
        """SleepHooks: the first of those sends can be released."""
        return self._durability.can_release()

    def before_commit(self) -> None:
        """Before the turn's records are published: what they wait for."""
        self._durability.want_flush()

    def _wake_held(self) -> None:
        rows = self._table.take_moves()
        if rows is None:
            self._hold.wake_all()
            return
        for row in dict.fromkeys(rows):
            self._hold.wake(self._table.queue_of(row))
