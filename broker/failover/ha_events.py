"""HaEvents: what happens on HA connections, as events of the member (MemberEvents of room `ha`).

Any thread; does not block. What comes before there is a member counts for nothing: it has no role
then, and nobody is served or followed.

Tested by tests/broker/failover/test_ha_events.py.
"""

from __future__ import annotations

from broker.failover.member_service import MemberService
from broker.failover.messages import (
    Event,
    FrameTaken,
    MasterHello,
    Moved,
    ReplicaConnected,
    ReplicaGone,
    ReplicaReported,
)
from ha.epochs import EpochList


class HaEvents:
    """See the module."""

    def __init__(self) -> None:
        self._service: MemberService | None = None

    def deliver_to(self, service: MemberService) -> None:
        """The member; before the HA connections start."""
        self._service = service

    def deliver(self, event: Event) -> None:
        """One event."""
        if self._service is not None:
            self._service.deliver(event)

    def replica_connected(self, connection: int, broker_id: int, async_learner: bool) -> None:
        """See MemberEvents."""
        self.deliver(ReplicaConnected(connection, broker_id, async_learner))

    def replica_reported(self, connection: int, ack_offset: int) -> None:
        """See MemberEvents."""
        self.deliver(ReplicaReported(connection, ack_offset))

    def replica_gone(self, connection: int) -> None:
        """See MemberEvents."""
        self.deliver(ReplicaGone(connection))

    def master_hello(self, master_epoch: int, epochs: EpochList, max_offset: int) -> None:
        """See MemberEvents."""
        self.deliver(MasterHello(master_epoch, epochs, max_offset))

    def frame_taken(self, confirm_offset: int) -> None:
        """See MemberEvents."""
        self.deliver(FrameTaken(confirm_offset))

    def log_grew(self) -> None:
        """See MemberEvents."""
        self.deliver(Moved())
