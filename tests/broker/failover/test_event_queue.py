"""What waits for the member's thread: in order, and no more than there are slaves."""

from __future__ import annotations

from broker.failover.event_queue import EventQueue
from broker.failover.messages import (
    Event,
    Fitness,
    FrameTaken,
    Moved,
    NameServersAnswered,
    ReplicaConnected,
    ReplicaGone,
    ReplicaReported,
    Tick,
)


def taken(*events: Event) -> list[Event]:
    queue = EventQueue()
    for event in events:
        queue.put(event)
    found = []
    while (event := queue.take()) is not None:
        found.append(event)
    return found


def test_in_order_and_nothing_is_lost() -> None:
    events = [NameServersAnswered(1), Tick(), ReplicaConnected(1, 2), ReplicaGone(1)]
    assert [*map(type, taken(*events))] == [*map(type, events)]
    assert taken(*events)[0] == NameServersAnswered(1)


def test_a_slave_that_reports_without_end_fills_nothing() -> None:
    reports = [ReplicaReported(n % 2, n) for n in range(10_000)]
    assert taken(*reports) == [ReplicaReported(0, 9_998), ReplicaReported(1, 9_999)]


def test_the_newest_takes_the_place_of_the_first() -> None:
    """So that it comes behind its connection's beginning, and before its end."""
    first, last = ReplicaConnected(7, 2), ReplicaGone(7)
    found = taken(first, ReplicaReported(7, 50), ReplicaReported(7, 40), last)
    assert found == [first, ReplicaReported(7, 40), last], "the last one counts (P15)"


def test_a_process_that_is_there_again_was_never_missed() -> None:
    """By a member that had something else to wait for."""
    assert taken(Tick(), Fitness("gone"), Moved(), Fitness("")) == [Tick(), Fitness(""), Moved()]


def test_frames_and_the_own_log() -> None:
    found = taken(Moved(), FrameTaken(1), Tick(), Moved(), FrameTaken(2), Tick())
    assert [*map(type, found)] == [Moved, FrameTaken, Tick]
    assert found[1] == FrameTaken(2)
