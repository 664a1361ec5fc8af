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

from broker.pop.revive_points import read_point
from store.message import Message
from store.message_properties import PROPERTIES_LIMIT, parse_properties
from tests.broker.hot_path_world import record
from tests.broker.pop.test_damaged_check_points import RETRY, REVIVE, ReviveWorld


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


def test_what_is_behind_is_what_is_not_handled(world: ReviveWorld) -> None:
    """One record too many up to RocketMQ 5.3 (#8652)."""

    def behind() -> int:
        return world.service.behind(world.now_ms)[0][1]

    assert behind() == 0
    world.store_point()
    world.store_point(so=5, pt=world.now_ms)
    world.hot.turn()
    world.hot.dispatch()
    assert behind() == 2
    world.look()
    assert behind() == 1, "one is due later"
    world.now_ms += 60_000
    world.look()
    assert behind() == 0


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


# -- 5.5: what was given back unread, and whose retries they are ----------------------------------


def copies(world: ReviveWorld) -> list[Message]:
    return [one for one in world.hot.records() if one.topic == RETRY]


@pytest.mark.parametrize(
    ("fields", "times"), [({}, 4), ({"sp": False}, 4), ({"sp": True}, 3), ({"sp": None}, 4)]
)
def test_what_was_given_back_unread_is_no_attempt_more(
    world: ReviveWorld, fields: dict[str, Any], times: int
) -> None:
    world.hot.log.append(
        world.hot.log.topic("T"), (structs.replace(record(b"x"), reconsume_times=3),)
    )
    world.store_point(so=10, **fields)
    world.look()
    (copy,) = copies(world)
    assert (copy.body, copy.reconsume_times) == (b"x", times)


def test_what_is_put_again_is_still_given_back_unread(world: ReviveWorld) -> None:
    """RocketMQ forgets it then."""
    body = json.dumps(world.point(sp=True)).encode()
    record_read = Message(topic=REVIVE, queue_id=0, body=body, store_timestamp=world.now_ms)
    found = read_point(record_read, 0)
    again = json.loads(found.put_again(4, 60_000).to_json_bytes())
    assert (again["sp"], again["rp"]) == (True, "1")


@pytest.mark.parametrize("said", [None, "G", "Other"])
def test_a_retry_says_whose_it_is_once(world: ReviveWorld, said: str | None) -> None:
    """However often it comes again, and whatever a client had said."""
    properties = b"A\x01b" + (b"\x02ORIGIN_GROUP\x01%b" % said.encode() if said else b"")
    world.hot.log.append(world.hot.log.topic("T"), (record(b"x", properties),))
    world.store_point(so=10)
    world.look()
    (copy,) = copies(world)
    assert parse_properties(copy.properties.decode())["ORIGIN_GROUP"] == "G"
    world.store_point(so=0, t=RETRY, pt=world.point()["pt"] + 1)
    world.look()
    again = copies(world)[-1]
    assert again.reconsume_times == 2
    assert again.properties == copy.properties


def test_there_may_be_no_room_to_say_whose_it_is(world: ReviveWorld) -> None:
    properties = b"A\x01" + b"b" * (PROPERTIES_LIMIT - 2)
    world.hot.log.append(world.hot.log.topic("T"), (record(b"x", properties),))
    world.store_point(so=10)
    world.look()
    assert [copy.properties for copy in copies(world)] == [properties]
