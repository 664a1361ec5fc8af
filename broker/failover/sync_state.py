"""A master's SyncStateSet: who is in it, who should be, and what its acks answer. One thread.

Made anew for each time as master, so that no ack of an earlier epoch counts. What has been asked of
the controller and not been settled counts together with the known set: whichever of them is in
force there, whoever can be elected has every message that was answered. A request is settled by its
refusal, or by a set of a newer epoch, after which the controller refuses it.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.failover.messages import LogEnds, ReplicaConnected
from broker.failover.settings import MemberSettings
from ha.epochs import master_confirm_offset


@dataclass(slots=True)
class _Replica:
    """A connected slave."""

    broker_id: int
    async_learner: bool
    ack_offset: int | None = None
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
        self._unsettled: dict[int, frozenset[int]] = {}
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

    def asked(self, ticket: int, wanted: frozenset[int]) -> None:
        """1001 is sent for this set."""
        self._unsettled[ticket] = wanted

    def refused(self, ticket: int) -> None:
        """The controller has answered that one with an error: it is not in force."""
        self._unsettled.pop(ticket, None)

    @property
    def unsettled(self) -> bool:
        """Whether something asked may yet come into force."""
        return bool(self._unsettled)

    def all_members(self) -> frozenset[int]:
        """Everyone who may be in the set in force."""
        return self.members.union(*self._unsettled.values())

    # What the slaves say

    def connected(self, event: ReplicaConnected, now_ms: int, log: LogEnds) -> None:
        """A slave has shaken hands; its older connection counts no more."""
        for connection, one in list(self._replicas.items()):
            if one.broker_id == event.broker_id:
                del self._replicas[connection]
        replica = _Replica(event.broker_id, event.async_learner)
        replica.goal_offset, replica.goal_ms = log.end, now_ms
        self._replicas[event.connection] = replica

    def reported(self, connection: int, ack_offset: int, now_ms: int, log: LogEnds) -> None:
        """A report; one that falls or lies beyond the own log counts as what is possible."""
        replica = self._replicas.get(connection)
        if replica is None:
            return
        replica.ack_offset = max(replica.ack_offset or 0, min(ack_offset, log.end))
        self._follow_goal(replica, now_ms, log)

    def _follow_goal(self, replica: _Replica, now_ms: int, log: LogEnds) -> None:
        ack = replica.ack_offset
        if ack is not None and ack >= replica.goal_offset:
            replica.caught_up_ms = now_ms if ack >= log.end else replica.goal_ms
            replica.goal_offset, replica.goal_ms = log.end, now_ms

    def gone(self, connection: int) -> None:
        """The connection has ended, and what it acknowledged counts no more."""
        self._replicas.pop(connection, None)

    def wanted(self, now_ms: int, log: LogEnds, confirm_offset: int) -> frozenset[int]:
        """Who belongs into the set, from the connections there are now."""
        found = {self._own_id}
        for replica in self._replicas.values():
            self._follow_goal(replica, now_ms, log)
            if replica.broker_id in self.members:
                belongs = self._keeps_up(replica, now_ms)
            else:
                belongs = self._may_join(replica, confirm_offset)
            if belongs:
                found.add(replica.broker_id)
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

    def acks(self) -> dict[int, int]:
        """By broker id, of those connected that have reported."""
        return {
            one.broker_id: one.ack_offset
            for one in self._replicas.values()
            if one.ack_offset is not None
        }

    def confirm_offset(self, log: LogEnds, previous: int) -> int:
        """Up to where consumers may read."""
        if not self._settings.all_ack_in_sync_state_set:
            return max(previous, log.counted_end)
        others = self.all_members() - {self._own_id}
        return master_confirm_offset(log.counted_end, self.acks(), others, previous)

    def enough_members(self) -> bool:
        """Whether puts are taken, as to minInSyncReplicas; while a change is unsettled the largest
        of the sets counts, as in RocketMQ."""
        largest = max(len(one) for one in (self.members, *self._unsettled.values()))
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
            others = self.all_members() - {self._own_id}
            return master_confirm_offset(log.counted_end, self.acks(), others, previous)
        if settings.in_sync_replicas <= 1:
            return max(previous, log.counted_end)
        acks = sorted(self.acks().values(), reverse=True)
        needed = settings.in_sync_replicas - 1
        if len(acks) < needed:
            return previous
        return max(previous, min(log.counted_end, acks[needed - 1]))
