"""SendRoute: sends that arrive together. That they are stored and answered like one by one is in
tests/broker/test_twins.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remoting.remoting_command import SerializeType
from remoting.request_code import RequestCode as Code
from store.control_slots import RUNNING_FLAGS
from tests.broker.hot_path_world import HotPathWorld, general_requests, send_request
from tests.broker.send.test_placement import DELAYED, HALF, world_of

PLAIN = "KEYS\x01k\x02UNIQ_KEY\x017F00000100002A139F1B5D3E00000001\x02WAIT\x01true\x02"
TAKEN: tuple[dict[str, Any], ...] = (
    {"properties": PLAIN},
    {},
    {"properties": PLAIN, "queue_id": "3", "flag": 7, "reconsume_times": 2},
    {"properties": "__SHARDINGKEY\x01s\x02" + PLAIN},
    {"properties": "UNIQ_KEY\x01first\x02WAIT\x01false\x02"},
    {"properties": DELAYED},
    {"properties": HALF, "sys_flag": 4},
)
"""What the route takes."""
LEFT: tuple[dict[str, Any], ...] = (
    {"properties": PLAIN, "oneway": True},
    {"properties": PLAIN, "queue_id": "99"},
    {"properties": PLAIN, "sys_flag": 4},
    {"properties": PLAIN, "born_timestamp": 1 << 70},
)
"""What it leaves to the general path."""


@pytest.mark.parametrize("serialize", SerializeType)
@pytest.mark.parametrize("fields", TAKEN)
def test_all_of_a_run_are_really_taken(
    tmp_path: Path, fields: dict[str, Any], serialize: SerializeType
) -> None:
    """Else the comparison above compares nothing."""
    world = world_of(tmp_path)
    general, before = general_requests(world), len(world.records())
    client = world.client()
    asked = [send_request(b"%d" % number, serialize=serialize, **fields) for number in range(20)]
    client.send(*asked)
    assert client.answers() == []
    world.turn()
    answers = client.answers()
    assert [answer.code for answer in answers] == [0] * 20
    assert [answer.opaque for answer in answers] == [request.opaque for request in asked]
    assert {answer.serialize_type for answer in answers} == {serialize}
    assert [record.body for record in world.records()[before:]] == [b"%d" % n for n in range(20)]
    assert general == []


@pytest.mark.parametrize("serialize", SerializeType)
@pytest.mark.parametrize("fields", LEFT)
def test_the_general_path_gets_only_those_behind_an_unusual_one(
    tmp_path: Path, fields: dict[str, Any], serialize: SerializeType
) -> None:
    world = world_of(tmp_path)
    general, client = general_requests(world), world.client()
    usual = [send_request(properties=PLAIN, serialize=serialize) for _ in range(4)]
    client.send(*usual[:2], send_request(serialize=serialize, **fields), *usual[2:])
    world.turn()
    assert general == [Code.SEND_MESSAGE_V2]
    codes = {answer.opaque: answer.code for answer in client.answers()}
    assert [codes[request.opaque] for request in usual] == [0] * 4


def test_a_store_that_refuses_writes_refuses_a_run(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    before, client = len(world.records()), world.client()
    world.counters[RUNNING_FLAGS] = 1
    client.send(*(send_request(properties=PLAIN) for _ in range(3)))
    world.turn()
    assert [answer.remark for answer in client.answers()] == [world.not_writable] * 3
    assert len(world.records()) == before


def test_a_run_goes_on_in_the_next_file(tmp_path: Path) -> None:
    """And what waits for a file that is not there yet follows it."""
    world = HotPathWorld(tmp_path, file_size=1 << 12, files=2)
    world.topic()
    client = world.client()
    client.send(*(send_request(bytes(500), properties=PLAIN) for _ in range(20)))
    world.turn()
    answered = len(client.answers())
    assert 10 <= answered < 20
    assert world.send_processor.holds_sends
    for number in (2, 3):
        world.allocate(number)
        world.turn()
    assert [answer.code for answer in client.answers()] == [0] * (20 - answered)
    assert [record.queue_offset for record in world.records()] == list(range(20))
