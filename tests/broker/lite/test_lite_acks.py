"""Acks and changed times of lite topics' messages: what a handle may do, and what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from remoting.errors import RequestError
from remoting.lite_names import to_lmq_name
from tests.broker.lite.served_world import PARENT, RECORD, LiteServed


@pytest.fixture
def world(tmp_path: Path) -> LiteServed:
    world = LiteServed(tmp_path)
    world.group("H")
    world.subscribe("PARTIAL_ADD", "s", "t")
    world.send("s", "s", "t")
    assert world.popped() == [0, 1, 2]
    return world


def test_a_client_that_does_not_name_the_lite_topic_is_understood(world: LiteServed) -> None:
    world.change("", 1, 1_000, extra_info=world.handle(1, RECORD))
    world.ack("s", 0)
    world.pass_time(999)
    assert world.popped() == []
    world.pass_time(1)
    assert world.popped() == [1]
    assert world.counts == [1]


@pytest.mark.parametrize("place", ["", "x", "-1", RECORD * 9, "9" * 30, "٣", f"{RECORD} 7 8"])
def test_a_place_that_is_not_out_to_the_group_moves_nothing(
    world: LiteServed, place: object
) -> None:
    world.change("", 2, 0, extra_info=world.handle(2, place))
    assert world.popped() == []


def test_another_group_moves_nothing(world: LiteServed) -> None:
    for lite, extra in (("s", world.handle(0)), ("", world.handle(0, 0))):
        world.change(lite, 0, 0, "H", extra_info=extra)
    world.ack("s", 0, "H")
    assert world.popped() == []
    assert world.lite_queues.committed("H", to_lmq_name(PARENT, "s")) == -1


def test_an_older_handle_moves_nothing(world: LiteServed) -> None:
    old = [world.handle(at) for at in (0, 1)]
    world.pass_time(60_000)
    assert world.popped() == [0, 1, 2]
    world.ack("s", 0, extra_info=old[0])
    for at in (0, 1):
        world.change("s", at, 0, extra_info=old[at])
    assert world.lite_queues.committed("G", to_lmq_name(PARENT, "s")) == 0
    assert world.popped() == []


@pytest.mark.parametrize(
    ("others", "code"),
    [
        ({"offset": 3}, 208),
        ({"queue_id": 1}, 29),
        ({"extra_info": "0 1700000000000 60000 0 0 b 0 0"}, 29),
        ({"consumer_group": "None"}, 29),
        ({"topic": "T"}, 29),
        ({"offset": 2}, 13),
    ],
)
def test_what_an_ack_is_refused_for(
    world: LiteServed, others: dict[str, object], code: int
) -> None:
    with pytest.raises(RequestError) as error:
        world.ack("s", 0, **others)
    assert error.value.code == code


def test_suspended_messages_come_together_and_count_no_attempt(world: LiteServed) -> None:
    world.change("s", 1, 500, suspend=True)
    world.pass_time(500)
    assert world.popped() == [0, 1]
    assert world.counts == [0, 0]
    world.change("s", 0, 0)
    world.change("s", 1, 0)
    assert world.popped() == [0, 1]
    assert world.counts == [1, 1]


def test_what_is_acknowledged_is_not_put_off(world: LiteServed) -> None:
    world.ack("s", 0)
    assert world.change("s", 0, 0) is None
    answer = world.change("s", 1, 1_500)
    assert answer is not None
    assert (answer.invisible_time, answer.pop_time) == (1_500, world.pop_time)
    with pytest.raises(RequestError):
        world.change("s", 9, 0)


def test_after_a_restart_only_the_message_at_the_offset_is_passed(world: LiteServed) -> None:
    world.pass_time(10)
    world.order.clear()
    world.ack("s", 1)
    assert world.lite_queues.committed("G", to_lmq_name(PARENT, "s")) == 0
    world.ack("s", 0)
    assert world.lite_queues.committed("G", to_lmq_name(PARENT, "s")) == 1


def test_an_ack_from_before_a_reset_passes_over_nothing(world: LiteServed) -> None:
    lmq = to_lmq_name(PARENT, "s")
    world.ack("s", 0)
    old = world.handle(0)
    world.lite_queues.set_offset("x", "G", lmq, 0)
    world.ack("s", 0, extra_info=old)
    assert world.lite_queues.committed("G", lmq) == 0


def test_after_a_restart_nothing_is_acknowledged_that_was_never_sent(world: LiteServed) -> None:
    lmq = to_lmq_name(PARENT, "s")
    for at in (0, 1):
        world.ack("s", at)
    world.pass_time(1)
    world.order.clear()
    with pytest.raises(RequestError, match="ack offset illegal") as error:
        world.ack("s", 2)
    assert (error.value.code, world.lite_queues.committed("G", lmq)) == (13, 2)
    world.send("s")
    assert world.popped() == [3]
