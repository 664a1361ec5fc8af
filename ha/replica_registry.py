"""ReplicaRegistry: which replica a connection belongs to, and what is known of those that left.

Runs in process `ha`: pure except for its one lock, any thread. The HA protocol carries no identity,
so a connection gets the best id available:

    announced by our own slaves through the master's remoting port    brokerName:brokerId
    exactly one registered slave of the group has the peer's ip, and
    no other connection is announced as that one                      brokerName:brokerId
    otherwise                                                         ip, then ip#2 and so on

An id counts once, with its newest connection: a slave whose old connection still hangs is not two
copies. If the registered slaves are known, at most as many unnamed connections of an ip count as
slaves are registered there (at least one). If not, an unnamed connection does not count beside an
announced one of its ip: it may be the same slave, reconnected before its old link broke.

Totals are kept by id. A connection that gets a name takes over those of its ip."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ha.refusals import RefusalReason
from ha.replica_clock import ReplicaClock
from ha.replica_memory import KnownReplica
from ha.replica_totals import ReplicaTotals, TotalsNow
from ha.slave_progress import ReplicaState, SlaveProgress
from ipc.clock import Clock

MAX_REMEMBERED: Final = 64
"""Of replicas that left, and of announcements for links not yet admitted; the newest are kept."""
REMEMBER_MS: Final = 24 * 3_600_000
ANNOUNCEMENT_MS: Final = 60_000
"""How long an announcement is kept for its link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica at one moment. Times: wall clock ms."""

    id: str
    is_named: bool
    """False: the id is an ip."""
    remote: str
    state: ReplicaState
    counted: bool
    """Whether its acknowledgements count as one copy."""
    ack_offset: int
    position: int
    ack_limit: int | None = None
    """Up to here it may have acknowledged to a process that was killed; None: surely not."""
    start_offset: int
    connected_since_ms: int
    disconnected_since_ms: int | None = None
    last_error: str | None = None
    """Why its last connection ended, since this process started."""
    last_error_ms: int | None = None
    progress: SlaveProgress | None = None
    """Of the live connection."""
    totals: TotalsNow

    def lag_bytes(self, max_phy_offset: int) -> int:
        """Log bytes not acknowledged by it."""
        return max(max_phy_offset - self.position, 0)

    def is_bound(self, max_phy_offset: int) -> bool:
        """Whether its lag is an upper bound: it may have acknowledged more than is known."""
        return self.ack_limit is not None and self.position < min(self.ack_limit, max_phy_offset)


@dataclass(slots=True)
class _Link:
    """One live connection."""

    progress: SlaveProgress
    announced: str | None
    id: str = ""
    number: int = 0
    """Its number among the unnamed connections of its ip; kept while it is open."""
    counted: bool = False
    told: ReplicaState = ReplicaState.catching_up
    """The last state returned by take_changed_states."""
    transferred: int = 0
    """The part of its progress' `transferred` that is already in the totals."""


@dataclass(slots=True)
class _Past:
    """What is remembered of an id's closed connections."""

    progress: SlaveProgress
    is_named: bool
    ended_ms: int
    forget_ms: int
    """Monotonic: when it is forgotten, unless it is connected."""
    error: str | None
    """None: it ended before this process started."""
    ack_limit: int | None = None
    """As in Replica."""


class ReplicaRegistry:
    """Ids of connections and the list of replicas. Any thread; one lock guards everything."""

    def __init__(self, clock: Clock, remember_ms: int = REMEMBER_MS) -> None:
        """`remember_ms`: how long replicas that left are listed."""
        self.counted: tuple[SlaveProgress, ...] = ()
        """One connection for each counted replica. Read without the lock: replaced as one word."""
        self._clock = clock
        self._remember_ms: Final = remember_ms
        self._lock: Final = threading.Lock()
        self._links: list[_Link] = []
        self._past: OrderedDict[str, _Past] = OrderedDict()
        self._totals: dict[str, ReplicaTotals] = {}
        """For each id, connected or remembered."""
        self._announced: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._members: dict[str, list[str]] | None = None
        """By ip: ids of the registered slaves; None while they are unknown."""

    # -- events --------------------------------------------------------------------------------

    def connected(self, progress: SlaveProgress) -> str:
        """A connection was admitted; returns its id."""
        with self._lock:
            link = _Link(progress, self._take_announcement(progress.remote))
            self._links.append(link)
            self._name_all()
            self._totals_of(link.id).connect()
            return link.id

    def disconnected(
        self, progress: SlaveProgress, error: str, rejected: RefusalReason | None = None
    ) -> str | None:
        """A connection ended because of `error`; returns its id, or None if it was unknown.
        `rejected`: why its last report could not be true."""
        with self._lock:
            link = next((link for link in self._links if link.progress is progress), None)
            if link is None:
                return None
            self._count_bytes(link)
            if rejected is not None:
                self._totals[link.id].reject_ack(rejected)
            self._links.remove(link)
            forget_ms = self._clock.monotonic_ms() + self._remember_ms
            is_named = not link.number
            self._past[link.id] = _Past(progress, is_named, self._clock.now_ms(), forget_ms, error)
            self._past.move_to_end(link.id)
            self._name_all()
            self._forget()
            return link.id

    def restore(
        self, known: KnownReplica, totals: ReplicaTotals, *, ack_limit: int, is_named: bool
    ) -> None:
        """Add a replica known to a predecessor of this process; it has acknowledged nothing beyond
        `ack_limit`. Call it before anything else, in the order in which the replicas left."""
        now_ms, left_ms = self._clock.now_ms(), known.left_ms
        left_ms = now_ms if left_ms is None else min(left_ms, now_ms)
        forget_ms = self._clock.monotonic_ms() + self._remember_ms - (now_ms - left_ms)
        progress = SlaveProgress(
            known.remote,
            known.ack_offset,
            known.position,
            now_ms=self._clock.monotonic_ms(),
            wall_ms=known.connected_since_ms,
        )
        with self._lock:
            past = _Past(progress, is_named, left_ms, forget_ms, None, ack_limit)
            self._past[known.id] = past
            self._totals[known.id] = totals
            self._forget()

    def announce(self, remote: str, broker_name: str, broker_id: int) -> bool:
        """The link from `remote` ("ip:port") is that of the slave that announced it.

        True if the link exists; otherwise the announcement is kept for a minute, since it may
        overtake the first report. Raises ValueError: not a valid name and id of a slave.
        """
        if not broker_name or broker_id <= 0:
            raise ValueError(f"{broker_name!r}:{broker_id} is not a slave: name or id is wrong")
        replica = f"{broker_name}:{broker_id}"
        with self._lock:
            found = [link for link in self._links if link.progress.remote == remote]
            for link in found:
                link.announced = replica
            if found:
                self._name_all()
                return True
            self._announced[remote] = (replica, self._clock.monotonic_ms() + ANNOUNCEMENT_MS)
            while len(self._announced) > MAX_REMEMBERED:
                self._announced.popitem(last=False)
            return False

    def set_members(self, broker_name: str, members: Mapping[int, str]) -> None:
        """Set the registered brokers of the group, id to ip; an empty mapping is ignored."""
        if not members:
            return
        slaves: dict[str, list[str]] = {}
        for broker_id, ip in members.items():
            if broker_id > 0:
                slaves.setdefault(ip, []).append(f"{broker_name}:{broker_id}")
        with self._lock:
            self._members = slaves
            self._name_all()

    # -- queries -------------------------------------------------------------------------------

    def live(self) -> tuple[SlaveProgress, ...]:
        """The connection of each live replica, including those that do not count."""
        with self._lock:
            return tuple(link.progress for link in self._newest())

    def replicas(self) -> list[Replica]:
        """All replicas: the live ones by id, then the others by id."""
        with self._lock:
            return self._replicas()

    def observe(self, now_ms: int) -> list[Replica]:
        """Like `replicas`, and count the time since the last call. `now_ms`: monotonic. Call it a
        few times a second, from one thread (ReplicaClock)."""
        with self._lock:
            self._forget()
            for link in self._links:
                self._count_bytes(link)
            states = {link.id: link.progress.state for link in self._newest()}
            for replica, totals in self._totals.items():
                totals.clock.observe(states.get(replica, ReplicaState.disconnected), now_ms)
            return self._replicas()

    def take_changed_states(self) -> list[tuple[str, SlaveProgress, ReplicaState]]:
        """Live replicas whose state has changed since the last call."""
        changed = []
        with self._lock:
            for link in self._newest():
                state = link.progress.state
                if state is not link.told:
                    link.told = state
                    changed.append((link.id, link.progress, state))
        return changed

    # -- under the lock ------------------------------------------------------------------------

    def _replicas(self) -> list[Replica]:
        live = {link.id: self._live_replica(link) for link in self._newest()}
        gone = {
            replica: self._gone_replica(replica, past)
            for replica, past in self._past.items()
            if replica not in live
        }
        return [found[key] for found in (live, gone) for key in sorted(found)]

    def _newest(self) -> Iterator[_Link]:
        """The newest connection of each id."""
        return iter({link.id: link for link in self._links}.values())

    def _take_announcement(self, remote: str) -> str | None:
        replica, until_ms = self._announced.pop(remote, (None, 0))
        return replica if self._clock.monotonic_ms() <= until_ms else None

    def _name_all(self) -> None:
        """Assign every connection its id, and determine which of them count."""
        renamed = []
        for link in self._links:
            before, was_nameless, link.id = link.id, link.number > 0, self._name(link)
            if before and before != link.id:
                renamed.append((link, before, was_nameless))
        for link, before, was_nameless in renamed:
            self._take_along(link, before, was_nameless)
        newest = list(self._newest())
        room = self._room_for_nameless(newest)
        for link in reversed(newest):
            link.counted = True
            if link.number:
                link.counted = room[link.progress.ip] > 0
                room[link.progress.ip] -= 1
        self.counted = tuple(link.progress for link in newest if link.counted)

    def _name(self, link: _Link) -> str:
        ip = link.progress.ip
        name = link.announced or self._guess(ip)
        if name is not None:
            link.number = 0
            return name
        if not link.number:
            taken = {other.number for other in self._links if other.progress.ip == ip}
            link.number = next(n for n in range(1, len(taken) + 2) if n not in taken)
        return ip if link.number == 1 else f"{ip}#{link.number}"

    def _guess(self, ip: str) -> str | None:
        """The registered slave that a connection from `ip` must belong to; None if it is not
        unique, or announced another connection as its own."""
        registered = self._registered(ip)
        if len(registered) != 1 or any(link.announced == registered[0] for link in self._links):
            return None
        return registered[0]

    def _room_for_nameless(self, newest: list[_Link]) -> dict[str, int]:
        """By ip: how many unnamed connections may count."""
        if self._members is None:
            named = {link.progress.ip for link in newest if not link.number}
            ips = {link.progress.ip for link in newest}
            return {ip: 0 if ip in named else len(newest) for ip in ips}
        room: dict[str, int] = {}
        for link in newest:
            ip = link.progress.ip
            left = room.get(ip, max(len(self._registered(ip)), 1))
            room[ip] = left if link.number else left - 1
        return room

    def _registered(self, ip: str) -> list[str]:
        """Ids of the registered slaves on `ip`; empty while unknown."""
        return [] if self._members is None else self._members.get(ip, [])

    def _take_along(self, link: _Link, before: str, was_nameless: bool) -> None:
        """Move what is remembered of the old id, and the totals unless it is still in use."""
        is_live = any(other.id == before for other in self._links)
        if was_nameless and not link.number and not is_live:
            past = self._past.pop(before, None)
            if past is not None:
                past.is_named = True
                self._past.setdefault(link.id, past)
        counted = None
        if not is_live and before not in self._past:
            counted = self._totals.pop(before, None)
        if counted is None:
            self._totals_of(link.id).connect()
        elif link.id in self._totals:
            self._totals[link.id].absorb(counted)
        else:
            self._totals[link.id] = counted

    def _totals_of(self, replica: str) -> ReplicaTotals:
        """New ones for a new connection."""
        if replica not in self._totals:
            clock = ReplicaClock(self._clock.monotonic_ms(), ReplicaState.catching_up)
            self._totals[replica] = ReplicaTotals(clock)
        return self._totals[replica]

    def _count_bytes(self, link: _Link) -> None:
        """Add what its WriteSocketService has sent since the last call to the totals of its id."""
        before, link.transferred = link.transferred, link.progress.transferred
        self._totals[link.id].transferred += link.transferred - before

    def forget_left(self) -> None:
        """Forget every replica that is not connected, with its counts."""
        with self._lock:
            self._past.clear()
            self._forget()

    def _forget(self) -> None:
        """Forget replicas that left long ago, and the oldest ones beyond MAX_REMEMBERED."""
        live, now_ms = {link.id for link in self._links}, self._clock.monotonic_ms()
        gone = [replica for replica in self._past if replica not in live]
        too_many = len(gone) - MAX_REMEMBERED
        for number, replica in enumerate(gone):
            if number < too_many or self._past[replica].forget_ms <= now_ms:
                del self._past[replica]
        for replica in self._totals.keys() - live - self._past.keys():
            del self._totals[replica]

    def _live_replica(self, link: _Link) -> Replica:
        progress = link.progress
        past = self._past.get(link.id)
        return Replica(
            id=link.id,
            is_named=not link.number,
            remote=progress.remote,
            state=progress.state,
            counted=link.counted,
            ack_offset=progress.ack_offset,
            position=progress.position,
            start_offset=progress.start_offset,
            connected_since_ms=progress.connected_since_ms,
            last_error=None if past is None else past.error,
            last_error_ms=None if past is None or past.error is None else past.ended_ms,
            progress=progress,
            totals=self._totals[link.id].now(),
        )

    def _gone_replica(self, replica: str, past: _Past) -> Replica:
        progress = past.progress
        return Replica(
            id=replica,
            is_named=past.is_named,
            remote=progress.remote,
            state=ReplicaState.disconnected,
            counted=False,
            ack_offset=progress.ack_offset,
            position=progress.position,
            ack_limit=past.ack_limit,
            start_offset=progress.start_offset,
            connected_since_ms=progress.connected_since_ms,
            disconnected_since_ms=past.ended_ms,
            last_error=past.error,
            last_error_ms=None if past.error is None else past.ended_ms,
            totals=self._totals[replica].now(),
        )
