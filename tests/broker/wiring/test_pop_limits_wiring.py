"""Process `remoting` as it is put together: sends ask for room in the queue table, handles and new
invisible times are judged by the broker's own settings, which can be changed while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ipc import queue_table
from ipc.queue_table import QueueTableReader
from remoting.request_code import RequestCode as Code
from tests.broker.hot_path_world import send_fields
from tests.fuzz.broker_world import BrokerWorld
from tests.fuzz.served_connection import ServedConnection, request


@pytest.fixture
def world(tmp_path: Path) -> Iterator[BrokerWorld]:
    world = BrokerWorld(tmp_path)
    yield world
    world.close()


def ask(world: BrokerWorld, client: ServedConnection, data: bytes) -> int:
    client.feed(data)
    world.turn()
    [answer] = client.answers()
    return answer.code


@pytest.mark.interpreted
def test_sends_ask_for_room(world: BrokerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    used = len(list(QueueTableReader(world._fds[0])))
    monkeypatch.setattr(queue_table, "MAX_QUEUES", used)
    client = world.connect()
    for topic, code in (("GTopic", 0), ("GDlqTopic", 14)):
        fields = send_fields(topic=topic, queue_id=0)
        assert ask(world, client, request(Code.SEND_MESSAGE_V2, fields, b"x")) == code


def test_handles_are_judged_by_the_settings(world: BrokerWorld) -> None:
    client, now_ms = world.connect(), world.clock.now_ms()

    def ack(revive: int, invisible_ms: int) -> int:
        handle = f"0 {now_ms} {invisible_ms} {revive} 0  0 0"
        fields = {"consumerGroup": "G_group", "topic": "GTopic", "queueId": "0", "offset": "0"}
        return ask(world, client, request(Code.ACK_MESSAGE, {**fields, "extraInfo": handle}))

    assert [ack(revive, 1_000) for revive in (7, 8, -1)] == [0, 13, 13]
    assert [ack(0, invisible_ms) for invisible_ms in (259_200_000, 259_200_001)] == [0, 13]
    options = world._options
    shorter = replace(options, store=replace(options.store, timer_max_delay_sec=60))
    world.controller._pop.use(shorter)
    assert [ack(0, invisible_ms) for invisible_ms in (60_000, 60_001)] == [0, 13]
