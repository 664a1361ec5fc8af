"""A queue of the revive topic as a state machine: what is due, and how far it is handled."""

from __future__ import annotations

import random

import pytest

from broker.pop.pop_check_point import PopCheckPoint
from broker.pop.revive_points import RevivePoint
from broker.pop.revive_queue import ReviveQueue
from store.message import Message

BROKER = "b"


def point(at: int, start: int, count: int, due_ms: int, pop_time_ms: int = 1_000) -> RevivePoint:
    """Of messages `start` and behind, read from queue offset `at`."""
    found = PopCheckPoint(
        start_offset=start, pop_time=pop_time_ms, invisible_time=due_ms - pop_time_ms, num=count,
        queue_id=1, topic="T", group="G", queue_offset_diff=list(range(count)), broker_name=BROKER,
    )  # fmt: skip
    record = Message(topic="R", queue_id=0, store_timestamp=due_ms, phy_offset=100 * at)
    return RevivePoint(found, record, at)


def settle(queue: ReviveQueue, end: int, settled_ms: int) -> list[RevivePoint]:
    """Everything before `end` is read; what is due."""
    queue.begin_reading(end, settled_ms)
    queue.has_read(end)
    due = []
    while (found := queue.next_due()) is not None:
        due.append(found)
    return due


def test_what_is_due_waits_until_all_acks_that_can_be_in_time_were_read() -> None:
    queue = ReviveQueue(0, -1)
    queue.take(point(0, 0, 3, 2_000))
    queue.begin_reading(2, 2_000)
    queue.has_read(1)
    assert queue.next_due() is None
    queue.acknowledge(("T", "G", 1, 0, 1_000), BROKER, [1, 7])
    queue.has_read(2)
    due = queue.next_due()
    assert due is not None
    assert due.open_offsets() == [0, 2]


@pytest.mark.parametrize(
    ("key", "broker"),
    [(("T", "H", 1, 0, 1_000), BROKER), (("T", "G", 1, 0, 1_000), "other")],
)
def test_an_ack_of_another_key_or_broker_says_nothing(
    key: tuple[str, str, int, int, int], broker: str
) -> None:
    queue = ReviveQueue(0, -1)
    queue.take(point(0, 0, 1, 2_000))
    queue.acknowledge(key, broker, [0])
    [due] = settle(queue, 2, 2_000)
    assert due.open_offsets() == [0]


def test_two_of_one_key_are_handled_in_their_places_and_share_their_acks() -> None:
    """Moved behind the other one, the first would be passed over by a kill: what is handled in
    between counts for all before it."""
    queue = ReviveQueue(0, -1)
    queue.take(point(0, 4, 3, 2_000))
    queue.take(point(1, 9, 1, 2_000))
    queue.take(point(2, 4, 1, 5_000))
    queue.acknowledge(("T", "G", 1, 4, 1_000), BROKER, [6, 4])
    due = settle(queue, 4, 2_000)
    assert [(one.revive_offset, one.open_offsets()) for one in due] == [(0, [5]), (1, [9])]
    [later] = settle(queue, 4, 5_000)
    assert (later.revive_offset, later.open_offsets()) == (2, [])


def test_the_same_once_more_is_handed_out_once() -> None:
    queue = ReviveQueue(0, -1)
    queue.take(point(0, 4, 2, 2_000))
    queue.acknowledge(("T", "G", 1, 4, 1_000), BROKER, [5])
    queue.take(point(1, 4, 2, 2_000))
    assert [one.open_offsets() for one in settle(queue, 2, 2_000)] == [[4]]


@pytest.mark.parametrize("seed", range(20))
def test_against_a_list(seed: int) -> None:
    """Progress never passes one that is open, unpublished or unflushed, nor one that waits; every
    check point is due once, in the queue's order, and never before its acks were read."""
    draw = random.Random(seed)
    queue = ReviveQueue(0, -1)
    taken: dict[int, tuple[RevivePoint, set[int]]] = {}
    due: list[RevivePoint] = []
    at = settled_ms = 0
    saved = noted = -1
    for _ in range(300):
        step = draw.randrange(6)
        if step < 2:
            found = point(at, draw.randrange(4), draw.randrange(1, 4), at * 10, draw.randrange(3))
            same_key = [
                acked
                for other, acked in taken.values()
                if other not in due and other.point.key == found.point.key
            ]
            taken[at] = found, same_key[-1] if same_key else set()
            queue.take(found)
            at += 1
        elif step == 2 and taken:
            found, acked = draw.choice(list(taken.values()))
            if found not in due:
                offset = draw.choice(found.point.offsets)
                acked.add(offset)
                queue.acknowledge(found.point.key, BROKER, [offset])
        elif step == 3:
            settled_ms = max(settled_ms, draw.randrange(at * 10 + 1))
            for one in settle(queue, at, settled_ms):
                assert one.due_ms <= settled_ms
                acked = taken[one.revive_offset][1]
                assert one.open_offsets() == [o for o in one.point.offsets if o not in acked]
                one.left = draw.randrange(2)
                one.end = draw.randrange(at * 10 + 1)
                due.append(one)
        elif step == 4:
            for one in due:
                one.left = one.left and draw.randrange(2)
        published = draw.randrange(at * 10 + 1)
        flushed = draw.randrange(published + 1)
        last = queue.note(published)
        if last is not None:
            assert last > noted
            noted = last
        last = queue.save(flushed)
        if last is not None:
            assert saved < last <= noted
            assert all(one.end <= flushed for one in due if saved < one.revive_offset <= last)
            saved = last
        assert [one.revive_offset for one in due] == sorted(one.revive_offset for one in due)
        assert not [one for one in due if one.left and one.revive_offset <= noted]
        waiting = [number for number, (one, _) in taken.items() if one not in due]
        assert queue.is_idle_at(queue.next_read) or not waiting or queue.first_open <= min(waiting)
    settle(queue, at, 10_000)
    for one in list(queue.handled):
        one.left = 0
    queue.note(1 << 62)
    queue.save(None)
    assert queue.is_idle_at(queue.next_read)
