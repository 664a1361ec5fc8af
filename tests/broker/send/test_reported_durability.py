"""What an answer to a send says of its durability, when asked (docs/send_durability.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ha.control_slots import REPLICA_COUNT, REPLICA_FLUSHED_OFFSET, REPLICATED_OFFSET
from remoting.remoting_command import RemotingCommand, SerializeType
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET
from tests.broker.hot_path_world import Client, HotPathWorld, send_request
from tests.broker.send.test_send_message_processor import as_v1, batch_body

ASKS = {"reportDurability": "true"}
FORMS = ("310 JSON", "310 binary", "10", "320", "half", "delayed")


def asking(form: str = "310 JSON", **fields: str) -> RemotingCommand:
    binary = SerializeType.ROCKETMQ if form == "310 binary" else SerializeType.JSON
    properties = {"half": "TRAN_MSG\x01true\x02", "delayed": "DELAY\x011\x02"}.get(form, "")
    properties += fields.pop("properties", "")
    body = batch_body((0, b"one", b""), (0, b"two", b"")) if form == "320" else b"one"
    request = send_request(
        body,
        serialize=binary,
        properties=properties,
        sys_flag=4 if form == "half" else 0,
        batch="true" if form == "320" else None,
    )
    if form == "10":
        request = as_v1(request)
    request.ext_fields.update(ASKS, **fields)
    return request


def world_of(tmp_path: Path, *, flush: bool = False, replicas: bool = False) -> HotPathWorld:
    world = HotPathWorld(tmp_path, waits_for_flush=flush, waits_for_replicas=replicas)
    world.topic()
    if replicas:
        world.counters[REPLICA_COUNT] = 1
        world.turn()
    return world


def said(client: Client) -> tuple[int, str, str | None]:
    (answer,) = client.answers()
    return answer.code, answer.ext_fields["durability"], answer.ext_fields.get("replicas")


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_send_may_ask(tmp_path: Path, form: str) -> None:
    client = world_of(tmp_path).client()
    answer = client.call(asking(form))
    assert (answer.code, answer.ext_fields["durability"]) == (0, "MEMORY")
    assert "replicas" not in answer.ext_fields


@pytest.mark.parametrize("value", ["false", "", "1"])
def test_who_does_not_ask_gets_the_bytes_of_rocketmq(tmp_path: Path, value: str) -> None:
    client = world_of(tmp_path).client()
    asked, plain = asking(reportDurability=value), send_request(b"one")
    answers = [client.call(request) for request in (asked, plain)]
    assert answers[0].ext_fields.keys() == answers[1].ext_fields.keys()
    assert "durability" not in answers[1].ext_fields


def test_a_flush_is_said_once_it_has_passed_the_last_byte(tmp_path: Path) -> None:
    world = world_of(tmp_path, flush=True)
    client = world.client()
    client.send(asking())
    world.turn()
    world.counters[FLUSHED_OFFSET] = world.counters[MAX_PHY_OFFSET] - 1
    world.turn()
    assert client.answers() == []
    world.counters[FLUSHED_OFFSET] = world.counters[MAX_PHY_OFFSET]
    world.turn()
    assert said(client) == (0, "MEMORY,FLUSHED", None)


@pytest.mark.parametrize(
    ("slots", "text", "replicas"),
    [
        ({REPLICATED_OFFSET}, "MEMORY,REPLICATED", "1"),
        ({REPLICATED_OFFSET, FLUSHED_OFFSET}, "MEMORY,FLUSHED,REPLICATED", "1"),
        ({REPLICATED_OFFSET, REPLICA_FLUSHED_OFFSET}, "MEMORY,REPLICATED,REPLICA_FLUSHED", "1"),
    ],
)
def test_replicas(tmp_path: Path, slots: set[int], text: str, replicas: str) -> None:
    world = world_of(tmp_path, replicas=True)
    client = world.client()
    client.send(asking())
    world.turn()
    for slot in slots:
        world.counters[slot] = world.counters[MAX_PHY_OFFSET]
    world.turn()
    assert said(client) == (0, text, replicas)


def test_a_timeout_says_what_was_achieved_all_the_same(tmp_path: Path) -> None:
    world = world_of(tmp_path, flush=True, replicas=True)
    client = world.client()
    client.send(asking())
    world.turn()
    world.counters[FLUSHED_OFFSET] = world.counters[MAX_PHY_OFFSET]
    world.clock.advance(5_000)
    world.turn()
    assert said(client) == (12, "MEMORY,FLUSHED", None)


def test_who_does_not_wait_is_told_of_memory_only(tmp_path: Path) -> None:
    world = world_of(tmp_path, flush=True)
    answer = world.client().call(asking(properties="WAIT\x01false\x02"))
    assert (answer.code, answer.ext_fields["durability"]) == (0, "MEMORY")


def test_a_refusal_says_nothing(tmp_path: Path) -> None:
    request = asking()
    request.ext_fields["e"] = "77"
    answer = world_of(tmp_path).client().call(request)
    assert answer.code == 1
    assert "durability" not in answer.ext_fields
