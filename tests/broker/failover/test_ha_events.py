"""HaEvents: each of them becomes the member's event of the same meaning."""

from __future__ import annotations

from typing import cast

from broker.failover.ha_events import HaEvents
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
from ha.epochs import epoch_list
from ha.member_events import MemberEvents


class Service:
    """A member that takes events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def deliver(self, event: Event) -> None:
        self.events.append(event)


def _tell(events: MemberEvents) -> None:
    events.replica_connected(1, 2, True)
    events.replica_reported(1, 300)
    events.replica_gone(1)
    events.master_hello(7, epoch_list([(7, 0)]), 900)
    events.frame_taken(800)
    events.log_grew()


def test_events() -> None:
    events, service = HaEvents(), Service()
    _tell(events)  # There is no member yet: nothing happens.
    events.deliver_to(cast("MemberService", service))
    _tell(events)
    assert list(map(repr, service.events)) == list(
        map(
            repr,
            [
                ReplicaConnected(1, 2, async_learner=True),
                ReplicaReported(1, 300),
                ReplicaGone(1),
                MasterHello(7, epoch_list([(7, 0)]), 900),
                FrameTaken(800),
                Moved(),
            ],
        )
    )
