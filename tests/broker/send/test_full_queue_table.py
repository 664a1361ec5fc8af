"""Sends that would make a queue while the queue table is full: refused on every route, with words
that name the way out; queues that exist go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ipc import queue_table
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from tests.broker.hot_path_world import HotPathWorld, send_request
from tests.broker.send.test_batch_send_route import batch_request

pytestmark = pytest.mark.interpreted
"""MAX_QUEUES of compiled modules cannot be changed."""


@pytest.fixture(params=[True, False], ids=["fast", "general"])
def world(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HotPathWorld]:
    """Room for two queues, and T/0 is one of them."""
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 2)
    world = HotPathWorld(tmp_path, fast=request.param)
    world.topic()
    assert world.client().call(send_request()).code == 0
    world.turn()
    yield world
    world.close()


def refused(answer: RemotingCommand) -> bool:
    return answer.code == 14 and "delete unused topics and restart" in (answer.remark or "")


@pytest.mark.parametrize("is_dispatched", [True, False])
def test_sends(world: HotPathWorld, is_dispatched: bool) -> None:
    client = world.client()
    assert client.call(send_request(queue_id=1)).code == 0
    if is_dispatched:
        world.dispatch()
    end = world.log.position
    for request in (
        send_request(queue_id=2),
        send_request(code=Code.SEND_MESSAGE_V2, queue_id=3),
        batch_request(queue_id=2),
        send_request(topic="New", queue_id=0),
        send_request(queue_id=1, properties="DELAY\x013"),
    ):
        assert refused(client.call(request)), request
    assert world.log.position == end
    for request in (send_request(queue_id=1), batch_request(queue_id=0), send_request()):
        assert client.call(request).code == 0
    world.dispatch()
    assert world.table.offsets("T", 0) == (0, 5)
    assert world.table.offsets("T", 1) == (0, 2)


def test_a_run_of_sends_is_refused_where_it_makes_a_queue(world: HotPathWorld) -> None:
    client = world.client()
    queues = (1, 2, 0, 1, 3)
    client.send(b"".join(encode_command(send_request(queue_id=queue)) for queue in queues))
    world.turn()
    world.turn()
    answers = sorted(client.answers(), key=lambda answer: answer.opaque)
    assert [answer.code for answer in answers] == [0, 14, 0, 0, 14]


def test_a_delayed_message_for_a_queue_that_it_would_make(
    world: HotPathWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it is due it would wait for room, and all of its level or slot behind it."""
    delay = "DELAY\x011"
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 4)
    client = world.client()
    for queue_id in (0, 1):  # 1 is new, and there is room for it
        assert client.call(send_request(queue_id=queue_id, properties=delay)).code == 0
    assert client.call(send_request(queue_id=1)).code == 0
    assert client.call(send_request(queue_id=2)).code == 0
    end = world.log.position
    for _ in range(2):
        assert refused(client.call(send_request(queue_id=3, properties=delay)))
        world.dispatch()
    assert world.log.position == end
    assert client.call(send_request(queue_id=1, properties=delay)).code == 0
