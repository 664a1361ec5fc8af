"""Leadership: keeps this controller the leader in the shared store, or finds out who is.

Owned by the loop's thread, which calls `tick`; what it asks of etcd it asks on one thread of its
own, one round at a time. A leader renews its lease every second; any other controller reads twice a
second who leads and which groups have changed, and becomes leader once nobody is. Whether the core
still counts as leader decides what a round does: a lease that it has lost in time (this process
stood still) is given back, not renewed, and another one sought. A bug ends the process.

Tested by tests/controller/test_leadership.py.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol

from controller.etcd_store import EtcdStore, Groups, LeaderSeen
from controller.events import (
    Event,
    Followed,
    LeadershipGranted,
    LeadershipLost,
    LeadershipRenewed,
)
from controller.group_store import ControllerStoreError
from controller.leader import Leader

log = logging.getLogger(__name__)

RENEW_MS: Final = 1_000
NAMED_MS: Final = 2_000
"""For how long a leader that was read is named to brokers; a round comes every 500 ms."""


class Led(Protocol):
    """What is led: the service with its core."""

    @property
    def is_leader(self) -> bool:
        """Whether this controller may answer for the groups."""

    def take(self, event: Event) -> None:
        """Give the core an event."""


class _Held(NamedTuple):
    """The leadership that the core was given."""

    lease: int
    fence: int


class Leadership:
    """See the module."""

    def __init__(
        self,
        store: EtcdStore,
        me: Leader,
        lease_s: int,
        led: Led,
        now_ms: Callable[[], int],
        on_loop: Callable[[Callable[[], None]], None],
    ) -> None:
        """store: of this object alone. now_ms: monotonic, the same as the core's. on_loop: runs a
        function on the loop's thread, soon."""
        self._store = store
        self._me = me
        self._lease_s = lease_s
        self._led = led
        self._now_ms = now_ms
        self._on_loop = on_loop
        self._pool = ThreadPoolExecutor(1, "ControllerLeaderThread")
        self._is_asking = False
        self._is_ended = False
        self._held: _Held | None = None
        self._renewed_ms = 0
        self._leader: Leader | None = None
        self._leader_until_ms = 0
        self._trouble = ""
        # The thread's own.
        self._lease = 0
        """The newest one that was made; 0: none, or given back."""
        self._since = 0
        """The revision up to which the groups were read; 0, so that all are, also after a read that
        failed, and where the store has gone back."""

    # -- the loop's ----------------------------------------------------------------------------

    @property
    def leader(self) -> Leader | None:
        """Another controller that leads; None: it is not sure."""
        return self._leader if self._now_ms() < self._leader_until_ms else None

    @property
    def trouble(self) -> str:
        """Why the last round failed; empty: it did not."""
        return self._trouble

    def tick(self) -> None:
        """Twice a second."""
        if self._is_asking:
            return
        if self._held is not None and not self._led.is_leader:
            log.warning("this controller leads no more: its lease was not renewed in time")
            self._held = None
        now_ms = self._now_ms()
        if self._held is None:
            self._ask(self._seek)
        elif now_ms - self._renewed_ms >= RENEW_MS:
            self._renewed_ms = now_ms
            self._ask(functools.partial(self._renew, self._held))

    def shutdown(self) -> None:
        """Give the leadership back, so that another controller need not wait for its end.
        Idempotent."""
        if self._is_ended:
            return
        self._is_ended = self._is_asking = True
        if self._held is not None:
            self._held = None
            self._led.take(LeadershipLost())
        self._pool.submit(self._give_back)
        self._pool.shutdown()
        self._store.close()

    def _ask(self, work: Callable[[], None]) -> None:
        self._is_asking = True
        self._pool.submit(self._round, work)

    def _asked(self, trouble: str) -> None:
        self._is_asking = self._is_ended
        if trouble and trouble != self._trouble:
            log.error("leadership: %s", trouble)
        elif self._trouble and not trouble:
            log.info("leadership: etcd answers again")
        self._trouble = trouble

    def _granted(self, held: _Held, sent_ms: int, groups: Groups) -> None:
        for name, reason in groups.unreadable.items():
            log.error("group %s: %s", name, reason)
        log.info("this controller leads, fence %s; %s groups", held.fence, len(groups.readable))
        self._held = held
        self._renewed_ms = sent_ms
        self._leader = None
        self._led.take(LeadershipGranted(held.fence, sent_ms, groups.readable, groups.unreadable))

    def _lost(self) -> None:
        log.warning("this controller leads no more: its leader key in etcd is gone")
        self._held = None
        self._led.take(LeadershipLost())

    def _followed(self, seen: LeaderSeen, sent_ms: int, groups: Groups) -> None:
        leader = None if seen.leader == self._me else seen.leader
        if leader is not None and leader != self._leader:
            log.info("controller %s at %s leads", leader.id, leader.address)
        self._leader, self._leader_until_ms = leader, sent_ms + NAMED_MS
        self._led.take(Followed(groups.readable))

    # -- the thread's --------------------------------------------------------------------------

    def _round(self, work: Callable[[], None]) -> None:
        """The service guard: a bug ends the process, on the loop's thread."""
        trouble = ""
        try:
            work()
        except (OSError, ControllerStoreError) as error:
            trouble = str(error)
        except Exception as error:  # noqa: BLE001 - raised again there
            self._on_loop(functools.partial(_raise, error))
            return
        self._on_loop(functools.partial(self._asked, trouble))

    def _renew(self, held: _Held) -> None:
        sent_ms = self._store.renew(held.lease, held.fence, self._lease_s)
        if sent_ms is None:
            self._on_loop(self._lost)
        else:
            renewed = LeadershipRenewed(sent_ms)
            self._on_loop(functools.partial(self._led.take, renewed))

    def _seek(self) -> None:
        """Follow whoever leads, or lead."""
        sent_ms = self._now_ms()
        seen = self._store.look()
        if seen.lease and seen.lease == self._lease:
            # Its own, from a leadership that the core has not, or no more.
            self._give_back()
            seen = self._store.look()
        if not seen.fence:
            self._lead()
            return
        if not seen.lease:
            raise ControllerStoreError(
                f"etcd's key {self._store.leader_key} has no lease: no controller has written it, "
                "and nobody can lead; etcdctl del it"
            )
        since, self._since = self._since, 0
        groups = self._store.load_all(since)
        if groups.revision >= since:
            self._since = groups.revision
        self._on_loop(functools.partial(self._followed, seen, sent_ms, groups))

    def _lead(self) -> None:
        lease = self._store.make_lease(self._lease_s)
        self._lease = lease.id
        fence = self._store.acquire(self._me, lease.id)
        if fence is None:
            self._give_back()
            return
        held = _Held(lease.id, fence)
        sent_ms = lease.sent_ms

        def keep() -> None:
            """Thousands of groups may take longer to read than the lease lasts."""
            nonlocal sent_ms
            if self._now_ms() - sent_ms < RENEW_MS:
                return
            kept_ms = self._store.renew(held.lease, held.fence, self._lease_s)
            if kept_ms is None:
                raise ControllerStoreError("the lease ended while the groups were read")
            sent_ms = kept_ms

        groups = self._store.load_all(between=keep)
        self._since = 0
        self._on_loop(functools.partial(self._granted, held, sent_ms, groups))

    def _give_back(self) -> None:
        if self._lease:
            self._store.revoke(self._lease)
            self._lease = 0


def _raise(error: Exception) -> None:
    raise error
