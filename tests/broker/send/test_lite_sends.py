"""Sends to lite topics: the broker names their light queue, and checks their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.send.lite_sends import names_of_sender, with_lite_queue, without_lite_queue
from remoting.errors import RequestError
from remoting.lite_names import to_lmq_name
from store.lmq_places import lmq_places
from tests.broker.hot_path_world import HotPathWorld, send_request

LITE = "__LITE_TOPIC\x01s1"
DISPATCH = "INNER_MULTI_DISPATCH\x01"


# -- the property ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        (LITE, f"{LITE}\x02{DISPATCH}%LMQ%$T$s1"),
        (f"{LITE}\x02", f"{LITE}\x02{DISPATCH}%LMQ%$T$s1"),
        (f"{DISPATCH}%LMQ%x\x02{LITE}\x02K\x01v", f"{LITE}\x02K\x01v\x02{DISPATCH}%LMQ%$T$s1"),
        (f"{DISPATCH}%LMQ%x", f"{DISPATCH}%LMQ%x"),
        ("__LITE_TOPIC\x01", "__LITE_TOPIC\x01"),
        (f"X{LITE}", f"X{LITE}"),
        ("", ""),
    ],
)
def test_the_broker_names_the_light_queue(text: str, sent: str) -> None:
    assert with_lite_queue(text, "T") == sent


def test_a_message_that_is_delivered_once_more_is_not_in_its_lite_topic_again() -> None:
    stored = with_lite_queue(f"{LITE}\x02K\x01v", "T")
    assert without_lite_queue(stored) == f"{LITE}\x02K\x01v"
    assert with_lite_queue(stored, "%RETRY%G") == f"{LITE}\x02K\x01v"
    assert without_lite_queue(f"{DISPATCH}%LMQ%x") == f"{DISPATCH}%LMQ%x"


def test_names_that_are_too_long_together_are_refused() -> None:
    assert to_lmq_name("T" * 61, "s" * 59) in with_lite_queue(
        f"__LITE_TOPIC\x01{'s' * 59}", "T" * 61
    )
    with pytest.raises(RequestError, match="of 128 bytes"):
        with_lite_queue(f"__LITE_TOPIC\x01{'s' * 60}", "T" * 61)


def test_what_the_sender_of_a_batch_names_is_its_own_word() -> None:
    text = f"{LITE}\x02{DISPATCH}%LMQ%$T$s1"
    assert names_of_sender(text, is_single=False) == ["%LMQ%$T$s1"]
    assert names_of_sender(text, is_single=True) == []


# -- in a broker -----------------------------------------------------------------------------------


def places(world: HotPathWorld) -> list[dict[str, int]]:
    return [lmq_places(record.properties) for record in world.records()]


def test_a_lite_message_is_in_its_light_queue_whatever_its_sender_named(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, light_queues=5)
    world.topic("T")
    client = world.client()
    forged = f"{DISPATCH}%LMQ%$Other$x,%LMQ%y\x02{LITE}"
    for properties in (LITE, "K\x01v", forged):
        assert client.call(send_request(topic="T", properties=properties)).code == 0
    assert places(world) == [{"%LMQ%$T$s1": 0}, {}, {"%LMQ%$T$s1": 1}]


@pytest.mark.parametrize("name", ["a b", "a.b", "a$b", "é", "x" * 65])
def test_a_lite_topic_needs_a_name(tmp_path: Path, name: str) -> None:
    world = HotPathWorld(tmp_path, light_queues=5)
    world.topic("T")
    answer = world.client().call(send_request(topic="T", properties=f"__LITE_TOPIC\x01{name}"))
    assert answer.code == 13
    assert "alphanumeric characters" in (answer.remark or "")
    assert world.records() == []


@pytest.mark.parametrize("name", ["%LMQ%$T$s1", "%LMQ%a,%LMQ%$Other$b"])
def test_nobody_else_names_the_queue_of_a_lite_topic(tmp_path: Path, name: str) -> None:
    world = HotPathWorld(tmp_path, light_queues=5)
    world.topic("T")
    answer = world.client().call(send_request(topic="T", properties=f"{DISPATCH}{name}"))
    assert (answer.code, world.records()) == (13, [])
    assert "__LITE_TOPIC" in (answer.remark or "")


def test_a_parent_with_batch_queues_is_refused(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path, light_queues=5)
    world.topic("T", attributes={"+queue.type": "BatchCQ"})
    answer = world.client().call(send_request(topic="T", properties=LITE))
    assert (answer.code, world.records()) == (13, [])


def test_without_light_queues_it_is_an_ordinary_message(tmp_path: Path) -> None:
    world = HotPathWorld(tmp_path)
    world.topic("T")
    assert world.client().call(send_request(topic="T", properties=LITE)).code == 0
    assert places(world) == [{}]
