"""A master's SyncStateSet: who is in it, who should be, and what its acks answer. One thread.

Made anew for each time as master, so that no ack of an earlier epoch counts. What has been asked of
the controller and not been settled counts together with the known set: whichever of them is in
force there, whoever can be elected has every message that was answered. A request is settled by its
refusal, or by a set of a newer epoch, after which the controller refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from broker.failover.messages import Answered, Ask, GroupView, LogEnds, ReplicaConnected
from broker.failover.settings import MemberSettings
from ha.epochs import master_confirm_offset
from remoting.response_code import ResponseCode

_NOT_TAKEN: Final = frozenset(
    {ResponseCode.CONTROLLER_INVALID_REPLICAS, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE}
)
"""A set is refused for one of its members, who is not known, or not alive, to the controller."""
_REFUSALS: Final = _NOT_TAKEN | frozenset(
    {
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
    }
)
"""Answers to 1001 of a controller that has not proposed the set."""


def is_twin(view: GroupView, own_id: int | None, own_address: str) -> bool:
    """Whether the controller means another broker by the own id: it knows one address for each id,
    that of whoever registered last."""
    return view.master_broker_id == own_id and view.master_address not in (None, own_address)


def confirms_master(
    ask: Ask, event: Answered, own_id: int | None, own_epoch: int, own_address: str
) -> bool:
    """Whether an answer names this master in its epoch, and is one to what a heartbeat went before:
    who asks without one may be taken for dead a moment later."""
    view = event.view
    if view is None or ask.beat is None or event.code != ResponseCode.SUCCESS:
        return False
    named = view.master_broker_id == own_id and view.master_epoch == own_epoch
    return named and not is_twin(view, own_id, own_address)


def twin_trouble(view: GroupView) -> str:
    """For the operator."""
    return (
        f"the controller says that broker {view.master_broker_id}, which is this one's id, is at "
        f"{view.master_address}: two brokers have one id, and one of them needs another "
        "(docs/failover.md)"
    )


@dataclass(slots=True)
class _Replica:
    """A slave, over all its connections: the order in which they begin and report says nothing, as
    an old one may arrive after the one that replaced it."""

    async_learner: bool
    connections: set[int] = field(default_factory=set)
    ack_offset: int | None = None
    """As last reported in this epoch."""
    goal_offset: int = 0
    goal_ms: int = 0
    """The own end at some time: when the ack reaches it, the slave had caught up with that time."""
    caught_up_ms: int | None = None


class SyncState:
    """Owned by the member, while it is master."""

    def __init__(self, settings: MemberSettings, own_id: int, epoch_start: int) -> None:
        self._settings = settings
        self._own_id = own_id
        self._epoch_start = epoch_start
        self._replicas: dict[int, _Replica] = {}
        self._broker_ids: dict[int, int] = {}
        self._twins: set[int] = set()
        """Connections of a slave with the own id; it is no replica."""
        self.acks: dict[int, int] = {}
        """By broker id, of those connected that have reported."""
        self._unsettled: dict[int, frozenset[int]] = {}
        self._turned_away: dict[int, None] = {}
        """Newcomers of sets that the controller refused for one of them, in the order in which
        they are tried again, each alone: nobody else waits for one who is not known, or not alive,
        to the controller."""
        self.members: frozenset[int] = frozenset((own_id,))
        """The set in force, as last heard."""
        self.epoch = 0
        """Its epoch."""

    # What the controller says

    def learned(self, members: frozenset[int], epoch: int) -> None:
        """A set, if it is newer than the known one; what was asked before it is settled."""
        if epoch > self.epoch:
            self.members, self.epoch = members, epoch
            self._unsettled.clear()
            for broker_id in members:
                self._turned_away.pop(broker_id, None)

    def told(self, view: GroupView) -> str | None:
        """What a controller says of this epoch; what is wrong, None: nothing.

        With the set of another master, SEND_OK would not wait for the own log; a controller says so
        whose state was lost, or put back from a copy.
        """
        if is_twin(view, self._own_id, self._settings.broker_address):
            return twin_trouble(view)
        if view.master_broker_id != self._own_id:
            return (
                f"the controller names {view.master_broker_id} as master of epoch "
                f"{view.master_epoch}, in which this broker leads: its SyncStateSet is not taken"
            )
        self.learned(view.sync_state_set, view.sync_state_set_epoch)
        return self._two_of_one_id()

    def asked(self, ticket: int, wanted: frozenset[int]) -> None:
        """1001 is sent for this set."""
        self._unsettled[ticket] = wanted

    def failed(self, ticket: int, code: ResponseCode) -> None:
        """The controller has answered that one with an error. A refusal says that it is not in
        force; any other code decides nothing: a Java controller whose raft is slow answers 1, and
        the set comes into force later."""
        if code not in _REFUSALS:
            return
        wanted = self._unsettled.pop(ticket, None)
        if wanted is not None and code in _NOT_TAKEN:
            for broker_id in sorted((wanted - self.members) & self._replicas.keys()):
                self._turned_away.pop(broker_id, None)
                self._turned_away[broker_id] = None

    @property
    def unsettled(self) -> bool:
        """Whether something asked may yet come into force."""
        return bool(self._unsettled)

    def all_members(self) -> frozenset[int]:
        """Everyone who may be in the set in force."""
        if not self._unsettled:
            return self.members
        return self.members.union(*self._unsettled.values())

    def heirs(self) -> dict[int, int]:
        """The others of the set in force that are connected and have reported, with what they have
        (bytes)."""
        return {one: self.acks[one] for one in self.members & self.acks.keys()}

    # What the slaves say

    def connected(self, event: ReplicaConnected, now_ms: int, log: LogEnds) -> str | None:
        """A slave has shaken hands; what is wrong with it, None: nothing."""
        if event.broker_id == self._own_id:
            self._twins.add(event.connection)
            return self._two_of_one_id()
        replica = self._replicas.get(event.broker_id)
        if replica is None:
            replica = _Replica(event.async_learner, goal_offset=log.end, goal_ms=now_ms)
            self._replicas[event.broker_id] = replica
        replica.async_learner = event.async_learner
        replica.connections.add(event.connection)
        self._broker_ids[event.connection] = event.broker_id
        return None

    def _two_of_one_id(self) -> str | None:
        if not self._twins:
            return None
        return (
            f"a slave has broker id {self._own_id}, this master's own: two brokers have one id, "
            "and one of them needs another (docs/failover.md)"
        )

    def reported(self, connection: int, ack_offset: int, now_ms: int, log: LogEnds) -> None:
        """A report; one that lies beyond the own log counts up to its end."""
        broker_id = self._broker_ids.get(connection)
        if broker_id is None:
            return
        replica = self._replicas[broker_id]
        replica.ack_offset = self.acks[broker_id] = min(ack_offset, log.end)
        self._follow_goal(replica, now_ms, log)

    def _follow_goal(self, replica: _Replica, now_ms: int, log: LogEnds) -> None:
        ack = replica.ack_offset
        if ack is not None and ack >= replica.goal_offset:
            replica.caught_up_ms = now_ms if ack >= log.end else replica.goal_ms
            replica.goal_offset, replica.goal_ms = log.end, now_ms

    def gone(self, connection: int) -> None:
        """The connection has ended. With a slave's last one, its acks count no more."""
        self._twins.discard(connection)
        broker_id = self._broker_ids.pop(connection, None)
        if broker_id is None:
            return
        replica = self._replicas[broker_id]
        replica.connections.discard(connection)
        if not replica.connections:
            del self._replicas[broker_id]
            self.acks.pop(broker_id, None)
            self._turned_away.pop(broker_id, None)

    def wanted(
        self, now_ms: int, log: LogEnds, confirm_offset: int, *, tries_again: bool
    ) -> frozenset[int]:
        """Who belongs into the set, from the connections there are now. tries_again: one who was
        turned away, too, if nothing else is to be changed."""
        found = {self._own_id}
        for broker_id, replica in self._replicas.items():
            self._follow_goal(replica, now_ms, log)
            if broker_id in self.members:
                belongs = self._keeps_up(replica, now_ms)
            else:
                belongs = broker_id not in self._turned_away
                belongs = belongs and self._may_join(replica, confirm_offset)
            if belongs:
                found.add(broker_id)
        if tries_again and found == self.members:
            for broker_id in self._turned_away:
                if self._may_join(self._replicas[broker_id], confirm_offset):
                    found.add(broker_id)
                    break
        return frozenset(found)

    def _keeps_up(self, replica: _Replica, now_ms: int) -> bool:
        since = replica.goal_ms if replica.caught_up_ms is None else replica.caught_up_ms
        return now_ms - since <= self._settings.ha_max_time_slave_not_catchup_ms

    def _may_join(self, replica: _Replica, confirm_offset: int) -> bool:
        ack = replica.ack_offset
        if ack is None or replica.async_learner:
            return False
        return ack >= confirm_offset and ack >= self._epoch_start

    # What that means

    def confirm_offset(self, log: LogEnds, previous: int) -> int:
        """Up to where consumers may read."""
        if not self._settings.all_ack_in_sync_state_set:
            return max(previous, log.counted_end)
        return self._all_have(log, previous)

    def _all_have(self, log: LogEnds, previous: int) -> int:
        others = self.all_members() - {self._own_id}
        return master_confirm_offset(log.counted_end, self.acks, others, previous)

    def enough_members(self) -> bool:
        """Whether puts are taken, as to minInSyncReplicas; while a change is unsettled the largest
        of the sets counts, as in RocketMQ."""
        largest = max(len(self.members), *map(len, self._unsettled.values()), 0)
        return largest >= self._settings.min_in_sync_replicas

    def acknowledged_offset(self, log: LogEnds, previous: int) -> int:
        """Up to where messages are answered SEND_OK.

        inSyncReplicas counts different slaves; RocketMQ counts connections. With a set smaller than
        minInSyncReplicas nothing is answered any more that was taken before it shrank.
        """
        settings = self._settings
        if not self.enough_members():
            return previous
        if settings.all_ack_in_sync_state_set:
            return self._all_have(log, previous)
        if settings.in_sync_replicas <= 1:
            return max(previous, log.counted_end)
        acks = sorted(self.acks.values(), reverse=True)
        needed = settings.in_sync_replicas - 1
        if len(acks) < needed:
            return previous
        return max(previous, min(log.counted_end, acks[needed - 1]))
