"""PreOnline: what an isolated broker does next before it registers; the decision, without I/O.

With totalReplicas above 1 (and enableSlaveActingMaster) a broker starts isolated, since meanwhile a
slave may have acted in its place. A master comes online when each replica that is registered is
linked to its HA port and was asked what it did (45, 43, 60); a slave when it is linked to the
master that is registered, or at once when there is none. Replicas are taken in the order of their
ids. What name servers say of the group may change from round to round: a replica that they have
dropped is not waited for, and this broker never waits for itself, who may still be registered from
before a kill. Nobody waits for ever: after `max_wait_ms` the broker comes online without those that
are missing.

Pure; PreOnlineService asks it once a round and does what it says. Follows BrokerPreOnlineService of
RocketMQ 5.3.3, but for what docs/replication.md names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from broker.slave.group_members import MemberAddress

MASTER_ID: Final = 0
TRY_MS: Final = 10_000
"""How long a link is waited for before the peer is told once more, with a line in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of the group in this round. now_ms: monotonic."""

    now_ms: int
    members: Sequence[MemberAddress] | None
    """The registered brokers of the group; None: no name server has answered."""
    linked: Collection[MemberAddress] = ()
    """The replicas whose own HA link stands (linked_replicas)."""
    follows: bool = False
    """Whether this slave is linked to its master's HA port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """How far a broker is on its way online. Ids outlive the list that they came from."""

    since_ms: int
    settled: frozenset[MemberAddress] = frozenset()
    """Replicas that were asked what they did."""
    told: MemberAddress | None = None
    """Who was told last (906), and has not linked since."""
    told_ms: int = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """Look again later. awaited: for whom, None: for the name servers."""

    awaited: MemberAddress | None


@dataclass(frozen=True, slots=True)
class Tell:
    """Exchange addresses (906): a master names its HA port to a slave, a slave asks a master.
    again: it was told before and has not linked."""

    member: MemberAddress
    again: bool


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Ask this replica what it did in the master's place (45, 43, 60)."""

    member: MemberAddress


@dataclass(frozen=True, slots=True)
class ComeOnline:
    """Register, and begin what runs by itself. min_id and its address: of the group, as
    BrokerPreOnlineService records them, that is of the others where there are any."""

    min_id: int
    min_address: str
    missing: tuple[MemberAddress, ...] = ()
    """Whom it did not wait for any longer."""
    waited_in_vain: bool = False
    """The time was over."""


Step = Pause | Tell | TakeBack | ComeOnline


class PreOnline:
    """The rules for one broker. Immutable."""

    def __init__(self, own: MemberAddress, max_wait_ms: int) -> None:
        """own: id and registered "host:port". max_wait_ms: 0: for ever, as RocketMQ."""
        self._own: Final = own
        self._max_wait_ms: Final = max_wait_ms

    def next_step(self, state: Isolation, seen: Seen) -> Step:
        """What to do now."""
        others = self._others(seen.members or ())
        late = bool(self._max_wait_ms) and seen.now_ms - state.since_ms >= self._max_wait_ms
        if seen.members is None:
            return self._online((), (), late=True) if late else Pause(None)
        if not others:
            return self._online(others)
        if self._own.broker_id == MASTER_ID:
            return self._as_master(state, seen, others, late=late)
        return self._as_slave(state, seen, others, late=late)

    def told(self, state: Isolation, member: MemberAddress, now_ms: int) -> Isolation:
        """906 was answered."""
        return replace(state, told=member, told_ms=now_ms)

    def settled(self, state: Isolation, member: MemberAddress) -> Isolation:
        """The replica has said what it did."""
        return replace(state, settled=state.settled | {member}, told=None)

    def _others(self, members: Sequence[MemberAddress]) -> list[MemberAddress]:
        """By id. Not this broker itself, whatever life it was registered in, nor an id that no
        broker has."""
        own = self._own
        return sorted(
            member
            for member in members
            if member.broker_id >= MASTER_ID
            and member.broker_id != own.broker_id
            and member.address != own.address
        )

    def _as_master(
        self, state: Isolation, seen: Seen, others: list[MemberAddress], *, late: bool
    ) -> Step:
        missing = tuple(member for member in others if member not in state.settled)
        if not missing or late:
            return self._online(others, missing, late=bool(missing))
        awaited = missing[0]
        is_told = state.told == awaited
        if is_told and awaited in seen.linked:
            return TakeBack(awaited)
        if is_told and seen.now_ms - state.told_ms < TRY_MS:
            return Pause(awaited)
        return Tell(awaited, again=is_told)

    def _as_slave(
        self, state: Isolation, seen: Seen, others: list[MemberAddress], *, late: bool
    ) -> Step:
        master = others[0]
        if master.broker_id != MASTER_ID:
            return self._online(others)
        if late:
            return self._online(others, (master,), late=True)
        is_told = state.told == master
        if is_told and seen.follows:
            return self._online(others)
        if is_told and seen.now_ms - state.told_ms < TRY_MS:
            return Pause(master)
        return Tell(master, again=is_told)

    def without_master(self, seen: Seen) -> ComeOnline:
        """A slave asked who is registered as its master, and that broker names no HA port."""
        return self._online(self._others(seen.members or ()))

    def _online(
        self,
        others: Sequence[MemberAddress],
        missing: tuple[MemberAddress, ...] = (),
        *,
        late: bool = False,
    ) -> ComeOnline:
        least = self._own
        if others and self._own.broker_id != MASTER_ID:
            # Without the own id, as in RocketMQ: who may be acting now is not replaced at once,
            # but when it has seen this broker, too.
            least = others[0]
        return ComeOnline(least.broker_id, least.address, missing, late)


@dataclass(frozen=True, slots=True)
class Link:
    """A link at this master's HA port. id: brokerName:brokerId, or something else for one that
    nobody has named."""

    id: str
    ip: str


def linked_replicas(
    broker_name: str,
    members: Sequence[MemberAddress],
    links: Sequence[Link],
    is_ours: Callable[[str], bool],
) -> frozenset[MemberAddress]:
    """Which of the registered replicas have a link of their own. A link that is named belongs to
    that id, and to a member of another address only where that is an address of ours (`is_ours`):
    anybody may register an id. An unnamed one (a Java slave's, of which only the IP is known)
    belongs to a member at its IP that has none with a name, each to one: a second broker on a host
    is not linked because the first one is."""
    named = {link.id: link.ip for link in links}
    found: set[MemberAddress] = set()
    unnamed: dict[str, list[MemberAddress]] = {}
    for member in sorted(members):
        ip = named.get(f"{broker_name}:{member.broker_id}")
        if ip is None:
            unnamed.setdefault(member.ip, []).append(member)
        elif ip == member.ip or is_ours(member.ip):
            found.add(member)
    prefix = f"{broker_name}:"
    for ip, waiting in unnamed.items():
        count = sum(link.ip == ip and not link.id.startswith(prefix) for link in links)
        found.update(waiting[:count])
    return frozenset(found)
