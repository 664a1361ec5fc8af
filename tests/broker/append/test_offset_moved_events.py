"""A corrected pull leaves a message in OFFSET_MOVED_EVENT; other pulls do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remoting.response_code import ResponseCode
from store.control_slots import RUNNING_FLAGS
from tests.broker.hot_path_world import HotPathWorld, pull_request, send_request

EVENTS = "OFFSET_MOVED_EVENT"


def events(world: HotPathWorld) -> list[tuple[int, bytes, bytes]]:
    """(queue id, body, properties) of each event in the log."""
    found = [message for message in world.records() if message.topic == EVENTS]
    return [(event.queue_id, event.body, event.properties) for event in found]


def filled(tmp_path: Path, **pull: bool) -> HotPathWorld:
    """Three messages in queue 1."""
    world = HotPathWorld(tmp_path, file_size=1 << 20, pull=pull)
    world.topic()
    world.client().send(*[send_request(b"body", queue_id=1) for _ in range(3)])
    world.turn()
    world.dispatch()
    return world


@pytest.mark.parametrize(("asked", "corrected"), [(9, 3), (-1, 0)], ids=["behind", "before"])
def test_a_corrected_pull_is_told(tmp_path: Path, asked: int, corrected: int) -> None:
    world = filled(tmp_path)
    answer = world.client().call(
        pull_request(topic="T", queueId="1", consumerGroup="G", queueOffset=str(asked))
    )
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    world.turn()
    ((queue_id, body, properties),) = events(world)
    assert queue_id == 0
    assert json.loads(body) == {
        "consumerGroup": "G",
        "messageQueue": {"brokerName": "broker-a", "queueId": 1, "topic": "T"},
        "offsetNew": corrected,
        "offsetRequest": asked,
    }
    assert properties == b"KEYS\x01G\x02DELAY\x010\x02TAGS\x01G"


@pytest.mark.parametrize("offset", [0, 3], ids=["found", "at-the-end"])
def test_other_pulls_are_not(tmp_path: Path, offset: int) -> None:
    world = filled(tmp_path)
    world.client().call(pull_request(topic="T", queueId="1", queueOffset=str(offset), sysFlag="0"))
    world.turn()
    assert events(world) == []


def test_a_slave_s_log_is_its_master_s(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = filled(tmp_path, is_slave=True, offset_check_in_slave=True)
    request = pull_request(topic="T", queueId="1", consumerGroup="G", queueOffset="9")
    assert world.client().call(request).code == ResponseCode.PULL_OFFSET_MOVED
    world.turn()
    assert events(world) == []
    expected = "group G: T@1: offset 9 is outside of the queue, corrected to 3"
    assert expected in [record.getMessage() for record in caplog.records]


def test_what_the_log_refuses_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = filled(tmp_path)
    world.counters[RUNNING_FLAGS] = 16
    world.client().call(pull_request(topic="T", queueId="1", consumerGroup="G", queueOffset="9"))
    expected = "group G: its corrected pull is not in the log: the disk is full"
    assert expected in [record.getMessage() for record in caplog.records]
