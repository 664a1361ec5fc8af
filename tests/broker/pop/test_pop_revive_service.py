"""The revival as a unit: check points and acks that meet in a queue of the revive topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from msgspec import structs

from tests.broker.hot_path_world import record
from tests.broker.pop.test_damaged_check_points import REVIVE, ReviveWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReviveWorld]:
    world = ReviveWorld(tmp_path)
    yield world
    world.hot.close()


def store_ack(world: ReviveWorld, offset: int) -> None:
    point = world.point()
    ack = {"ao": offset, **{name: point[name] for name in ("bn", "c", "pt", "q", "so", "t")}}
    world.store(REVIVE, json.dumps(ack).encode(), "ack")


@pytest.mark.parametrize("renewed_first", [False, True])
def test_a_message_renewed_in_the_ms_of_a_pop_that_begins_with_it_hides_none_of_the_pop(
    world: ReviveWorld, renewed_first: bool
) -> None:
    """Both check points have one key. The later took the place of the other, and messages 5 and 6
    were lost."""
    both = [{"n": 3, "d": [0, 1, 2]}, {"n": 1, "d": [0]}]
    for fields in reversed(both) if renewed_first else both:
        world.store_point(**fields)
    store_ack(world, 6)
    world.look()
    assert set(world.revived) == {b"4", b"5"}


@pytest.mark.parametrize(
    ("one", "other", "bodies"),
    [
        ({"q": 1, "so": 12}, {"q": 11, "so": 2}, [b"T/1/12", b"T/11/2"]),
        ({"t": "T", "c": "XG", "q": 1}, {"t": "TX", "c": "G", "q": 1}, [b"T/1/4", b"TX/1/4"]),
    ],
    ids=["queues", "names"],
)
def test_check_points_of_other_queues_are_others(
    world: ReviveWorld, one: dict[str, Any], other: dict[str, Any], bodies: list[bytes]
) -> None:
    """Their keys were texts without separators, as in RocketMQ: of queues 1 and 11 of one pop, one
    was never revived."""
    for topic, queue_id in (("T", 1), ("T", 11), ("TX", 1)):
        world.hot.topic(topic, 12)
        for number in range(15):
            body = b"%s/%d/%d" % (topic.encode(), queue_id, number)
            place = structs.replace(record(body), queue_id=queue_id)
            world.hot.log.append(world.hot.log.topic(topic), (place,))
    for fields in (one, other):
        world.store_point(**fields)
    world.look()
    copied = [message.body for message in world.hot.records() if message.reconsume_times == 1]
    assert sorted(copied) == sorted(bodies)


def test_a_pass_waits_for_the_loop_only_while_nothing_is_left_to_do(world: ReviveWorld) -> None:
    """What becomes due is no event of the loop."""
    service, loop = world.service, mock.Mock()
    service._loop = loop
    service.use(replace(service._settings, revive_interval=100))
    service._run_when_due()
    assert loop.watches.call_once.called
    assert not loop.call_at_multiple.called
    loop.reset_mock()
    world.store_point()
    service._run_when_due()
    assert loop.call_at_multiple.called
    assert not loop.watches.call_once.called
