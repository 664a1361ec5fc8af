"""What a controller keeps of one group of brokers (Java: BrokerReplicaInfo and SyncStateInfo).

Immutable values; any thread. One value holds both of Java's halves, so that neither can be
forgotten without the other. A group whose brokers were all cleaned away keeps its epochs and its
next id: neither may ever fall, since brokers' files hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Replica:
    """One broker that was given an id."""

    address: str
    """host:port of its service port."""
    register_check_code: str
    """What it applied with: address;milliseconds. The same code may apply again."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """One group (RocketMQ: broker name, broker set)."""

    cluster_name: str
    broker_name: str
    replicas: Mapping[int, Replica] = field(default_factory=dict)
    """By broker id, from 1; never changed in place."""
    next_broker_id: int = 1
    """Larger than every id ever given."""
    master_broker_id: int | None = None
    master_epoch: int = 0
    """Elections and losses so far; 0: there never was a master."""
    sync_state_set: frozenset[int] = frozenset()
    """Ids of those who have every message that was answered SEND_OK; empty: never a master."""
    sync_state_set_epoch: int = 0

    @property
    def master_address(self) -> str | None:
        """host:port of the master's service port; None without one."""
        if self.master_broker_id is None:
            return None
        return self.replicas[self.master_broker_id].address

    def with_replica(self, broker_id: int, replica: Replica) -> GroupState:
        """With this broker, whose id is then given for ever."""
        return replace(
            self,
            replicas={**self.replicas, broker_id: replica},
            next_broker_id=max(self.next_broker_id, broker_id + 1),
        )

    def with_master(self, broker_id: int) -> GroupState:
        """After an election: next epoch, and only the new master is known to have everything."""
        return replace(
            self,
            master_broker_id=broker_id,
            master_epoch=self.master_epoch + 1,
            sync_state_set=frozenset((broker_id,)),
            sync_state_set_epoch=self.sync_state_set_epoch + 1,
        )

    def without_master(self) -> GroupState:
        """After a loss that nobody can stand in for: next epoch; the set stays, for an election of
        one of its members when it is back."""
        return replace(self, master_broker_id=None, master_epoch=self.master_epoch + 1)

    def with_sync_state_set(self, members: frozenset[int]) -> GroupState:
        """With another set, in the next epoch of sets."""
        return replace(
            self, sync_state_set=members, sync_state_set_epoch=self.sync_state_set_epoch + 1
        )

    def without_replicas(self, broker_ids: frozenset[int]) -> GroupState:
        """Without these brokers. If the master is among them, that is the loss of the master."""
        state = self
        if self.master_broker_id in broker_ids:
            state = state.without_master()
        if state.sync_state_set & broker_ids:
            state = state.with_sync_state_set(state.sync_state_set - broker_ids)
        kept = {key: one for key, one in self.replicas.items() if key not in broker_ids}
        return replace(state, replicas=kept)
